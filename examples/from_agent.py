"""A heuristic from an old agent: its value function guides a new one on a task that is ten times as long."""

import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from learning_curves import arguments, draw, learn
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import hurl
from hurl.heuristics import ValueFunctionHeuristic

GAMMA, STEP, REACH = 0.99, 0.5, 0.5
OLD, NEW = "Post-near-v0", "Post-far-v0"
SETTINGS = {
    "n_steps": 128,
    "batch_size": 256,
    "learning_rate": 1e-3,
    "policy_kwargs": {"activation_fn": torch.nn.ReLU},  # beyond what it has seen, the old agent's V goes on straight
}


class Post(gym.Env):
    """A point finds its way to a post, from so many steps away in any direction; each step costs 1."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, steps_away):
        self.distance = steps_away * STEP

    def reset(self, *, seed=None, options=None):
        """Begin somewhere on the circle."""
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self.position = np.array([np.cos(angle), np.sin(angle)], np.float32) * np.float32(self.distance)
        return self.position.copy(), {}

    def step(self, action):
        """Go a step, no longer than STEP."""
        length = max(1.0, float(np.linalg.norm(action)))
        self.position = self.position + np.float32(STEP / length) * np.asarray(action, np.float32)
        return self.position.copy(), -1.0, bool(np.linalg.norm(self.position) < REACH), False, {}


gym.register(OLD, entry_point=Post, max_episode_steps=100, kwargs={"steps_away": 4})
gym.register(NEW, entry_point=Post, max_episode_steps=200, kwargs={"steps_away": 40})


def make_ppo(task, seed, guidance=None):
    """Return a PPO for a task, guided or not."""
    env = make_vec_env(task, n_envs=8, seed=seed)
    if guidance is None:
        return PPO("MlpPolicy", env, seed=seed, gamma=GAMMA, **SETTINGS)
    return hurl.guided(PPO)("MlpPolicy", env, seed=seed, guidance=guidance, **SETTINGS)


def main():
    """Learn the old task, keep the agent as a zip, and learn the new task with and without it."""
    options = arguments(__doc__, steps=60_000)
    with tempfile.TemporaryDirectory() as folder:
        make_ppo(OLD, seed=100).learn(options.steps).save(Path(folder) / "old.zip")
        h = ValueFunctionHeuristic.from_agent(PPO.load(Path(folder) / "old.zip"))
    guidance = hurl.Guidance(h, hurl.ConstantSchedule(0.9), gamma=GAMMA, steps_per_iteration=2048)
    models = {"PPO with the old agent's V": make_ppo(NEW, 0, guidance), "PPO": make_ppo(NEW, 0)}
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "from_agent.png")


if __name__ == "__main__":
    main()
