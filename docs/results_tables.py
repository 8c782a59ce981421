"""The figures of results.md as tables, and its pictures, from the runs in `results/`.

    python docs/results_tables.py --copy campaigns    # take over what is small of a campaign's runs, first
    python docs/results_tables.py                     # tables on standard output, the picture into docs/results

The runs were made with the commands that results.md names.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np

from hurl.envs import PROCGEN_GAMES
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.metrics import auc
from hurl.files import write_whole
from hurl.reports import Collection, Environment, collect_panels, compute_report
from hurl.reports.pictures import write_pictures
from hurl.reports.statistics import bootstrap, final_return
from hurl.reports.tables import show

ROOT = Path(__file__).resolve().parent.parent
RESULTS, PICTURES = ROOT / "results", ROOT / "docs" / "results"
# The panels of each picture, and the folders of their runs.
PICTURES_OF = {
    "returns": {
        "Sparse-Reacher": "sparse-reacher",
        "Humanoid": "humanoid",
        "Hopper": "hopper",
        "Swimmer": "swimmer",
        "HalfCheetah": "halfcheetah",
        "Hopper, constant λ": "hopper-lambda",
    },
    "procgen": {
        "StarPilot": "procgen-starpilot",
        "FruitBot": "procgen-fruitbot",
        "Ninja": "procgen-ninja",
        "Miner": "procgen-miner",
    },
}
# The authors' AUC of HuRL-MC, and that of HuRL-zero.
AUTHORS = {"Hopper": (1827, 1301), "Humanoid": (2641, 1907), "Swimmer": (205, 165), "HalfCheetah": (4864, 4433)}
KEPT = ("config.yaml", "metrics.csv", "versions.json")
# The first iterations of PPO on each game of Procgen, by which the two of figure 4 were chosen.
PILOTS = RESULTS / "procgen-pilots.csv"
PILOT_COLUMNS = ["iteration", "steps", "return_mean", "return_std", "episode_length"]
PILOT_FIRST, PILOT_LAST = 5, 15


def copy_runs(campaign: Path, into: str | None = None) -> None:
    """Copy what is small of finished runs and of their heuristics; paths in it become relative to the campaign.

    :param into: a folder of the results for all that is not of the gauntlet; without it the panels of the pictures
    """
    presets = [preset for panels in PICTURES_OF.values() for preset in panels.values()]
    if into is not None:
        presets = sorted({folder.parts[-3] for folder in campaign.glob("*/*/seed-*")} - {CampaignFolder.SHARED})
    own = [preset for preset in presets if not preset.startswith("gauntlet-")]
    for preset in [*own, *sorted(path.name for path in campaign.glob("gauntlet-*"))]:
        results = RESULTS / "gauntlet" if preset.startswith("gauntlet-") else RESULTS / (into or "")
        for folder in sorted((campaign / preset).glob("*/seed-*")):
            run = RunFolder(folder)
            rows = run.read_metrics()
            if not rows or rows[-1].iteration < run.read_config().iterations:
                print(f"left out, not finished: {folder.relative_to(campaign)}")
                continue
            target = results / folder.relative_to(campaign)
            target.mkdir(parents=True, exist_ok=True)
            kept = {name: folder / name for name in KEPT}
            guidance = run.read_config().guidance
            if guidance is not None and Path(str(guidance.heuristic)).is_dir():
                kept["heuristic.json"] = Path(str(guidance.heuristic)) / "config.json"
            for name, file in kept.items():
                content = file.read_text("utf-8").replace(str(campaign.resolve()), "campaigns")
                write_whole(target / name, content.encode())


def copy_pilots(campaign: Path) -> None:
    """Copy the first iterations of the runs of PPO on all games of Procgen, where they are all there."""
    runs = {game: RunFolder(campaign / f"procgen-{game}" / "ppo" / "seed-0") for game in PROCGEN_GAMES}
    rows = {game: run.read_metrics()[:PILOT_LAST] for game, run in runs.items() if run.path.is_dir()}
    if all(len(rows.get(game, [])) == PILOT_LAST for game in PROCGEN_GAMES):
        lines = [",".join(["game", *PILOT_COLUMNS])]
        lines += [
            ",".join([game, *(f"{getattr(row, column):.6g}" for column in PILOT_COLUMNS)])
            for game in PROCGEN_GAMES
            for row in rows[game]
        ]
        write_whole(PILOTS, "\n".join([*lines, ""]).encode())


def pilots() -> str:
    """Return how far PPO came on each game in its first iterations, in standard deviations of an episode's return."""
    with PILOTS.open(encoding="utf-8") as file:
        rows = {(row["game"], int(row["iteration"])): row for row in csv.DictReader(file)}
    figures = []
    for game in PROCGEN_GAMES:
        first = float(rows[game, PILOT_FIRST]["return_mean"])
        last, deviation, length = (
            float(rows[game, PILOT_LAST][column]) for column in ("return_mean", "return_std", "episode_length")
        )
        figures.append(((last - first) / deviation, game, first, last, length))
    lines = [
        f"| game | return, iteration {PILOT_FIRST} | iteration {PILOT_LAST} | moved | steps an episode |",
        "|---|---:|---:|---:|---:|",
    ]
    for moved, game, first, last, length in sorted(figures, reverse=True):
        lines.append(f"| {game} | {first:.2f} | {last:.2f} | {moved:+.2f} | {length:.0f} |")
    return "\n".join(lines)


