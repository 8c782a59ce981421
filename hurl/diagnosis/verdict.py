"""What follows from the numbers of a diagnosis: the λ to begin with, and a few sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hurl.diagnosis.quantities import BiasTerms, Departure, Disagreement, Fit, share_from_heuristic

if TYPE_CHECKING:
    from hurl.diagnosis.diagnosis import Diagnosis

# The values that the paper's experiments choose from, and that of its engineered heuristic.
LAMBDAS = (0.5, 0.9, 0.95, 0.98, 0.99)
# Rank correlations from which on h is said to rank at all, fairly, and well.
SOME_RANKING, FAIR_RANKING, GOOD_RANKING = 0.2, 0.5, 0.8
UNCOVERED = 0.1
ABOVE_RETURNS = 0.01
# From this ratio of deviations on, members are said to tell the data from what is not of it.
TOLD_APART = 1.5
FEW_EPISODES = 10
# Returns of episodes with a smaller deviation, relative to the largest, hardly vary.
HARDLY = 0.05
# An agent with so many of its states outside the data is another policy than those that made it.
OTHER_POLICY = 0.5
# A scale is recommended where it is off by this factor, and the rescaled h explains so much more of the returns.
WRONG_SCALE, WORTH_RESCALING = 1.5, 0.02
FAR_OFF, SOME_FIT = 10.0, 0.2  # a line that explains next to nothing says no more than an order of magnitude
# Time limits are near where episodes last less than so many horizons 1/(1−γ).
FAR_LIMIT = 20.0
# From this share of the best episodes' lead on, they are said to stand out.
CLEAR_LEAD = 0.5


def suggest_lambda(fit: Fit, bias: Sequence[BiasTerms], lead: float, gamma: float) -> float:
    """Choose λ0: of `LAMBDAS` and 1, the one with the smallest error that keeps the best episodes in the lead.

    A value of the reshaped MDP is a mixture: its share w(λ) = (1−λ)γ/(1−λγ) comes from h (`share_from_heuristic`), the
    rest from rewards, which are yet to be learnt. h errs by ε, and who has learnt nothing errs by σ, the spread of the
    returns. If the two errors have nothing to do with each other, that of the mixture is, relative to σ,

        (w·ε/σ)² + (1 − w)² = w²·(1 − R²) + (1 − w)²

    with the R² of h plus the best constant, which does not count. So h = V* gets the shortest horizon, and the worse h
    fits, the closer λ0 is to 1. The luck in single returns counts as error of h, which errs towards 1. Besides, a λ at
    which the reshaping takes the whole lead of the best episodes (`bias_terms`) is refused, and a heuristic that does
    not rank states (ρ < 0.2) gets λ0 = 1, which is the base algorithm.

    :param bias: the terms at each of `LAMBDAS`
    :param lead: by how much the best episodes' return is above that of all (`lead_of_best`)
    """
    if fit.r2_offset is None or fit.rank_correlation < SOME_RANKING:
        return 1.0
    candidates = [terms.lambda_ for terms in bias if lead <= 0.0 or terms.total < lead]
    shares = {lambda_: share_from_heuristic(lambda_, gamma) for lambda_ in (*candidates, 1.0)}
    errors = {lambda_: w**2 * (1.0 - fit.r2_offset) + (1.0 - w) ** 2 for lambda_, w in shares.items()}
    return min(errors, key=errors.__getitem__)


def advice(diagnosis: Diagnosis) -> str:
    """Say in a sentence whether to guide with h.

    What ranks states may still mislead an agent, which no data of others can rule out: so all that can be said for h is
    to try it where λ = 1 is there to fall back on.
    """
    if diagnosis.is_constant:
        return "Don't expect a gain: h is the same for all states."
    if diagnosis.doubts:
        return "This data can't tell whether h helps: without a schedule, a ladder finds out while it learns."
    if diagnosis.fit.rank_correlation < SOME_RANKING:
        return "Don't use h: it does not lead to what paid in this data."
    if is_off_scale(diagnosis):
        return "Use h once it is rescaled, and without a schedule, so that a ladder leaves it where it misleads."
    if diagnosis.lambda0 == 1.0:
        return "Don't use h at a constant λ, it errs too much: without a schedule, a ladder may gain by it."
    return "Use h without a schedule, so that a ladder leaves it where it misleads, which no data of others rules out."


def verdict(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say in sentences what the numbers mean, the most important first."""
    sentences = [
        *doubts(diagnosis),
        _ranking(diagnosis),
        _promises(diagnosis),
        _error(diagnosis),
        _scale(diagnosis),
        _offset(diagnosis),
        _lead(diagnosis),
        _cut(diagnosis),
        _uncovered(diagnosis),
        _above_returns(diagnosis),
        _disagreement(diagnosis.disagreement),
        _departure(diagnosis.departure),
        _received(diagnosis),
        "h was fitted to this very data, which flatters it: judge it with other data."
        if diagnosis.fitted_to_data
        else "",
        _suggestion(diagnosis),
    ]
    return tuple(sentence for sentence in sentences if sentence)


