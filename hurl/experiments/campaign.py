"""A campaign: several variants of a preset with several seeds, and what must be made before them, each once.

Every step is a command of hurl that does nothing where it was done before and carries on where it was stopped, so a
campaign is a list of commands, what each of them reads and what it makes. `CampaignFolder` says where all of it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from hurl.experiments.config import FitConfig, RunConfig, load_config
from hurl.experiments.environments import check_environment
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.libraries import check_algorithm
from hurl.experiments.recipes import Recipe, recipe_of
from hurl.experiments.sources import as_overrides, split_variant, variant_names
from hurl.experiments.tasks import Task
from hurl.files import aside
from hurl.names import is_yaml, nearest_or_all
from hurl.own_code import foreign_code

MOST_SEEDS = 10_000
SCHEDULE = "guidance.schedule"


@dataclass(frozen=True)
class CampaignRun:
    """A run that a step trains.

    :param config: with the paths of what was made for it
    """

    config: RunConfig
    folder: Path


class Campaign:
    """Steps, each after those that make what it reads; one that several runs share is there once.

    :param out: the folder of the campaign
    :param trust: whether code that saved heuristics and runs name may be run, other than hurl's own
    """

    def __init__(self, out: Path, *, trust: bool = False) -> None:
        self.folder = CampaignFolder(out.resolve())
        self.trust = trust
        self.runs: list[CampaignRun] = []
        self.trained: dict[str, CampaignRun] = {}  # by step: the runs, and those that they are made from
        self._tasks: dict[str, Task] = {}

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The steps."""
        return tuple(self._tasks.values())

    def add_run(self, name: str, config: RunConfig) -> None:
        """Add a run, and before it what it is made from.

        :param name: what it is kept under, such as `hopper/sac`
        """
        trust = self.names_fitted_code(config)
        config, inputs = self.prepare(config)
        folder = self.folder.run(name, config.seed)
        self.runs.append(self.add_training(f"{name}/{folder.name}", config, folder, inputs, trust=trust))

    @staticmethod
    def names_fitted_code(config: RunConfig) -> bool:
        """Return whether the user names the code that the folder of the run's heuristic will, once it is fitted."""
        return config.heuristic_to_fit is not None and bool(foreign_code(config.heuristic_to_fit.code))

    def prepare(self, config: RunConfig) -> tuple[RunConfig, tuple[Path, ...]]:
        """Add what a run is made from; return its configuration with the paths of that, and those that it reads."""
        check_algorithm(config.algorithm.name)
        check_environment(config.environment.id)
        if config.data is None or not config.needs_data:
            return config.model_copy(update={"data": None}), ()
        config.algorithm.library.trainers.check_run(config)
        values: dict[str, Any] = config.model_dump(mode="json") | {"data": None}
        recipe = recipe_of(config, config.data, self.folder)
        data = self._add_data(recipe)
        inputs = []
        for key in config.made_from_data:
            values[key] |= {"dataset": recipe.dataset, "root": str(self.folder.data)}
        if config.made_from_data:
            inputs.append(data)
        fit = config.heuristic_to_fit
        if fit is not None:
            heuristic = self._add_heuristic(recipe, data, fit, config.gamma)
            values["guidance"]["heuristic"] = str(heuristic)
            inputs.append(heuristic)
        elif config.iterations == 0:
            values["guidance"] = None
        return RunConfig.model_validate(values), tuple(inputs)

    def add_behaviour(self, recipe: Recipe) -> None:
        """Add the run that data is collected from, where it is of one."""
        if recipe.config is not None:
            self.add_training(f"behaviour {recipe.name}", recipe.config, Path(recipe.source))

    def add_training(
        self, step: str, config: RunConfig, folder: Path, inputs: Sequence[Path] = (), *, trust: bool = False
    ) -> CampaignRun:
        """Add a step that trains a run; return the run.

        :param folder: the run's
        :param inputs: what other steps make for it
        :param trust: whether those name code that the user has named
        """
        if step not in self.trained:
            file = self.folder.config(step)
            self._add(
                step,
                ("train", str(file), "--out", str(folder), *self._trusting(trust)),
                (file, *inputs),
                (folder,),
                cores=config.cores,
                gpus=config.gpus,
                files=((file, config.to_yaml()),),
                finished=RunFolder(folder).is_finished(config),
            )
            self.trained[step] = CampaignRun(config, folder)
        return self.trained[step]

    def _add_data(self, recipe: Recipe) -> Path:
        """Add the collection of data, and the run that it is collected from; return the dataset's folder."""
        self.add_behaviour(recipe)
        data = self.folder.data / recipe.dataset
        inputs = () if recipe.run is None else (recipe.run,)
        options = ("--dataset", recipe.dataset, "--root", str(self.folder.data), "--seed", str(recipe.seed))
        some = () if recipe.policies is None else ("--policies", str(recipe.policies))
        number = ("--transitions", str(recipe.transitions), *some)
        where = [] if recipe.environment is None else ["--env", recipe.environment.id]
        for setting in recipe.environment_settings:
            where += ["--set", setting]
        named = recipe.config is not None and bool(foreign_code(recipe.config.environment.code))
        arguments = ("collect", recipe.source, *where, *options, "--threads", "1", *number, *self._trusting(named))
        # the part of an unfinished collection that is there goes with it to where it is carried on
        self._add(f"data {recipe.dataset}", arguments, inputs, (data, aside(data)), finished=data.exists())
        return data

    def _add_heuristic(self, recipe: Recipe, data: Path, fit: FitConfig, gamma: float) -> Path:
        """Add the fitting of a heuristic; return its folder."""
        from hurl.experiments.fitting import check_fit  # heavy, and only for this

        takes_seed = "seed" in inspect.signature(check_fit(fit.kind, fit.parameters).fit).parameters
        folder = self.folder.heuristic(recipe.dataset, fit, gamma, recipe.seed)
        options = ["--dataset", recipe.dataset, "--root", str(self.folder.data), "--gamma", str(gamma)]
        for setting in as_overrides(({"seed": recipe.seed} if takes_seed else {}) | fit.parameters):
            options += ["--set", setting]
        arguments = ("fit", fit.kind, *options, "--threads", "1", "--force", "--out", str(folder))
        self._add(f"fit {folder.name}", arguments, (data,), (folder,), finished=folder.exists())
        return folder

    def _trusting(self, named: bool) -> tuple[str, ...]:
        """Hand the user's word on to a step: --trust, or the names of code that what it reads has from the user."""
        return ("--trust",) if self.trust or named else ()

    def _add(
        self, step: str, arguments: tuple[str, ...], inputs: tuple[Path, ...], outputs: tuple[Path, ...], **more: Any
    ) -> None:
        self._tasks.setdefault(step, Task(step, arguments, self.folder.log(step), inputs, outputs, **more))


