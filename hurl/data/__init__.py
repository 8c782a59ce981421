"""Behaviour data: collecting it, reading it from Minari datasets, and its discounted returns."""

from hurl.data.episodes import DatasetError, Episodes, load_episodes
from hurl.data.returns import TimeLimit, discounted_returns

__all__ = ["DatasetError", "Episodes", "TimeLimit", "discounted_returns", "load_episodes"]
