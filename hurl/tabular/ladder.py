"""A ladder of λ with tabular Q-learning: every rung learns from every transition, and a bandit chooses which acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hurl.ladder import Bandit, Ladder
from hurl.tabular.learning import Integers, Learner, first_held, policy_evaluator, repeated
from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.values import check_argument, whole


@dataclass(frozen=True, eq=False)
class LadderResult:
    """What Q-learning on a ladder of K rungs reached, in E evaluations of R runs.

    :param steps: environment steps of a run at each evaluation, shape (E,)
    :param values: V^π(d0) in the original MDP of the policy that is greedy on each rung, shape (E, R, K)
    :param best: the rung that the bandit holds best, shape (E, R)
    :param episodes: how many episodes each rung acted in and ended, shape (R, K)
    :param q: Q at the end, shape (R, K, S, A)
    """

    steps: Integers
    values: Floats
    best: Integers
    episodes: Integers
    q: Floats

    def __repr__(self) -> str:
        last = np.take_along_axis(self.values[-1], self.best[-1][:, None], axis=1)
        return (
            f"LadderResult({self.steps[-1]} steps of {self.q.shape[0]} runs on {self.q.shape[1]} rungs, "
            f"median value {np.median(last):.4g})"
        )


def ladder_q_learning(
    mdp: FiniteMDP,
    h: Floats,
    ladder: Ladder,
    *,
    steps: int,
    steps_per_iteration: int,
    horizon: int,
    rng: np.random.Generator,
    exploration: float = 1.0,
    runs: int = 1,
    episodes_per_block: int = 10,
) -> LadderResult:
    """Learn on all rungs of a ladder: `q_learning` with one table a rung, each updated by every transition.

        Q_k(s, a) ← Q_k(s, a) + α_k·(r + (1 − λ_k)·γ·h(s') + λ_k·γ·max_a' Q_k(s', a') − Q_k(s, a))     k = 1, …, K

    At the start of an episode `hurl.ladder.Bandit` chooses the rung whose table acts until it ends, by the episodes'
    returns in the original MDP, Σ_t γ^t·r_t: an unbiased estimate, but for the horizon, of V(d0) of what acted. Which
    rung acts decides which transitions come, not what a transition teaches.

    :param h: the heuristic, shape (S,)
    :param ladder: its rungs; those that suit γ where none are named
    :param steps: environment steps of each run
    :param steps_per_iteration: environment steps between evaluations of the greedy policies
    :param horizon: the most steps of an episode
    :param rng: where all randomness comes from
    :param exploration: the probability of a uniform action
    :param runs: independent runs, learning side by side
    :param episodes_per_block: after how many episodes of a run its bandit compares the rungs anew
    """
    learner = LadderLearner(
        mdp,
        repeated(mdp, {"h": h}, runs),
        ladder,
        horizon=horizon,
        exploration=exploration,
        rng=rng,
        episodes_per_block=episodes_per_block,
    )
    evaluator = policy_evaluator(mdp)
    counts, values, best = [], [], []
    for count in learner.learn(lambda _: learner.rungs, steps, steps_per_iteration):
        counts.append(count)
        values.append([[evaluator(policy) for policy in policies] for policies in learner.policies().swapaxes(0, 1)])
        best.append(learner.best)
    return LadderResult(np.array(counts), np.array(values), np.array(best), learner.episodes, learner.q)


def ladder_sample_complexity(
    mdp: FiniteMDP,
    heuristics: Mapping[str, Floats],
    ladder: Ladder,
    *,
    epsilon: float,
    budget: int,
    evaluation_interval: int,
    horizon: int,
    rng: np.random.Generator,
    exploration: float = 1.0,
    runs: int = 20,
    hold: int = 5,
    episodes_per_block: int = 10,
) -> Floats:
    """Return the environment steps after which a ladder is ε-optimal, shape (H, R); ∞ where the budget ended first.

    Judged is the greedy policy of the rung that the bandit holds best, as `sample_complexity` judges that of one λ; its
    parameters are those of `sample_complexity` and `ladder_q_learning`.
    """
    h = repeated(mdp, heuristics, runs)
    learner = LadderLearner(
        mdp,
        h,
        ladder,
        horizon=horizon,
        exploration=exploration,
        rng=rng,
        episodes_per_block=episodes_per_block,
    )
    evaluations = learner.learn(lambda _: learner.rungs, budget, evaluation_interval)
    return first_held(mdp, learner, evaluations, epsilon, hold).reshape(len(heuristics), runs)


def choice_regret(
    ladder: Ladder,
    means: ArrayLike,
    deviation: float,
    *,
    episodes: int,
    rng: np.random.Generator,
    episodes_per_block: int = 10,
) -> Floats:
    """Σ_{i≤n} max_k μ_k − μ_{k_i} for n = 1, …, `episodes`: what the bandit's choices k_i lost, shape (episodes,).

    Returns are normal around the rungs' means: those of policies that stay as they are, or, with means that change from
    episode to episode, of ones that learn.

    :param means: μ, the mean return of each rung, shape (K,) or (episodes, K)
    :param deviation: σ, the standard deviation of returns
    :param episodes_per_block: after how many episodes the bandit compares the rungs anew
    """
    check_argument("episodes_per_block", episodes_per_block, whole(1))
    means = np.asarray(means, np.float64)
    if means.shape not in ((len(ladder.rungs),), (episodes, len(ladder.rungs))):
        raise ValueError(
            f"{ladder} has {len(ladder.rungs)} rungs and there are {episodes} episodes: give a mean for each rung, "
            f"or one for each episode and rung, got shape {means.shape}"
        )
    means = np.broadcast_to(means, (episodes, len(ladder.rungs)))
    bandit = Bandit(ladder)
    bandit.seed(int(rng.integers(2**32)))
    noise = deviation * rng.standard_normal(episodes)
    lost = np.zeros(episodes)
    for episode in range(episodes):
        rung = bandit.choose()
        bandit.add(rung, means[episode, rung] + noise[episode])
        if (episode + 1) % episodes_per_block == 0:
            bandit.close_block()
        lost[episode] = means[episode].max() - means[episode, rung]
    return np.cumsum(lost)


class LadderLearner(Learner):
    """Q-learning with a table for each rung, and a bandit for each run that chooses the one that acts.

    :param heuristics: shape (R, S)
    :param ladder: its rungs; those that suit γ where none are named
    :param episodes_per_block: after how many episodes of a run its bandit compares the rungs anew
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        heuristics: Floats,
        ladder: Ladder,
        *,
        horizon: int,
        exploration: float,
        rng: np.random.Generator,
        episodes_per_block: int = 10,
    ) -> None:
        check_argument("episodes_per_block", episodes_per_block, whole(1))
        ladder = ladder.for_gamma(mdp.gamma)
        tables = len(ladder.rungs)
        super().__init__(mdp, heuristics, horizon=horizon, exploration=exploration, rng=rng, tables=tables)
        self.rungs = np.array(ladder.rungs)[:, None]
        self.episodes_per_block = episodes_per_block
        self.bandits = [Bandit(ladder) for _ in range(self.runs)]
        # Drawn beside the generator, which so gives what it gives to a learner without a ladder.
        for bandit, seed in zip(self.bandits, rng.spawn(1)[0].integers(2**32, size=self.runs), strict=True):
            bandit.seed(int(seed))
        self.acting = np.array([bandit.choose() for bandit in self.bandits])
        self.totals = np.zeros(self.runs)
        self.episodes = np.zeros((self.runs, tables), np.int64)

    @property
    def best(self) -> Integers:
        """The rung that each run's bandit holds best, shape (R,)."""
        return np.array([bandit.best for bandit in self.bandits])

    def found(self) -> Integers:
        """The greedy policy of each run's best rung, shape (R, S)."""
        policies: Integers = self.policies()[self.best, np.arange(self.runs)]
        return policies

    def step(self, lambda_: float | Floats) -> tuple[Floats, Integers]:
        """Take a step in every run; where an episode ends, the bandit is told its return and chooses the next rung."""
        lengths = self.ages + 1
        discounts = self.mdp.gamma**self.ages
        paid, ended = super().step(lambda_)
        self.totals += discounts * paid
        for run in ended:
            bandit, rung = self.bandits[run], self.acting[run]
            bandit.add(rung, float(self.totals[run]))
            bandit.lasted(rung, int(lengths[run]))
            self.episodes[run, rung] += 1
            if self.episodes[run].sum() % self.episodes_per_block == 0:
                bandit.close_block()
            self.acting[run] = bandit.choose()
        self.totals[ended] = 0.0
        return paid, ended
