"""Reports on finished and running experiments: curves, tables and statistics over seeds, in one page and as files."""

from hurl.reports.collect import Collection, Environment, ReportError, Run, Variant, collect_panels, collect_runs
from hurl.reports.report import Report, compute_report, write_report

__all__ = [
    "Collection",
    "Environment",
    "Report",
    "ReportError",
    "Run",
    "Variant",
    "collect_panels",
    "collect_runs",
    "compute_report",
    "write_report",
]
