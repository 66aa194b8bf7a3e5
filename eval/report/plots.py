"""Draws the plots of the report, as SVG in data URIs."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.report.page import Plot, data_uri
from eval.report.physics import EpisodeError
from eval.report.training import Curve, PracticeCurves
from eval.statistics.intervals import Estimate
from eval.summary import Agreement

# Okabe and Ito 2008: told apart by colour-blind readers too; shapes differ as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
# Widths in inches; a full-width figure has 110 CSS px to the inch, so 10 pt text reads as 15 px.
FULL = 9.0
INK = "#1b2330"
SOFT = "#8a94a3"

_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.hashsalt": "robolearn",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, slots=True)
class ResultBar:
    """A line of :func:`results_plot`: a policy in a world."""

    policy: str
    world: str
    score: Estimate
    success: Estimate


@dataclass(frozen=True, slots=True)
class DifferenceBar:
    """A line of :func:`difference_plot` and what it is called."""

    label: str
    score: Estimate
    success: Estimate


def recordings_plot(
    lengths_s: Sequence[float],
    final: Sequence[float],
    title: str,
    xlabel: str,
    *,
    mark: float | None = None,
    paths: Sequence[Any] = (),
    backdrop: Callable[[Axes], None] | None = None,
) -> Plot:
    """Histograms of length and of the final measure in [0, 1]; paths [m] over what is there."""

    def draw(figure: Figure) -> None:
        ratios = (1, 1, 1.1) if backdrop else (1, 1)
        axes = figure.subplots(1, len(ratios), width_ratios=ratios)
        axes[0].hist(lengths_s, bins=24, color=COLOURS[0])
        axes[0].set(title="Length", xlabel="episode length [s]", ylabel="episodes")
        axes[1].hist(100 * np.asarray(final), bins=24, color=COLOURS[0])
        if mark is not None:
            axes[1].axvline(100 * mark, color=INK, lw=1, ls="--")
        axes[1].set(title=title, xlabel=xlabel, ylabel="episodes")
        if backdrop is None:
            return
        for path in paths:
            # Pixels, not vectors: two hundred paths would make a page of their own.
            axes[2].plot(
                path[:, 0], path[:, 1], color=COLOURS[0], lw=0.5, alpha=0.22, rasterized=True
            )
        backdrop(axes[2])
        axes[2].set(title="Where the tool went", xlabel="x [m]", ylabel="y [m]")

    return drawn(draw, FULL, 3.0)


def replay_plot(errors: Mapping[str, Sequence[EpisodeError]]) -> Plot:
    """Share of episodes whose final error is below x, per scene: position [mm], rotation [deg]."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for i, (scene, each) in enumerate(errors.items()):
            for axes, values in (
                (left, [e.final_position_error_mm for e in each]),
                (right, [e.final_rotation_error_deg for e in each]),
            ):
                x = np.sort(np.maximum(np.asarray(values, dtype=float), 1e-3))
                axes.step(
                    x, np.arange(1, x.size + 1) / x.size, where="post", color=COLOURS[i % 6],
                    label=scene, lw=1.8,
                )  # fmt: skip
        for axes, label in (
            (left, "final position error [mm]"),
            (right, "final rotation error [deg]"),
        ):
            axes.set(xscale="log", xlabel=label, ylim=(0, 1.02))
            axes.grid(alpha=0.25)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        left.set_ylabel("share of episodes below")
        _legend(figure)

    return drawn(draw, FULL, 3.5)


def training_plot(curves: Mapping[str, Curve], title: str) -> Plot:
    """One panel per figure of a run, by its name."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, max(1, len(curves)), squeeze=False)[0]
        for axes, (name, curve) in zip(panels, curves.items(), strict=False):
            values = curve.values
            axes.plot(curve.steps, values, color=SOFT, lw=0.8)
            axes.plot(curve.steps, _smooth(values), color=COLOURS[0], lw=1.8)
            axes.set(title=name, xlabel="update")
            axes.grid(alpha=0.25)
            if np.all(values > 0) and np.max(values) > 20 * np.min(values):
                axes.set_yscale("log")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)

    return drawn(draw, FULL * max(2, len(curves)) / 3, 2.7)


CRITIC_PANELS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("mean Q", ("q_data", "q_policy", "q_data_held_out")),
    ("mean V", ("v_data", "v_data_held_out")),
    ("mean f", ("f_data", "f_policy", "f_data_held_out")),
    ("Q and what followed", ("q_whole", "q_return", "q_whole_held_out", "q_return_held_out")),
    (
        "Q and what followed (correlation)",
        ("q_return_correlation", "q_return_correlation_held_out"),
    ),
    ("TD error", ("td_error", "td_error_held_out")),
    ("cross-entropy of goals", ("contrast", "contrast_held_out")),
    ("largest |Q| of what is possible", ("q_share",)),
    ("largest |V| of what is possible", ("v_share",)),
    ("largest |Q|", ("q_largest",)),
    ("largest |V|", ("v_largest",)),
    ("own goals known (share)", ("goals_known",)),
    ("distance to the data", ("distance",)),
    ("rank, dormant units (shares)", ("rank_share", "dormant")),
    ("clipped weights (share)", ("weights_clipped",)),
)
"""Figures of a critic's diagnosis that stand in one panel."""


