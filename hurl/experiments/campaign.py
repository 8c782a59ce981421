"""A campaign: several variants of a preset with several seeds, and what must be made before them, each once.

Every step is a command of hurl that does nothing where it was done before and carries on where it was stopped, so a
campaign is a list of commands and what each of them needs. In the folder of a campaign,

    PRESET/VARIANT/seed-0     the runs
    shared/behaviour/         the runs whose checkpoints are rolled out
    shared/data/              Minari datasets, one for each seed, or one for all where the preset says so
    shared/heuristics/        heuristics fitted to them
    configs/, logs/           the configuration of each run as it was last asked for, the output of each step
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hurl.experiments.config import (
    ConfigurationError,
    DataConfig,
    FitConfig,
    RunConfig,
    as_overrides,
    load_config,
    preset_names,
)
from hurl.experiments.folder import RunFolder
from hurl.experiments.tasks import Task
from hurl.names import nearest

__all__ = [
    "Campaign",
    "CampaignRun",
    "check_settings",
    "data_of",
    "parse_seeds",
    "plan_campaign",
    "plan_preparation",
    "plan_runs",
    "settings_with_a_place",
    "training_task",
]

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class CampaignRun:
    """One run of a campaign.

    :param task: the name of its task
    :param config: with the paths of what was made for it
    """

    task: str
    config: RunConfig
    folder: Path


@dataclass(frozen=True)
class Campaign:
    """The steps, each after those that it needs, and the runs among them."""

    tasks: tuple[Task, ...]
    runs: tuple[CampaignRun, ...]


def plan_campaign(
    preset: str,
    variants: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    settings: Sequence[str] = (),
    *,
    iterations: int | None = None,
) -> Campaign:
    """Return the steps of a campaign. Seeds come one after the other, so that each is complete as early as can be.

    :param preset: such as `hopper`
    :param variants: some of the preset's
    :param out: the folder of the campaign
    :param settings: `key=value` each, for the runs that have such a key
    :param iterations: of the runs that train; None means the preset's
    """
    _check_variants(preset, variants)
    chosen = {variant: settings_with_a_place(load_config(f"{preset}/{variant}"), settings) for variant in variants}
    check_settings(settings, chosen.values())
    planner = _Planner(out.resolve())
    for seed in seeds:
        for variant in variants:
            config = load_config(f"{preset}/{variant}", [*chosen[variant], f"seed={seed}"])
            if iterations is not None and config.iterations > 0:
                config = config.model_copy(update={"iterations": iterations})
            planner.add_run(preset, variant, config)
    return planner.plan


def plan_runs(runs: Iterable[tuple[str, str, RunConfig]], out: Path) -> Campaign:
    """Return the steps of runs of several presets, what they share once: preset, variant and configuration of each."""
    planner = _Planner(out.resolve())
    for preset, variant, config in runs:
        planner.add_run(preset, variant, config)
    return planner.plan


def plan_preparation(config: RunConfig, out: Path) -> tuple[Campaign, RunConfig]:
    """Return the steps that must come before a single run, and its configuration with the paths of what they make.

    :param out: the folder whose `shared` they are kept in
    """
    planner = _Planner(out.resolve())
    config, _ = planner.prepare(config)
    return planner.plan, config


def parse_seeds(text: str) -> list[int]:
    """Return the seeds that `0-4`, `3` or `0,2,5-7` name."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ConfigurationError(f"{text!r} is not a range of seeds: write 0-4, or 0,2,5")
        seeds += islice(range(int(first), int(last if dash else first) + 1), MOST_SEEDS + 1)
        if len(seeds) > MOST_SEEDS:
            raise ConfigurationError(f"{text!r} names more than {MOST_SEEDS} seeds")
    if len(set(seeds)) != len(seeds):
        raise ConfigurationError(f"{text!r} names a seed twice")
    return seeds


