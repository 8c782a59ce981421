"""Where a campaign keeps what: the one place that names its folders and files."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from hurl.experiments.config import EnvironmentConfig, FitConfig, RunConfig
from hurl.own_code import describe_code, foreign_code

RUNS = Path("runs")  # what is trained and made outside campaigns


class CampaignFolder:
    """The folder of a campaign, of a study, or of single runs. In it are

        NAME/seed-0               the runs, NAME being a preset and its variant
        shared/behaviour/         those that data is collected from
        shared/data/              Minari datasets, one for each seed, or one for all where the preset says so
        shared/heuristics/        heuristics fitted to them
        shared/trials/            short runs that tell what a reproduction costs
        configs/, logs/           the configuration of each run as it was last asked for, the output of each step

    What is shared is named by all that determines it.
    """

    SHARED = "shared"
    NOT_RESULTS = ("behaviour", "trials")  # of what is shared, the runs that are means to other ends

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shared = path / self.SHARED
        self.data = self.shared / "data"

    def run(self, name: str, seed: int) -> Path:
        """Return the folder of a run."""
        return self.path / name / self.seed(seed)

    @staticmethod
    def seed(seed: int) -> str:
        """Return what the folder of a run is called, in that of its variant."""
        return f"seed-{seed}"

    @staticmethod
    def is_seed(folder: Path) -> bool:
        """Return whether a folder is called after the seed of its run, so that the one above names the variant."""
        return re.fullmatch(r"seed-\d+", folder.name) is not None

    def behaviour(self, preset: str, config: RunConfig) -> Path:
        """Return the folder of a run whose checkpoints are rolled out."""
        key = _digest(config.model_dump(mode="json"), *_own_code(config.environment))
        return self.shared / "behaviour" / f"{_flat(preset)}-{key}"

    @staticmethod
    def function(name: str, environment: EnvironmentConfig) -> str:
        """Return what data of a function, module:function, that acts in an environment is named by: its code, too."""
        where = environment.model_dump(mode="json", exclude={"n_envs"})
        return f"{re.sub('[.:]', '-', name)}-{_digest(*describe_code(name), where, *_own_code(environment))}"

    @staticmethod
    def dataset(name: str, transitions: int, seed: int, policies: int | None = None) -> str:
        """Return the id of what is collected from such a run or function; it is kept in `data`.

        :param name: of the run's folder, or that of the function
        :param policies: of the run's, how many; None means all
        """
        some = "" if policies is None else f"{policies}x"
        return f"{name}/{some}{transitions}-seed-{seed}-v0"

    def heuristic(self, dataset: str, fit: FitConfig, gamma: float, seed: int) -> Path:
        """Return the folder of a heuristic that is fitted to a dataset."""
        key = _digest(dataset, fit.kind, fit.parameters, gamma)
        return self.shared / "heuristics" / f"{fit.kind}-seed-{seed}-{key}"

    def trial(self, config: RunConfig) -> Path:
        """Return the folder of a short run that tells what longer ones cost."""
        return self.shared / "trials" / f"{_flat(config.environment.id)}-{_short_hash(config.to_yaml())}"

    def config(self, step: str) -> Path:
        """Return the file that holds the configuration of the run that a step trains."""
        return self.path / "configs" / f"{_flat(step)}.yaml"

    def log(self, step: str) -> Path:
        """Return the file that the output of a step goes to."""
        return self.path / "logs" / f"{_flat(step)}.log"


def _own_code(environment: EnvironmentConfig) -> list[list[str]]:
    """Return what tells a user's environment and wrappers from others of the same names: an edit makes data anew."""
    described = []
    for name in foreign_code(environment.code):
        with suppress(ValueError):  # what can't be imported is told where the environment is made
            described.append(describe_code(name))
    return described


def _flat(name: str) -> str:
    return name.replace("/", "-").replace(" ", "-")


def _digest(*values: Any) -> str:
    return _short_hash(json.dumps(values, sort_keys=True))


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
