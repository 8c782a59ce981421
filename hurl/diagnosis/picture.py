"""The picture of a diagnosis."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from hurl.diagnosis.quantities import rounding
from hurl.files import write_whole

if TYPE_CHECKING:
    from hurl.diagnosis.diagnosis import Diagnosis, Evidence

BLUE, ORANGE, GREEN, GRAY = "tab:blue", "tab:orange", "tab:green", "0.35"
# From this many points on, their density is drawn and not each of them.
MANY_POINTS = 3_000
BINS = 80
# The part of a panel's height that is not for the legend.
BELOW_LEGEND = 0.88


def draw(diagnosis: Diagnosis, file: Path) -> None:
    """Draw four panels into a PNG file: h against return, the residuals, the best and the worst episode."""
    figure = Figure(figsize=(11.0, 7.6), layout="constrained")
    (against, residuals), (best, worst) = figure.subplots(2, 2)
    _draw_against(figure, against, diagnosis)
    _draw_residuals(residuals, diagnosis)
    worst.sharey(best)
    _draw_episode(best, diagnosis, int(diagnosis.evidence.best[0]), "best")
    _draw_episode(worst, diagnosis, _worst_episode(diagnosis.evidence), "worst")
    _leave_room(best)
    figure.suptitle(
        f"{diagnosis.heuristic} on {diagnosis.dataset} (γ = {diagnosis.gamma:g}, time limits: {diagnosis.time_limit}): "
        f"suggested λ0 = {diagnosis.lambda0:g}"
    )
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, content.getvalue())


def _leave_room(axes: Any) -> None:
    """Leave room above the curves for the legend."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, low + (high - low) / BELOW_LEGEND)


def _draw_against(figure: Figure, axes: Any, diagnosis: Diagnosis) -> None:
    evidence, fit = diagnosis.evidence, diagnosis.fit
    h = evidence.values[evidence.episodes.positions][evidence.used]
    returns = evidence.returns[evidence.used]
    if len(h) < MANY_POINTS or np.ptp(h) == 0.0:
        axes.scatter(h, returns, s=8, color=BLUE, alpha=0.4, linewidths=0)
    else:
        cells = axes.hexbin(h, returns, gridsize=60, bins="log", mincnt=1, cmap="Blues")
        figure.colorbar(cells, ax=axes, label="states")
    if evidence.agent is not None:
        shown = np.random.default_rng(0).permutation(evidence.agent.shape[1])[:MANY_POINTS]
        axes.scatter(*evidence.agent[:, shown], s=6, color=GREEN, alpha=0.4, linewidths=0, label="of the agent")
    limits = axes.get_xlim(), axes.get_ylim()
    line = np.array(limits[0])
    label = f"G = h {'+' if fit.offset >= 0 else '−'} {abs(fit.offset):.4g}"
    axes.plot(line, line + fit.offset, color=ORANGE, label=label)
    axes.set(xlim=limits[0], ylim=limits[1], xlabel="h(s)", ylabel="discounted return G")
    r2 = "" if fit.r2_offset is None else f", R² up to a constant {fit.r2_offset:.2f}"
    axes.set_title(f"h against return: rank correlation {fit.rank_correlation:.2f}{r2}", fontsize=10)
    axes.legend(loc="upper left", fontsize=8)


def _draw_residuals(axes: Any, diagnosis: Diagnosis) -> None:
    residuals, share = diagnosis.evidence.residuals, diagnosis.improvability.share
    low, high = np.quantile(residuals, (0.005, 0.995))  # a few outliers would squeeze the rest into one bar
    low, high = min(low, 0.0), max(high, 0.0)
    shown = residuals[(residuals >= low) & (residuals <= high)]
    if high - low <= 2.0 * rounding(diagnosis.evidence.values):
        low, high = -0.5, 0.5
    broken = shown < -rounding(diagnosis.evidence.values)
    # 0 is an edge of the bars, so that each lies on one side of it.
    width = (high - low) / BINS
    edges = np.arange(np.floor(low / width), np.ceil(high / width) + 1.0) * width
    axes.hist(np.maximum(shown[~broken], 0.0), edges, color=BLUE, label=f"improvable, {share:.1%}")
    axes.hist(shown[broken], edges, color=ORANGE, label=f"promises too much, {1 - share:.1%}")
    _leave_room(axes)
    axes.axvline(0.0, ymax=BELOW_LEGEND, color=GRAY, linewidth=1)
    axes.set(xlabel="r + γh(s') − h(s), the middle 99 %", ylabel="transitions")
    axes.set_title(f"Bellman residual: mean {diagnosis.improvability.mean:.3g}", fontsize=10)
    axes.legend(loc="upper left", fontsize=8, ncols=2, frameon=False)


def _worst_episode(evidence: Evidence) -> int:
    """The episode of the lowest return, among those that ended by themselves: one that was cut says little."""
    episodes = evidence.episodes
    ended = np.flatnonzero(episodes.terminated) if episodes.terminated.any() else np.arange(len(episodes))
    return int(ended[np.argmin(evidence.returns[episodes.starts[ended]])])


def _draw_episode(axes: Any, diagnosis: Diagnosis, episode: int, which: str) -> None:
    evidence, offset = diagnosis.evidence, diagnosis.fit.offset
    episodes = evidence.episodes
    rows = slice(episodes.starts[episode], episodes.ends[episode])
    steps = np.arange(episodes.lengths[episode])
    sign = "+" if offset >= 0 else "−"
    marker = "." if len(steps) <= 50 else None
    axes.plot(steps, evidence.returns[rows], color=GRAY, marker=marker, label="discounted return G")
    h = evidence.values[episodes.positions[rows]] + offset
    axes.plot(steps, h, color=BLUE, linewidth=1, marker=marker, label=f"h {sign} {abs(offset):.4g}")
    left_out = steps[~evidence.used[rows]]
    if len(left_out):
        axes.axvspan(left_out[0], steps[-1], ymax=BELOW_LEGEND, color="0.9", linewidth=0, label="return mostly cut off")
    end = "terminal state" if episodes.terminated[episode] else "time limit"
    axes.set(xlabel=f"step (ended by {end})", ylabel="value")
    value = evidence.returns[episodes.starts[episode]]
    axes.set_title(f"the {which} of {len(episodes):,} episodes: return {value:.4g}", fontsize=10)
    axes.legend(loc="upper right", fontsize=8, ncols=3, frameon=False)
