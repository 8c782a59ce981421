"""Make the table and the pictures of docs/heuristics.md: the paper's Hopper data, each heuristic, each diagnosis.

    python docs/heuristics_table.py --work runs/heuristics

Data and heuristics go to the work folder, which takes a while (about an hour on two cores, most of it for the run of
SAC, the ensemble and IQL) and goes on where it was stopped; pictures and numbers go to docs/heuristics/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from hurl.experiments.process import prepare_process

prepare_process(threads=2)

from hurl.data import load_episodes
from hurl.diagnosis import Diagnosis, diagnose
from hurl.experiments.agents import value_function_of
from hurl.experiments.fitting import fit_heuristic
from hurl.experiments.policies import collect_policies
from hurl.experiments.recipes import load_recipe
from hurl.experiments.run import train
from hurl.heuristics import load_heuristic
from hurl.heuristics.base import StorableHeuristic

FOLDER = Path(__file__).parent / "heuristics"
# Each with what `hurl fit` would be told; the value function is that of the run that made the data.
KINDS = {
    "zero": ("zero", {}),
    "monte-carlo": ("monte-carlo", {}),
    "monte-carlo-bootstrap": ("monte-carlo", {"time_limit": "bootstrap"}),
    "vae": ("vae", {}),
    "ensemble": ("ensemble", {}),
    "iql": ("offline-rl", {"algorithm": "iql"}),
    "value-function": ("value-function", {}),
}
GAMMA = 0.999
JUDGING = "hopper/judging-v0"
console = Console()


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("runs/heuristics"))
    parser.add_argument("--run", type=Path, default=None, help="a finished run of hopper/sac, to save its time")
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    recipe = load_recipe("hopper")
    run: Path = arguments.run or work / "hopper-sac"
    assert recipe.config is not None, "its policies are those of a run"
    train(recipe.config, run)
    for dataset, transitions, seed in ((recipe.dataset, recipe.transitions, 0), (JUDGING, 2_000, 1)):
        collect_policies([str(run)], dataset, transitions=transitions, seed=seed, root=work / "data", threads=2)
    behaviour, judging = (load_episodes(name, work / "data") for name in (recipe.dataset, JUDGING))
    FOLDER.mkdir(exist_ok=True)
    rows = []
    for name in KINDS:
        folder = work / name
        if not folder.exists():
            make(name, behaviour, run).save(folder)
        heuristic = load_heuristic(folder, observation_space=behaviour.observation_space, gamma=GAMMA)
        diagnosis = diagnose(heuristic, judging, GAMMA, time_limit="cut")
        diagnosis.plot(FOLDER / f"{name}.png")
        console.print(diagnosis)
        rows.append(row(name, heuristic, diagnosis))
        (FOLDER / "table.md").write_text(table(rows), "utf-8")
        (FOLDER / f"{name}.json").write_text(diagnosis.to_json(), "utf-8")
    console.print(table(rows))


def make(name: str, behaviour: object, run: Path) -> StorableHeuristic:
    """Fit a heuristic to the data, or take it from the run's last checkpoint."""
    kind, parameters = KINDS[name]
    if kind == "value-function":
        return value_function_of(run)
    with Progress(console=console) as progress:
        task = progress.add_task(name, total=None)
        return fit_heuristic(
            kind,
            behaviour,
            gamma=GAMMA,
            parameters=parameters,
            report=lambda done, total, loss, score: progress.update(task, completed=done, total=total),
        )


def row(name: str, heuristic: StorableHeuristic, diagnosis: Diagnosis) -> list[str]:
    """Return what the table says of one heuristic."""
    metrics, fit = heuristic.metrics, diagnosis.fit
    low, high = diagnosis.improvability.interval
    return [
        f"[{name}](heuristics/{name}.png)",
        f"{metrics['seconds']:.0f}" if "seconds" in metrics else "—",
        f"{metrics['r2_held_out']:.2f}" if "r2_held_out" in metrics else "—",
        f"{fit.rank_correlation:.2f}",
        "—" if fit.r2_offset is None else f"{fit.r2_offset:.2f}",
        f"{fit.mean_error:.0f}",
        f"{fit.within_90:.0f}",
        f"{fit.largest_error:.0f}",
        f"{100 * diagnosis.improvability.share:.0f} ({100 * low:.0f}–{100 * high:.0f})",
        "—" if diagnosis.unknown is None else f"{100 * diagnosis.unknown:.1f}",
        f"{diagnosis.lambda0:g}",
    ]


def table(rows: list[list[str]]) -> str:
    """Return the rows as Markdown."""
    head = ["heuristic", "fitted in s", "R² held out", "ρ", "R² + b", "mean error", "90 %", "ε", "improvable %"]
    head += ["unknown %", "λ0"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