def plan_campaign(
    preset: str,
    variants: Sequence[str] | None,
    seeds: Sequence[int],
    out: Path,
    settings: Sequence[str] = (),
    *,
    iterations: int | None = None,
    trust: bool = False,
) -> Campaign:
    """Return the steps of a campaign. Seeds come one after the other, so that each is complete as early as can be.

    :param preset: such as `hopper`, or a YAML file
    :param variants: some of its variants; None means all
    :param out: the folder of the campaign
    :param settings: `key=value` each, for the runs that have such a key
    :param iterations: of the runs that train; None means the preset's
    :param trust: see `Campaign`
    """
    configs = {source: load_config(source) for source in choose_variants(preset, variants)}
    check_settings(settings, configs.values())
    campaign = Campaign(out, trust=trust)
    for seed in seeds:
        for source in configs:
            config = load_config(source, [*settings_with_a_place(configs[source], settings), f"seed={seed}"])
            if iterations is not None and config.iterations > 0:
                config = config.model_copy(update={"iterations": iterations})
            try:
                campaign.add_run(run_name(source), config)
            except ConfigurationError as error:
                raise ConfigurationError(f"{run_name(source)}: {error}") from None
    return campaign


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


def choose_variants(family: str, names: Sequence[str] | None) -> list[str]:
    """Return some of the variants of a preset or a YAML file, None for all, as `load_config` takes them."""
    sources = variant_names(family)
    if names is None:
        return sources
    if sources == [family]:
        raise ConfigurationError(f"{family} has no variants, of which {names[0]!r} could be one: leave --variants out")
    known = {str(split_variant(source)[1]): source for source in sources}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"{family} has no variant {name!r}{nearest_or_all(name, known)}")
        if list(names).count(name) > 1:
            raise ConfigurationError(f"the variant {name!r} is named twice")
    return [known[name] for name in names]


def run_name(source: str) -> str:
    """Return what the runs of a source are kept under: a preset's name, or a file's, and the variant."""
    family, variant = split_variant(source)
    name = Path(family).stem if is_yaml(family) else family
    return name if variant is None else f"{name}/{variant}"


def settings_with_a_place(config: RunConfig, settings: Sequence[str]) -> list[str]:
    """Return the settings whose place a run has: λ0 is nothing that an unguided one, or a ladder, could be told."""
    values = config.model_dump(mode="json")
    keys = [setting.partition("=")[0] for setting in settings]
    closed = () if {SCHEDULE, f"{SCHEDULE}.kind"} & set(keys) else (SCHEDULE,)  # a kind has all its parameters
    return [setting for setting, key in zip(settings, keys, strict=True) if _has_place(values, key.split("."), closed)]


def _has_place(values: Any, parts: Sequence[str], closed: Collection[str]) -> bool:
    """Whether there is what could hold a key, which under some that are closed is there already.

    :param parts: the key, dotted
    """
    for part in parts[:-1]:
        values = values.get(part) if isinstance(values, dict) else None
    return isinstance(values, dict) and (parts[-1] in values or ".".join(parts[:-1]) not in closed)


def check_settings(settings: Sequence[str], configs: Iterable[RunConfig]) -> None:
    """Refuse a setting that none of some runs has a place for."""
    used = {setting for config in configs for setting in settings_with_a_place(config, settings)}
    for setting in settings:
        key = setting.partition("=")[0]
        if key == "seed":
            raise ConfigurationError(f"--set {setting} would give all runs the same seed: use --seeds")
        if key == "iterations":
            raise ConfigurationError(
                f"--set {setting} would be for runs that only clone, too: use --iterations, or --steps of reproduce"
            )
        if setting not in used:
            raise ConfigurationError(f"--set {setting}: none of the variants has a place for {key!r}")
