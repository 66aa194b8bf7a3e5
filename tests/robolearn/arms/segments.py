"""Measures distances of segments as the textbook does, one line after the other: the oracle.

The closest points of Ericson, "Real-Time Collision Detection" (2005), 5.1.9.
"""

import numpy as np

TINY = 1e-18


def segment_distance(p1, q1, p2, q2):
    """Distances ``[n]`` of the segments p1-q1 and p2-q2, each ``[n, 3]``."""
    d1, d2, r = q1 - p1, q2 - p2, p1 - p2
    a, e = _dot(d1, d1), _dot(d2, d2)
    b, c, f = _dot(d1, d2), _dot(d1, r), _dot(d2, r)
    denominator = a * e - b * b
    parallel = denominator <= 1e-12 * a * e + TINY
    s = np.where(parallel, 0.0, (b * f - c * e) / np.where(parallel, 1.0, denominator))
    s = np.clip(s, 0.0, 1.0)
    t = np.clip((b * s + f) / np.maximum(e, TINY), 0.0, 1.0)
    s = np.clip((b * t - c) / np.maximum(a, TINY), 0.0, 1.0)
    gap = r + s[:, None] * d1 - t[:, None] * d2
    return np.sqrt(_dot(gap, gap))


def _dot(a, b):
    return (a * b).sum(axis=1)
