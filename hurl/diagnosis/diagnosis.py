"""A heuristic's diagnosis: evaluated once over the data, and measured from there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, astuple, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from hurl.data import DatasetError, Episodes, TimeLimit, discounted_returns, load_episodes
from hurl.data.returns import usable_episodes
from hurl.diagnosis.quantities import (
    BiasTerms,
    Departure,
    Disagreement,
    Fit,
    Flags,
    Floats,
    Improvability,
    Integers,
    Rescaling,
    bellman_residuals,
    best_backup_residuals,
    best_episodes,
    best_line,
    bias_terms,
    held_out_r2,
    lead_of_best,
    measure_departure,
    measure_disagreement,
    measure_fit,
    measure_improvability,
    mostly_cut,
    share_above,
    state_means,
    uncovered_share,
)
from hurl.diagnosis.verdict import LAMBDAS, advice, doubts, suggest_lambda, verdict
from hurl.guidance import Guidance, Heuristic
from hurl.heuristics.base import ObservationSpace, StorableHeuristic
from hurl.names import needs
from hurl.pieces import pieces
from hurl.schedules import ConstantSchedule

if TYPE_CHECKING:
    from minari import MinariDataset

CHUNK = 65_536
# States whose return is mostly cut off are left out where at least this share of them remains.
ENOUGH = 0.1


@dataclass(frozen=True, eq=False)
class Evidence:
    """The arrays that a diagnosis was made from, for the picture.

    :param episodes: E episodes with N transitions
    :param values: h of all states, shape (N + E,)
    :param returns: G, shape (N,)
    :param residuals: δ, or max_a (B h)(s, a) − h(s) for a Discrete space, shape (N,)
    :param used: which transitions the fit was measured on, shape (N,)
    :param best: the best episodes, the best of all first
    :param agent: h and G of the agent's own transitions, shape (2, n); None where its data is not given
    """

    episodes: Episodes
    values: Floats
    returns: Floats
    residuals: Floats
    used: Flags
    best: Integers
    agent: Floats | None


@dataclass(frozen=True)
class Diagnosis:
    """What data says about a heuristic.

    :param heuristic: its name
    :param dataset: its id
    :param gamma: γ, of the returns and of the Bellman residuals
    :param time_limit: how the returns treat time limits
    :param discrete: whether its states are of a Discrete space
    :param episodes: how many episodes there are
    :param terminated: how many of them ended in a terminal state and not at a time limit
    :param transitions: how many transitions there are
    :param mostly_cut: how many of these have a return of which a time limit cut off most
    :param used: on how many the fit was measured: the others, unless hardly any would remain
    :param lowest_value: the lowest h of the data's states
    :param highest_value: the highest h of the data's states
    :param fit: h against the returns
    :param rescaling: the best line a·h + b; None where h is constant, or the data can't tell
    :param improvability: h against one step of reward and h after it
    :param best_return: mean discounted return of the best tenth of the episodes
    :param mean_return: mean discounted return of all episodes
    :param return_spread: standard deviation of the discounted returns of episodes
    :param lead: by how much the best tenth is above all, where time limits count as in `bias`: as h there
    :param bias: the two terms of the bias bound for several λ: their sum is what is lost of the lead
    :param uncovered: the share of states that the data has no example of; None where it can't be measured
    :param unknown: the share of the data's states that h calls unknown; None where it has no such notion
    :param above_returns: the share of the data's states where h is above every return of the data
    :param disagreement: of h's members, near the data and away from it; None where h has none
    :param departure: how far an agent leaves the data, and what h promises it; None where its data is not given
    :param fitted_to_data: whether h was fitted to this very data, which flatters it
    :param lambda0: the suggested λ to begin with
    """

    heuristic: str
    dataset: str
    gamma: float
    time_limit: TimeLimit
    discrete: bool
    episodes: int
    terminated: int
    transitions: int
    mostly_cut: int
    used: int
    lowest_value: float
    highest_value: float
    fit: Fit
    rescaling: Rescaling | None
    improvability: Improvability
    best_return: float
    mean_return: float
    return_spread: float
    lead: float
    bias: tuple[BiasTerms, ...]
    uncovered: float | None
    unknown: float | None
    above_returns: float
    disagreement: Disagreement | None
    departure: Departure | None
    fitted_to_data: bool
    lambda0: float
    evidence: Evidence = field(repr=False, compare=False)

    def __str__(self) -> str:
        rows = "\n".join(f"  {name:<44} {value}" for name, value in self.rows())
        return f"{self.title}\n{rows}\n" + "\n".join([self.advice, *self.verdict])

    @property
    def is_constant(self) -> bool:
        """Whether h is the same for all states of the data."""
        return self.lowest_value == self.highest_value

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the data can't tell much about h, in sentences; none where it can."""
        return doubts(self)

    @property
    def advice(self) -> str:
        """Whether to guide with h, in a sentence."""
        return advice(self)

    @property
    def verdict(self) -> tuple[str, ...]:
        """What the numbers mean, in sentences."""
        return verdict(self)

    @property
    def title(self) -> str:
        """What was judged, on what."""
        return (
            f"{self.heuristic} on {self.dataset}: {self.transitions:,} transitions, {self.episodes:,} episodes, "
            f"γ = {self.gamma:g}, time limits: {self.time_limit}"
        )

    def rows(self) -> list[tuple[str, str]]:
        """The numbers with their names, as a table shows them."""
        fit = self.fit
        share, (low, high), mean, deviation, *residuals = astuple(self.improvability)
        return [
            ("h: lowest, highest", f"{self.lowest_value:.4g}, {self.highest_value:.4g}"),
            ("rank correlation of h and return", f"{fit.rank_correlation:.3f}"),
            ("R²; with the best constant added to h", f"{_number(fit.r2, '.3f')}; {_number(fit.r2_offset, '.3f')}"),
            ("best constant (median of return − h)", f"{fit.offset:.4g}"),
            *_rescaling_rows(self.rescaling),
            (
                "error up to a constant: mean",
                f"{fit.mean_error:.4g} (of a constant h: {fit.mean_error_of_constant:.4g})",
            ),
            (
                "  of 50 %, 90 %, 99 %, all of the states",
                f"{fit.within_50:.4g}, {fit.within_90:.4g}, {fit.within_99:.4g}, {fit.largest_error:.4g}",
            ),
            ("states used, left out as mostly cut off", f"{self.used:,}, {self.transitions - self.used:,}"),
            ("improvable: h(s) ≤ r + γh(s')", f"{share:.1%} (95 %: {low:.1%} to {high:.1%})"),
            ("r + γh(s') − h(s): mean ± deviation", f"{mean:.4g} ± {deviation:.4g}"),
            ("  lowest, quartiles, highest", ", ".join(f"{residual:.4g}" for residual in residuals)),
            (
                "discounted return: best tenth, all",
                f"{self.best_return:.4g}, {self.mean_return:.4g} ± {self.return_spread:.4g}",
            ),
            ("lead of the best tenth, h at time limits", f"{self.lead:.4g}"),
            *(
                (
                    f"λ = {terms.lambda_:g}: under-, overestimation, sum",
                    f"{terms.underestimation:.4g}, {terms.overestimation:.4g}, {terms.total:.4g}",
                )
                for terms in self.bias
            ),
            ("states that the data does not cover", _number(self.uncovered, ".1%")),
            *([] if self.unknown is None else [("states of the data unknown to h", f"{self.unknown:.1%}")]),
            ("states whose h is above every return", f"{self.above_returns:.1%}"),
            *_disagreement_rows(self.disagreement),
            *_departure_rows(self.departure),
            ("suggested λ0", f"{self.lambda0:g}"),
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers and sentences, as JSON holds them."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "evidence"}
        bias = [{name.rstrip("_"): value for name, value in asdict(terms).items()} for terms in self.bias]
        measured = Fit | Rescaling | Improvability | Disagreement | Departure
        nested = {name: asdict(value) for name, value in values.items() if isinstance(value, measured)}
        sentences = {"doubts": list(self.doubts), "advice": self.advice, "verdict": list(self.verdict)}
        return {**values, **nested, "bias": bias, **sentences}

    def to_json(self) -> str:
        """Return `as_dict` as JSON."""
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def plot(self, path: str | Path) -> None:
        """Draw the diagnosis: h against return, the Bellman residuals, h along the best and the worst episode."""
        with needs("a picture", "experiments"):
            from hurl.diagnosis.picture import draw

        draw(self, Path(path))


def diagnose(
    h: Heuristic,
    dataset: Episodes | MinariDataset | str,
    gamma: float,
    *,
    agent: Episodes | MinariDataset | str | None = None,
    time_limit: TimeLimit | None = None,
    root: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Diagnosis:
    """Judge a heuristic with data, before a run is spent on it.

    h is evaluated once for each state of the data. The returns of the data stand in for V*, which nobody knows; so an h
    that is far better than whoever gathered the data will look worse than it is.

    :param h: a function of a batch of observations, `(n, *observation) -> (n,)`; one that can be stored is refused if
        it is for another observation space, or another γ
    :param dataset: a Minari dataset or its id, or episodes that were read before
    :param gamma: γ ∈ [0, 1), the discount of the run that h is for
    :param agent: data of the agent that h is to guide, or has guided: how far it leaves the data, and what h says there
    :param time_limit: how a return counts what a time limit cut off: as nothing (`cut`), as h there (`bootstrap`), or
        `drop` leaves such episodes out of the whole diagnosis; None means as those that h was fitted to, or else `cut`
    :param root: the folder of Minari datasets that an id is looked up in; None means the user's own
    :param progress: called with how many states h has been evaluated for, and how many there are
    """
    loaded = load_episodes(dataset, root)
    treatment: TimeLimit = time_limit or getattr(h, "time_limit", None) or "cut"
    episodes = usable_episodes(loaded, gamma, treatment)
    guidance = Guidance(h, ConstantSchedule(1.0), gamma=gamma)  # for its checks of what h is for and returns
    if isinstance(h, StorableHeuristic):
        h.check(episodes.observation_space, gamma=None)
    agents = None if agent is None else _load_agent(agent, root, episodes, gamma, treatment)
    values, known = _evaluate(guidance, episodes.states, progress)
    returns, cut, used = _returns(episodes, values, gamma, treatment)
    fit = measure_fit(values[episodes.positions][used], _estimates(episodes, used, returns[used]))
    residuals = best_backup_residuals(episodes, bellman_residuals(episodes, values, gamma))
    best = best_episodes(episodes, returns)
    lead, bias, lambda0 = _suggest(episodes, values, fit, best, gamma)
    deviation = getattr(h, "deviation", None)
    departure, points = None, None
    if agents is not None:
        departure, points = _follow(guidance, agents, episodes, returns, treatment, progress)
    return Diagnosis(
        heuristic=getattr(h, "__qualname__", None) or type(h).__name__,
        dataset=episodes.name,
        gamma=gamma,
        time_limit=treatment,
        discrete=isinstance(episodes.observation_space, Discrete),
        episodes=len(episodes),
        terminated=int(episodes.terminated.sum()),
        transitions=episodes.transitions,
        mostly_cut=int(cut.sum()),
        used=int(used.sum()),
        lowest_value=float(values.min()),
        highest_value=float(values.max()),
        fit=fit,
        rescaling=None if fit.r2_offset is None else _rescaling(episodes, values, used, returns[used], best, gamma),
        improvability=measure_improvability(episodes, values, residuals),
        best_return=float(returns[episodes.starts[best]].mean()),
        mean_return=float(returns[episodes.starts].mean()),
        return_spread=float(returns[episodes.starts].std()),
        lead=lead,
        bias=bias,
        uncovered=uncovered_share(episodes),
        unknown=None if known is None else float((~known).mean()),
        above_returns=share_above(values, returns),
        disagreement=measure_disagreement(deviation, episodes, best) if callable(deviation) else None,
        departure=departure,
        fitted_to_data=_is_fitted_to(h, loaded),
        lambda0=lambda0,
        evidence=Evidence(episodes, values, returns, residuals, used, best, points),
    )


def _suggest(
    episodes: Episodes, values: Floats, fit: Fit, best: Integers, gamma: float
) -> tuple[float, tuple[BiasTerms, ...], float]:
    """Return the lead of the best episodes, what h costs of it at several λ, and the λ that is suggested.

    :param values: h of all states, shape (N + E,)
    """
    lead = lead_of_best(episodes, values, best, gamma=gamma)
    bias = bias_terms(episodes, values, best, gamma=gamma, lambdas=LAMBDAS)
    return lead, bias, suggest_lambda(fit, bias, lead, gamma)


def _rescaling(
    episodes: Episodes, values: Floats, used: Flags, returns: Floats, best: Integers, gamma: float
) -> Rescaling | None:
    """Return the best line a·h + b, and the λ that would be suggested for it.

    :param values: h of all states, shape (N + E,)
    :param returns: G of the states that are used, shape (n,)
    """
    used_values = values[episodes.positions][used]
    half = (np.random.default_rng(0).permutation(len(episodes)) % 2)[episodes.episode_of[used]]
    found = held_out_r2(used_values, _estimates(episodes, used, returns, half), half)
    if found is None:
        return None
    targets = _estimates(episodes, used, returns)
    scale, offset = best_line(used_values, targets)
    fit = measure_fit(scale * used_values + offset, targets)
    *_, lambda0 = _suggest(episodes, scale * values + offset, fit, best, gamma)
    return Rescaling(scale, offset, *found, lambda0)


def _estimates(episodes: Episodes, used: Flags, returns: Floats, half: Integers | int = 0) -> Floats:
    """Return what h is held against, shape (n,): returns, or in a Discrete space the mean over a state's visits.

    :param returns: G of the states that are used, shape (n,)
    :param half: 0 or 1, that of the episodes which a visit is of, shape (n,): means are over visits of the same half
    """
    if not isinstance(episodes.observation_space, Discrete):
        return returns
    return state_means(returns, 2 * episodes.observations[used].astype(np.int64) + half)


def _load_agent(
    agent: Episodes | MinariDataset | str, root: str | Path | None, data: Episodes, gamma: float, time_limit: TimeLimit
) -> Episodes:
    """Read an agent's own episodes; those of another observation space than the data's are refused."""
    episodes = usable_episodes(load_episodes(agent, root), gamma, time_limit)
    space, wanted = ObservationSpace.of(episodes.observation_space), ObservationSpace.of(data.observation_space)
    if space != wanted:
        raise DatasetError(
            f"the agent's dataset {episodes.name} has observations of {space}, but {data.name} of {wanted}: collect "
            "it in the same environment"
        )
    return episodes


def _follow(
    guidance: Guidance,
    agent: Episodes,
    data: Episodes,
    returns: Floats,
    time_limit: TimeLimit,
    progress: Callable[[int, int], None],
) -> tuple[Departure, Floats]:
    """Measure how an agent's states leave the data; also return their h and G, shape (2, n).

    :param returns: G of the data, shape (N,)
    """
    values, _ = _evaluate(guidance, agent.states, progress)
    received, _, used = _returns(agent, values, guidance.gamma, time_limit)
    points = np.stack([values[agent.positions], received])[:, used]
    distance, outside = measure_departure(data, agent)
    promise, receipt = points.mean(axis=1).tolist()
    return Departure(agent.name, distance, outside, promise, receipt, share_above(values, returns)), points


def _returns(episodes: Episodes, values: Floats, gamma: float, time_limit: TimeLimit) -> tuple[Floats, Flags, Flags]:
    """Return G, which transitions have one that is mostly cut off, and which are used, each of shape (N,)."""
    ends = values[episodes.ends + np.arange(len(episodes))]
    returns = discounted_returns(episodes, gamma=gamma, last_values=ends if time_limit == "bootstrap" else None)
    cut = mostly_cut(episodes, gamma)
    return returns, cut, ~cut if (~cut).mean() >= ENOUGH else np.ones_like(cut)


def _evaluate(
    guidance: Guidance, states: NDArray[Any], progress: Callable[[int, int], None]
) -> tuple[Floats, Flags | None]:
    """Return h of all states and, where h can tell, which of them it knows, shape (N + E,)."""
    tells = getattr(guidance.heuristic, "known", None)
    values, known = np.empty(len(states)), np.empty(len(states), bool) if callable(tells) else None
    for piece in pieces(len(states), CHUNK):
        values[piece] = guidance.evaluate(states[piece])
        if known is not None and callable(tells):
            known[piece] = tells(states[piece])
        progress(piece.stop, len(states))
    return values, known


def _is_fitted_to(h: Heuristic, episodes: Episodes) -> bool:
    """Whether a heuristic with metrics of a fit says that it is from this data, or from what no time limit ended.

    One that is made of others is so where one of these is.
    """
    if any(_is_fitted_to(part, episodes) for part in getattr(h, "parts", ())):
        return True
    origin = getattr(h, "dataset", None)
    if not getattr(h, "metrics", None) or not origin:
        return False
    terminated = np.flatnonzero(episodes.terminated)
    return origin["digest"] in (episodes.digest, episodes.select(terminated).digest if terminated.size else None)


def _rescaling_rows(rescaling: Rescaling | None) -> list[tuple[str, str]]:
    if rescaling is None:
        return []
    return [
        ("best line a·h + b: a, b", f"{rescaling.scale:.4g}, {rescaling.offset:.4g}"),
        ("  R² held out: of h + b, of a·h + b", f"{rescaling.r2:.3f}; {rescaling.r2_rescaled:.3f}"),
    ]


def _disagreement_rows(disagreement: Disagreement | None) -> list[tuple[str, str]]:
    if disagreement is None:
        return []
    return [
        (
            "deviation: all states, starts, best tenth",
            f"{disagreement.data:.4g}, {disagreement.starts:.4g}, {disagreement.best:.4g}",
        ),
        ("  on states mixed of the data's numbers", _number(disagreement.mixed, ".4g")),
    ]


def _departure_rows(departure: Departure | None) -> list[tuple[str, str]]:
    if departure is None:
        return []
    return [
        (
            "agent: distance from the data, outside it",
            f"{_number(departure.distance, '.2f')}, {_number(departure.outside, '.1%')}",
        ),
        ("  mean h, mean return", f"{departure.promised:.4g}, {departure.received:.4g}"),
        ("  states whose h is above every return", f"{departure.above_returns:.1%}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "—" if value is None else format(value, form)
