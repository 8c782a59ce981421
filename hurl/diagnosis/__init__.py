"""Judging a heuristic before a run is spent on it: what of the paper's theory can be measured with data alone."""

from hurl.diagnosis.diagnosis import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
