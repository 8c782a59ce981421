"""A heuristic from what is known of a task: the energy that MountainCar's car lacks to be at the goal."""

import numpy as np
from learning_curves import arguments, draw, learn
from stable_baselines3 import DQN

import hurl

GAMMA = 0.99
SETTINGS = {"learning_rate": 1e-3, "learning_starts": 1_000, "train_freq": 8, "gradient_steps": 8, "seed": 0}


def missing_energy(observations):
    """h: the return of as many steps, of 120 at most, as there is energy missing."""
    position, velocity = observations[:, 0], observations[:, 1]
    energy = 600 * velocity**2 + np.sin(3 * position)  # −1 in the valley, 1 on the hill
    steps = 120 * np.clip((1 - energy) / 2, 0, 1)
    return -(1 - GAMMA**steps) / (1 - GAMMA)  # −1 for each of them, discounted


def main():
    """Learn with and without it."""
    options = arguments(__doc__, steps=30_000)
    guidance = hurl.Guidance(missing_energy, gamma=GAMMA)
    models = {
        "DQN with h": hurl.guided(DQN)(
            "MlpPolicy", hurl.make_env("MountainCar-v0", n_envs=4), guidance=guidance, **SETTINGS
        ),
        "DQN": DQN("MlpPolicy", hurl.make_env("MountainCar-v0", n_envs=4), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "engineered.png")


if __name__ == "__main__":
    main()
