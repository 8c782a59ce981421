"""RLlib's PPO with guidance in its learners: Acrobot, h by the height of its tip."""

import matplotlib.pyplot as plt
import numpy as np
import ray
from learning_curves import arguments, save
from ppo import missing_height
from ray.rllib.algorithms.ppo import PPOConfig

import hurl
from hurl.rllib import guided

GAMMA, BATCH = 0.99, 2_000


def learn(config, steps):
    """Train for some iterations; return the results of each."""
    algorithm = config.build_algo()
    results = [algorithm.train() for _ in range(max(1, steps // BATCH))]
    algorithm.stop()
    return results


def main():
    """Learn with and without h."""
    options = arguments(__doc__, steps=40_000)
    plain = (
        PPOConfig()
        .environment("Acrobot-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(gamma=GAMMA, train_batch_size_per_learner=BATCH, minibatch_size=250, num_epochs=10, lr=1e-3)
        .debugging(seed=0)
    )
    schedule = hurl.TanhSchedule(0.9, iterations=max(1, options.steps // BATCH))
    guidance = hurl.Guidance(missing_height, schedule, gamma=GAMMA, steps_per_iteration=BATCH)
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    ray.init(num_cpus=2, include_dashboard=False, ignore_reinit_error=True)
    for name, config in {"PPO with h": guided(plain, guidance), "PPO": plain}.items():
        results = learn(config, options.steps)
        returns = [result["env_runners"].get("episode_return_mean", np.nan) for result in results]  # none ended yet
        print(f"{name}: return {returns[-1]:.1f} at the end")
        axes.plot(BATCH * np.arange(1, len(returns) + 1), returns, marker=".", label=name)
    axes.set(xlabel="environment steps", ylabel="return of training episodes")
    axes.legend()
    save(figure, options.out / "rllib_ppo.png")


if __name__ == "__main__":
    main()
