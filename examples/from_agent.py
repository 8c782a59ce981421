"""A heuristic from an old agent: its value function guides a new one on Acrobot, whose outer link is heavier now."""

import tempfile
from pathlib import Path

from learning_curves import arguments, draw, learn
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import hurl
from hurl.heuristics import ValueFunctionHeuristic

GAMMA = 0.99
SETTINGS = {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "seed": 0}


def acrobot(mass):
    """Make the task, with an outer link of this mass."""
    env = make_vec_env("Acrobot-v1", n_envs=8, seed=0)
    env.env_method("set_wrapper_attr", "LINK_MASS_2", mass)
    return env


def main():
    """Learn the old task, keep the agent as a zip, and learn the new task with and without it."""
    options = arguments(__doc__, steps=30_000)
    with tempfile.TemporaryDirectory() as folder:
        old = PPO("MlpPolicy", acrobot(mass=1.0), gamma=GAMMA, **SETTINGS)
        old.learn(2 * options.steps).save(Path(folder) / "old.zip")
        h = ValueFunctionHeuristic.from_agent(PPO.load(Path(folder) / "old.zip"))
    schedule = hurl.TanhSchedule(0.9, iterations=20)
    guidance = hurl.Guidance(h, schedule, gamma=GAMMA, steps_per_iteration=max(1, options.steps // 20))
    models = {
        "PPO with the old agent's V": hurl.guided(PPO)("MlpPolicy", acrobot(mass=1.5), guidance=guidance, **SETTINGS),
        "PPO": PPO("MlpPolicy", acrobot(mass=1.5), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "from_agent.png")


if __name__ == "__main__":
    main()
