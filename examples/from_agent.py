"""A heuristic from an old agent: PPO's value function on CartPole guides DQN on a pole three times as long."""

import tempfile
from pathlib import Path

from learning_curves import arguments, draw, learn
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env

import hurl
from hurl.heuristics import ValueFunctionHeuristic

GAMMA = 0.98
SETTINGS = {"learning_rate": 1e-3, "learning_starts": 1_000, "train_freq": 8, "gradient_steps": 8, "seed": 0}


def long_pole():
    """Make the new task."""
    env = make_vec_env("CartPole-v1", n_envs=4, seed=0)
    env.env_method("set_wrapper_attr", "length", 1.5)
    env.env_method("set_wrapper_attr", "polemass_length", 0.15)
    return env


def main():
    """Learn the old task, keep the agent as a zip, and learn the new task with and without it."""
    options = arguments(__doc__, steps=30_000)
    with tempfile.TemporaryDirectory() as folder:
        old = PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=0), n_steps=128, gamma=GAMMA, seed=0)
        old.learn(options.steps).save(Path(folder) / "old.zip")
        h = ValueFunctionHeuristic.from_agent(PPO.load(Path(folder) / "old.zip"))
    guidance = hurl.Guidance(h, gamma=GAMMA)
    models = {
        "DQN with the old agent's V": hurl.guided(DQN)("MlpPolicy", long_pole(), guidance=guidance, **SETTINGS),
        "DQN": DQN("MlpPolicy", long_pole(), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "from_agent.png")


if __name__ == "__main__":
    main()