def tables(environment: Environment) -> str:
    """Return the table of a panel: AUC over the iterations that all variants have, and over all of each."""
    trained = [variant for variant in environment.variants if not variant.is_cloning]
    common = min(variant.iterations for variant in trained)
    lines = [
        f"| {environment.name} | seeds | iterations | AUC, first {common} | AUC, all | return, last 5 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for variant in environment.variants:
        runs = variant.reaching(variant.iterations)
        figures = [
            [auc(run.rows, common) for run in runs],
            [auc(run.rows, variant.iterations) for run in runs],
            [final_return(run) for run in runs],
        ]
        digits = ",.0f" if np.max(np.abs(figures)) > 100 else ".2f"
        cells = [show(bootstrap(lambda x: x, np.array(values)), digits) for values in figures]
        lines.append(f"| {variant.name} | {len(runs)} | {variant.iterations} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ratios(environments: dict[str, Environment]) -> str:
    """Return the table that compares with the authors' figures."""
    lines = [
        "| | seeds | iterations | AUC hurl-mc | AUC sac-bc | ratio | the authors' |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, authors in AUTHORS.items():
        if name not in environments:
            continue
        ours, theirs = (environments[name].variant(variant) for variant in ("hurl-mc", "sac-bc"))
        iterations = min(ours.iterations, theirs.iterations)
        areas = [
            np.array([auc(run.rows, iterations) for run in variant.reaching(variant.iterations)])
            for variant in (ours, theirs)
        ]
        ratio = show(bootstrap(lambda x, y: x / y, *areas), ".2f")
        means = " | ".join(f"{values.mean():,.0f}" for values in areas)
        published = f"{authors[0]} / {authors[1]} = {authors[0] / authors[1]:.2f}"
        lines.append(f"| {name} | {len(areas[0])} | {iterations} | {means} | {ratio} | {published} |")
    return "\n".join(lines)


def report_on(collection: Collection, picture: str) -> None:
    """Print the tables of some panels, and draw their picture."""
    environments = {environment.name: environment for environment in collection.environments}
    if AUTHORS.keys() & environments.keys():
        print(ratios(environments))
    for environment in collection.environments:
        print(f"\n{tables(environment)}")
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(compute_report(collection), Path(folder))
        PICTURES.mkdir(exist_ok=True)
        write_whole(PICTURES / f"{picture}.png", (Path(folder) / "returns.png").read_bytes())


def main() -> None:
    """Copy runs, or print tables and draw pictures."""
    parser = argparse.ArgumentParser(description="Tables and pictures of docs/results.md.")
    parser.add_argument("--copy", type=Path, metavar="CAMPAIGN", help="take over the runs of a campaign, and stop")
    parser.add_argument("--into", metavar="FOLDER", help="of the results, for these runs, such as logged-data")
    arguments = parser.parse_args()
    campaign = arguments.copy
    if campaign is not None:
        copy_runs(campaign, arguments.into)
        copy_pilots(campaign)
        return
    for picture, presets in PICTURES_OF.items():
        panels = {title: [RESULTS / preset] for title, preset in presets.items() if (RESULTS / preset).is_dir()}
        if len(panels) == len(presets):
            report_on(collect_panels(panels), picture)
    print(f"\n{pilots()}")


if __name__ == "__main__":
    main()
