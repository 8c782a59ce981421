"""PPO and a schedule of λ: on-policy algorithms are guided as others are, here on Acrobot, by the height of its tip."""

import numpy as np
from learning_curves import arguments, draw, learn
from stable_baselines3 import PPO

import hurl

GAMMA = 0.99
SETTINGS = {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "gae_lambda": 0.95, "seed": 0}


def missing_height(observations):
    """h: the return of as many steps, of 100 at most, as the tip is too low; it must come up to 1."""
    (cos1, sin1, cos2, sin2) = observations[:, :4].T
    height = -cos1 - (cos1 * cos2 - sin1 * sin2)  # from −2, hanging, to 2
    steps = 100 * np.clip((1 - height) / 3, 0, 1)
    return -(1 - GAMMA**steps) / (1 - GAMMA)  # −1 for each of them, discounted


def main():
    """Learn with λ that rises from 0.9 to 1, and without guidance."""
    options = arguments(__doc__, steps=40_000)
    schedule = hurl.TanhSchedule(0.9, iterations=20)
    guidance = hurl.Guidance(missing_height, schedule, gamma=GAMMA, steps_per_iteration=max(1, options.steps // 20))
    models = {
        "PPO with h, λ from 0.9 to 1": hurl.guided(PPO)(
            "MlpPolicy", hurl.make_env("Acrobot-v1", n_envs=8), guidance=guidance, **SETTINGS
        ),
        "PPO": PPO("MlpPolicy", hurl.make_env("Acrobot-v1", n_envs=8), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "ppo.png")


if __name__ == "__main__":
    main()
