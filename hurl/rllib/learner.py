"""What guidance adds to a learner of RLlib: λ of the present iteration, in rewards and in the discount."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.connectors.learner import AddColumnsFromEpisodesToTrainBatch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from hurl.guidance import Guidance, HeuristicStatistics
from hurl.rllib.connector import ReshapeRewards, observations_of

GUIDANCE_KEY = "hurl_guidance"


class GuidedLearner(Learner):  # type: ignore[misc]
    """Guidance for any learner that discounts with the γ of its configuration or of its connectors.

    λ is that of the environment steps sampled so far, which every update is told: it is the same on all learners, and
    that of a restored algorithm is where it was. Who counts iterations, of which PPO samples some longer than others,
    says by `begin_iteration` which it is, on all learners.
    """

    guidance: Guidance
    replays = False
    _counts_steps = True

    def build(self) -> None:
        """Build the learner, and put the reshaping of rewards into its pipeline."""
        super().build()
        guidance: Guidance = self.config.learner_config_dict[GUIDANCE_KEY]
        self.guidance = guidance.start()
        self._guided_config: AlgorithmConfig | None = None
        self._logged = self.guidance.statistics, HeuristicStatistics()
        reshaping = ReshapeRewards(self.guidance, arriving=not self.replays)
        self._learner_connector.insert_before(AddColumnsFromEpisodesToTrainBatch, reshaping)

    def begin_iteration(self, iteration: int) -> None:
        """Move λ to an iteration, whatever is sampled in it."""
        self._counts_steps = False
        self.guidance.begin(iteration)

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Move λ and γ̃ to the present iteration."""
        super().before_gradient_based_update(timesteps=timesteps)
        if self._counts_steps:
            self.guidance.advance(int(timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME]) - self.guidance.steps)
        for connector in self._learner_connector.connectors:
            if hasattr(connector, "gamma"):
                connector.gamma = self.guidance.discount

    def compute_loss_for_module(self, *, config: AlgorithmConfig, **kwargs: Any) -> Any:
        """Compute the loss of the algorithm with γ̃ for its γ."""
        if self._guided_config is None or self._guided_config.gamma != self.guidance.discount:
            self._guided_config = config.copy(copy_frozen=False)
            self._guided_config.gamma = self.guidance.discount
        return super().compute_loss_for_module(config=self._guided_config, **kwargs)

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Log the present λ and γ̃, and h of what has arrived since the update before."""
        super().after_gradient_based_update(timesteps=timesteps)
        for name, value in (("lambda", self.guidance.lambda_), ("discount", self.guidance.discount)):
            self.metrics.log_value((DEFAULT_MODULE_ID, f"guidance_{name}"), value, reduce="mean", window=1)
        if not self.replays:
            log_heuristic(self.metrics, self._newly_arrived(), DEFAULT_MODULE_ID)

    def _newly_arrived(self) -> HeuristicStatistics:
        """Return the statistics of what has arrived since they were last asked for; each iteration has its own.

        Their limits are those of all that has arrived in the iteration, as those before can't be taken out of them.
        """
        present, (known, earlier) = self.guidance.statistics, self._logged
        self._logged = present, replace(present)
        return present.since(earlier) if present is known else present


def log_heuristic(metrics: MetricsLogger, statistics: HeuristicStatistics, *prefix: str) -> None:
    """Log h of what has arrived; RLlib averages over what is logged between two results."""
    for name, value, reduction in (
        ("h_mean", statistics.mean, "mean"),
        ("h_min", statistics.minimum, "min"),
        ("h_max", statistics.maximum, "max"),
    ):
        metrics.log_value((*prefix, f"guidance_{name}"), value, reduce=reduction)


def observe_samples(*, env_runner: Any, metrics_logger: MetricsLogger, samples: list[Any], **_: Any) -> None:
    """Log h of the episodes that an env runner has sampled, where the learner sees only what is replayed."""
    samples = [episode for episode in samples if len(episode)]
    if not samples or env_runner.config.in_evaluation:
        return
    guidance: Guidance = env_runner.config.learner_config_dict[GUIDANCE_KEY]
    statistics = HeuristicStatistics()
    statistics.add(guidance.evaluate(observations_of(samples, [len(episode) for episode in samples], 1)))
    log_heuristic(metrics_logger, statistics)


@cache
def guided_learner(learner: type[Learner], *, replays: bool) -> type[Learner]:
    """Return the guided subclass of a learner class.

    :param replays: whether its batches come from a replay buffer
    """
    if issubclass(learner, GuidedLearner):
        return learner
    attributes = {"__module__": __name__, "replays": replays}
    return type(f"Guided{learner.__name__}", (GuidedLearner, learner), attributes)
