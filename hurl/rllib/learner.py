"""What guidance adds to a learner of RLlib: λ of the present iteration, in rewards and in the discount."""

from __future__ import annotations

from functools import cache
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.connectors.learner import AddColumnsFromEpisodesToTrainBatch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from hurl.guidance import Guidance
from hurl.rllib.connector import ReshapeRewards

__all__ = ["GUIDANCE_KEY", "GuidedLearner", "guided_learner"]

GUIDANCE_KEY = "hurl_guidance"


class GuidedLearner(Learner):  # type: ignore[misc]
    """Guidance for any learner that discounts with the γ of its configuration or of its connectors.

    λ is that of the environment steps sampled so far, which every update is told: it is the same on all learners, and
    that of a restored algorithm is where it was. Who counts iterations, of which PPO samples some longer than others,
    may set `iteration` on all learners before each: λ is then that of this iteration.
    """

    guidance: Guidance
    iteration: int | None = None

    def build(self) -> None:
        """Build the learner, and put the reshaping of rewards into its pipeline."""
        super().build()
        guidance: Guidance = self.config.learner_config_dict[GUIDANCE_KEY]
        self.guidance = guidance.start()
        self._guided_config: AlgorithmConfig | None = None
        self._learner_connector.insert_before(AddColumnsFromEpisodesToTrainBatch, ReshapeRewards(self.guidance))

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Move λ and γ̃ to the present iteration."""
        super().before_gradient_based_update(timesteps=timesteps)
        steps = int(timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME])
        if self.iteration is not None:
            steps = self.iteration * self.guidance.steps_per_iteration
        self.guidance.advance(steps - self.guidance.steps)
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
        """Log the present λ and γ̃, and h over all batches between two results."""
        super().after_gradient_based_update(timesteps=timesteps)
        statistics = self.guidance.read_statistics()
        for name, value, reduction, window in (
            ("lambda", self.guidance.lambda_, "mean", 1),
            ("discount", self.guidance.discount, "mean", 1),
            ("h_mean", statistics.mean, "mean", None),
            ("h_min", statistics.minimum, "min", None),
            ("h_max", statistics.maximum, "max", None),
        ):
            self.metrics.log_value((DEFAULT_MODULE_ID, f"guidance_{name}"), value, reduce=reduction, window=window)


@cache
def guided_learner(learner: type[Learner]) -> type[Learner]:
    """Return the guided subclass of a learner class."""
    if issubclass(learner, GuidedLearner):
        return learner
    return type(f"Guided{learner.__name__}", (GuidedLearner, learner), {"__module__": __name__})
