"""Algorithm 1 with tabular Q-learning as the base algorithm, and how many samples it needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hurl.guidance import potential_term
from hurl.schedules import Schedule, check_coefficient
from hurl.tabular.mdp import FiniteMDP, Floats
from hurl.tabular.pessimism import Batch, pessimistic_values
from hurl.tabular.reshaping import check_heuristic
from hurl.tabular.simulate import Simulator
from hurl.tabular.solve import evaluate, expectation, optimal, uniform_policy
from hurl.values import check_argument, number, whole

Integers = NDArray[np.int64]

# Differences of values up to this size, relative to V*(d0), are rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class LearningResult:
    """What Q-learning reached, in E evaluations of R runs.

    :param steps: environment steps of a run at each evaluation, shape (E,)
    :param lambdas: λ of the iteration before it, shape (E,)
    :param values: V^π(d0) in the original MDP of the policies that are greedy for Q, shape (E, R)
    :param q: Q at the end, shape (R, S, A)
    """

    steps: Integers
    lambdas: Floats
    values: Floats
    q: Floats

    def __repr__(self) -> str:
        return (
            f"LearningResult({self.steps[-1]} steps of {self.q.shape[0]} runs, "
            f"median value {np.median(self.values[-1]):.4g})"
        )


@dataclass(frozen=True, eq=False)
class SampleComplexity:
    """Environment steps to ε-optimality, for heuristics and mixing coefficients.

    :param heuristics: the names of H heuristics
    :param lambdas: L mixing coefficients
    :param steps: shape (H, L, R) for R runs each; ∞ where the budget ended first
    """

    heuristics: tuple[str, ...]
    lambdas: tuple[float, ...]
    steps: Floats

    def median(self) -> Floats:
        """Median over the runs, shape (H, L)."""
        middle: Floats = np.sort(self.steps, axis=2)[:, :, (self.steps.shape[2] - 1) // 2]
        return middle

    def __repr__(self) -> str:
        """Return the medians as a table, a row a heuristic."""
        width = max(map(len, self.heuristics))
        rows = [" " * width + "".join(f"{f'λ={lambda_:g}':>9}" for lambda_ in self.lambdas)]
        for name, medians in zip(self.heuristics, self.median(), strict=True):
            rows.append(f"{name:<{width}}" + "".join(f"{steps:>9.0f}" for steps in medians))
        return "\n".join(rows)


def q_learning(
    mdp: FiniteMDP,
    h: Floats,
    schedule: Schedule,
    *,
    steps: int,
    steps_per_iteration: int,
    horizon: int,
    rng: np.random.Generator,
    exploration: float = 1.0,
    runs: int = 1,
) -> LearningResult:
    """Run Algorithm 1 with Q-learning: iteration n = 1, 2, … learns on the MDP that is reshaped with λ_n.

        Q(s, a) ← Q(s, a) + α·(r̃ + γ̃·max_a' Q(s', a') − Q(s, a))       r̃ = r + (1 − λ_n)·γ·h(s')       γ̃ = λ_n·γ
        α = 1/(1 + (1 − γ̃)·(n(s, a) − 1))

    where n(s, a) counts the updates of the pair, and h(s') = max Q(s', ·) = 0 where s' is terminal, as in
    `hurl.reshape`; Q starts at 0. At λ = 0 this step size makes Q the mean of what was seen; with a longer horizon it
    falls more slowly. Source: Wainwright (2019), Stochastic approximation with cone-contractive operators.

    An action is greedy for Q, ties broken at random, or drawn uniformly with probability `exploration`. Episodes start
    from d0 and end in states that no action leaves and that pay nothing, or at the horizon, after which the value of
    the last state still counts.

    :param h: the heuristic, shape (S,)
    :param schedule: `schedule(n)` is λ_n
    :param steps: environment steps of each run
    :param steps_per_iteration: environment steps of an iteration; the greedy policy is evaluated after each
    :param horizon: the most steps of an episode
    :param rng: where all randomness comes from
    :param exploration: the probability of a uniform action; 1 gathers the same data whatever h and λ are
    :param runs: independent runs, learning side by side
    """
    check_argument("runs", runs, whole(1))
    heuristics = np.tile(check_heuristic(mdp, h), (runs, 1))
    learner = Learner(mdp, heuristics, horizon=horizon, exploration=exploration, rng=rng)
    evaluator = policy_evaluator(mdp)
    counts, values = [], []
    for count in learner.learn(schedule, steps, steps_per_iteration):
        counts.append(count)
        values.append([evaluator(policy) for policy in learner.found()])
    lambdas = [float(schedule(iteration)) for iteration in range(1, len(counts) + 1)]
    return LearningResult(np.array(counts), np.array(lambdas), np.array(values), learner.q[:, 0])


def sample_complexity(
    mdp: FiniteMDP,
    heuristics: Mapping[str, Floats],
    lambdas: Sequence[float],
    *,
    epsilon: float,
    budget: int,
    evaluation_interval: int,
    horizon: int,
    rng: np.random.Generator,
    exploration: float = 1.0,
    runs: int = 20,
    hold: int = 5,
) -> SampleComplexity:
    """Tabulate the environment steps after which Q-learning on M̃ is ε-optimal in M, for every heuristic with every λ.

        V^π(d0) ≥ V*(d0) − ε   for the greedy policies π of `hold` evaluations in a row

    The steps at the first of these count; ∞ where the budget ends before the last. All runs of all heuristics and λ
    learn side by side, see `q_learning`.

    :param heuristics: h by name, each of shape (S,), such as `reference_heuristics`
    :param lambdas: mixing coefficients
    :param epsilon: ε > 0
    :param budget: the most environment steps of a run
    :param evaluation_interval: environment steps between evaluations, to which the result is rounded up
    :param horizon: the most steps of an episode
    :param rng: where all randomness comes from
    :param exploration: the probability of a uniform action
    :param runs: independent runs for each heuristic and λ
    :param hold: how many evaluations in a row have to be ε-optimal
    """
    check_argument("the number of lambdas", len(lambdas), whole(1))
    for lambda_ in lambdas:
        check_coefficient("lambdas", lambda_)
    h = repeated(mdp, heuristics, runs, len(lambdas))
    coefficients = np.tile(np.repeat(np.asarray(lambdas, np.float64), runs), len(heuristics))
    learner = Learner(mdp, h, horizon=horizon, exploration=exploration, rng=rng)
    evaluations = learner.learn(lambda _: coefficients, budget, evaluation_interval)
    steps = first_held(mdp, learner, evaluations, epsilon, hold)
    return SampleComplexity(tuple(heuristics), tuple(lambdas), steps.reshape(len(heuristics), len(lambdas), runs))


def reference_heuristics(mdp: FiniteMDP, batch: Batch, *, bonus_scale: float) -> dict[str, Floats]:
    """Return heuristics from the best to the worst, each of shape (S,).

    `optimal` is V*, `random` the value of uniform actions, `pessimistic` comes from the batch by `pessimistic_values`,
    `zero` is 0, and `adversarial` is −V*, which orders the states the wrong way round.

    :param batch: transitions of the MDP
    :param bonus_scale: how pessimistic `pessimistic` is
    """
    best = optimal(mdp).values
    reward_range = (float(mdp.rewards.min()), float(mdp.rewards.max()))
    pessimistic = pessimistic_values(batch, gamma=mdp.gamma, reward_range=reward_range, bonus_scale=bonus_scale)
    return {
        "optimal": best,
        "random": evaluate(mdp, uniform_policy(mdp)),
        "pessimistic": pessimistic.h,
        "zero": np.zeros(mdp.n_states),
        "adversarial": -best,
    }


class Learner:
    """Q-learning in R independent runs in lock-step, each with its own heuristic.

    A run learns one or more tables from the same transitions, each with a λ of its own; one of them acts. Tables have a
    column for each state of each run, R·S of them, those of the first tables of all runs before those of the second,
    and a row for each action.

    :param heuristics: shape (R, S)
    :param tables: K, how many tables a run learns
    """

    def __init__(
        self,
        mdp: FiniteMDP,
        heuristics: Floats,
        *,
        horizon: int,
        exploration: float,
        rng: np.random.Generator,
        tables: int = 1,
    ) -> None:
        check_argument("horizon", horizon, whole(1))
        check_argument("exploration", exploration, number(0, 1))
        self.mdp = mdp
        self.simulator = Simulator(mdp)
        self.horizon, self.exploration, self.rng = horizon, exploration, rng
        self.runs = len(heuristics)
        self.first_columns = np.arange(tables * self.runs).reshape(tables, -1) * mdp.n_states
        self.table = np.zeros((mdp.n_actions, tables * heuristics.size))
        self.visits = np.zeros(self.table.shape, np.int64)
        # The part of r̃ that does not change with λ depends on s' alone, so that it is looked up rather than computed.
        terms = potential_term("hurl", 0.0, heuristics, self.simulator.terminal, gamma=mdp.gamma)
        self.terms = np.tile(terms.ravel(), tables)
        self.acting = np.zeros(self.runs, np.int64)
        self.states = self.simulator.start(rng.random(self.runs))
        self.ages = np.zeros(self.runs, np.int64)

    @property
    def q(self) -> Floats:
        """Q of every table of every run, shape (R, K, S, A)."""
        return self.table.reshape(self.mdp.n_actions, -1, self.runs, self.mdp.n_states).transpose(2, 1, 3, 0)

    def policies(self) -> Integers:
        """The policies that are greedy for the tables, shape (K, R, S); the first of equal actions."""
        best: Integers = np.argmax(self.table, axis=0)
        return best.reshape(-1, self.runs, self.mdp.n_states)

    def found(self) -> Integers:
        """The policy that a run would return now, shape (R, S)."""
        first: Integers = self.policies()[0]
        return first

    def learn(self, schedule: Callable[[int], float | Floats], steps: int, interval: int) -> Iterator[int]:
        """Take `steps` steps in every run, and yield the count after each iteration of `interval` of them.

        :param schedule: λ of an iteration, one for all or of shape (K, 1) or (R,)
        """
        check_argument("steps", steps, whole(1))
        check_argument("steps between evaluations", interval, whole(1))
        taken = 0
        while taken < steps:
            lambda_ = schedule(taken // interval + 1)
            stop = min(taken + interval, steps)
            for _ in range(taken, stop):
                self.step(lambda_)
            taken = stop
            yield taken

    def step(self, lambda_: float | Floats) -> tuple[Floats, Integers]:
        """Take a step in every run; return what was paid, shape (R,), and the runs whose episodes ended with it."""
        columns = self.first_columns + self.states
        actions = self._act(columns[self.acting, np.arange(self.runs)])
        following = self.simulator.step(self.states, actions, self.rng.random(self.runs))
        paid = self.mdp.rewards[self.states, actions]
        next_columns = self.first_columns + following
        rewards = paid + (1.0 - lambda_) * self.terms[next_columns]
        discount = lambda_ * self.mdp.gamma
        # Q of a terminal state stays 0: nothing but 0 is earned there.
        targets = rewards + discount * self.table.take(next_columns, axis=1).max(axis=0)
        visits = self.visits[actions, columns]
        step_sizes = 1.0 / (1.0 + (1.0 - discount) * visits)
        self.visits[actions, columns] = visits + 1
        self.table[actions, columns] += step_sizes * (targets - self.table[actions, columns])
        return paid, self._move_on(following)

    def _act(self, columns: Integers) -> Integers:
        """ε-greedy: the largest of random numbers, over the best actions or over all."""
        noise = self.rng.random((self.mdp.n_actions, self.runs))
        if self.exploration < 1.0:
            values = self.table.take(columns, axis=1)
            explores = self.rng.random(self.runs) < self.exploration
            noise[~(explores | (values == values.max(axis=0)))] = -1.0
        chosen: Integers = np.argmax(noise, axis=0)
        return chosen

    def _move_on(self, following: Integers) -> Integers:
        self.ages += 1
        ended = np.flatnonzero(self.simulator.terminal[following] | (self.ages == self.horizon))
        if ended.size:
            following[ended] = self.simulator.start(self.rng.random(ended.size))
            self.ages[ended] = 0
        self.states = following
        return ended


def repeated(mdp: FiniteMDP, heuristics: Mapping[str, Floats], runs: int, times: int = 1) -> Floats:
    """Return each heuristic for so many runs, so many times over, shape (H·times·runs, S)."""
    check_argument("the number of heuristics", len(heuristics), whole(1))
    check_argument("runs", runs, whole(1))
    return np.repeat([check_heuristic(mdp, h) for h in heuristics.values()], times * runs, axis=0)


def policy_evaluator(mdp: FiniteMDP) -> Callable[[Integers], float]:
    """Return V^π(d0) as a function of a policy, each solved once."""
    value = cache(lambda policy: expectation(mdp, evaluate(mdp, np.frombuffer(policy, np.int64))))
    return lambda policy: value(policy.tobytes())


def first_held(mdp: FiniteMDP, learner: Learner, evaluations: Iterator[int], epsilon: float, hold: int) -> Floats:
    """Return the steps at the first of `hold` ε-optimal evaluations in a row, shape (R,); stop once all are there."""
    check_argument("hold", hold, whole(1))
    check_argument("epsilon", epsilon, number(0, above=True))
    evaluator = policy_evaluator(mdp)
    best = expectation(mdp, optimal(mdp).values)
    threshold = best - epsilon - ROUNDING * max(1.0, abs(best))
    first = np.full(learner.runs, math.inf)
    successes = np.zeros(learner.runs, np.int64)
    for count in evaluations:
        open_runs = np.flatnonzero(successes < hold)
        good = np.array([evaluator(policy) >= threshold for policy in learner.found()[open_runs]])
        first[open_runs[good & (successes[open_runs] == 0)]] = count
        successes[open_runs] = np.where(good, successes[open_runs] + 1, 0)
        if (successes >= hold).all():
            break
    return np.where(successes >= hold, first, math.inf)
