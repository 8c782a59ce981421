"""Small sets of episodes, in memory and as Minari datasets."""

import gymnasium as gym
import minari
import numpy as np
from minari.data_collector import EpisodeBuffer

from hurl.data import Episodes

VECTORS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Box(-1, 1, (2,), np.float32)


def random_episodes(lengths=(4, 1, 7, 3), terminated=(True, False, False, True), *, seed=0, observation_space=VECTORS):
    """Episodes of noise, with rewards that depend on the state before the step."""
    generator = np.random.default_rng(seed)
    lengths = np.array(lengths)
    if isinstance(observation_space, gym.spaces.Discrete):
        states = generator.integers(0, observation_space.n, lengths.sum() + len(lengths)) + observation_space.start
    else:
        states = generator.normal(size=(lengths.sum() + len(lengths), *observation_space.shape)).astype(np.float32)
    actions = generator.uniform(-1, 1, (lengths.sum(), 2)).astype(np.float32)
    rewards = generator.normal(size=lengths.sum())
    return Episodes(
        states, actions, rewards, lengths, np.array(terminated), observation_space, ACTIONS, "test/noise-v0"
    )


def write_minari(folder, episodes, *, dataset_id="test/noise-v0", complete=True, monkeypatch):
    """Write episodes as a Minari dataset under a folder, without hurl's own code."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    buffers = []
    for index, (start, end) in enumerate(zip(episodes.starts, episodes.ends, strict=True)):
        ends = np.zeros(end - start, bool)
        ends[-1] = complete
        terminated = bool(episodes.terminated[index])
        buffers.append(
            EpisodeBuffer(
                id=None,
                seed=None,
                options=None,
                observations=list(episodes.states[start + index : end + index + 1]),
                actions=list(episodes.actions[start:end]),
                rewards=list(episodes.rewards[start:end]),
                terminations=list(ends & terminated),
                truncations=list(ends & (not terminated)),
                infos={},
            )
        )
    return minari.create_dataset_from_buffers(
        dataset_id,
        buffers,
        observation_space=episodes.observation_space,
        action_space=episodes.action_space,
        algorithm_name="noise",
        code_permalink="-",
        author="-",
        author_email="-",
        description="-",
    )