def critic_plot(curves: Mapping[str, Curve], title: str) -> Plot:
    """What a critic's curves look like, three panels in a row."""
    panels = [
        (name, [f for f in figures if f in curves])
        for name, figures in CRITIC_PANELS
        if any(f in curves for f in figures)
    ]
    bounded = [[f"{x}_largest"] for x in ("q", "v") if f"{x}_share" in curves]
    panels = [p for p in panels if p[1] not in bounded]
    rows = -(-len(panels) // 3)

    def draw(figure: Figure) -> None:
        grid = figure.subplots(rows, 3, squeeze=False).flatten()
        for axes, (name, figures) in zip(grid, panels, strict=False):
            for i, one in enumerate(figures):
                label = one.replace("_", " ")
                axes.plot(curves[one].steps, curves[one].values, color=COLOURS[i], label=label)
            axes.set(title=name, xlabel="update")
            axes.grid(alpha=0.25)
            if len(figures) > 1:
                axes.legend(fontsize=7)
        for axes in grid[len(panels) :]:
            axes.remove()
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)

    return drawn(draw, FULL, 2.4 * rows)


def practice_plot(curves: PracticeCurves, title: str) -> Plot:
    """Successes while a policy practised: of it and of its parent among the last episodes, and on
    held-out starts with their interval; beside it the regret.
    """

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(2, 1))
        named = {"practised": curves.explorer, "parent": curves.parent}
        for i, (name, curve) in enumerate(named.items()):
            if curve is not None:
                label = f"{name}, last episodes"
                left.plot(curve.steps, curve.values, color=COLOURS[i], lw=1.4, label=label)
        value, low, high = curves.tested, curves.tested_low, curves.tested_high
        if value is not None and low is not None and high is not None:
            bars = np.stack([value.values - low.values, high.values - value.values])
            style = {"color": COLOURS[0], "fmt": "o", "capsize": 3, "mec": "white"}
            left.errorbar(value.steps, value.values, bars, label="practised, held out", **style)
        parent, regret = curves.tested_parent, curves.regret
        if parent is not None:
            left.plot(parent.steps, parent.values, "s", color=COLOURS[1], label="parent, held out")
        person = curves.person
        if person is not None and person.values.any():
            left.plot(person.steps, person.values, color=SOFT, ls="--", label="a person's steps")
        left.set(ylim=(-0.02, 1.02), xlabel="episodes", ylabel="share of successes")
        left.legend(fontsize=7, loc="lower right")
        left.grid(alpha=0.25)
        if regret is not None:
            right.plot(regret.steps, regret.values, color=COLOURS[0], lw=1.4)
            right.axhline(0.0, color=SOFT, lw=0.8)
        right.set(title="successes lost (gained: below 0)", xlabel="episodes")
        right.grid(alpha=0.25)
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)

    return drawn(draw, FULL, 3.0)


