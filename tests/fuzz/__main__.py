"""`python -m tests.fuzz`: thousands of cases side by side, and a table of how they ended."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.fuzz import artefacts, configurations, interruptions
from tests.fuzz.harness import Outcome, Verdict

BEGIN, END = "<!-- begin of the table of `make fuzz` -->", "<!-- end of the table -->"
LENGTH = 600  # characters of a case that are shown


class Case(Protocol):
    """Something to try in a folder."""

    def run(self, folder: Path) -> Verdict:
        """Try it."""


def generate(strategy: st.SearchStrategy[Any], count: int, number: int) -> list[Any]:
    """Draw cases from a strategy, the same for the same seed."""
    drawn: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(case: Any) -> None:
        drawn.append(case)

    draw()
    return drawn


def choose_cases(count: int, number: int) -> dict[str, Sequence[Case]]:
    """Return the cases of each category: every kill and full disk, if they are not most of all, and others drawn."""
    kills = [case for name in interruptions.WORKS for case in interruptions.kills(name)]
    disks = [case for name in interruptions.WORKS for case in interruptions.full_disks(name)]
    chosen: dict[str, Sequence[Case]] = {
        "kills": interruptions.spread(kills, count // 4),
        "full disks": interruptions.spread(disks, count // 4),
    }
    rest = count - sum(map(len, chosen.values()))
    return {
        "configurations": generate(configurations.cases(), rest * 3 // 5, number),
        "artefacts": generate(artefacts.cases(), rest - rest * 3 // 5, number),
        **chosen,
    }


def run_case(case: Case) -> Verdict:
    """Try a case in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="hurl-fuzz-") as folder:
        return case.run(Path(folder))


def run_cases(chosen: dict[str, Sequence[Case]], jobs: int) -> Counter[tuple[str, Outcome]]:
    """Try cases side by side; print those that end as none may."""
    counts: Counter[tuple[str, Outcome]] = Counter()
    columns = (TextColumn("fuzz"), MofNCompleteColumn(), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn()) as progress, ThreadPoolExecutor(jobs) as pool:
        bar = progress.add_task("", total=sum(map(len, chosen.values())))
        tasks = {pool.submit(run_case, case): (name, case) for name, cases in chosen.items() for case in cases}
        for task in as_completed(tasks):
            (name, case), verdict = tasks[task], task.result()
            counts[name, verdict.outcome] += 1
            if verdict.outcome.is_forbidden:
                text = f"{verdict.outcome.value}: {verdict.detail}\n    {str(case)[:LENGTH]}"
                progress.console.print(text, markup=False, soft_wrap=True)
            bad = sum(number for (_, outcome), number in counts.items() if outcome.is_forbidden)
            progress.update(bar, advance=1, description=f"{bad} forbidden")
    return counts


def make_table(counts: Counter[tuple[str, Outcome]], names: Iterable[str]) -> str:
    """Return a Markdown table of categories and outcomes."""
    rows = [
        ["", *(outcome.value for outcome in Outcome), "all"],
        ["---", *("---:" for _ in range(len(Outcome) + 1))],
        *(_row(name, [counts[name, outcome] for outcome in Outcome]) for name in names),
        _row("all", [sum(counts[name, outcome] for name in names) for outcome in Outcome]),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, numbers: Sequence[int]) -> list[str]:
    return [name, *(f"{number:,}" for number in (*numbers, sum(numbers)))]


def put_into(page: Path, table: str) -> None:
    """Put a table into a page, in the place of the one that is there."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{begin}\n\n{table}\n{END}{after}", "utf-8")


def main() -> None:
    """Try cases, print the table, and end with 1 where a case ended as none may."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--page", type=Path, help="a Markdown file whose table is replaced")
    arguments = parser.parse_args()
    artefacts.workshop()  # made once, before several threads ask for it
    chosen = choose_cases(arguments.cases, arguments.seed)
    counts = run_cases(chosen, arguments.jobs)
    table = make_table(counts, list(chosen))
    print(table)
    if arguments.page is not None:
        put_into(arguments.page, table)
    raise SystemExit(any(outcome.is_forbidden for _, outcome in counts))


if __name__ == "__main__":
    main()
