"""A heuristic from logged data: what a clumsy driver of MountainCar was paid, and what follows from it."""

import tempfile
from pathlib import Path

import numpy as np
from learning_curves import arguments, draw, learn
from stable_baselines3 import DQN

import hurl
from hurl.data import Policy, collect
from hurl.heuristics import EnsembleLowerBound

GAMMA = 0.99
SETTINGS = {"learning_rate": 1e-3, "learning_starts": 1_000, "train_freq": 8, "gradient_steps": 8, "seed": 0}


def clumsy(seed):
    """Return a driver who pushes where the car goes, but for every third time, when it does anything."""
    rng = np.random.default_rng(seed)

    def act(observations):
        forward = np.where(observations[:, 1] >= 0, 2, 0)
        return np.where(rng.random(len(forward)) < 0.3, rng.integers(3, size=len(forward)), forward)

    return act


def main():
    """Collect, fit, judge, and learn with and without what was fitted."""
    options = arguments(__doc__, steps=30_000)
    env = hurl.make_env("MountainCar-v0", n_envs=4)
    with tempfile.TemporaryDirectory() as root:
        driver = Policy("clumsy", clumsy, source="a rule", algorithm="none", identity="clumsy")
        data = collect([driver], env, "car/clumsy-v0", transitions=min(20_000, options.steps), root=Path(root))
        h = EnsembleLowerBound.fit(data, gamma=GAMMA, epochs=10)  # low where the data says little
        print(hurl.diagnose(h, data, GAMMA))
    model = hurl.guided(DQN)("MlpPolicy", env, guidance=hurl.Guidance(h, gamma=GAMMA), **SETTINGS)
    curves = {"DQN with h from data": learn(model, options.steps)}
    plain = DQN("MlpPolicy", hurl.make_env("MountainCar-v0", n_envs=4), gamma=GAMMA, **SETTINGS)
    draw(curves | {"DQN": learn(plain, options.steps)}, options.out / "from_data.png")


if __name__ == "__main__":
    main()