class _Planner:
    """Collects steps; one that several runs share is there once."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.shared = out / "shared"
        self.tasks: dict[str, Task] = {}
        self.runs: list[CampaignRun] = []

    @property
    def plan(self) -> Campaign:
        """What was added."""
        return Campaign(tuple(self.tasks.values()), tuple(self.runs))

    def add_run(self, preset: str, variant: str, config: RunConfig) -> None:
        """Add a run, and before it what it is made from."""
        name = f"{preset}/{variant}/seed-{config.seed}"
        config, needs = self.prepare(config)
        task = training_task(name, config, self.out, self.out / name, needs)
        self.tasks.setdefault(name, task)
        self.runs.append(CampaignRun(name, config, self.out / name))

    def prepare(self, config: RunConfig) -> tuple[RunConfig, list[str]]:
        """Return the configuration with the paths of what it is made from, and the steps that make these."""
        if config.data is None or not config.needs_data:
            return config.model_copy(update={"data": None}), []
        values: dict[str, Any] = config.model_dump(mode="json")
        values["data"] = None
        data = data_of(config, config.data)
        dataset, step = self._add_data(data)
        needs = []
        if config.warm_start is not None and config.warm_start.dataset is None:
            values["warm_start"] |= {"dataset": dataset, "root": str(self.shared / "data")}
            needs.append(step)
        fit = config.heuristic_to_fit
        if fit is not None:
            folder, step = self._add_heuristic(dataset, fit, config.gamma, data.seed)
            values["guidance"]["heuristic"] = str(folder)
            needs.append(step)
        elif config.iterations == 0:
            values["guidance"] = None
        return RunConfig.model_validate(values), needs

    def _add_data(self, data: DataConfig) -> tuple[str, str]:
        """Add the run that data is collected from, and the collection; return its id and the step."""
        name = f"{data.train.replace('/', '-')}-{_digest(data.run.model_dump(mode='json'))}"
        behaviour = self.shared / "behaviour" / name
        settings = _as_options({"iterations": data.iterations} | data.settings)
        arguments = ["train", data.train, *settings, "--out", str(behaviour)]
        run = data.run
        finished = RunFolder(behaviour).is_finished(run)
        train = self._add(
            f"behaviour {name}", arguments, [], folder=behaviour, cores=run.cores, gpus=run.gpus, finished=finished
        )
        dataset = f"{name}/{data.transitions}-seed-{data.seed}-v0"
        arguments = ["--dataset", dataset, "--root", str(self.shared / "data"), "--seed", str(data.seed)]
        arguments += ["--threads", "1"]
        step = self._add(
            f"data {dataset}",
            ["collect", str(behaviour), *arguments, "--transitions", str(data.transitions)],
            [train],
            product=self.shared / "data" / dataset,
        )
        return dataset, step

    def _add_heuristic(self, dataset: str, fit: FitConfig, gamma: float, seed: int | None) -> tuple[Path, str]:
        """Add the fitting of a heuristic; return its folder, named by all that determines it, and the step."""
        from hurl.experiments.fitting import check_fit  # heavy, and only for this

        has_seed = "seed" in inspect.signature(check_fit(fit.kind, fit.parameters).fit).parameters
        key = _digest(dataset, fit.kind, fit.parameters, gamma)
        folder = self.shared / "heuristics" / f"{fit.kind}-seed-{seed}-{key}"
        settings = _as_options(({"seed": seed} if has_seed else {}) | fit.parameters)
        arguments = ["--dataset", dataset, "--root", str(self.shared / "data"), "--gamma", str(gamma)]
        step = self._add(
            f"fit {folder.name}",
            ["fit", fit.kind, *arguments, *settings, "--threads", "1", "--out", str(folder)],
            [f"data {dataset}"],
            product=folder,
        )
        return folder, step

    def _add(self, name: str, arguments: list[str], needs: list[str], **more: Any) -> str:
        log = self.out / "logs" / f"{_file_name(name)}.log"
        self.tasks.setdefault(name, Task(name, tuple(arguments), log, tuple(needs), **more))
        return name


def training_task(name: str, config: RunConfig, out: Path, folder: Path, needs: Sequence[str] = ()) -> Task:
    """Return the step that trains a run.

    :param out: where its configuration and its log are kept
    :param folder: the run's
    """
    file = out / "configs" / f"{_file_name(name)}.yaml"
    return Task(
        name,
        ("train", str(file), "--out", str(folder)),
        out / "logs" / f"{_file_name(name)}.log",
        tuple(needs),
        folder=folder,
        cores=config.cores,
        gpus=config.gpus,
        files=((file, config.to_yaml()),),
        finished=RunFolder(folder).is_finished(config),
    )


def _file_name(name: str) -> str:
    return name.replace("/", "-").replace(" ", "-")


def data_of(config: RunConfig, data: DataConfig) -> DataConfig:
    """Return how data is made for a run: where it acts, and with its seed unless the data has one of its own."""
    environment = load_config(data.train).environment
    changed = {
        f"environment.{key}": getattr(config.environment, key)
        for key in ("id", "backend", "options")
        if getattr(config.environment, key) != getattr(environment, key)
    }
    seed = config.seed if data.seed is None else data.seed
    return data.model_copy(update={"settings": changed | data.settings, "seed": seed})


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:8]


def _as_options(settings: dict[str, Any]) -> list[str]:
    return [part for setting in as_overrides(settings) for part in ("--set", setting)]


def _check_variants(preset: str, variants: Sequence[str]) -> None:
    known = [name.split("/") for name in preset_names()]
    presets = sorted({name for name, _ in known})
    if preset in preset_names():
        name, variant = preset.split("/")
        raise ConfigurationError(f"{preset!r} is a variant: write {name} --variants {variant}")
    if preset not in presets:
        hint = nearest(preset, presets) or f"; there are {', '.join(presets)}"
        raise ConfigurationError(f"there is no preset {preset!r}{hint}")
    of_preset = [variant for name, variant in known if name == preset]
    for variant in variants:
        if variant not in of_preset:
            hint = nearest(variant, of_preset) or f"; there are {', '.join(of_preset)}"
            raise ConfigurationError(f"{preset} has no variant {variant!r}{hint}")
        if list(variants).count(variant) > 1:
            raise ConfigurationError(f"the variant {variant!r} is named twice")


def settings_with_a_place(config: RunConfig, settings: Sequence[str]) -> list[str]:
    """Return the settings whose place a run has: λ0 is nothing that an unguided one could be told."""
    values = config.model_dump(mode="json")
    return [setting for setting in settings if isinstance(_parent(values, setting), dict)]


def _parent(values: Any, setting: str) -> Any:
    """Return what holds the key of a setting, None where there is nothing to hold it."""
    for part in setting.partition("=")[0].split(".")[:-1]:
        values = values.get(part) if isinstance(values, dict) else None
    return values


def check_settings(settings: Sequence[str], chosen: Iterable[Sequence[str]]) -> None:
    """Refuse a setting that no run has a place for.

    :param chosen: the settings that each run has a place for
    """
    used = {setting for one in chosen for setting in one}
    for setting in settings:
        key = setting.partition("=")[0]
        if key == "seed":
            raise ConfigurationError(f"--set {setting} would give all runs the same seed: use --seeds")
        if key == "iterations":
            raise ConfigurationError(
                f"--set {setting} would let behaviour cloning train: use --iterations, or --steps of reproduce"
            )
        if setting not in used:
            raise ConfigurationError(f"--set {setting}: none of the variants has a place for {key!r}")
