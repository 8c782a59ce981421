"""Configurations with mistakes in keys, values and text: small runs are trained, and presets checked."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from hurl.experiments.config import load_config, validate
from hurl.experiments.sources import preset_names
from hurl.experiments.yaml_text import parse_yaml
from tests.fuzz.harness import SECONDS, Outcome, Result, Verdict, call, differences, digest, make_canary, run_hurl
from tests.fuzz.works import DQN, LADDER, NAME, POOL, PPO, SAC

SHORT = {"iterations": 1, "steps_per_iteration": 16}
RUNS: dict[str, dict[str, Any]] = {
    name: run | SHORT for name, run in {"DQN": DQN, "SAC": SAC, "EnvPool": POOL, "ladder": LADDER, "PPO": PPO}.items()
}
PRESETS = tuple({name.partition("/")[0]: name for name in preset_names()}.values())  # a variant of each
LARGE = 1000  # numbers from which on a command may be at work for as long as it likes
PATIENCE = 6.0  # seconds that it gets then

PARAMETERS = (
    *("batch_size", "buffer_size", "clip_range", "device", "ent_coef", "exploration_fraction", "gae_lambda", "gamma"),
    *(
        "gradient_steps",
        "learning_rate",
        "learning_starts",
        "max_grad_norm",
        "n_epochs",
        "n_steps",
        "optimize_memory_usage",
    ),
    *(
        "policy_kwargs",
        "replay_buffer_class",
        "replay_buffer_kwargs",
        "seed",
        "stats_window_size",
        "target_update_interval",
    ),
    *("tau", "tensorboard_log", "train_freq", "use_sde", "verbose", "vf_coef", "nonsense"),
)
OPTIONS = (
    *("batch_size", "frame_skip", "gym_reset_return_info", "max_episode_steps", "max_num_players", "num_envs"),
    *("num_threads", "render_mode", "reward_threshold", "seed", "thread_affinity_offset", "threads", "nonsense"),
)
PLACES = (
    *(("algorithm", "parameters", name) for name in PARAMETERS),
    *(("algorithm", "parameters", "policy_kwargs", name) for name in ("activation_fn", "net_arch", "nonsense")),
    *(("environment", "options", name) for name in OPTIONS),
    *(("guidance", "schedule", name) for name in ("kind", "lambda0", "alpha", "omega", "iterations", "rungs")),
    *((name,) for name in ("data", "warm_start", "prior", "jump_start", "threads", "seed", "updates_per_iteration")),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "x",
        "nope",
        "yes",
        "1:8",
        "0x10",
        "1e3",
        "nan",
        "é漢🎉",
        "[/x]",
        "$x^$",
        "../..",
        "/dev/null",
    ),
    *(0, 1, -1, -5, 2, 7, 0.5, 1.5, -0.5, 5.0, 1e-300, 1e300, float("nan"), float("inf"), -float("inf")),
    *(1_000_000, 10**10, 10**30, -(10**30), 2**31, 2**63, 2**64),
    *([], {}, [1, 2], [[]], [None], {"a": 1}, {"pi": [4]}, {1: 2}, {"": None}, [0], [-1], "x" * 10_000, ["x"] * 1000),
)
TEXTS = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xc3",
        b"\t",
        b"- ",
        b": ",
        b"{",
        b"]",
        b"'",
        b'"',
        b"&a ",
        b"*a",
        b"!!python/name:os.system ",
    ),
    *(
        b"!!binary x",
        b"%YAML 9.9\n",
        b"---\n",
        b"<<: *a\n",
        b"\nx: &x [*x]\n",
        b"\nx: &x {y: *x}\n",
        b"# \xe2\x98\x83\n",
    ),
    *(
        b"[" * 3000,
        b"\nx: " + b"{y: " * 500,
        "\ufeff".encode(),
        "\u2028".encode(),
        b"\r",
        b"? ",
        b"| ",
        b"~",
        b"=",
        b"2001-01-01",
    ),
)


@dataclass(frozen=True)
class Change:
    """A mistake in a configuration.

    :param kind: `set`, `drop`, `rename` or `repeat` a key
    :param place: the keys that lead to it
    :param value: what it is set to
    """

    kind: str
    place: tuple[str, ...]
    value: Any = None


@dataclass(frozen=True)
class Configuration:
    """A configuration with mistakes.

    :param base: a name of `RUNS`, which is trained, or of a preset, which is checked
    :param changes: to its values
    :param insertion: where its text is damaged from 0 to 1, and what is put in there; or None
    """

    base: str
    changes: tuple[Change, ...]
    insertion: tuple[float, bytes] | None = None

    def run(self, folder: Path) -> Verdict:
        """Train the run, or check the preset."""
        here = folder / "here"
        here.mkdir()
        canary = digest(make_canary(folder / "foreign"))
        (here / f"{NAME}.yaml").write_bytes(self.text())
        verdict = self._read(here).verdict
        lost = differences(canary, digest(folder / "foreign"))
        if lost:
            return Verdict(Outcome.foreign, ", ".join(lost))
        if verdict.outcome is Outcome.hang and self.is_large:
            return Verdict(Outcome.ran, "at work until its time was up, as its large numbers ask for")
        if verdict.outcome is Outcome.refused and not self.is_named(verdict.detail):
            return Verdict(Outcome.raw, f"neither the key nor the value is named: {verdict.detail}")
        return verdict

    def _read(self, here: Path) -> Result:
        if self.base not in RUNS:
            return call(check, (f"{NAME}.yaml",), here)
        words = ("train", f"{NAME}.yaml", "--out", NAME)
        return run_hurl(words, here, seconds=PATIENCE if self.is_large else SECONDS)

    def is_named(self, sentence: str) -> bool:
        """Return whether a sentence names the file, or a key that was set, or its value.

        Of text, which can be anything, and of a key that is gone, whose default is named instead, this is not asked.
        """
        if self.insertion is not None or any(change.kind != "set" for change in self.changes):
            return True
        words = [word for change in self.changes for word in (change.place[-1], repr(change.value))]
        return any(word in sentence for word in (f"{NAME}.yaml", *words))

    @property
    def is_large(self) -> bool:
        """Whether it has a number that may ask for much work."""
        numbers = (change.value for change in self.changes if isinstance(change.value, int | float))
        return any(abs(number) >= LARGE for number in numbers)

    def text(self) -> bytes:
        """Return the file."""
        values = deepcopy(RUNS[self.base] if self.base in RUNS else preset_values(self.base))
        repeated = ""
        for change in self.changes:
            if change.kind == "repeat":
                repeated += yaml.safe_dump({change.place[0]: values.get(change.place[0])}, allow_unicode=True)
            else:
                _apply(change, values)
        content = (yaml.safe_dump(values, allow_unicode=True) + repeated).encode()
        if self.insertion is None:
            return content
        place = int(self.insertion[0] * len(content))
        return content[:place] + self.insertion[1] + content[place:]


def _apply(change: Change, values: dict[str, Any]) -> None:
    """Make a change where there is a place for it; what is above it is made, as far as it is missing."""
    *parents, last = change.place
    inner: Any = values
    for parent in parents:
        inner = inner.setdefault(parent, {})
        if not isinstance(inner, dict):
            return
    if change.kind == "set":
        inner[last] = change.value
    elif last in inner:
        value = inner.pop(last)
        if change.kind == "rename":
            inner[last[:-1]] = value


def check(source: str) -> None:
    """Check a configuration as commands do, and that it is the same when it was written and read."""
    from hurl.cli.app import report_error

    try:
        config = load_config(source)
    except Exception as error:
        raise SystemExit(report_error(error)) from None
    assert validate(parse_yaml(config.to_yaml(), source), source).to_yaml() == config.to_yaml()


@cache
def preset_values(name: str) -> dict[str, Any]:
    """Return the values of a preset."""
    values: dict[str, Any] = load_config(name).model_dump(mode="json")
    return values


def _places(values: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return all places of a configuration."""
    if not isinstance(values, dict):
        return []
    return [place for key in values for place in ((*above, key), *_places(values[key], (*above, key)))]


@st.composite
def cases(draw: st.DrawFn) -> Configuration:
    """Return a strategy of configurations with a mistake or two in their values, or one in their text."""
    base = draw(st.sampled_from([*RUNS, *RUNS, *RUNS, *PRESETS]))  # as many runs as presets
    present = _places(RUNS[base] if base in RUNS else preset_values(base))
    setting = st.builds(Change, st.just("set"), st.sampled_from([*present, *PLACES]), st.sampled_from(VALUES))
    moving = st.builds(Change, st.sampled_from(["drop", "rename", "repeat"]), st.sampled_from(present))
    insertion = st.tuples(st.integers(0, 999).map(lambda place: place / 1000), st.sampled_from(TEXTS))
    if draw(st.integers(0, 3)) == 0:
        return Configuration(base, (), draw(insertion))
    return Configuration(
        base, tuple(draw(st.lists(setting | setting | moving, min_size=1, max_size=2, unique_by=_place)))
    )


def _place(change: Change) -> tuple[str, ...]:
    return change.place
