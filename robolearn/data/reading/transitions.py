"""Adds up what follows a row: chunked temporal differences, returns-to-go, who comes next.

An episode with ticks 0..6, done (``D``) at tick 3 although the recording goes on, stride 2:

    tick        0    1    2    3D   4    5    6
    steps       2    2    2    1    2    -    -      how many rewards are added up
    next row    2    3    -    -    6    -    -      where the value is taken from
    bootstrap   g^2  g^2  0    0    g^2  -    -      0: nothing follows what is done

Two flags, not one: *done* says that the task is over (no value follows), the end of an episode only
that nobody wrote down what came next. A row whose chunk runs into such an end is no start (``-``):
neither a reward nor a value can be given. Rows after ``D`` are starts like any other; that is how
play that goes on after a goal is read (masks of OGBench's single tasks). Sources: Q-chunking (Li,
Zhou, Levine 2025); two flags: OGBench (Park et al. 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64
from numpy.typing import NDArray

from robolearn.errors import DataError

# Rows of all episodes, one after the other.
RowIndex = Int64[NDArray[np.int64], " rows"]
RowFlags = Bool[NDArray[np.bool_], " rows"]
RowValues = Float[NDArray[Any], " rows"]
# First row of each episode, and the number of rows behind the last one.
Starts = Int64[NDArray[np.int64], " episodes_and_one"]
# Rows that a batch begins at.
Drawn = Int64[NDArray[np.int64], " b"]
DrawnValues = Float32[NDArray[np.float32], " b"]
StepValues = Float[NDArray[Any], "b stride"]
StepFlags = Bool[NDArray[np.bool_], "b stride"]

# A row behind all others: nothing is done from there on.
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class TdBatch:
    """``reward [b]`` discounted over ``steps [b]``; ``next_index [b]`` the row to bootstrap from;
    ``bootstrap [b]`` = discount ** steps, 0 after what is done.
    """

    reward: DrawnValues
    steps: Drawn
    next_index: Drawn
    bootstrap: DrawnValues


@dataclass(frozen=True, slots=True)
class Returns:
    """``value [rows]``: discounted sum of rewards from each row to what is done, or to the last
    row of its episode; ``whole [rows]``: it ended there because something was done. Elsewhere the
    value is the sum of what was seen.
    """

    value: RowValues
    whole: RowFlags


def done_at(starts: Starts, done: RowFlags) -> RowIndex:
    """The first row from each one on, within its episode, at which something is done; else
    :data:`NEVER`.
    """
    rows = np.arange(len(done), dtype=np.int64)
    ends = np.append(np.flatnonzero(done), NEVER).astype(np.int64)
    following = ends[np.searchsorted(ends, rows)]
    last = np.repeat(starts[1:] - 1, np.diff(starts))
    return np.where(following <= last, following, NEVER)


def td_starts(starts: Starts, done: RowFlags, stride: int) -> Drawn:
    """Rows from which ``stride`` steps can be taken, or fewer up to what is done."""
    rows = np.arange(len(done), dtype=np.int64)
    last = np.repeat(starts[1:] - 1, np.diff(starts))
    reached = done_at(starts, done) - rows < stride
    return rows[reached | (rows + stride <= last)]


def td_batch(
    reward: RowValues, t: Drawn, last: Drawn, end: Drawn, stride: int, discount: float
) -> TdBatch:
    """Chunked TD quantities from rows ``t``, of episodes that end at rows ``last``.

    ``end [b]``: :func:`done_at` of those rows. With ``n = min(stride, end - t + 1)``: reward = sum
    over i < n of discount^i r[t + i]; if ``end`` is among those rows, bootstrap is 0 and
    ``next_index`` is not to be used, else ``next_index = t + n`` and bootstrap = discount^n.
    """
    crosses = end - t < stride
    if bool((~crosses & (t + stride > last)).any()):
        raise DataError("a chunk crosses the end of a recording; take rows from td_starts")
    steps = np.minimum(stride, np.minimum(end, last) - t + 1)
    weights = discount ** np.arange(stride) * _within(steps, stride)
    return TdBatch(
        reward=(_ahead(reward, t, last, stride) * weights).sum(axis=1).astype(np.float32),
        steps=steps,
        next_index=np.minimum(t + steps, last),
        bootstrap=np.where(crosses, 0.0, discount**steps).astype(np.float32),
    )


def step_values(values: RowValues, t: Drawn, last: Drawn, steps: Drawn, stride: int) -> StepValues:
    """``values`` of each step of the chunks from ``t``; 0 behind their ``steps``."""
    return (_ahead(values, t, last, stride) * _within(steps, stride)).astype(np.float32)


def returns_to_go(starts: Starts, done: RowFlags, reward: RowValues, discount: float) -> Returns:
    """Discounted sums of rewards from every row on; see :class:`Returns`."""
    rows = np.arange(len(done), dtype=np.int64)
    last = np.repeat(starts[1:] - 1, np.diff(starts))
    end = np.minimum(done_at(starts, done), last)
    value = np.asarray(reward, dtype=np.float64).copy()
    # By their distance to the end, so that every row finds its follower's sum: as many passes as
    # the longest stretch has rows, each over all stretches at once.
    left = end - rows
    order = np.argsort(left, kind="stable")
    bounds = np.searchsorted(left[order], np.arange(1, int(left.max(initial=0)) + 2))
    for begin, stop in pairwise(bounds):
        here = order[begin:stop]
        value[here] += discount * value[here + 1]
    return Returns(value.astype(np.float32), done[end])


def _ahead(values: RowValues, t: Drawn, last: Drawn, stride: int) -> StepValues:
    return values[np.minimum(t[:, None] + np.arange(stride, dtype=np.int64), last[:, None])]


def _within(steps: Drawn, stride: int) -> StepFlags:
    return np.arange(stride, dtype=np.int64) < steps[:, None]
