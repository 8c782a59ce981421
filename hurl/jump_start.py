"""How much of its training episodes a cloned policy begins, for algorithms that jump-start (JSRL)."""

from __future__ import annotations

from dataclasses import dataclass

from hurl.values import check_argument, number, whole


@dataclass(frozen=True)
class JumpStart:
    """How the guide's share of an episode falls, with the settings of the paper's appendix A.4.

    The paper evaluates both policies together apart from training, on D4RL every 10,000 steps. Here it is the training
    episodes that are judged, so that no step goes uncounted.

    :param stages: n; the guide's steps are H·(n−1)/n, H·(n−2)/n, …, 0, H the mean length of its own episodes; the paper
        takes as few stages as the learner can follow, 10 where it studies the tolerance
    :param tolerance: how far below the best moving average so far, as a share of it, the present one may be for the
        next stage to begin; of 0, 5 and 15 % the paper finds 5 % the best with a window of 5
    :param window: evaluations in a moving average; 5 in the paper's D4RL, 3 in its grasping
    :param episodes: training episodes in an evaluation; 10 are 10,000 steps where none ends early
    """

    stages: int = 10
    tolerance: float = 0.05
    window: int = 5
    episodes: int = 10

    def __post_init__(self) -> None:
        for name in ("stages", "window", "episodes"):
            check_argument(name, getattr(self, name), whole(1))
        check_argument("tolerance", self.tolerance, number(0, 1, below=True))
