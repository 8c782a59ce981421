"""The paper's figures and the gauntlet as campaigns, and what each costs on this machine before it is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic.functional_validators import model_validator

from hurl.experiments.campaign import Campaign, CampaignRun, check_settings, settings_with_a_place
from hurl.experiments.config import RunConfig, Strict, load_config, validate
from hurl.experiments.errors import ConfigurationError
from hurl.experiments.folder import RunFolder
from hurl.experiments.layout import CampaignFolder
from hurl.experiments.recipes import recipe_of
from hurl.experiments.sources import apply_settings, merge
from hurl.experiments.yaml_text import parse_yaml
from hurl.names import nearest_or_all

GAUNTLET = "gauntlet"
TRIAL_ITERATIONS = 2  # the first of them compiles
# Measured: what an update of the paper's regression and of behaviour cloning takes, in updates of SAC.
FIT_UPDATE = 0.3
CLONING_UPDATE = 0.05
# Measured: what an iteration with a ladder takes, in iterations without; 1.9 as long as it is open, then 1.2.
LADDER_ITERATION = 1.5
FIT_EPOCHS = 30  # of the networks; image heuristics name theirs
FIT_BATCH = 128
START_SECONDS = 8.0  # of a process, until its first iteration


class Cell(Strict):
    """A heuristic of the gauntlet in one environment, with constant λ and with the ladder."""

    base: str = Field("base", description="the variant that it is measured against, without guidance")
    good: bool = Field(default=False, description="whether constant λ should gain by it")
    seeds: int | None = Field(None, ge=1, description="None means those of the panel")

    def columns(self, heuristic: str) -> dict[str, str]:
        """Return the variants that are compared."""
        return {"base": self.base} | {column: f"{column}-{heuristic}" for column in ("constant", "ladder")}


class Panel(Strict):
    """A part of a figure: variants of a preset, in one of its games where it has several."""

    title: str
    preset: str
    variants: list[str]
    environment: str | None = Field(None, description="its id, in place of the preset's: a game of Procgen")
    seeds: int = Field(30, ge=1, description="as many as the paper has")
    cells: dict[str, Cell] = Field({}, description="of the gauntlet, by heuristic; the variants are those of them")
    offset: float = Field(0.0, description="what is added to returns so that their ratios mean something")

    @model_validator(mode="before")
    @classmethod
    def _name_variants(cls, values: dict[str, Any]) -> dict[str, Any]:
        cells = {name: Cell.model_validate(cell) for name, cell in values.get("cells", {}).items()}
        named = dict.fromkeys(variant for name, cell in cells.items() for variant in cell.columns(name).values())
        return {"variants": list(named)} | values

    @property
    def game(self) -> str | None:
        """The game that is played, where the preset is of several."""
        return None if self.environment is None else self.title.lower()

    @property
    def name(self) -> str:
        """What its runs are kept under."""
        return self.preset if self.game is None else f"{self.preset}-{self.game}"

    def seeds_of(self, variant: str) -> int:
        """Return how many seeds a variant has: as many as the largest cell that it is in."""
        cells = [cell for name, cell in self.cells.items() if variant in cell.columns(name).values()]
        return max((cell.seeds or self.seeds for cell in cells), default=self.seeds)

    def restricted_to(self, variants: list[str] | None) -> Panel:
        """Return the panel with some of its variants; None means all."""
        kept = [name for name in self.variants if variants is None or name in variants]
        return self.model_copy(update={"variants": kept})

    def config(self, variant: str, seed: int) -> RunConfig:
        """Return the configuration of a run, as the paper has it."""
        environment = [] if self.environment is None else [f"environment.id={self.environment}"]
        return load_config(f"{self.preset}/{variant}", [*environment, f"seed={seed}"])


class Reduction(Strict):
    """How the runs of a library's algorithms are made smaller."""

    iterations: float = Field(default=1.0, gt=0, le=1, description="the share of each run's iterations")
    changes: dict[str, Any] = Field(default={}, description="values set anew in the runs that have them")

    def apply(self, config: RunConfig, steps: int | None, settings: Sequence[str]) -> RunConfig:
        """Return a smaller configuration, of the run and of that of its data.

        :param steps: environment steps of a run that trains, in place of the share
        :param settings: `key=value` each, for the runs that have such a key and those of their data; what the recipe
            of the data sets itself wins over them there
        """
        settings = settings_with_a_place(config, settings)
        values = merge(config.model_dump(mode="json"), self.changes, only_existing=True)
        changed = validate(apply_settings(values, settings), "the reproduction", settings)
        iterations = ceil(config.iterations * self.iterations)
        if steps is not None and config.iterations > 0:
            iterations = ceil(steps / changed.steps_per_iteration)
        data = changed.data
        if data is not None and data.policy is None:
            changes = _dotted(self.changes)
            recipe = {key: changes.get(key, value) for key, value in data.settings.items()}
            data = data.model_copy(update={"settings": changes | _dotted(apply_settings({}, settings)) | recipe})
        return changed.model_copy(update={"iterations": iterations, "data": data})


