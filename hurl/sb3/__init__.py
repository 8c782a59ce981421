"""Guidance for Stable-Baselines3, sb3-contrib and SBX: `guided(Algorithm)`; behaviour cloning into their models, and
`jump_started(Algorithm)`, whose episodes a cloned policy begins.
"""

from hurl.jump_start import JumpStart
from hurl.sb3.algorithms import guided
from hurl.sb3.jump_start import jump_started
from hurl.sb3.warm_start import CloningResult, Rehearsal, WarmStartError, warm_start

__all__ = ["CloningResult", "JumpStart", "Rehearsal", "WarmStartError", "guided", "jump_started", "warm_start"]
