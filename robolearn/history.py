"""Builds what a policy sees: one function, called by the dataset and by the agent.

    tick times     t0      t1      t2      t3   <- query times (the last n_obs ticks)
    samples     s0    s1     s2  s3    s4       <- each with its own capture time
    seen           s0      s1      s3      s4   <- newest at or before (query - latency)

A query before the first sample gets the first sample (padding at the start of an episode).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64, Shaped
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.shapes import AnyArray, AnyFloats, OwnRows, OwnTimes, Times
from robolearn.spec import SignalSpec

# n: samples, q: queries
Queries = Int64[NDArray[np.int64], "*q"]
QueryRow = Int64[NDArray[np.int64], " q"]
Samples = Shaped[NDArray[Any], "n *shape"]
Between = Float64[NDArray[np.float64], "q *shape"]


def history_at(
    samples: Mapping[str, tuple[OwnTimes, OwnRows]],
    t_ns: Queries,
    latencies_ns: Mapping[str, int] | None = None,
) -> dict[str, AnyArray]:
    """Look up, per signal, the newest sample at or before ``t_ns - latency``.

    ``samples[name]`` is ``(t_ns [n] ascending, value [n, *shape])``; ``t_ns`` may have any shape;
    the result has ``[*t_ns.shape, *shape]`` per signal.
    """
    lag = latencies_ns or {}
    return {
        name: values[sample_index(times, t_ns - lag.get(name, 0), name)]
        for name, (times, values) in samples.items()
    }


def sample_index(sample_t_ns: Times, query_t_ns: Queries, name: str = "signal") -> Queries:
    """Index of the newest sample at or before each query time, at least 0."""
    if sample_t_ns.size == 0:
        raise DataError(f"{name}: no samples to look up")
    index = np.searchsorted(sample_t_ns, query_t_ns, side="right") - 1
    return np.maximum(index, 0)


def interpolate(
    sample_t_ns: Times,
    value: Samples,
    query_t_ns: QueryRow,
    spec: SignalSpec,
) -> Between:
    """Values at ``query_t_ns [q]`` between samples ``t_ns [n]`` (ascending), ``value [n, *shape]``.

    Linear; angles take the shorter way round, quaternions (components ``qw qx qy qz`` in a row) the
    great circle (slerp; Shoemake 1985) with ``qw >= 0``. Queries outside get the nearest sample.
    """
    if sample_t_ns.size == 0:
        raise DataError(f"{spec.name}: no samples to interpolate")
    if spec.is_image:
        raise DataError(f"{spec.name}: pictures are not interpolated")
    after = np.clip(np.searchsorted(sample_t_ns, query_t_ns, side="left"), 0, len(sample_t_ns) - 1)
    before = np.maximum(after - 1, 0)
    span = (sample_t_ns[after] - sample_t_ns[before]).astype(np.float64)
    passed = (query_t_ns - sample_t_ns[before]).astype(np.float64)
    share = np.clip(np.divide(passed, span, out=np.ones_like(span), where=span > 0), 0.0, 1.0)
    share = share.reshape(-1, *(1,) * (value.ndim - 1))
    a, b = value[before].astype(np.float64), value[after].astype(np.float64)
    out = a + share * (b - a)
    for i in spec.angular:
        turn = (b[:, i] - a[:, i] + np.pi) % (2 * np.pi) - np.pi
        angle = a[:, i] + share[:, 0] * turn
        out[:, i] = (angle + np.pi) % (2 * np.pi) - np.pi
    if "qw" in spec.components:
        first = spec.components.index("qw")
        part = slice(first, first + 4)
        out[:, part] = _slerp(a[:, part], b[:, part], share)
    return out


def _slerp(a: AnyFloats, b: AnyFloats, share: AnyFloats) -> AnyFloats:
    cosine = (a * b).sum(axis=1, keepdims=True)
    b = np.where(cosine < 0, -b, b)
    angle = np.arccos(np.clip(np.abs(cosine), 0.0, 1.0))
    near = angle < 1e-6
    sine = np.where(near, 1.0, np.sin(angle))
    weight_a = np.where(near, 1.0 - share, np.sin((1.0 - share) * angle) / sine)
    weight_b = np.where(near, share, np.sin(share * angle) / sine)
    q = weight_a * a + weight_b * b
    q = q / np.linalg.norm(q, axis=1, keepdims=True)
    return np.where(q[:, :1] < 0, -q, q)