class Scale(Strict):
    """How much of a figure is run."""

    seeds: int | None = Field(None, ge=1, description="None means as many as the paper has")
    variants: list[str] | None = Field(None, description="the only ones that are run")
    reductions: dict[str, Reduction] = Field(default={}, description="by the algorithm, sbx.PPO, or its library, sbx")

    def apply(self, config: RunConfig, steps: int | None = None, settings: Sequence[str] = ()) -> RunConfig:
        """Return a configuration of this scale."""
        algorithm = config.algorithm
        reduction = self.reductions.get(algorithm.name) or self.reductions.get(algorithm.library.name)
        return (reduction or Reduction()).apply(config, steps, settings)


@dataclass(frozen=True)
class Speed:
    """Seconds that an iteration, an environment step and a gradient step take."""

    iteration: float
    step: float
    update: float

    @classmethod
    def of(cls, trial: CampaignRun) -> Speed:
        """Return what the last iteration of a short run took, once it is done."""
        config, row = trial.config, RunFolder(trial.folder).read_metrics()[-1]
        updates = config.updates_per_iteration or config.steps_per_iteration
        return cls(row.seconds, row.seconds_collecting / config.steps_per_iteration, row.seconds_training / updates)


@dataclass(frozen=True)
class Cost:
    """What the runs of one preset take.

    :param iterations: of all runs
    :param seconds: on one core, with data and heuristics
    """

    preset: str
    runs: int
    iterations: int
    speed: Speed
    seconds: float


@dataclass(frozen=True)
class Reproduction:
    """A figure to be made.

    :param panels: by name
    :param configs: preset, variant and configuration of each run, before anything is made for it
    :param campaign: the steps
    :param trials: short runs that tell how fast this machine is
    :param trial_of: which of them, by what the runs are kept under; games of one preset share theirs
    """

    panels: dict[str, Panel]
    configs: Sequence[tuple[str, str, RunConfig]]
    campaign: Campaign
    trials: Campaign
    trial_of: dict[str, CampaignRun]

    def speeds(self) -> dict[str, Speed]:
        """Return how fast the runs of each preset are, once the trials are done."""
        return {preset: Speed.of(trial) for preset, trial in self.trial_of.items()}

    def costs(self, speeds: Mapping[str, Speed]) -> list[Cost]:
        """Return what each preset takes; a step that several share is counted with the first."""
        counted: set[str] = set()
        costs = []
        for preset, speed in speeds.items():
            configs = [config for name, _, config in self.configs if name == preset]
            before: dict[str, float] = {}
            for config in configs:
                before |= _seconds_of_preparation(config, speed, self.campaign.folder)
            seconds = sum(_seconds_of_run(config, speed) for config in configs)
            seconds += sum(value for key, value in before.items() if key not in counted)
            counted.update(before)
            costs.append(Cost(preset, len(configs), sum(config.iterations for config in configs), speed, seconds))
        return costs


def figure_names() -> list[str]:
    """Return the names of figures and of their panels: figure-2, figure-2a, …, gauntlet, gauntlet-hopper, …"""
    panels = _read()["panels"]
    return sorted({_figure_of(name) for name in panels} | set(panels))


def gauntlet_panels() -> dict[str, Panel]:
    """Return the panels of the gauntlet, by what their runs are kept under."""
    panels = _choose_panels(GAUNTLET, _read()["panels"], None)
    return {panel.name: panel for panel in panels.values()}


def plan_reproduction(
    figure: str,
    scale: str,
    out: Path,
    *,
    seeds: Sequence[int] | None = None,
    games: Sequence[str] | None = None,
    steps: int | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
) -> Reproduction:
    """Return what must be run for a figure.

    :param figure: such as `figure-2` or `gauntlet`, or a panel of it, `figure-2f`
    :param scale: `paper`, or a smaller one
    :param out: the folder of the reproduction
    :param seeds: in place of those of the scale
    :param games: of Procgen, the only ones that are played
    :param steps: environment steps of each run that trains, in place of the scale's; data is made as the scale says
    :param settings: `key=value` each, for the runs that have such a key, and those of their data
    :param trust: see `Campaign`
    """
    data = _read()
    panels = _choose_panels(figure, data["panels"], games)
    if scale not in data["scales"]:
        raise ConfigurationError(f"there is no scale {scale!r}{nearest_or_all(scale, data['scales'])}")
    chosen = Scale.model_validate(data["scales"][scale])
    panels = {name: panel.restricted_to(chosen.variants) for name, panel in panels.items()}
    papers = [panel.config(variant, 0) for panel in panels.values() for variant in panel.variants]
    check_settings(settings, papers)
    most = chosen.seeds or max(panel.seeds for panel in panels.values())
    configs = [
        (panel.name, variant, chosen.apply(panel.config(variant, seed), steps, settings))
        for seed in seeds or range(most)
        for panel in panels.values()
        for variant in panel.variants
        if seeds or seed < (chosen.seeds or panel.seeds_of(variant))
    ]
    campaign, trials = Campaign(out, trust=trust), Campaign(out, trust=trust)
    for name, variant, config in configs:
        campaign.add_run(f"{name}/{variant}", config)
    firsts = {values["preset"]: values for values in reversed(data["panels"].values())}
    trial_of = {}
    for panel in panels.values():
        config = _trial_config(Panel.model_validate(firsts[panel.preset]), chosen, settings)
        folder = trials.folder.trial(config)
        trial_of[panel.name] = trials.add_training(f"trial {folder.name}", config, folder)
    return Reproduction(panels, configs, campaign, trials, trial_of)


