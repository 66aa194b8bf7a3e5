"""Says what the report knows about a task beyond its trials: words, drawings, reference values.

The page itself speaks of scores, success and progress. A task whose readers expect more (Push-T:
coverage, the T on its goal) brings a :class:`TaskPage` of its own (``table.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from eval.report.page import Plot
from eval.report.plots import recordings_plot
from robolearn.data.episode import Episode

# Each as long as its episode.
Path2 = Float64[NDArray[np.float64], "_ 2"]


def _final_progress(episode: Episode) -> float | None:
    """How far the episode had come when it ended, from 0 to 1."""
    return float(episode.meta.outcome.progress)


def _no_path(episode: Episode) -> Path2 | None:
    """Nothing is known that moves in a plane."""
    del episode


def _no_goal(episode: Episode) -> tuple[float, ...] | None:
    """Nothing is drawn at a goal."""
    del episode


def _draw(
    lengths_s: Sequence[float],
    final: Sequence[float],
    paths: Sequence[Path2],
    goal: tuple[float, ...] | None,
) -> Plot:
    del paths, goal
    return recordings_plot(lengths_s, final, "Progress at the end", "progress [%]")


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Sentences, names and drawings; the defaults speak of progress and fit every task."""

    # Under the title, when the page starts from recordings.
    subtitle: str = ""
    # What the task is, in the introduction.
    about: str = ""
    # Why single outcomes say little.
    repeatable: str = "A single outcome says little; means over many starts say more."
    # How "solves the task" goes on.
    solved: str = ""
    # "12 of 20 ..." of recorded episodes.
    reached: str = "succeeded"
    # What score and success are, under the table of results.
    results: str = (
        "Score: highest progress during the episode; its interval assumes nothing but its bounds."
    )
    # A recorded episode's final measure in [0, 1], if it has one, and where its tool went [k, 2].
    final: Callable[[Episode], float | None] = _final_progress
    path: Callable[[Episode], Path2 | None] = _no_path
    # Where the goal of a recorded episode was.
    goal: Callable[[Episode], tuple[float, ...] | None] = _no_goal
    # "they ended with 80 % ..." of the final measure.
    final_words: str = "of the way done"
    # Draws recorded episodes from lengths [s], final measures, paths [m] and the goal, where all
    # have the same; what that shows.
    draw: Callable[
        [Sequence[float], Sequence[float], Sequence[Path2], tuple[float, ...] | None], Plot
    ] = _draw
    drawn: str = "Length of the episodes; how far they had come when they ended."
    drawn_alt: str = "Histograms of episode length and of final progress"
    # Why worlds may disagree.
    agreement: str = ""
    # The value of the measure of agreement that counts as solved, if one does.
    threshold: float | None = None
    # How a deployed policy knows the scene.
    sensing: str = ""
    # Words of the glossary.
    glossary: Mapping[str, str] = field(
        default_factory=lambda: {
            "score": "the highest progress during the episode, from 0 to 1",
            "success": "what the task asks for was reached (the protocol says when)",
        }
    )
    # Parameters of identification in words, and what the source world really has.
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    source_values: Mapping[str, float] = field(default_factory=dict[str, float])
    # Scenes of replays in the order of the page, and those whose error is a headline, best first.
    scenes: tuple[str, ...] = ()
    headline_scenes: tuple[str, ...] = ()
