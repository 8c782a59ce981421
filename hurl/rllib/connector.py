"""The learner connector that reshapes rewards, before advantages and targets are computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from hurl.guidance import Guidance, Observations
from hurl.heuristics.base import StorableHeuristic


class ReshapeRewards(ConnectorV2):  # type: ignore[misc]
    """Puts reshaped rewards into the train batch, in place of those that the environment paid.

    The episodes stay as they are: their returns are reported, and a replay buffer samples them again at another λ.
    The heuristic sees the observations of the episodes, and is called once for the whole batch.

    :param guidance: whose λ is that of the present iteration
    :param arriving: whether the episodes have just been sampled, and not replayed
    """

    def __init__(self, guidance: Guidance, *, arriving: bool) -> None:
        super().__init__()
        self.guidance, self.arriving = guidance, arriving
        self._checked = False

    def __call__(
        self,
        *,
        batch: dict[str, Any],
        episodes: Sequence[Any],
        shared_data: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Write the column of rewards, which the pieces that follow leave alone."""
        if Columns.REWARDS in batch:
            raise ValueError("a learner connector has written rewards before: guidance must see those of the episodes")
        # On-policy algorithms append to each episode a step that never was, to compute its last value.
        appended = int(Columns.LOSS_MASK in batch)
        singles = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        self._check_space(singles[0])
        lengths = [len(episode) - appended for episode in singles]
        terms = np.split(self._terms(singles, lengths), np.cumsum(lengths)[:-1])
        for episode, length, term in zip(singles, lengths, terms, strict=True):
            rewards = np.asarray(episode.get_rewards(slice(0, len(episode))))
            reshaped = self.guidance.reshape(rewards[:length], term)
            items = np.concatenate([reshaped, rewards[length:].astype(reshaped.dtype)])
            self.add_n_batch_items(batch, Columns.REWARDS, items, len(items), episode)
        return batch

    def _check_space(self, episode: SingleAgentEpisode) -> None:
        """Refuse, once, a heuristic that is for other observations than those of the environment."""
        if not self._checked and isinstance(self.guidance.heuristic, StorableHeuristic):
            self.guidance.heuristic.check(episode.observation_space, self.guidance.gamma)
        self._checked = True

    def _terms(self, episodes: Sequence[SingleAgentEpisode], lengths: Sequence[int]) -> NDArray[np.float32]:
        """Return the λ-free part of the reshaped rewards of all steps, the episodes one after the other."""
        terminated = np.zeros(sum(lengths), dtype=np.bool_)
        ends = np.cumsum(lengths) - 1
        terminated[ends] = [episode.is_terminated for episode in episodes]
        after = before = observations_of(episodes, lengths, 1)
        if self.guidance.shaping != "hurl":  # which asks for h(s') alone
            before = observations_of(episodes, lengths, 0)
        return self.guidance.terms(before, after, terminated, arriving=self.arriving)


def observations_of(episodes: Sequence[SingleAgentEpisode], lengths: Sequence[int], first: int) -> Observations:
    """Return so many observations of each episode, from its first, second, … on, as one batch."""
    observations: list[Any] = [
        episode.get_observations(slice(first, first + n)) for episode, n in zip(episodes, lengths, strict=True)
    ]
    if isinstance(observations[0], Mapping):
        return {key: np.concatenate([part[key] for part in observations]) for key in observations[0]}
    return np.concatenate(observations)
