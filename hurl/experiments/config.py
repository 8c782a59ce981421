"""The configuration of a run: validated, readable as YAML, from a preset or a file."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationError,
    ValidationInfo,
    create_model,
    model_serializer,
)
from pydantic.functional_validators import BeforeValidator, InstanceOf, field_validator, model_validator

from hurl.experiments.errors import ConfigurationError
from hurl.experiments.libraries import Demand, Library, find_library
from hurl.experiments.parameters import check_parameters
from hurl.experiments.sources import KIND, OPTION, apply_settings, as_overrides, read_source
from hurl.experiments.yaml_text import write_yaml
from hurl.guidance import Shaping, check_shaping
from hurl.jump_start import JumpStart
from hurl.ladder import Ladder
from hurl.names import HeuristicFunction, HeuristicName, nearest, nearest_or_all, parse_heuristic
from hurl.prior import PriorData, check_blend
from hurl.schedules import KINDS as SCHEDULES
from hurl.schedules import Schedule
from hurl.values import MOST_ENVIRONMENTS, MOST_THREADS, Backend, show


class Strict(BaseModel):
    """Data in which a key that there is not is an error, and so are texts and truth values in the place of numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    # What is made for other runs is named by a digest of configurations, which keys that came later must not change.
    only_where_set: ClassVar[tuple[str, ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what pydantic would turn into a number: `true` is none, nor is a text that looks like one."""
        assert info.field_name is not None
        types = set(_types_in(cls.model_fields[info.field_name].annotation))
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, bool | str) and type(item) not in types and types & {int, float}:
                raise ValueError(f"input should be a valid {'integer' if int in types else 'number'}")
        return value

    @model_serializer(mode="wrap")
    def _leave_out_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = write(self)
        return {key: value for key, value in values.items() if key not in self.only_where_set or value is not None}


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation names: of `list[float] | None`, float and None."""
    for part in get_args(annotation):
        yield from _types_in(part)
    if not get_args(annotation):
        yield annotation


class NormalizeConfig(Strict):
    """Observations and rewards in units of their running deviations, by Stable-Baselines3's `VecNormalize`."""

    norm_obs: bool = Field(True, strict=True, description="whether the agent sees (s − mean) / deviation")
    norm_reward: bool = Field(True, strict=True, description="whether it is paid r / deviation of discounted returns")
    clip_obs: float = Field(10.0, gt=0, description="where normalised observations are cut off")
    clip_reward: float = Field(10.0, gt=0, description="where normalised rewards are cut off")
    epsilon: float = Field(1e-8, gt=0, description="added to variances, so that nothing is divided by zero")
    norm_obs_keys: list[str] | None = Field(None, description="of observations with keys, which; none means all")


# What `module:name` names, or `{module:name: {argument: value}}`, as rl-zoo3 has wrappers and callbacks.
Named = str | dict[str, dict[str, Any]]


def name_and_arguments(entry: Any) -> tuple[str, dict[str, Any]]:
    """Return the name of code that an entry has, and the arguments."""
    name, arguments = next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (entry, None)
    arguments = {} if arguments is None else arguments
    if isinstance(name, str) and re.fullmatch(r"\w+(\.\w+)+", name):
        module, _, own_name = name.rpartition(".")
        raise ValueError(f"{name!r} does not say where the module's name ends: write {module}:{own_name}")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.]+:\w+", name) or not isinstance(arguments, dict):
        raise ValueError("each should be a name, module:name, or one with arguments, {module:name: {argument: value}}")
    return name, arguments


def _check_named(entries: Any) -> Any:
    """Refuse entries that name nothing; those without arguments become names alone, and none at all nothing."""
    if not isinstance(entries, list):
        return entries
    parsed = map(name_and_arguments, entries)
    return [{name: arguments} if arguments else name for name, arguments in parsed] or None


NamedList = Annotated[list[Named] | None, BeforeValidator(_check_named)]


class EnvironmentConfig(Strict):
    """Where the agent acts."""

    only_where_set = ("wrappers", "normalize")
    id: str = Field(description="a Gymnasium or EnvPool id, e.g. Hopper-v4")
    n_envs: int = Field(8, ge=1, le=MOST_ENVIRONMENTS, description="environments that step together")
    backend: Backend = Field(
        "auto", description="what steps them; auto is EnvPool where it has the id and is installed, or else Gymnasium"
    )
    options: dict[str, Any] = Field({}, description="further arguments of the environment")
    wrappers: NamedList = Field(
        None,
        description="around each environment, the first innermost, by Gymnasium alone: a list of module:name, or "
        "{module:name: {argument: value}}, each a class derived from gymnasium.Wrapper or a function",
    )
    normalize: NormalizeConfig | None = Field(
        None, description="true, or what is other than by default; what the agent sees and is paid in training"
    )

    @property
    def code(self) -> list[str]:
        """The code that it names: `module:id`, wrappers, and the like among options, as of environments in others."""
        return _named_code([self.id, self.options]) + _code_of(self.wrappers)

    @property
    def name(self) -> str:
        """Its id, with options and wrappers where it has some: they make it another task."""
        parts = [part for part in (self.options, self.wrappers) if part]
        return " ".join([self.id, *(json.dumps(part, sort_keys=True) for part in parts)])

    @property
    def alone(self) -> EnvironmentConfig:
        """The environment as it is by itself: one of it, and with what it shows and pays as it comes."""
        return self.model_copy(update={"n_envs": 1, "normalize": None})

    @field_validator("normalize", mode="before")
    @classmethod
    def _read_normalize(cls, value: Any) -> Any:
        if isinstance(value, dict) and "gamma" in value:
            raise ValueError("gamma is the run's own here: leave it out")
        if not isinstance(value, bool | dict | NormalizeConfig | None):
            raise ValueError("input should be true or false, or keys and values")
        return ({} if value else None) if isinstance(value, bool) else value

    @field_validator("wrappers")
    @classmethod
    def _check_wrappers(cls, wrappers: list[Named] | None, info: ValidationInfo) -> list[Named] | None:
        if wrappers and info.data.get("backend") == "envpool":
            raise ValueError("environments of backend 'envpool' can't be wrapped one by one: leave one of the two out")
        for name in _code_of(wrappers):
            if name in ("gymnasium.wrappers:NormalizeObservation", "gymnasium.wrappers:NormalizeReward"):
                raise ValueError(f"{name} has statistics that no checkpoint would hold: set environment.normalize")
        return wrappers

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        environments = {key: f"environment.{key}" for key in ("backend", "id", "n_envs")}
        for key, place in (environments | {"seed": "seed", "threads": "threads"}).items():
            if key in options:
                raise ValueError(f"{key!r} has no place here, set {place}")
        return options


class AlgorithmConfig(Strict):
    """The base algorithm L and its arguments."""

    name: str = Field("sbx.SAC", description="library and class: sb3.SAC, contrib.TQC, sbx.SAC, rllib.PPO, …")
    policy: str = Field("MlpPolicy", description="as the library names it; of RLlib's, MlpPolicy or ImpalaCNN")
    action_noise: float | None = Field(
        None, gt=0, description="deviation of Gaussian noise on actions, for TD3 and DDPG"
    )
    parameters: dict[str, Any] = Field(
        {},
        description="arguments of the algorithm's constructor; of RLlib's, those of `.training()`, and under "
        "`env_runners`, `learners` and `model_config` those of these",
    )

    @property
    def library(self) -> Library:
        """Where the algorithm comes from."""
        return find_library(self.name)

    @property
    def demand(self) -> Demand:
        """The processes and GPUs that it asks for."""
        return self.library.demand(self.parameters)


class ScheduleConfig(Strict, extra="allow"):
    """λ over the iterations: a kind of schedule or a ladder, and beside it the parameters that this kind has."""

    kind: str = Field(
        "tanh", description="ladder, tanh, constant, …, see `hurl.schedules`; the kind's parameters are further keys"
    )

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        _schedule_maker(kind)
        return kind

    @model_validator(mode="after")
    def _check_parameters(self) -> ScheduleConfig:
        checked = _schedule_parameters(self.kind).model_validate(self.parameters)
        self.parameters.update(checked.model_dump())
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        """The kind's parameters, with their defaults."""
        assert self.model_extra is not None
        return self.model_extra

    def build(self, iterations: int) -> Schedule | Ladder:
        """Make the schedule for a run of so many iterations."""
        own = {"iterations": iterations} if self.parameters.get("iterations", 0) is None else {}
        return _schedule_maker(self.kind)(**self.parameters | own)


def _schedule_maker(kind: str) -> Callable[..., Schedule | Ladder]:
    if kind not in SCHEDULES.load():
        raise ValueError(f"must be one of {', '.join(SCHEDULES)}{nearest(kind, SCHEDULES)}")
    return getattr(SCHEDULES[kind], "for_run", SCHEDULES[kind])


def _schedule_parameters(kind: str) -> type[BaseModel]:
    """Return the parameters of a kind of schedule: the arguments that it is made with, see `hurl.schedules.KINDS`."""
    arguments = inspect.signature(_schedule_maker(kind), eval_str=True).parameters
    fields: dict[str, Any] = {
        name: (
            Any if argument.annotation is argument.empty else argument.annotation,
            ... if argument.default is argument.empty else argument.default,
        )
        for name, argument in arguments.items()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    }
    if "iterations" in fields:
        fields["iterations"] = (Annotated[int | None, Field(ge=1)], None)
    return create_model(kind, __base__=Strict, **fields)


class FitConfig(Strict):
    """A heuristic that is to be fitted to the run's data."""

    kind: str = Field(description="as `hurl fit` names it, e.g. ensemble")
    parameters: dict[str, Any] = Field({}, description="arguments of the kind's fit")

    @property
    def code(self) -> list[str]:
        """The code that it names: of an engineered heuristic, `module:function`."""
        return _named_code(self.parameters)


class GuidanceConfig(Strict):
    """The heuristic and how it guides."""

    heuristic: Annotated[
        Annotated[InstanceOf[HeuristicName], BeforeValidator(parse_heuristic), Tag("name")]
        | Annotated[FitConfig, Tag("fit")],
        Discriminator(lambda value: "name" if isinstance(value, str) else "fit"),
    ] = Field(
        description="module:function, a saved heuristic's folder, or the kind of one to be fitted to the run's data"
    )
    schedule: ScheduleConfig = Field(
        default_factory=lambda: ScheduleConfig(kind="ladder"), description="without it, a ladder with rungs by gamma"
    )
    shaping: Shaping = Field(
        "hurl", description="hurl, the paper's r̃ and γ̃, or pbrs, potential-based shaping, which it is compared with"
    )


class WarmStartConfig(Strict):
    """Behaviour cloning into the actor before the first iteration."""

    only_where_set = ("rehearsal",)
    dataset: str | None = Field(
        None, description="the id of a Minari dataset, e.g. hopper/behaviour-v0; none means the run's data"
    )
    root: Path | None = Field(None, description="the folder of Minari datasets, the user's own by default")
    epochs: int = Field(30, ge=1, description="how often the data is gone through")
    learning_rate: float | None = Field(None, gt=0, description="the policy's own by default")
    batch_size: int = Field(128, ge=1, description="transitions in an update")
    rehearsal: int | None = Field(
        None,
        ge=1,
        description="iterations in which cloning goes on beside learning, less and less, so that the policy is kept; "
        "off-policy only",
    )


class PriorConfig(Strict):
    """Logged data that every batch of updates takes a share of, see `hurl.PriorData`."""

    dataset: str | None = Field(
        None, description="the id of a Minari dataset, e.g. hopper/behaviour-v0; none means the run's data"
    )
    root: Path | None = Field(None, description="the folder of Minari datasets, the user's own by default")
    share: float = Field(PriorData.share, gt=0, lt=1, description="of every batch")
    blend: float | None = Field(
        None,
        gt=0,
        le=1,
        description="how much of the best trajectory's own return counts in the place of guidance; none by default",
    )


class JumpStartConfig(Strict):
    """JSRL: the cloned policy begins every training episode, for fewer and fewer steps, see `hurl.sb3.JumpStart`."""

    stages: int = Field(
        JumpStart.stages, ge=1, description="in which the clone's steps fall from its episodes' length to 0"
    )
    tolerance: float = Field(
        JumpStart.tolerance,
        ge=0,
        lt=1,
        description="share of the best average that returns may lack for the next stage",
    )
    window: int = Field(JumpStart.window, ge=1, description="evaluations in a moving average")
    episodes: int = Field(JumpStart.episodes, ge=1, description="training episodes in an evaluation")


class DataConfig(Strict):
    """Data that is made before the run: the checkpoints of another run rolled out, or a function."""

    only_where_set = ("train", "iterations", "policies", "policy")
    train: str | None = Field(None, description="the preset of the run whose checkpoints are the policies: hopper/sac")
    iterations: int | None = Field(None, ge=1, description="how long that run is")
    transitions: int = Field(ge=1, description="transitions of each policy")
    settings: dict[str, Any] = Field({}, description="dotted keys of that run's configuration, set anew")
    seed: int | None = Field(
        None, ge=0, description="of the rollouts and of what is fitted to them; none means the run's own"
    )
    policies: int | None = Field(
        None, ge=1, description="at most so many of the checkpoints, evenly spaced up to the last; none means all"
    )
    policy: str | None = Field(
        None, description="in the place of that run, a function of observations that returns actions, module:function"
    )

    @field_validator("policy")
    @classmethod
    def _check_policy(cls, policy: str | None) -> str | None:
        if policy is not None and type(parse_heuristic(policy)) is not HeuristicFunction:
            raise ValueError("input should be of the form module:function")
        return policy

    @model_validator(mode="after")
    def _check_source(self) -> DataConfig:
        """Check that it is of a run or of a function."""
        if self.policy is None:
            for key in ("train", "iterations"):
                if getattr(self, key) is None:
                    raise ValueError(f"the key {key!r} is missing, and there is no `policy` in the place of a run")
        else:
            for key in ("train", "iterations", "settings", "policies"):
                if getattr(self, key):
                    raise ValueError(f"`policy` is in the place of a run, which {key!r} is of: leave one of them out")
        return self

    @property
    def run(self) -> RunConfig:
        """The run whose checkpoints are the policies."""
        assert self.train is not None
        values = as_overrides({"iterations": self.iterations} | self.settings)
        return load_config(self.train, values, "data.settings")

    @property
    def policy_count(self) -> int:
        """How many policies are rolled out; the last checkpoint of a run is one of them, whenever it comes."""
        if self.iterations is None:
            return 1
        checkpoints = -(-self.iterations // self.run.checkpoint_every)
        return checkpoints if self.policies is None else min(self.policies, checkpoints)

    def describe(self) -> str:
        """Say what is rolled out."""
        if self.policy is not None:
            return f"{self.transitions:,} transitions of {self.policy}"
        return (
            f"{self.transitions:,} transitions of each of {self.policy_count} policies, of a run of {self.train} "
            f"with {self.iterations} iterations"
        )


class RunConfig(Strict):
    """All that determines a run: the same configuration gives the same metrics."""

    only_where_set = ("prior", "jump_start", "callbacks", "keep_replay")
    environment: EnvironmentConfig
    algorithm: AlgorithmConfig
    guidance: GuidanceConfig | None = None
    warm_start: WarmStartConfig | None = None
    prior: PriorConfig | None = None
    jump_start: JumpStartConfig | None = None
    data: DataConfig | None = Field(
        None, description="what a warm start, prior data or a heuristic to be fitted is made from"
    )
    callbacks: NamedList = Field(
        None,
        description="of Stable-Baselines3, called while the agent learns: a list of module:name, or {module:name: "
        "{argument: value}}, each a class derived from BaseCallback or a function that returns one",
    )
    gamma: float = Field(ge=0, le=1, description="γ, the discount of the problem itself; guidance shortens it to λγ")
    iterations: int = Field(ge=0, description="0 is for a warm start whose policy is evaluated alone")
    steps_per_iteration: int = Field(ge=1, description="of all environments together, a multiple of their number")
    updates_per_iteration: int | None = Field(
        None, ge=1, description="gradient steps after each batch, off-policy only"
    )
    evaluation_episodes: int = Field(
        10, ge=1, le=MOST_ENVIRONMENTS, description="after each iteration, by the policy without exploration"
    )
    checkpoint_every: int = Field(5, ge=1, description="iterations from one checkpoint to the next")
    keep_replay: bool | None = Field(
        None, description="whether the replay buffer stays when the run is finished, so that it can be made longer"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="of the weights, the environments, batches and exploration")
    threads: int = Field(
        1, ge=1, le=MOST_THREADS, description="processor cores the run may use; with 1 it repeats exactly"
    )

    @model_validator(mode="after")
    def _check_together(self) -> RunConfig:
        """Check what depends on several values."""
        find_library(self.algorithm.name)
        check_parameters(self.algorithm.name, self.algorithm.parameters)
        if self.iterations == 0 and self.warm_start is None:
            raise ValueError("iterations: input should be greater than or equal to 1, got 0 without a warm_start")
        if self.guidance is not None:
            self._check_schedule(self.guidance)
            check_blend(None if self.prior is None else self.prior.blend, self.guidance.shaping)
        self._check_jump_start()
        self._check_library()
        if self.data is None and self.needs_data:
            raise ValueError(
                "a warm_start or prior without a dataset and a heuristic to be fitted need `data`: say how to make it"
            )
        if self.gamma == 1 and self.heuristic_to_fit is not None:
            raise ValueError("a heuristic can't be fitted to undiscounted returns: lower gamma from 1, or name one")
        if self.steps_per_iteration % self.environment.n_envs:
            raise ValueError(
                f"steps_per_iteration={self.steps_per_iteration} must be a multiple of "
                f"environment.n_envs={self.environment.n_envs}"
            )
        return self

    def _check_jump_start(self) -> None:
        if self.jump_start is None:
            return
        if self.warm_start is None:
            raise ValueError("jump_start needs a policy to begin episodes with: add a warm_start, which clones one")
        if self.guidance is not None:
            raise ValueError("jump_start and guidance are two ways to the same end: leave one of them out")
        if self.prior is not None:
            raise ValueError("jump_start can't be had with prior data in the batches: leave one of them out")

    def _check_library(self) -> None:
        """Refuse what can be had with algorithms that are built as Stable-Baselines3's are, and with no others."""
        asked = {
            "environment.wrappers": self.environment.wrappers,
            "environment.normalize": self.environment.normalize,
            "callbacks": self.callbacks,
            "jump_start": self.jump_start,
            "warm_start": self.warm_start,
            "prior": self.prior,
            "updates_per_iteration": self.updates_per_iteration,
            "algorithm.action_noise": self.algorithm.action_noise,
        }
        for key, value in asked.items():
            if value is not None and not self.algorithm.library.follows_sb3:
                raise ValueError(
                    f"{key} can't be had with {self.algorithm.name}: leave it out, or take an algorithm of sb3, "
                    "contrib or sbx"
                )

    def _check_schedule(self, guidance: GuidanceConfig) -> None:
        try:
            schedule = guidance.schedule.build(max(1, self.iterations))
            check_shaping(schedule, guidance.shaping)
            if isinstance(schedule, Ladder):
                schedule.for_gamma(self.gamma)
                self._check_ladder()
        except (TypeError, ValueError) as error:
            raise ValueError(f"guidance.schedule: {error}") from None

    def _check_ladder(self) -> None:
        if not self.algorithm.library.follows_sb3:
            raise ValueError(
                f"{self.algorithm.name} can't have a ladder, which is what there is without a schedule: name one, such "
                "as {kind: constant, lambda0: 0.95}"
            )

    @property
    def code(self) -> list[str]:
        """All code that it names: of environment, heuristic, data and callbacks."""
        heuristic = None if self.guidance is None else self.guidance.heuristic
        function = heuristic if isinstance(heuristic, HeuristicFunction) else None
        fit = heuristic.code if isinstance(heuristic, FitConfig) else []
        data = [] if self.data is None else [self.data.policy, self.data.settings]
        return [*self.environment.code, *fit, *_named_code([function, data]), *_code_of(self.callbacks)]

    @property
    def heuristic_to_fit(self) -> FitConfig | None:
        """The heuristic that must be fitted before the run; a run of no iterations needs none."""
        heuristic = None if self.guidance is None or self.iterations == 0 else self.guidance.heuristic
        return heuristic if isinstance(heuristic, FitConfig) else None

    @property
    def needs_data(self) -> bool:
        """Whether the run's data must be made before it."""
        return self.heuristic_to_fit is not None or bool(self.made_from_data)

    @property
    def made_from_data(self) -> list[str]:
        """The keys whose dataset is the run's data, which must be made before it."""
        parts = {"warm_start": self.warm_start, "prior": self.prior}
        return [key for key, part in parts.items() if part is not None and part.dataset is None]

    @property
    def needs_replay(self) -> list[str]:
        """The keys that only an algorithm with a replay buffer can have."""
        rehearsal = None if self.warm_start is None else self.warm_start.rehearsal
        asked = {"prior": self.prior, "jump_start": self.jump_start, "warm_start.rehearsal": rehearsal}
        return [key for key, value in asked.items() if value is not None]

    @property
    def is_plain(self) -> bool:
        """Whether the base algorithm learns alone, without guidance, a warm start or prior data."""
        return self.guidance is None and self.warm_start is None and self.prior is None

    @property
    def cores(self) -> int:
        """How many processor cores the run keeps busy: its threads, or the processes that RLlib starts for it."""
        demand = self.algorithm.demand
        return max(self.threads, 1 + demand.env_runners + demand.learners)

    @property
    def gpus(self) -> float:
        """How many GPUs the run learns with."""
        return self.algorithm.demand.gpus

    def rows_until(self, iteration: int) -> int:
        """Return how many rows of metrics there are after an iteration: a warm start has one too."""
        return iteration if self.warm_start is None else iteration + 1

    def to_yaml(self) -> str:
        """Return the whole configuration as YAML."""
        return write_yaml(self.model_dump(mode="json"))


def load_config(source: str, overrides: Sequence[str] = (), origin: str = OPTION) -> RunConfig:
    """Return the configuration that a preset or a YAML file names, some values set anew.

    :param source: a preset and its variant, `sparse-reacher/hurl`, or the path of a YAML file, with `/variant` where
        it has several
    :param overrides: `key=value` each, keys dotted, values YAML: `guidance.schedule.lambda0=0.9`
    :param origin: where overrides were written, which an error names
    """
    return validate(apply_settings(read_source(source), overrides, origin), source, overrides, origin)


def load_environment(env_id: str, settings: Iterable[str] = ()) -> EnvironmentConfig:
    """Return the configuration of one environment, some values set anew, `key=value` each: `backend=gymnasium`."""
    settings = list(settings)
    for setting in settings:
        key = setting.partition("=")[0]
        if key in ("id", "n_envs"):
            raise ConfigurationError(f"--set {setting}: the environment is named with --env, its number with --n-envs")
        if key.partition(".")[0] == "normalize":
            raise ConfigurationError(f"--set {setting}: data is collected as it comes, and is not normalised")
    values = apply_settings({"id": env_id, "n_envs": 1}, settings)
    try:
        return EnvironmentConfig.model_validate(values)
    except ValidationError as error:
        raise _refusal(error, values, f"--env {env_id}", settings, OPTION, ("environment",)) from None


def with_values(config: RunConfig, values: Mapping[str, Any], source: str) -> RunConfig:
    """Return a configuration with the values of some dotted keys set anew.

    :param source: of the values, which an error names
    """
    return validate(apply_settings(config.model_dump(mode="json"), as_overrides(values)), source)


def validate(values: Mapping[str, Any], source: str, overrides: Sequence[str] = (), origin: str = OPTION) -> RunConfig:
    """Check values against the configuration; an error says which key, and the nearest one where it is unknown.

    :param source: of the values, which an error names
    :param overrides: `key=value` each, which are among the values; an error names the one that it is of
    :param origin: where overrides were written
    """
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise _refusal(error, values, source, overrides, origin) from None


def _refusal(
    error: ValidationError,
    values: Mapping[str, Any],
    source: str,
    overrides: Sequence[str],
    origin: str,
    parents: tuple[str, ...] = (),
) -> ConfigurationError:
    """Return what is wrong with values, each problem after the override that it is of, or else the source.

    :param parents: the keys that the values are under
    """
    told: dict[str, list[str]] = {}
    for problem in error.errors():
        text = _describe(dict(problem) | {"loc": (*parents, *problem["loc"])}, values)
        words = [".".join(map(str, problem["loc"]))] if problem["loc"] else re.findall(r"[\w.]+", text)
        keys = {override: override.partition("=")[0] for override in overrides}
        guilty = [override for override, key in keys.items() if _is_of(key, words)]
        if not guilty and problem["type"] == "missing":  # what a kind needs that was set
            guilty = [override for override, key in keys.items() if _is_of(key.removesuffix(f".{KIND}"), words)]
        told.setdefault(f"{origin} {guilty[-1]}" if guilty else source, []).append(text)
    return ConfigurationError("; ".join(f"{place}: {'; '.join(texts)}" for place, texts in told.items()))


def _is_of(key: str, words: Iterable[str]) -> bool:
    """Whether one of some words is a dotted key, or one above or below it."""
    return any(f"{word}.".startswith(f"{key}.") or f"{key}.".startswith(f"{word}.") for word in words)


def _named_code(value: Any) -> list[str]:
    """Return the texts in a value that may be of the form `module:name`."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [name for part in parts for name in _named_code(part)]
    return [value] if isinstance(value, str) and ":" in value else []


def _code_of(entries: Iterable[Named] | None) -> list[str]:
    """Return the names of code that wrappers or callbacks have, and those among their arguments."""
    parsed = list(map(name_and_arguments, entries or ()))
    return [name for name, _ in parsed] + _named_code([arguments for _, arguments in parsed])


# In the place of pydantic's, which name classes: `prior: true` is a likely guess.
MESSAGES = {
    "model_type": "must hold keys and values, {key: value}",
    "path_type": "must be the path of a folder",
}


def _describe(problem: dict[str, Any], values: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    if path[:2] == ["guidance", "heuristic"]:
        del path[2:3]  # which of its two forms was meant, a name or what is to be fitted
    *parents, key = path or ["configuration"]
    where = ".".join([*parents, key])
    if problem["type"] == "extra_forbidden":
        of = ""
        if parents == ["guidance", "schedule"]:
            named = "" if "kind" in values["guidance"]["schedule"] else ", which a schedule has that names none"
            of = f" of the kind {_schedule_kind(values)!r}{named}"
        return f"unknown key {where!r}{of}{nearest_or_all(key, _keys_at(parents, values))}"
    if problem["type"] == "missing":
        return f"the key {where!r} is missing"
    message = problem["msg"].removeprefix("Value error, ")
    message = MESSAGES.get(problem["type"], message)
    if not problem["loc"]:
        return str(message)
    return f"{where}: {message[0].lower()}{message[1:]}, got {show(problem['input'])}"


def _schedule_kind(values: Mapping[str, Any]) -> str:
    kind: str = values["guidance"]["schedule"].get("kind", ScheduleConfig.model_fields["kind"].default)
    return kind


def _keys_at(parents: list[str], values: Mapping[str, Any]) -> list[str]:
    """Return the keys that a configuration of these values has under a path."""
    if parents == ["guidance", "schedule"]:
        return list(_schedule_parameters(_schedule_kind(values)).model_fields)
    model: Any = RunConfig
    for parent in parents:
        annotation = model.model_fields[parent].annotation
        options = [getattr(option, "__origin__", option) for option in getattr(annotation, "__args__", (annotation,))]
        model = next(option for option in options if isinstance(option, type) and issubclass(option, BaseModel))
    return list(model.model_fields)