def seeds_plot(curves: Mapping[str, Curve], label: str) -> Plot:
    """Runs of one experiment by their names, their mean and their range."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shared = max((c.steps for c in curves.values()), key=len)
        shared = shared[shared <= min(c.steps[-1] for c in curves.values())]
        smooth = [np.interp(shared, c.steps, _smooth(c.values)) for c in curves.values()]
        for i, (name, values) in enumerate(zip(curves, smooth, strict=True)):
            axes.plot(shared, values, color=COLOURS[i % 6], lw=0.9, label=name)
        axes.fill_between(
            shared, np.min(smooth, axis=0), np.max(smooth, axis=0), color=SOFT, alpha=0.25, lw=0
        )
        axes.plot(shared, np.mean(smooth, axis=0), color=INK, lw=2)
        axes.set(xlabel="update", ylabel=label)
        axes.grid(alpha=0.25)
        if np.min(smooth) > 0 and np.max(smooth) > 20 * np.min(smooth):
            axes.set_yscale("log")
        _legend(figure)

    return drawn(draw, 6.0, 3.2)


def results_plot(rows: Sequence[ResultBar]) -> Plot:
    """Mean score and success rate with intervals: one line per world, one colour per policy."""
    worlds = list(dict.fromkeys(r.world for r in rows))
    policies = list(dict.fromkeys(r.policy for r in rows))

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for r in rows:
            i = policies.index(r.policy)
            shift = (i - (len(policies) - 1) / 2) * min(0.24, 0.66 / len(policies))
            y = len(worlds) - 1 - worlds.index(r.world) - shift
            label = r.policy if r.world == worlds[0] else None
            _whisker(left, r.score, y, i, label)
            _whisker(right, r.success, y, i, label)
        for axes, label, shown in (
            (left, "mean score", [r.score for r in rows]),
            (right, "success rate", [r.success for r in rows]),
        ):
            ends = [v for e in shown for v in (e.low, e.value, e.high)]
            axes.set(xlim=_share_limits(ends), xlabel=f"{label}, 95 % interval")
            axes.set_yticks(range(len(worlds)), worlds[::-1])
            axes.set_ylim(-0.6, len(worlds) - 0.4)
            axes.grid(axis="x", alpha=0.25)
        _legend(figure)

    return drawn(draw, FULL, 1.3 + max(0.62, 0.24 * len(policies)) * len(worlds))


def difference_plot(rows: Sequence[DifferenceBar]) -> Plot:
    """Paired differences of score and success, one line each, zero marked."""

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, sharey=True)
        for y, row in enumerate(reversed(rows)):
            _whisker(left, row.score, float(y), 0, None)
            _whisker(right, row.success, float(y), 0, None)
        for axes, label in ((left, "score"), (right, "success rate")):
            axes.axvline(0, color=INK, lw=1, ls="--")
            axes.set(xlabel=f"difference of {label}, 95 % interval")
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_yticks(range(len(rows)), [r.label for r in reversed(rows)])
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.grid(axis="x", alpha=0.25)

    return drawn(
        draw, FULL, 1.0 + (0.6 if any("\n" in r.label for r in rows) else 0.34) * len(rows)
    )


def agreement_plot(rows: Sequence[Agreement], threshold: float | None) -> Plot:
    """How far each start came in two worlds; one panel per world, one colour per policy."""
    panels = list(dict.fromkeys((r.world, r.kind) for r in rows))
    titles = {"moved": "{} itself, moved", "noise": "{} itself, other noise"}
    policies = list(dict.fromkeys(r.policy for r in rows))
    limits = _share_limits([v for r in rows for point in r.points for v in point])

    def draw(figure: Figure) -> None:
        axes_row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (world, kind) in zip(axes_row, panels, strict=True):
            chosen = [r for r in rows if (r.world, r.kind) == (world, kind)]
            for r in chosen:
                i = policies.index(r.policy)
                points = np.asarray(r.points, dtype=float).reshape(-1, 2)
                axes.scatter(
                    points[:, 0], points[:, 1], s=16, color=COLOURS[i % 6], alpha=0.75,
                    marker=MARKERS[i % 6], label=r.policy, linewidths=0,
                )  # fmt: skip
            axes.plot([0, 1], [0, 1], color=SOFT, lw=0.8)
            if threshold is not None and limits[0] <= threshold <= limits[1]:
                axes.axvline(threshold, color=SOFT, lw=0.6, ls=":")
                axes.axhline(threshold, color=SOFT, lw=0.6, ls=":")
            axes.set(
                title=titles.get(kind, "{}").format(world),
                xlabel=f"in {chosen[0].source}",
                xlim=limits,
                ylim=limits,
                aspect="equal",
            )
        axes_row[0].set_ylabel(rows[0].measure)
        _legend(figure)

    return drawn(draw, FULL * min(1.0, max(2, len(panels)) / 3), 3.6 if len(panels) < 4 else 3.0)


def histogram_plot(series: Mapping[str, Sequence[float]], limits: Mapping[str, float]) -> Plot:
    """One histogram per series (name with unit); a dashed line at its limit, if it has one."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, max(1, len(series)), squeeze=False)[0]
        for axes, (name, values) in zip(panels, series.items(), strict=False):
            axes.hist(values, bins=30, color=COLOURS[0])
            if name in limits:
                axes.axvline(limits[name], color=INK, lw=1, ls="--")
            axes.set(xlabel=name)
        panels[0].set_ylabel("count")

    return drawn(draw, FULL * min(1.0, max(2, len(series)) / 3), 2.5)


def _share_limits(values: Sequence[float]) -> tuple[float, float]:
    """Of an axis of shares in [0, 1]: as wide as the data with some room, at least 0.1."""
    finite = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(finite), max(finite)
    room = max(0.08 * (high - low), (0.1 - (high - low)) / 2, 0.01)
    return max(-0.02, low - room), min(1.02, high + room)


def _whisker(axes: Axes, e: Estimate, y: float, i: int, label: str | None) -> None:
    if not math.isfinite(e.value):
        return
    low = e.low if math.isfinite(e.low) else e.value
    high = e.high if math.isfinite(e.high) else e.value
    axes.plot([low, high], [y, y], color=COLOURS[i % 6], lw=2.2, solid_capstyle="butt")
    axes.plot(
        e.value, y, MARKERS[i % 6], color=COLOURS[i % 6], ms=7, mec="white", mew=1, label=label
    )


def _smooth(values: Any) -> Any:
    width = max(1, len(values) // 25)
    padded = np.concatenate([np.full(width, values[0]), values, np.full(width, values[-1])])
    kernel = np.ones(2 * width + 1) / (2 * width + 1)
    return np.convolve(padded, kernel, mode="valid")


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside upper left", ncols=4)


def drawn(draw: Callable[[Figure], None], width: float, height: float) -> Plot:
    """A figure in the style of the pages; the same data give the same bytes."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
        out = io.BytesIO()
        # No date in the file: the same data give the same page.
        figure.savefig(
            out,
            format="svg",
            dpi=160,
            bbox_inches="tight",
            pad_inches=0.04,
            metadata={"Date": None},
        )
    return Plot(data_uri(out.getvalue(), ".svg"), width)
