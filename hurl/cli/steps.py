"""How steps are run: side by side on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hurl.cli.app import interruptible, say
from hurl.cli.progress import CampaignTable
from hurl.experiments.campaign import Campaign
from hurl.experiments.ray_cluster import run_tasks_on_ray
from hurl.experiments.tasks import State, Task, cores_here, run_tasks

Jobs = Annotated[int | None, typer.Option(min=1, help="Steps at a time, a core or more each (2 by default).")]
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS|local", help="Run on a Ray cluster: auto, HOST:6379, ray://HOST:10001, or local."),
]


def count_jobs(jobs: int | None, ray: str | None) -> int:
    """Return how many steps run at a time on this machine."""
    if ray is not None and jobs is not None:
        raise ValueError("with --ray, the cores of the cluster say how many steps run at a time: leave --jobs out")
    return min(jobs or 2, cores_here())


def run_steps(
    tasks: Sequence[Task],
    watch: Callable[[dict[str, State]], None],
    *,
    jobs: int,
    ray: str | None,
    root: Path,
    shared: bool = False,
) -> None:
    """Run tasks here, or on a cluster where an address is given.

    :param root: the folder that they read from and write to
    :param shared: whether all nodes must share it
    """
    if ray is None:
        run_tasks(tasks, jobs, watch)
    else:
        say(f"Connecting to Ray ({ray})")
        run_tasks_on_ray(tasks, ray, root, watch, shared=shared)


def run_campaign(campaign: Campaign, *, jobs: int, ray: str | None = None, shared: bool = False) -> None:
    """Run the steps of a campaign, with a table of how far they are."""
    with CampaignTable(campaign) as table, interruptible():
        run_steps(campaign.tasks, table.show, jobs=jobs, ray=ray, root=campaign.folder.path, shared=shared)
