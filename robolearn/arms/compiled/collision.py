"""Measures distances of capsules, as ``robolearn/arms/collision.py`` tells."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.chain import fill_frames
from robolearn.arms.compiled.forms import Capsules, Chain
from robolearn.arms.compiled.kernel import kernel, part
from robolearn.arms.compiled.vectors import Vec, dot, put_three, size, three, times, total
from robolearn.arms.shapes import JointRows
from robolearn.shapes import FloatRows, Floats

# Squared lengths below this count as zero (a capsule that is a sphere) [m^2].
_TINY = 1e-18


@kernel
def distances_at(chain: Chain, things: Capsules, rows: JointRows) -> FloatRows:
    """Of all pairs, then over the table ``[rows, m + k]``, at joint positions ``[rows, dof]``."""
    n, m, k = len(things.link), len(things.one), len(things.above)
    out = np.empty((len(rows), m + k))
    frames = np.empty((len(chain.links) + 1, 12))
    starts, ways = np.empty((n, 3)), np.empty((n, 3))
    for row in range(len(rows)):
        fill_frames(chain, rows[row], frames)
        _place(things, frames, starts, ways)
        for i in range(m):
            out[row, i] = _apart(things, i, starts, ways) - things.reach[i]
        for i in range(k):
            start, way = three(starts[things.above[i]], 0), three(ways[things.above[i]], 0)
            normal = three(things.normal, 0)
            out[row, m + i] = dot(normal, start) + min(dot(normal, way), 0.0) - things.over[i]
    return out


@part
def _place(things: Capsules, frames: FloatRows, starts: FloatRows, ways: FloatRows) -> None:
    """Where all are: starts and ways ``[n, 3]``."""
    for i in range(len(things.link)):
        frame = frames[things.link[i]]
        way = _turned(frame, three(things.way[i], 0))
        put_three(starts[i], 0, total(three(frame, 9), _turned(frame, three(things.start[i], 0))))
        put_three(ways[i], 0, way)


@part
def _turned(frame: Floats, v: Vec) -> Vec:
    """``v`` in the axes that a frame ``[12]`` is told in."""
    x, y, z = times(v[0], three(frame, 0)), times(v[1], three(frame, 3)), three(frame, 6)
    return total(total(x, y), times(v[2], z))


@part
def _apart(things: Capsules, pair: int, starts: FloatRows, ways: FloatRows) -> float:
    """Distance of two segments: the closest points of Ericson, "Real-Time Collision Detection"
    (2005), 5.1.9.
    """
    one: int = things.one[pair]
    two: int = things.two[pair]
    d1, d2, p2 = three(ways[one], 0), three(ways[two], 0), three(starts[two], 0)
    r = total(three(starts[one], 0), times(-1.0, p2))
    a: float = things.square[one]
    e: float = things.square[two]
    b, c, f = dot(d1, d2), dot(d1, r), dot(d2, r)
    denominator = a * e - b * b
    # Of parallel segments any point of the first will do: its start.
    s = 0.0
    if denominator > 1e-12 * (a * e) + _TINY:
        s = _share((b * f - c * e) / denominator)
    t = _share((b * s + f) / max(e, _TINY))
    s = _share((b * t - c) / max(a, _TINY))
    return size(total(total(r, times(s, d1)), times(-t, d2)))


@part
def _share(value: float) -> float:
    """To 0 to 1; what is not a number stays none."""
    if math.isnan(value):
        return value
    return min(max(value, 0.0), 1.0)
