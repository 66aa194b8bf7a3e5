"""Says what a report about Push-T says beside the generic page: coverage, the T, its physics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from eval.report.page import Plot
from eval.report.plots import recordings_plot
from eval.report.tasks.base import Path2, TaskPage
from robolearn.data.episode import Episode
from robolearn.pusht import (
    BLOCK,
    GOAL,
    TABLE_SIZE_M,
    TOOL,
    coverage,
    recorded_goal,
    tee_polygons,
    transform_points,
)

SUCCESS_COVERAGE = 0.95


def final_coverage(episode: Episode) -> float | None:
    """How much of the goal was covered when the episode ended."""
    if BLOCK not in episode.streams or not episode.steps:
        return None
    # The last observation is a tick older than the verdict on the last command.
    seen = coverage(episode.observed(BLOCK)[-1], recorded_goal(episode.meta.provenance))
    return float(episode.meta.outcome.metrics.get("coverage", seen))


def tool_path(episode: Episode) -> Path2 | None:
    """Where the tool went, in the table frame [m] ``[k, 2]``."""
    if TOOL not in episode.streams:
        return None
    return np.asarray(episode.observed(TOOL)[:, :2], dtype=np.float64)


def draw_goal(axes: Axes, goal: Sequence[float] | None = GOAL) -> None:
    """The T at ``goal`` (None: nothing) and the table's edge, in the table frame [m]."""
    for corners in tee_polygons() if goal is not None else ():
        placed = transform_points(corners, goal)
        axes.fill(placed[:, 0], placed[:, 1], color="#9fd3a8", ec="none", alpha=0.9, zorder=3)
    axes.set(xlim=(0, TABLE_SIZE_M), ylim=(0, TABLE_SIZE_M), aspect="equal")


def _draw(
    lengths_s: Sequence[float],
    final: Sequence[float],
    paths: Sequence[Path2],
    goal: tuple[float, ...] | None,
) -> Plot:
    return recordings_plot(
        lengths_s,
        final,
        "Coverage at the end",
        "goal covered [%]",
        mark=SUCCESS_COVERAGE,
        paths=paths,
        backdrop=lambda axes: draw_goal(axes, goal),
    )


PAGE = TaskPage(
    subtitle=(
        "People pushed a T-shaped block onto its goal; this page follows their recordings through"
        " simulation, training and evaluation to a robot arm."
    ),
    about=(
        "The task is Push-T: a round tool pushes a flat T-shaped block over a table until it covers"
        " a goal of the same shape. A policy sees where the tool and the block are, ten times a"
        " second, and says where the tool should go next."
    ),
    repeatable=("Single outcomes of pushing are not repeatable; means over many starts are."),
    solved=" (more than 95 % covered)",
    reached="reached more than 95 % coverage",
    results=(
        "Score: best share of 95 % coverage during the episode, at most 1; its interval assumes"
        " nothing but its bounds. Success: more than 95 % covered at any time."
    ),
    final=final_coverage,
    path=tool_path,
    goal=lambda episode: recorded_goal(episode.meta.provenance),
    final_words="of the goal covered",
    draw=_draw,
    drawn=(
        "Length of the episodes; how much of the goal was covered when they ended (dashed: 95 %,"
        " which counts as solved); paths of the tool, with the goal in green."
    ),
    drawn_alt="Histograms of episode length and of final coverage, paths of the tool",
    agreement=(
        "Pushing amplifies the smallest difference: the source world does not fully agree even with"
        " itself when every start is moved by 0.3 mm, which is how exactly a careful person puts"
        " things back."
    ),
    threshold=SUCCESS_COVERAGE,
    sensing=(
        "The block's pose comes from a tracker with noise and delay; the true pose only scores the"
        " trial."
    ),
    glossary={
        "coverage": "share of the goal's area that the block covers",
        "score": "coverage divided by 0.95, at most 1; for an episode, its largest value",
        "success": "coverage was above 95 % at some time of the episode",
    },
    parameters={
        "friction": "friction between tool and block [–]",
        "gyration_m2": "rotational / linear damping (radius of gyration squared) [m²]",
        "com_m": "centre of mass along the stem [m]",
        "compliance": "softness of contacts [–]",
    },
    # gym-pusht 0.1.8: frictionless contact; the T's moment of inertia and centre of gravity as
    # built by ``add_tee``.
    source_values={"friction": 0.0, "gyration_m2": 0.003, "com_m": 0.045},
    scenes=("pusht_naive", "pusht_identified", "pusht_reference", "pusht_ur5e", "gym_pusht"),
    headline_scenes=("pusht_identified", "pusht_reference"),
)
