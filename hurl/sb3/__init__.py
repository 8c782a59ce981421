"""Guidance for Stable-Baselines3, sb3-contrib and SBX: `guided(Algorithm)`; and behaviour cloning into their models."""

from hurl.sb3.algorithms import guided
from hurl.sb3.warm_start import CloningResult, Rehearsal, WarmStartError, warm_start

__all__ = ["CloningResult", "Rehearsal", "WarmStartError", "guided", "warm_start"]
