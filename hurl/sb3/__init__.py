"""Guidance for Stable-Baselines3, sb3-contrib and SBX: `guided(Algorithm)`."""

from hurl.sb3.algorithms import guided

__all__ = ["guided"]
