"""The plots of the report, as SVG in data URIs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from eval.report.page import Plot, data_uri
from robolearn.pusht import GOAL, TABLE_SIZE_M, tee_polygons, transform_points

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


def data_plot(lengths_s: Sequence[float], coverage: Sequence[float], paths: Sequence[Any]) -> Plot:
    """Histograms of length and final coverage; the tool's paths over the goal."""

    def draw(figure: Figure) -> None:
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.1))
        left.hist(lengths_s, bins=24, color=COLOURS[0])
        left.set(title="Length", xlabel="episode length [s]", ylabel="episodes")
        middle.hist(100 * np.asarray(coverage), bins=24, color=COLOURS[0])
        middle.axvline(95, color=INK, lw=1, ls="--")
        middle.set(title="Coverage at the end", xlabel="goal covered [%]", ylabel="episodes")
        for path in paths:
            # Pixels, not vectors: two hundred paths would make a page of their own.
            right.plot(
                path[:, 0], path[:, 1], color=COLOURS[0], lw=0.5, alpha=0.22, rasterized=True
            )
        draw_goal(right)
        right.set(title="Where the tool went", xlabel="x [m]", ylabel="y [m]")

    return _plot(draw, FULL, 3.0)


def draw_goal(axes: Axes) -> None:
    """The goal T and the table's edge, in the table frame [m]."""
    for corners in tee_polygons():
        placed = transform_points(corners, GOAL)
        axes.fill(placed[:, 0], placed[:, 1], color="#9fd3a8", ec="none", alpha=0.9, zorder=3)
    axes.set(xlim=(0, TABLE_SIZE_M), ylim=(0, TABLE_SIZE_M), aspect="equal")


def replay_plot(errors: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Plot:
    """Share of episodes whose final error is below x, per scene: position [mm], rotation [deg]."""

    def draw(figure: Figure) -> None:
        for axes, part, label in zip(
            figure.subplots(1, 2, sharey=True),
            (0, 1),
            ("final position error [mm]", "final rotation error [deg]"),
            strict=True,
        ):
            for i, (scene, values) in enumerate(errors.items()):
                x = np.sort(np.maximum(np.asarray(values[part], dtype=float), 1e-3))
                axes.step(
                    x, np.arange(1, x.size + 1) / x.size, where="post", color=COLOURS[i % 6],
                    label=scene, lw=1.8,
                )  # fmt: skip
            axes.set(xscale="log", xlabel=label, ylim=(0, 1.02))
            axes.grid(alpha=0.25)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            if part == 0:
                axes.set_ylabel("share of episodes below")
        _legend(figure)

    return _plot(draw, FULL, 3.5)


def training_plot(curves: Mapping[str, tuple[Any, Any]], title: str) -> Plot:
    """One panel per figure of a run: ``curves[name] = (steps, values)``."""

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, max(1, len(curves)), squeeze=False)[0]
        for axes, (name, (steps, values)) in zip(panels, curves.items(), strict=False):
            axes.plot(steps, values, color=SOFT, lw=0.8)
            axes.plot(steps, _smooth(np.asarray(values, dtype=float)), color=COLOURS[0], lw=1.8)
            axes.set(title=name, xlabel="update")
            axes.grid(alpha=0.25)
            if np.all(np.asarray(values) > 0) and np.max(values) > 20 * np.min(values):
                axes.set_yscale("log")
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)

    return _plot(draw, FULL * max(2, len(curves)) / 3, 2.7)


