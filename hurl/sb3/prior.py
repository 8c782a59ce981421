"""Logged transitions in the batches of a replay buffer: drawn from a dataset, reshaped as they are sampled."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from hurl.data import DatasetError, Episodes, discounted_returns, load_episodes
from hurl.guidance import Guidance
from hurl.pieces import pieces
from hurl.prior import PriorData, PriorDataError
from hurl.sb3.spaces import check_spaces

# Transitions whose h is computed in one call, where they have been stored before they are guided.
TRANSITIONS_PER_CALL = 4096


class LoggedTransitions:
    """The transitions of a dataset, of which a replay buffer's batches take a share.

    The data is kept once, as it was read: actions are scaled and rewards reshaped when they are sampled. Beside it are
    the λ-free term of each r̃, so that sampling never calls h, and the episode that each transition is in.

    :param prior: the dataset and its share
    :param model: whose spaces the data must have, and whose policy scales actions
    """

    def __init__(self, prior: PriorData, model: OffPolicyAlgorithm) -> None:
        self.prior, self.policy = prior, model.policy
        self.episodes = load_episodes(prior.dataset, prior.root)
        check_spaces(model, self.episodes)
        check_share(prior.share, model.batch_size)
        self._check_size(model.batch_size)
        self.is_scaled = isinstance(model.action_space, Box)
        shape = getattr(model.observation_space, "shape", None)
        # Stable-Baselines3 puts the channels of images first.
        is_transposed = shape is not None and self.episodes.states.shape[1:] != shape
        self.states = np.moveaxis(self.episodes.states, -1, 1) if is_transposed else self.episodes.states
        self.terms = np.zeros(self.episodes.transitions, np.float32)

    def _check_size(self, batch_size: int) -> None:
        wanted = int(logged_rows(batch_size, self.prior.share).sum())
        if self.episodes.transitions < wanted:
            raise DatasetError(
                f"dataset {self.episodes.name} has {self.episodes.transitions} transitions, fewer than the {wanted} "
                f"that a batch of {batch_size} takes from it: collect more, or lower the share from {self.prior.share}"
            )

    def prepare(self, guidance: Guidance, *, limits_end: bool) -> None:
        """Compute what is stored beside each transition.

        :param limits_end: whether a time limit counts as an end, as some buffers are told
        """
        self.guidance = guidance
        self.ended = self.episodes.terminal.copy()
        if limits_end:
            self.ended[self.episodes.ends - 1] = True
        if self.prior.blend is None:
            self._compute_terms(guidance)
        else:
            self.coefficients = trajectory_coefficients(self.episodes, self.prior.blend)
            self._compute_returns(guidance)

    def _compute_terms(self, guidance: Guidance) -> None:
        for part in pieces(self.episodes.transitions, TRANSITIONS_PER_CALL):
            rows = np.arange(part.start, part.stop)
            places = self._places(rows)
            self.terms[rows] = guidance.terms(self.states[places], self.states[places + 1], self.ended[rows])

    def _compute_returns(self, guidance: Guidance) -> None:
        """Store γ·G(s') = G − r in the place of γ·h(s'); what a time limit cut off is worth h."""
        last = self._places(self.episodes.ends - 1) + 1
        values = np.where(self.ended[self.episodes.ends - 1], 0.0, guidance.evaluate(self.states[last]))
        returns = discounted_returns(self.episodes, gamma=guidance.gamma, last_values=values)
        self.terms[:] = returns - self.episodes.rewards

    def sample(self, count: int, buffer: ReplayBuffer, env: Any) -> ReplayBufferSamples:
        """Draw transitions as a replay buffer draws its own: r̃ and γ̃ at the λ in force, over n steps where it has n.

        :param buffer: says how observations are stored, normalised and moved to the device
        :param env: the `VecNormalize`, if any
        """
        rows = np.random.randint(0, self.episodes.transitions, size=count)  # noqa: NPY002 - as the buffer's own
        steps = np.arange(getattr(buffer, "n_steps", 1))
        lengths = np.minimum(self.episodes.ends[self.episodes.episode_of[rows]] - rows, len(steps))
        following = np.minimum(rows[:, None] + steps, (rows + lengths - 1)[:, None])
        rewards, discounts = self._reshaped(following)
        weights = discounts**steps * (steps < lengths[:, None])
        total = (buffer._normalize_reward(rewards.astype(np.float32), env) * weights).sum(1, keepdims=True)
        last = following[:, -1]
        return ReplayBufferSamples(
            self._observations(self._places(rows), buffer, env),
            buffer.to_torch(self._actions(rows, buffer)),
            self._observations(self._places(last) + 1, buffer, env),
            buffer.to_torch(self.ended[last].astype(np.float32).reshape(-1, 1)),
            buffer.to_torch(total.astype(np.float32)),
            buffer.to_torch((discounts[:, 0] ** lengths).astype(np.float32).reshape(-1, 1)),
        )

    def _reshaped(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return r̃ of transitions, shape (count, steps), and their γ̃, shape (count, 1)."""
        rewards, terms, guidance = self.episodes.rewards[rows], self.terms[rows], self.guidance
        if self.prior.blend is None or (guidance.has_fallback and guidance.lambda_ == 1.0):
            return guidance.reshape(rewards, terms), np.full((len(rows), 1), guidance.discount)
        coefficients = self.coefficients[self.episodes.episode_of[rows[:, :1]]]
        return rewards + (1.0 - coefficients) * terms, coefficients * guidance.gamma

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where s of some transitions is among the states; all of them would be as many numbers to keep."""
        return rows + self.episodes.episode_of[rows]

    def _observations(self, places: NDArray[np.int64], buffer: ReplayBuffer, env: Any) -> torch.Tensor:
        stored: Any = buffer.observations
        states = self.states[places].reshape(len(places), *buffer.obs_shape).astype(stored.dtype)
        return buffer.to_torch(buffer._normalize_obs(states, env))  # type: ignore[arg-type]

    def _actions(self, rows: NDArray[np.int64], buffer: ReplayBuffer) -> NDArray[Any]:
        actions = self.episodes.actions[rows]
        if self.is_scaled:
            actions = self.policy.scale_action(actions)
        return actions.reshape(len(rows), buffer.action_dim).astype(buffer.actions.dtype)


def trajectory_coefficients(episodes: Episodes, blend: float) -> NDArray[np.float64]:
    """Return λ_τ = 1 − blend·rank(τ) of each trajectory, by its undiscounted return; equal ones share a rank.

    :return: shape (E,)
    """
    totals = np.add.reduceat(episodes.rewards, episodes.starts)
    ranks = np.searchsorted(np.sort(totals), totals, side="right") / len(totals)
    return 1.0 - blend * ranks


def check_share(share: float, batch_size: int) -> None:
    """Refuse a share of which a batch has nothing, or nothing else."""
    wanted = int(logged_rows(batch_size, share).sum())
    if wanted in (0, batch_size):
        least, most = (500 // batch_size + 1) / 1000, 1 - (500 // batch_size + 1) / 1000  # of more than half a row
        others = "" if batch_size < 2 else f"one from {least:g} to {most:g}, or "
        raise PriorDataError(
            f"a share of {share} is {wanted} of the {batch_size} transitions of a batch: take {others}larger batches"
        )


@lru_cache(maxsize=8)
def logged_rows(count: int, share: float) -> NDArray[np.bool_]:
    """Return which of so many rows are logged ones, spread evenly: what is drawn at once may be cut into batches."""
    quota = np.floor(np.arange(count + 1) * share + 0.5)
    is_logged: NDArray[np.bool_] = np.diff(quota) > 0
    return is_logged


def mixed(own: ReplayBufferSamples, logged: ReplayBufferSamples, is_logged: NDArray[np.bool_]) -> ReplayBufferSamples:
    """Return samples with logged ones in some rows, and own ones in the others."""
    places = torch.as_tensor(is_logged)

    def together(first: Any, second: Any) -> torch.Tensor:
        rows = torch.empty((len(is_logged), *first.shape[1:]), dtype=first.dtype, device=first.device)
        rows[places.logical_not()], rows[places] = first, second.to(first.dtype)
        return rows

    return ReplayBufferSamples(*(together(*pair) for pair in zip(own, logged, strict=True)))
