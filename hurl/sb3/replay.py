"""Off-policy guidance is a replay buffer: h is stored with a transition, its reward reshaped when it is sampled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from hurl.guidance import Guidance, Observations
from hurl.pieces import pieces
from hurl.sb3.prior import TRANSITIONS_PER_CALL, LoggedTransitions, logged_rows, mixed


class ReshapedRewards(NDArrayOperatorsMixin):
    """The rewards of a replay buffer: written as they came, read as r̃ at the guidance's present λ.

    The λ-free term of each r̃ is kept beside its reward, at 4 bytes a transition, so that sampling never calls h. In
    all else it is the array of all r̃.

    :param raw: the rewards of the original MDP, shape (buffer_size, n_envs)
    """

    def __init__(self, raw: NDArray[np.float32], guidance: Guidance) -> None:
        self.raw = raw
        self.terms = np.zeros_like(raw, dtype=np.float32)
        self.guidance = guidance

    def __len__(self) -> int:
        return len(self.raw)

    def __setitem__(self, index: Any, rewards: NDArray[Any]) -> None:
        self.raw[index] = rewards

    def __getitem__(self, index: Any) -> NDArray[Any]:
        return self.guidance.reshape(self.raw[index], self.terms[index])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self[:], dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [np.asarray(value) if isinstance(value, ReshapedRewards) else value for value in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("raw", "terms", "guidance") or name.startswith("__"):  # of one that is being made or copied
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


class GuidedReplayBuffer(ReplayBuffer):
    """What guidance adds to a replay buffer of Stable-Baselines3, whichever it is: plain, dictionary, n-step or HER.

    Pickled, it is the plain buffer again, rewards as they came: any algorithm can load it, and a guided one
    computes h for it anew.
    """

    unguided: ClassVar[type[ReplayBuffer]]
    guidance: Guidance
    rewards: ReshapedRewards  # type: ignore[assignment]
    logged: LoggedTransitions | None = None
    _is_arriving = False

    @contextmanager
    def arriving(self) -> Iterator[None]:
        """Say that what is added comes from the environments now: it moves λ, where what a user adds does not."""
        self._is_arriving = True
        try:
            yield
        finally:
            del self._is_arriving

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:
        """Store a transition of each environment, calling the heuristic once for all of them."""
        observations, following = self._as_given(obs), self._as_given(next_obs)
        ended = np.reshape(np.asarray(done, bool), self.n_envs)
        truncated = np.zeros(self.n_envs, bool)
        if self.handle_timeout_termination:
            truncated = ended & np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
        if self._is_arriving:
            rewards = np.reshape(reward, self.n_envs)
            terms = self.guidance.observe(observations, following, rewards, ended & ~truncated, truncated)
        else:
            terms = self.guidance.terms(observations, following, ended & ~truncated)
        position = self.pos
        super().add(obs, next_obs, action, reward, done, infos)
        self.rewards.terms[position] = terms

    def sample(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        """Sample transitions of the reshaped MDP at the present λ: rewards r̃ and discounts γ̃; some of them logged."""
        if self.logged is None:
            return self._sample_own(batch_size, *args, **kwargs)
        is_logged = logged_rows(batch_size, self.logged.prior.share)
        own = self._sample_own(int((~is_logged).sum()), *args, **kwargs)
        env = args[0] if args else kwargs.get("env")
        return mixed(own, self.logged.sample(int(is_logged.sum()), self, env), is_logged)

    def _sample_own(self, *args: Any, **kwargs: Any) -> Any:
        discount = self.guidance.discount
        self.gamma = discount  # n-step buffers sum the rewards with it, and return its powers as discounts
        samples = super().sample(*args, **kwargs)
        if samples.discounts is None:
            samples = samples._replace(discounts=torch.full_like(samples.rewards, discount))
        return samples

    def compute_terms(self) -> None:
        """Compute h for every stored transition, and for logged ones."""
        if self.logged is not None:
            self.logged.prepare(self.guidance, limits_end=not self.handle_timeout_termination)
        terminated = self.dones * (1 - self.timeouts)
        rows_per_call = max(1, TRANSITIONS_PER_CALL // self.n_envs)
        for piece in pieces(self.size(), rows_per_call):
            rows = np.arange(piece.start, piece.stop)
            terms = self.guidance.terms(
                self._stored(rows), self._stored(rows, following=True), terminated[rows].ravel()
            )
            self.rewards.terms[rows] = terms.reshape(len(rows), self.n_envs)

    def _stored(self, rows: NDArray[np.intp], following: bool = False) -> Observations:
        """Return the raw observations of some rows, or those that followed them, environments flattened in."""
        if following and self.optimize_memory_usage:
            rows = (rows + 1) % self.buffer_size
        stored: Any = self.next_observations if following and not self.optimize_memory_usage else self.observations
        if isinstance(stored, dict):
            return self._as_given({key: array[rows] for key, array in stored.items()})
        return self._as_given(stored[rows])

    def _as_given(self, stored: Any) -> Observations:
        """Return stored observations in the shape that environments give them: discrete ones have an axis less."""
        space: Any = self.observation_space
        if isinstance(stored, dict):
            return {key: np.reshape(array, (-1, *space[key].shape)) for key, array in stored.items()}
        return np.reshape(stored, (-1, *space.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        state = dict(super().__getstate__())  # type: ignore[call-overload]
        del state["guidance"]
        state.pop("logged", None)
        state |= {"rewards": self.rewards.raw, "gamma": self.guidance.gamma}
        return object.__new__, (self.unguided,), state


class GuidedHerReplayBuffer(GuidedReplayBuffer, HerReplayBuffer):
    """Guidance for hindsight experience replay: h is computed for the goals that a sample was relabelled with."""

    def _get_virtual_samples(self, batch_indices: NDArray[Any], env_indices: NDArray[Any], env: Any = None) -> Any:
        samples = super()._get_virtual_samples(batch_indices, env_indices, env=None)
        observations = {key: value.cpu().numpy() for key, value in samples.observations.items()}
        next_observations = {key: value.cpu().numpy() for key, value in samples.next_observations.items()}
        rewards, terminated = samples.rewards.cpu().numpy(), samples.dones.cpu().numpy().ravel()
        terms = self.guidance.terms(self._as_given(observations), self._as_given(next_observations), terminated)
        reshaped = self._normalize_reward(self.guidance.reshape(rewards, terms.reshape(-1, 1)), env)
        return samples._replace(
            observations=self._to_normalized_torch(observations, env),
            next_observations=self._to_normalized_torch(next_observations, env),
            rewards=self.to_torch(reshaped),
        )

    def _to_normalized_torch(self, observations: dict[str, NDArray[Any]], env: Any) -> dict[str, torch.Tensor]:
        normalized: Any = self._normalize_obs(observations, env)
        return {key: self.to_torch(value) for key, value in normalized.items()}


def guide_replay_buffer(
    buffer: ReplayBuffer, guidance: Guidance, logged: LoggedTransitions | None = None
) -> GuidedReplayBuffer:
    """Turn a replay buffer into a guided one, in place, h computed for the transitions that it holds already.

    :param logged: of which its batches take a share
    """
    raw = buffer.rewards
    if isinstance(buffer, GuidedReplayBuffer):
        raw = buffer.rewards.raw
    else:
        buffer.__class__ = _guided(type(buffer))
    assert isinstance(buffer, GuidedReplayBuffer)
    buffer.guidance = guidance
    buffer.rewards = ReshapedRewards(raw, guidance)
    buffer.logged = logged
    buffer.compute_terms()
    return buffer


@cache
def _guided(buffer_class: type[ReplayBuffer]) -> type[GuidedReplayBuffer]:
    guided = GuidedHerReplayBuffer if issubclass(buffer_class, HerReplayBuffer) else GuidedReplayBuffer
    return type(
        f"Guided{buffer_class.__name__}", (guided, buffer_class), {"unguided": buffer_class, "__module__": __name__}
    )