def _choose_panels(figure: str, panels: dict[str, Any], games: Sequence[str] | None) -> dict[str, Panel]:
    """Return the panels of a figure, or the one that is named, those of some games alone."""
    named = {name: values for name, values in panels.items() if figure in (name, _figure_of(name))}
    chosen = {name: Panel.model_validate(values) for name, values in named.items()}
    if not chosen:
        from hurl.experiments.paper_tables import TABLES  # heavy, and only for this

        known = ["figure-1", *figure_names(), *TABLES]
        raise ConfigurationError(f"there is nothing called {figure!r} to reproduce{nearest_or_all(figure, known)}")
    played = [panel.game for panel in chosen.values() if panel.game is not None]
    for game in games or ():
        if not played:
            raise ConfigurationError(f"{figure} has no games: leave --games out")
        if game not in played:
            raise ConfigurationError(f"{figure} has no game {game!r}{nearest_or_all(game, played)}")
    return {name: panel for name, panel in chosen.items() if games is None or panel.game in games}


def _figure_of(panel: str) -> str:
    """Return what a panel is a part of: that of `figure-2a` is `figure-2`, that of `gauntlet-hopper` is `gauntlet`."""
    return GAUNTLET if panel.startswith(GAUNTLET) else panel[:-1]


def _read() -> dict[str, Any]:
    file = resources.files("hurl.experiments").joinpath("figures.yaml")
    return parse_yaml(file.read_bytes(), file.name)


def _dotted(changes: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the changes that hold for the run of a run's data too, with dotted keys."""
    dotted: dict[str, Any] = {}
    for key, value in changes.items():
        if prefix or key not in ("data", "guidance", "prior", "warm_start", "jump_start"):
            dotted |= _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return dotted


def _trial_config(first: Panel, scale: Scale, settings: Sequence[str]) -> RunConfig:
    """Return a short run of the base algorithm, in the preset's first game: all cost the same, and it ends soon."""
    config = scale.apply(first.config(first.variants[-1], 0), None, settings)
    plain = {"guidance": None, "warm_start": None, "prior": None, "jump_start": None, "data": None}
    return config.model_copy(update=plain | {"iterations": TRIAL_ITERATIONS, "checkpoint_every": TRIAL_ITERATIONS})


def _seconds_of_run(config: RunConfig, speed: Speed) -> float:
    """Return what a run takes once all that it needs is there."""
    cloning = 0.0
    if config.warm_start is not None and config.data is not None:
        passes = config.warm_start.epochs * config.data.transitions * config.data.policy_count
        cloning = CLONING_UPDATE * (passes / config.warm_start.batch_size) * speed.update
    iteration = speed.iteration
    if config.guidance is not None and config.guidance.schedule.kind == "ladder":
        iteration *= LADDER_ITERATION
    return START_SECONDS + cloning + config.iterations * iteration


def _seconds_of_preparation(config: RunConfig, speed: Speed, folder: CampaignFolder) -> dict[str, float]:
    """Return what each step before a run takes, by what makes it the same step as another run's."""
    if config.data is None or not config.needs_data:
        return {}
    recipe, fit = recipe_of(config, config.data, folder), config.heuristic_to_fit
    transitions = config.data.transitions * config.data.policy_count
    steps = {recipe.dataset: START_SECONDS + transitions * speed.step}
    if recipe.config is not None:
        steps[recipe.name] = START_SECONDS + recipe.config.iterations * speed.iteration
    if fit is not None:
        passes = fit.parameters.get("epochs", FIT_EPOCHS) * transitions
        if fit.kind == "image-monte-carlo":  # each image once, as in one of PPO's epochs
            seconds = passes * speed.update / config.algorithm.parameters["num_epochs"]
        else:
            seconds = FIT_UPDATE * passes / FIT_BATCH * speed.update
        steps[folder.heuristic(recipe.dataset, fit, config.gamma, recipe.seed).name] = START_SECONDS + seconds
    return steps