def seeds_plot(curves: Mapping[str, tuple[Any, Any]], label: str) -> Plot:
    """Runs of one experiment: ``curves[run] = (steps, values)``, their mean and their range."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shared = max((steps for steps, _ in curves.values()), key=len)
        shared = shared[shared <= min(steps[-1] for steps, _ in curves.values())]
        smooth = [
            np.interp(shared, steps, _smooth(np.asarray(values, dtype=float)))
            for steps, values in curves.values()
        ]
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

    return _plot(draw, 6.0, 3.2)


def results_plot(rows: Sequence[Mapping[str, Any]]) -> Plot:
    """Mean score and success rate with intervals: one line per world, one colour per policy."""
    worlds = list(dict.fromkeys(r["world"] for r in rows))
    policies = list(dict.fromkeys(r["policy"] for r in rows))

    def draw(figure: Figure) -> None:
        for axes, key, label in zip(
            figure.subplots(1, 2, sharey=True),
            ("score", "success"),
            ("mean score", "success rate"),
            strict=True,
        ):
            for r in rows:
                i, e = policies.index(r["policy"]), r[key]
                shift = (i - (len(policies) - 1) / 2) * 0.24
                y = len(worlds) - 1 - worlds.index(r["world"]) - shift
                _whisker(axes, e, y, i, r["policy"] if r["world"] == worlds[0] else None)
            axes.set(xlim=(-0.02, 1.02), xlabel=f"{label}, 95 % interval")
            axes.set_yticks(range(len(worlds)), worlds[::-1])
            axes.set_ylim(-0.6, len(worlds) - 0.4)
            axes.grid(axis="x", alpha=0.25)
        _legend(figure)

    return _plot(draw, FULL, 1.3 + 0.62 * len(worlds))


def difference_plot(rows: Sequence[Mapping[str, Any]]) -> Plot:
    """Paired differences of score and success, one line per comparison, zero marked."""

    def draw(figure: Figure) -> None:
        for axes, key, label in zip(
            figure.subplots(1, 2, sharey=True),
            ("score_difference", "success_difference"),
            ("score", "success rate"),
            strict=True,
        ):
            for y, row in enumerate(reversed(rows)):
                _whisker(axes, row[key], float(y), 0, None)
            axes.axvline(0, color=INK, lw=1, ls="--")
            axes.set(xlabel=f"difference of {label}, 95 % interval")
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_yticks(
                range(len(rows)),
                [f"{r['b']} − {r['a']}\n{r['world']}".strip() for r in reversed(rows)],
            )
            axes.set_ylim(-0.6, len(rows) - 0.4)
            axes.grid(axis="x", alpha=0.25)

    return _plot(draw, FULL, 1.0 + (0.6 if any(r["world"] for r in rows) else 0.34) * len(rows))


def agreement_plot(rows: Sequence[Mapping[str, Any]]) -> Plot:
    """Maximum coverage per start in two worlds; one panel per world, one colour per policy."""
    panels = list(dict.fromkeys((r["world"], r["kind"]) for r in rows))
    titles = {"moved": "{} itself, moved", "noise": "{} itself, other noise"}
    policies = list(dict.fromkeys(r["policy"] for r in rows))

    def draw(figure: Figure) -> None:
        axes_row = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (world, kind) in zip(axes_row, panels, strict=True):
            chosen = [r for r in rows if (r["world"], r["kind"]) == (world, kind)]
            for r in chosen:
                i = policies.index(r["policy"])
                points = np.asarray(r["points"], dtype=float).reshape(-1, 2)
                axes.scatter(
                    points[:, 0], points[:, 1], s=16, color=COLOURS[i % 6], alpha=0.75,
                    marker=MARKERS[i % 6], label=r["policy"], linewidths=0,
                )  # fmt: skip
            axes.plot([0, 1], [0, 1], color=SOFT, lw=0.8)
            axes.axvline(0.95, color=SOFT, lw=0.6, ls=":")
            axes.axhline(0.95, color=SOFT, lw=0.6, ls=":")
            source = chosen[0]["source"]
            axes.set(
                title=titles.get(kind, "{}").format(world),
                xlabel=f"in {source}",
                xlim=(-0.02, 1.02),
                ylim=(-0.02, 1.02),
                aspect="equal",
            )
        axes_row[0].set_ylabel("maximum coverage")
        _legend(figure)

    return _plot(draw, FULL * min(1.0, max(2, len(panels)) / 3), 3.6 if len(panels) < 4 else 3.0)


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

    return _plot(draw, FULL * min(1.0, max(2, len(series)) / 3), 2.5)


def _whisker(axes: Axes, e: Mapping[str, Any], y: float, i: int, label: str | None) -> None:
    if e["value"] is None:
        return
    low = e["low"] if e["low"] is not None else e["value"]
    high = e["high"] if e["high"] is not None else e["value"]
    axes.plot([low, high], [y, y], color=COLOURS[i % 6], lw=2.2, solid_capstyle="butt")
    axes.plot(
        e["value"], y, MARKERS[i % 6], color=COLOURS[i % 6], ms=7, mec="white", mew=1, label=label
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


def _plot(draw: Callable[[Figure], None], width: float, height: float) -> Plot:
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
