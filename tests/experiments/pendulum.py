"""A heuristic for Pendulum-v1: the higher the better."""


def upright(observations):
    return 10 * observations[:, 0]
