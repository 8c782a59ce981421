"""Behaviour data: collecting it, reading it from Minari datasets, and its discounted returns."""

from hurl.data.collect import PolicySummary, Progress, collect, summarize
from hurl.data.episodes import Episodes, load_episodes
from hurl.data.returns import discounted_returns
from hurl.data.rollout import CollectionError, Policy
from hurl.data.storage import DatasetError
from hurl.discounting import TimeLimit

__all__ = [
    "CollectionError",
    "DatasetError",
    "Episodes",
    "Policy",
    "PolicySummary",
    "Progress",
    "TimeLimit",
    "collect",
    "discounted_returns",
    "load_episodes",
    "summarize",
]
