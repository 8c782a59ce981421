"""Hindsight replay on a sparse goal task, and a heuristic beside it: two rooms, a door, a new goal every episode."""

import gymnasium as gym
import numpy as np
from learning_curves import arguments, draw, learn
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env

import hurl

GAMMA = 0.98
DOOR, REACH = np.array([0.5, 0.85]), 0.1
MOVES = 0.1 * np.array([(1, 0), (0, 1), (-1, 0), (0, -1)])
PLACE = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
SETTINGS = {
    "learning_rate": 1e-3,
    "learning_starts": 500,
    "train_freq": 8,
    "gradient_steps": 8,
    "target_update_interval": 400,
    "replay_buffer_class": HerReplayBuffer,
    "seed": 0,
}


class GoalRooms(gym.Env):
    """A walker with a goal: −1 a step until it is there, 50 steps at most."""

    observation_space = gym.spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), PLACE))
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        """Begin in the left room, with a goal in the right one."""
        super().reset(seed=seed)
        self.place = self.np_random.uniform((0.0, 0.0), (0.4, 0.6))
        self.goal = self.np_random.uniform((0.6, 0.0), (1.0, 0.6))
        return self.observe(), {}

    def step(self, action):
        """Walk, but not through the wall."""
        moved = np.clip(self.place + MOVES[action] + self.np_random.normal(0.0, 0.01, 2), 0.0, 1.0)
        if (self.place[0] < 0.5) == (moved[0] < 0.5) or moved[1] > 0.7:
            self.place = moved
        reward = float(self.compute_reward(self.place, self.goal, {}))
        return self.observe(), reward, reward == 0.0, False, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        """Return what is paid for these goals, which hindsight replay asks."""
        return np.where(np.linalg.norm(achieved_goal - desired_goal, axis=-1) < REACH, 0.0, -1.0)

    def observe(self):
        """Return the observation."""
        place, goal = self.place.astype(np.float32), self.goal.astype(np.float32)
        return {"observation": place, "achieved_goal": place, "desired_goal": goal}


def steps_left(observations):
    """h: the return of the steps to the goal, through the door where it must be; relabelled goals too."""
    place, goal = observations["observation"], observations["desired_goal"]
    direct = np.abs(place - goal).sum(axis=1)
    by_the_door = np.abs(place - DOOR).sum(axis=1) + np.abs(DOOR - goal).sum(axis=1)
    steps = np.where((place[:, 0] < 0.5) == (goal[:, 0] < 0.5), direct, by_the_door) / 0.1
    return -(1 - GAMMA**steps) / (1 - GAMMA)


def rooms():
    """Make the task."""
    return make_vec_env(lambda: gym.wrappers.TimeLimit(GoalRooms(), 50), n_envs=4, seed=0)


def main():
    """Learn with hindsight alone, and with hindsight and h."""
    options = arguments(__doc__, steps=20_000)
    guidance = hurl.Guidance(steps_left, gamma=GAMMA)
    models = {
        "DQN with HER and h": hurl.guided(DQN)("MultiInputPolicy", rooms(), guidance=guidance, **SETTINGS),
        "DQN with HER": DQN("MultiInputPolicy", rooms(), gamma=GAMMA, **SETTINGS),
    }
    draw({name: learn(model, options.steps) for name, model in models.items()}, options.out / "her.png")


if __name__ == "__main__":
    main()
