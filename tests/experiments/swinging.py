"""Behaviour data of Pendulum-v1, as a Minari dataset."""

import gymnasium as gym
import numpy as np

from hurl.data import Episodes
from tests.data.examples import write_minari

DATASET = "pendulum/pushing-v0"


def push(observation):
    """A torque against the swing."""
    return np.clip(-2 * observation[1:2] - 0.5 * observation[2:3], -2, 2).astype(np.float32)


def pushing_episodes(episodes=6, length=30, seed=0):
    env = gym.make("Pendulum-v1", max_episode_steps=length)
    states, actions, rewards = [], [], []
    for episode in range(episodes):
        states.append(env.reset(seed=seed + episode)[0])
        for _ in range(length):
            actions.append(push(states[-1]))
            observation, reward, *_ = env.step(actions[-1])
            states.append(observation)
            rewards.append(reward)
    return Episodes(
        np.array(states), np.array(actions), np.array(rewards), np.full(episodes, length), np.zeros(episodes, bool),
        env.observation_space, env.action_space, DATASET,
    )  # fmt: skip


def write_pushing(root, monkeypatch, **options):
    """Write the dataset under a folder; return the warm start of a run that uses it."""
    write_minari(root, pushing_episodes(**options), dataset_id=DATASET, monkeypatch=monkeypatch)
    return {"dataset": DATASET, "root": str(root), "epochs": 5, "learning_rate": 0.01, "batch_size": 32}
