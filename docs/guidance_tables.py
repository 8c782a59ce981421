"""The tables of logged-data.md and safe-guidance.md, and their pictures, from the runs in `results/`.

    python docs/guidance_tables.py    # writes both, and says which runs the scores are of

The runs were made with the commands that the pages name. A table stands between two marks, `<!-- Hopper -->`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hurl.experiments.metrics import auc
from hurl.files import write_whole
from hurl.reports import Collection, Environment, Report, Run, Variant, collect_runs, compute_report
from hurl.reports.gauntlet import FINAL_ITERATIONS, gauntlet_of
from hurl.reports.pictures import gauntlet_png, write_pictures
from hurl.reports.statistics import AggregateScores
from hurl.reports.tables import as_markdown, gauntlet_table, show

DOCS = Path(__file__).resolve().parent
LOGGED_DATA, SAFE_GUIDANCE = DOCS / "logged-data.md", DOCS / "safe-guidance.md"
RESULTS = DOCS.parent / "results"
LOGGED, GAUNTLET, FITS = RESULTS / "logged-data", RESULTS / "gauntlet", RESULTS / "fits"
BASELINE = "sac-bc"
VARIANTS = (
    BASELINE,
    "sac-prior",
    "rlpd",
    "jsrl",
    "hurl-ladder",
    "hurl-ladder-prior",
    "hurl-ensemble",
    "hurl-prior",
)
# How the gauntlet calls variants that the presets have too: with returns that go on behind time limits, and that stop.
BASE = {"base": BASELINE}
GOING_ON = BASE | {"ladder-ensemble": "hurl-ladder", "constant-ensemble": "hurl-ensemble"}
CUT = BASE | {"ladder-ensemble-cut": "hurl-ladder", "constant-ensemble-cut": "hurl-ensemble"}
# The seeds of the gauntlet with data collected anew, or of another agent, which the rest of a task was not run with.
OTHER_AGENTS = {"Hopper": (5, 6, 7), "Hopper, little data": (3, 5, 6, 7), "Swimmer": (3, 4), "HalfCheetah": (3, 4, 5)}


@dataclass(frozen=True)
class Task:
    """What a table is of: runs of one environment, by the names of the preset that compares them all.

    :param folders: where the runs are
    :param names: of variants, where a folder has another name for them
    :param seeds: which count, or None for all but those with other data
    :param variants: which are shown, in this order
    """

    title: str
    folders: Sequence[Path]
    names: Mapping[str, str]
    seeds: Sequence[int] | None = None
    variants: Sequence[str] = VARIANTS

    def has(self, seed: int) -> bool:
        """Whether a seed counts."""
        return seed not in OTHER_AGENTS.get(self.title, ()) if self.seeds is None else seed in self.seeds


MAZE = Task("maze", [LOGGED / "point-maze"], {})
# h as `hurl fit` makes it today, of returns that go on behind time limits. Seeds 0 of the baseline have another draw of
# data from the same policies.
TASKS = (
    Task("Hopper", [LOGGED / "hopper", GAUNTLET / "gauntlet-hopper"], GOING_ON, seeds=(0, 3, 4, 6, 7)),
    Task("Swimmer", [LOGGED / "swimmer", GAUNTLET / "gauntlet-swimmer"], GOING_ON, seeds=(0, 3, 4)),
    Task("HalfCheetah", [LOGGED / "halfcheetah", GAUNTLET / "gauntlet-halfcheetah"], GOING_ON, seeds=(0, 4, 5)),
    MAZE,
)
# The same of a fiftieth of the data: ten of its policies with a thousand transitions each.
LITTLE_TASK = Task(
    "Hopper, little data",
    [LOGGED / "little" / "hopper", GAUNTLET / "gauntlet-hopper"],
    {f"{name}-little": ours for name, ours in GOING_ON.items()},
    seeds=(6, 7),
)
# The same with returns that stop at time limits, but for the maze.
CUT_TASKS = (
    Task("Hopper", [LOGGED / "cut" / "hopper", GAUNTLET / "gauntlet-hopper"], CUT),
    Task(
        "Hopper, little data",
        [LOGGED / "cut" / "little" / "hopper", GAUNTLET / "gauntlet-hopper"],
        {f"{name}-little": ours for name, ours in CUT.items()},
    ),
    Task("Swimmer", [LOGGED / "cut" / "swimmer", GAUNTLET / "gauntlet-swimmer"], CUT),
    Task("HalfCheetah", [LOGGED / "cut" / "halfcheetah", GAUNTLET / "gauntlet-halfcheetah"], CUT),
    MAZE,
)
# The ways to fit h to the data of Hopper, by what the gauntlet calls those that it has too.
FITTED = {
    "base": f"none (`{BASELINE}`)",
    "mc-cut": "`monte-carlo`, `cut`",
    "mc-bootstrap": "`monte-carlo`, `bootstrap`",
    "vae-cut": "`vae`, `cut`",
    "vae-bootstrap": "`vae`, `bootstrap`",
    "ensemble-cut": "`ensemble`, `cut`",
    "ensemble-bootstrap": "`ensemble`, `bootstrap`",
}
IN_GAUNTLET = {
    "constant-mc": "mc-cut",
    "constant-ensemble-cut": "ensemble-cut",
    "constant-ensemble": "ensemble-bootstrap",
}
FITTED_TO = {"all data": "", "little data": "-little"}
FITS_COMPARED = tuple(
    Task(
        title,
        [FITS / "fits-hopper", GAUNTLET / "gauntlet-hopper"],
        {f"{name}{size}": f"{ours}{size}" for name, ours in IN_GAUNTLET.items()},
        seeds=(3, 6, 7),
        variants=[f"{name}{size}" for name in FITTED],
    )
    for title, size in FITTED_TO.items()
)
OFFSETS = {"maze": 300.0}  # a return of −300 is the worst there is, so that ratios are of what is gained over it


def read_task(task: Task) -> Environment:
    """Return the runs of a task."""
    found = read_whole(task.folders)
    renamed: dict[str, list[Run]] = {}
    for variant in found.variants:
        runs = [run for run in variant.runs if task.has(run.config.seed)]
        renamed.setdefault(task.names.get(variant.name, variant.name), []).extend(runs)
    renamed = {name: runs for name, runs in renamed.items() if runs}
    return Environment(task.title, [Variant(name, renamed[name]) for name in task.variants if name in renamed])


def read_whole(folders: Sequence[Path]) -> Environment:
    """Return the runs of folders, all of one environment; none may be damaged, or shorter than the others."""
    collection = collect_runs([folder for folder in folders if folder.is_dir()])
    (found,) = collection.environments
    lengths = {run.folder: run.rows[-1].iteration for variant in found.variants for run in variant.runs}
    short = [f"{folder} has {count} iterations" for folder, count in lengths.items() if count < max(lengths.values())]
    if collection.warnings or short:
        raise SystemExit("\n".join([*collection.warnings, *short]))
    return found


def of_seeds(task: Environment, name: str, measure: Callable[[Run], float]) -> dict[int, float]:
    """Return a figure of each run of a variant, with the offset of the task, by the seed; none where it was not run."""
    offset = OFFSETS.get(task.name, 0.0)
    found = [variant for variant in task.variants if variant.name == name]
    return {run.config.seed: measure(run) + offset for variant in found for run in variant.runs}


def areas(task: Environment, name: str) -> dict[int, float]:
    """Return the AUC of each seed of a variant."""
    return of_seeds(task, name, lambda run: auc(run.rows))


def lasts(task: Environment, name: str) -> dict[int, float]:
    """Return the mean return of the last ten iterations of each seed of a variant."""
    return of_seeds(task, name, lambda run: float(run.column("return_mean")[-FINAL_ITERATIONS:].mean()))


def over(ours: Mapping[int, float], base: Mapping[int, float]) -> float:
    """Return a mean over another, of the seeds that both have; NaN without any, or where the other is 0."""
    common = sorted(ours.keys() & base.keys())
    below = sum(base[seed] for seed in common)
    return sum(ours[seed] for seed in common) / below if below else float("nan")


def ratio(task: Environment, name: str) -> float:
    """Return the mean AUC of a variant over that of the baseline, of the seeds that both have."""
    return over(areas(task, name), areas(task, BASELINE))


def plain(value: float) -> str:
    """Write a ratio, or that there is none."""
    return "–" if np.isnan(value) else f"{value:.2f}"


def time_limits() -> str:
    """Return the table of AUCs with cut and with continued returns, a row a task, the numbers of its seeds in order."""
    columns = {
        "base": "base",
        "constant-ensemble-cut": "constant λ, `cut`",
        "constant-ensemble": "constant λ, `bootstrap`",
        "ladder-ensemble-cut": "ladder, `cut`",
        "ladder-ensemble": "ladder, `bootstrap`",
    }
    lines = [f"| AUC, ensemble | seeds | {' | '.join(columns.values())} |", "|---|---|" + "---:|" * len(columns)]
    for task in ("Hopper", "Swimmer", "HalfCheetah"):
        found = Environment(task, read_whole([GAUNTLET / f"gauntlet-{task.lower()}"]).variants)
        of_variant = {name: areas(found, name) for name in columns}
        shown = sorted(of_variant["constant-ensemble"].keys() | of_variant["ladder-ensemble"].keys())
        cells = [in_words(shown), *(in_order(column, shown) for column in of_variant.values())]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def other_agents() -> str:
    """Return the table of what was run with other data, a row a heuristic, the numbers of seeds in order."""
    lines = [
        "| heuristic | seeds | AUC of the base | constant λ | ladder | ladder / base | "
        "last 10 iterations: base | constant λ | ladder |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for task in ("Hopper", "Swimmer", "HalfCheetah"):
        found = Environment(task, read_whole([GAUNTLET / f"gauntlet-{task.lower()}"]).variants)
        for heuristic in ("ensemble", "ensemble-little", "random", "zero", "reversed"):
            base = "base-little" if heuristic.endswith("-little") else "base"
            names = (base, f"constant-{heuristic}", f"ladder-{heuristic}")
            area, last = ([measure(found, name) for name in names] for measure in (areas, lasts))
            if shown := [seed for seed in OTHER_AGENTS[task] if seed in area[2]]:
                columns = [in_order(column, shown) for column in (*area, *last)]
                share = over({seed: area[2][seed] for seed in shown}, area[0])
                cells = [in_words(shown), *columns[:3], plain(share), *columns[3:]]
                lines.append(f"| {task}, {heuristic} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kinds_of_fits(tasks: Sequence[Environment]) -> str:
    """Return the table of AUCs at a constant λ, a row a way to fit h to the same data; the baseline first."""
    columns = [f"AUC, {task.name} | over none" for task in tasks]
    lines = [f"| h | {' | '.join(columns)} |", "|---|" + "---:|" * (2 * len(columns))]
    for name, title in FITTED.items():
        cells = []
        for task, size in zip(tasks, FITTED_TO.values(), strict=True):
            area, base = areas(task, f"{name}{size}"), areas(task, f"base{size}")
            cells += [in_order(area, sorted(base)), plain(over(area, base))]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def in_words(numbers: Sequence[int]) -> str:
    """Write numbers one after the other."""
    return ", ".join(map(str, numbers))


def in_order(column: Mapping[int, float], shown: Sequence[int]) -> str:
    """Write the figures of some seeds one after the other, a dash for those that there are not."""
    return ", ".join(f"{column[seed]:,.0f}".replace("-", "−") if seed in column else "–" for seed in shown)


def with_prior_data(tasks: list[Environment]) -> str:
    """Return the table of what the ladder has of the baseline and of constant λ, all with prior data, a row a task."""
    lines = [
        f"| environment, ensemble and prior data | seeds | ladder / `{BASELINE}` | ladder / constant λ | "
        "last 10 iterations, ladder / constant λ |",
        "|---|---:|---:|---:|---:|",
    ]
    for task in tasks:
        ladder, constant = "hurl-ladder-prior", "hurl-prior"
        cells = [
            ratio(task, ladder),
            over(areas(task, ladder), areas(task, constant)),
            over(lasts(task, ladder), lasts(task, constant)),
        ]
        lines.append(f"| {task.name} | {len(areas(task, ladder))} | {' | '.join(map(plain, cells))} |")
    return "\n".join(lines)


def ratios(tasks: list[Environment]) -> str:
    """Return the table of AUCs over that of the baseline, a column a task."""
    lines = [f"| variant | {' | '.join(task.name for task in tasks)} | worst |", "|---|" + "---:|" * (len(tasks) + 1)]
    for name in VARIANTS:
        row = [ratio(task, name) for task in tasks]
        lines.append(f"| `{name}` | {' | '.join(map(plain, [*row, float(np.nanmin(row))]))} |")
    return "\n".join(lines)


def seeds(task: Environment) -> str:
    """Return the table of a task, the numbers of its seeds in order."""
    lines = [
        "| variant | seeds | AUC, first 20 iterations | AUC | last 10 iterations |",
        "|---|---|---:|---:|---:|",
    ]
    for variant in task.variants:
        returns = [run.column("return_mean") for run in variant.runs]
        figures = (
            [values[:20].mean() for values in returns],
            [auc(run.rows) for run in variant.runs],
            [values[-FINAL_ITERATIONS:].mean() for values in returns],
        )
        cells = [", ".join(f"{value:,.0f}".replace("-", "−") for value in column) for column in figures]
        numbers = ", ".join(str(run.config.seed) for run in variant.runs)
        lines.append(f"| `{variant.name}` | {numbers} | {' | '.join(cells)} |")
    return "\n".join(lines)


def is_complete(task: Environment) -> bool:
    """Whether all variants have two seeds or more, so that scores over tasks are of the same tasks for each."""
    return {variant.name for variant in task.variants if len(variant.runs) > 1} == set(VARIANTS)


def scores(rows: Sequence[AggregateScores]) -> str:
    """Return the table of scores over tasks, the best first."""
    lines = [
        f"| variant | seeds each | interquartile mean | mean | gap to the best run | P(better than `{BASELINE}`) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in sorted(rows, key=lambda row: -row.iqm.value):
        cells = [show(value, ".2f") for value in (row.iqm, row.mean, row.optimality_gap, row.improvement)]
        lines.append(f"| `{row.variant}` | {row.seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(page: Path, tables: Mapping[str, str]) -> None:
    """Put tables into a page, each between its two marks."""
    text = page.read_text("utf-8")
    for name, table in tables.items():
        before, _, after = text.split(f"<!-- {name} -->")
        text = f"<!-- {name} -->".join([before, f"\n\n{table}\n\n", after])
    write_whole(page, text.encode())


def draw(report: Report, pictures: tuple[str, ...], name: str) -> None:
    """Draw some of the pictures of a report; that of returns has the name alone."""
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(report, Path(folder))
        for picture in pictures:
            file = name if picture == "returns" else f"{name}-{picture}"
            write_whole(DOCS / f"{file}.png", (Path(folder) / f"{picture}.png").read_bytes())


def main() -> None:
    """Write the tables and draw the pictures."""
    tasks, cut, fits = ([read_task(task) for task in panel] for panel in (TASKS, CUT_TASKS, FITS_COMPARED))
    little = read_task(LITTLE_TASK)
    report = compute_report(Collection(list(filter(is_complete, tasks)), []), baseline=BASELINE)
    print("\n".join(report.remarks))
    write_page(
        LOGGED_DATA,
        {"ratios": ratios(tasks), "scores": scores(report.scores)}
        | {"cut ratios": ratios(cut)}
        | {task.name: seeds(task) for task in (*tasks, little)},
    )
    cells = gauntlet_of(collect_runs([GAUNTLET]).environments)
    write_page(
        SAFE_GUIDANCE,
        {
            "gauntlet": as_markdown(gauntlet_table(cells)).rstrip(),
            "prior data": with_prior_data(tasks),
            "time limits": time_limits(),
            "other agents": other_agents(),
            "kinds of fits": kinds_of_fits(fits),
        },
    )
    write_whole(DOCS / "gauntlet.png", gauntlet_png(cells))
    draw(report, ("returns", "scores", "profiles"), "logged-data")


if __name__ == "__main__":
    main()