def doubts(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Say why the data can't tell much about h; nothing where it can."""
    sentences = (
        _alike(diagnosis),
        _few(diagnosis.episodes),
        _limited(diagnosis),
        _other_policy(diagnosis.departure),
    )
    return tuple(sentence for sentence in sentences if sentence)


def is_off_scale(diagnosis: Diagnosis) -> bool:
    """Whether h should be multiplied before it is used: it ranks states, and a·h + b fits what was held out better."""
    rescaling = diagnosis.rescaling
    if rescaling is None or diagnosis.fit.rank_correlation < SOME_RANKING or rescaling.scale <= 0.0:
        return False
    factor = max(rescaling.scale, 1.0 / rescaling.scale)
    is_better = rescaling.r2_rescaled >= rescaling.r2 + WORTH_RESCALING
    return is_better and (factor >= FAR_OFF or (factor >= WRONG_SCALE and rescaling.r2_rescaled >= SOME_FIT))


def _alike(diagnosis: Diagnosis) -> str:
    """Where all episodes earn the same, returns tell only how far along an episode a state is."""
    if diagnosis.fit.r2 is None:
        return (
            "All returns of the data are the same, so that it can't tell a good h from a bad one: collect other data."
        )
    largest = max(abs(diagnosis.best_return), abs(diagnosis.mean_return))
    if diagnosis.episodes < 2 or diagnosis.return_spread > HARDLY * largest:
        return ""
    return (
        f"All episodes earn nearly the same ({diagnosis.mean_return:.4g} ± {diagnosis.return_spread:.2g}), so that the "
        "data can hardly tell a good h from a bad one: add episodes of better and of worse policies."
    )


def _limited(diagnosis: Diagnosis) -> str:
    """Where time limits end every episode, returns fall towards them, which h knows nothing of if it is not told."""
    is_near = (1.0 - diagnosis.gamma) * diagnosis.transitions < FAR_LIMIT * diagnosis.episodes
    if diagnosis.time_limit != "cut" or diagnosis.terminated or not is_near:
        return ""
    return (
        "All episodes end at a time limit, after which nothing counts here, so that returns fall towards it: if the "
        "task would go on, fit h with time_limit=bootstrap, and judge it with --time-limit bootstrap."
    )


def _other_policy(departure: Departure | None) -> str:
    if departure is None or departure.outside is None or departure.outside <= OTHER_POLICY:
        return ""
    return (
        "The data is of other policies than the agent, which goes where they did not: it can't tell what h is worth "
        "there; judge h with the agent's own data."
    )


def _ranking(diagnosis: Diagnosis) -> str:
    correlation = diagnosis.fit.rank_correlation
    rho = f"ρ = {round(correlation, 2) + 0.0:.2f}"  # no negative zero
    if diagnosis.is_constant:
        return "h is constant: it shortens the horizon and says nothing about states."
    if diagnosis.fit.r2 is None:
        return ""
    whose = (
        " (The returns are those of whoever made the data: if that was a poor policy, judge h with data of a better "
        "one before you drop it.)"
        if diagnosis.departure is None
        else ""
    )
    if correlation <= -SOME_RANKING:
        return f"h ranks states in reverse ({rho}): it leads away from high returns; don't use it.{whose}"
    if correlation < SOME_RANKING:
        return f"h does not rank states by their returns ({rho}): don't use it.{whose}"
    how = "well" if correlation >= GOOD_RANKING else "fairly" if correlation >= FAIR_RANKING else "poorly"
    return f"h ranks states {how} ({rho} with the returns)."


def _promises(diagnosis: Diagnosis) -> str:
    if diagnosis.is_constant:
        return ""
    improvability, discrete = diagnosis.improvability, diagnosis.discrete
    low, high = (f"{100 * bound:.0f}" for bound in improvability.interval)
    broken, what = 1.0 - improvability.share, "the best action seen" if discrete else "the next step"
    if broken == 0.0:
        return f"h never promises more than {what} delivers: as far as the data goes, it is improvable."
    share = f"{100 * broken:.0f} %" if broken >= 0.005 else f"{100 * broken:.2g} %"
    sentence = f"h promises more than {what} delivers in {share} of the steps (improvable in {low}–{high} %)"
    if discrete:
        return f"{sentence}: an agent may be drawn to where the promise is too high."
    if improvability.interval[1] < 0.5:
        return (
            f"{sentence}: an agent may be drawn to where the promise is too high, unless other actions than the data's "
            "keep it."
        )
    return f"{sentence}; the value of the policy behind the data would do so in about half of them."


def _error(diagnosis: Diagnosis) -> str:
    fit = diagnosis.fit
    if diagnosis.is_constant or not fit.mean_error_of_constant:
        return ""
    share = 100 * fit.mean_error / fit.mean_error_of_constant
    return (
        f"Up to a constant, h is off by {fit.mean_error:.4g} on average, {share:.0f} % of what a constant is off by, "
        f"and by {fit.largest_error:.4g} at most."
    )


def _scale(diagnosis: Diagnosis) -> str:
    """The scale always counts: r̃ = r + (1−λ)γh(s') adds h to rewards, so that it must be in their unit."""
    rescaling = diagnosis.rescaling
    if rescaling is None or not is_off_scale(diagnosis):
        return ""
    scale, offset = _plain(rescaling.scale, 2), _plain(rescaling.offset, 3)
    times, side, effect = (
        (scale, "small", "it hardly guides")
        if rescaling.scale > 1.0
        else (_plain(1.0 / rescaling.scale, 2), "large", "it drowns the rewards")
    )
    remedy = f"multiply it by {scale}: hurl.heuristics.scaled(h, {scale})"
    if diagnosis.terminated and abs(rescaling.offset) > diagnosis.fit.mean_error_of_constant:
        remedy = f"multiply it by {scale} and add {offset}: shifted(scaled(h, {scale}), {offset}) of hurl.heuristics"
    return (
        f"h is {times} times too {side} for the returns, so that {effect}: {remedy} (R² on episodes held out: "
        f"{rescaling.r2:.2f} as it is, {rescaling.r2_rescaled:.2f} rescaled)."
    )


def _plain(number: float, digits: int) -> str:
    """Write a number with so many digits, 110 and not 1.1e+02."""
    return f"{float(f'{number:.{digits}g}'):.10g}"


def _offset(diagnosis: Diagnosis) -> str:
    """A constant is free only where nothing ends: a terminal state has the value 0 and no constant moves it."""
    fit, size = diagnosis.fit, f"{abs(diagnosis.fit.offset):.4g}"
    if is_off_scale(diagnosis):  # which says what to add after rescaling
        return ""
    if fit.rank_correlation < SOME_RANKING or not diagnosis.terminated or abs(fit.offset) <= fit.mean_error_of_constant:
        return ""
    side, what, remedy = (
        ("below", "ending", f"add {size} to") if fit.offset > 0 else ("above", "going on", f"subtract {size} from")
    )
    caveat = "" if fit.offset > 0 else ", unless more can be had than whoever made the data got"
    return (
        f"h lies {size} {side} the returns, while the end of an episode counts as 0, so that {what} looks better than "
        f"it is: {remedy} h{caveat}."
    )


def _lead(diagnosis: Diagnosis) -> str:
    lead = diagnosis.lead
    if lead <= 0.0 or diagnosis.fit.rank_correlation < SOME_RANKING:
        return ""
    ahead = f"The best tenth of the episodes earn {lead:.3g} more than the average one"
    kept = [lead - terms.total for terms in diagnosis.bias if terms.lambda_ == diagnosis.lambda0]
    if kept:
        return (
            f"{ahead}; of that, {kept[0]:.3g} ({100 * kept[0] / lead:.0f} %) is left in what an agent is rewarded with "
            f"at λ = {diagnosis.lambda0:g}, rewards and h together: {_meaning_of(kept[0] / lead)}."
        )
    reversing = [terms.lambda_ for terms in diagnosis.bias if terms.total >= lead]
    if not reversing:
        return ""
    return (
        f"{ahead}; with λ up to {max(reversing):g}, nothing of that is left in what an agent is rewarded with, rewards "
        "and h together: it could not tell good behaviour from the average."
    )


def _meaning_of(kept: float) -> str:
    if kept >= 1.0:
        return "h shows good behaviour more clearly than the rewards"
    if kept >= CLEAR_LEAD:
        return "good behaviour still stands out"
    return "good behaviour hardly stands out until λ rises, so raise λ, or let a ladder choose it, if learning stalls"


def _cut(diagnosis: Diagnosis) -> str:
    if diagnosis.used < diagnosis.transitions or not diagnosis.mostly_cut:
        return ""
    return (
        f"Time limits cut off most of the return of {100 * diagnosis.mostly_cut / diagnosis.transitions:.0f} % of the "
        f"states (time limits: {diagnosis.time_limit}), so that ranking and errors say little: choose a smaller γ, or "
        "longer episodes."
    )


def _uncovered(diagnosis: Diagnosis) -> str:
    uncovered, unknown = diagnosis.uncovered, diagnosis.unknown
    if unknown is not None and unknown > UNCOVERED:
        return f"{100 * unknown:.0f} % of the data's states are unknown to h: it was made from other data."
    if uncovered is None or uncovered <= UNCOVERED:
        return ""
    if diagnosis.discrete:
        return f"{100 * uncovered:.0f} % of all states are not in the data, and there nothing is known about h."
    return f"{100 * uncovered:.0f} % of a new episode's states have nothing like them in the data: collect more."


def _above_returns(diagnosis: Diagnosis) -> str:
    if diagnosis.is_constant or diagnosis.above_returns < ABOVE_RETURNS:
        return ""
    return (
        f"h is above every return of the data in {100 * diagnosis.above_returns:.0f} % of its states: it promises what "
        "nobody got."
    )


def _disagreement(disagreement: Disagreement | None) -> str:
    if disagreement is None or disagreement.mixed is None or disagreement.data == 0.0:
        return ""
    ratio = disagreement.mixed / disagreement.data
    told_apart = (
        "so that the bound is lower where an agent leaves the data."
        if ratio >= TOLD_APART
        else "so that the bound may be no lower where an agent leaves the data."
    )
    return f"The members of h disagree {ratio:.1f} times as much on mixed states as on the data's own, {told_apart}"


def _departure(departure: Departure | None) -> str:
    if departure is None or departure.outside is None:
        return ""
    share = f"{100 * departure.outside:.0f} %"
    if departure.outside <= UNCOVERED:
        return f"The agent stays within the data: {share} of its states lie outside."
    distance = departure.distance
    far = "" if distance is None else f" (the median state is {distance:.1f} times as far from it as one of its own)"
    return f"{share} of the agent's states lie outside the data{far}: what h says there is a guess."


def _received(diagnosis: Diagnosis) -> str:
    """An excess that is within h's error on the data is none: an h that is right would have one half of the time."""
    departure = diagnosis.departure
    if departure is None or diagnosis.is_constant:
        return ""
    sentence = f"h promises the agent {departure.promised:.4g} on average, and it gets {departure.received:.4g}"
    if departure.promised - departure.received <= diagnosis.fit.mean_error:
        return f"{sentence}: it is not led on."
    return f"{sentence}: it may be drawn to promises that are not kept, so let a ladder choose λ, or raise it."


def _few(episodes: int) -> str:
    if episodes >= FEW_EPISODES:
        return ""
    return (
        f"With {episodes} {'episode' if episodes == 1 else 'episodes'} the data can't tell much, and all of this is "
        f"rough: collect {FEW_EPISODES} or more."
    )


def _suggestion(diagnosis: Diagnosis) -> str:
    lambda0, rescaling = diagnosis.lambda0, diagnosis.rescaling
    then = ""
    if rescaling is not None and is_off_scale(diagnosis) and rescaling.lambda0 != lambda0:
        then = f", and {rescaling.lambda0:g} once h is rescaled"
    what = ", which is the base algorithm without h" if lambda0 == 1.0 else ""
    return f"Suggested λ0: {lambda0:g}{what}{then}."
