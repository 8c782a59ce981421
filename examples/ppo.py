"""PPO and a schedule of λ: on-policy algorithms are guided as others are, here on MountainCar."""

from engineered import missing_energy
from learning_curves import arguments, draw, learn
from stable_baselines3 import PPO

import hurl

GAMMA = 0.99
SETTINGS = {"n_steps": 128, "batch_size": 256, "learning_rate": 1e-3, "gae_lambda": 0.98, "ent_coef": 0.01, "seed": 0}


def main():
    """Learn with λ that rises from 0.9 to 1, and without guidance."""
    options = arguments(__doc__, steps=60_000)
    schedule = hurl.TanhSchedule(0.9, iterations=20)
    guidance = hurl.Guidance(missing_energy, schedule, gamma=GAMMA, steps_per_iteration=max(1, options.steps // 20))
    models = {
        "PPO with h, λ from 0.9 to 1": hurl.guided(PPO)(
            "MlpPolicy", hurl.make_env("MountainCar-v0", n_envs=16), guidance=guidance, **SETTINGS
        ),
        "PPO": PPO("MlpPolicy", hurl.make_env("MountainCar-v0", n_envs=16), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "ppo.png")


if __name__ == "__main__":
    main()
