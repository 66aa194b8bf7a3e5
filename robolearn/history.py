"""What a policy sees: one function, called by the dataset and by the agent.

    tick times     t0      t1      t2      t3   <- query times (the last n_obs ticks)
    samples     s0    s1     s2  s3    s4       <- each with its own capture time
    seen           s0      s1      s3      s4   <- newest at or before (query - latency)

A query before the first sample gets the first sample (padding at the start of an episode).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError


def history_at(
    samples: Mapping[str, tuple[NDArray[np.int64], NDArray[Any]]],
    t_ns: NDArray[np.int64],
    latencies_ns: Mapping[str, int] | None = None,
) -> dict[str, NDArray[Any]]:
    """Look up, per signal, the newest sample at or before ``t_ns - latency``.

    ``samples[name]`` is ``(t_ns [n] ascending, value [n, *shape])``; ``t_ns`` may have any shape;
    the result has ``[*t_ns.shape, *shape]`` per signal.
    """
    lag = latencies_ns or {}
    return {
        name: values[sample_index(times, t_ns - lag.get(name, 0), name)]
        for name, (times, values) in samples.items()
    }


def sample_index(
    sample_t_ns: NDArray[np.int64], query_t_ns: NDArray[np.int64], name: str = "signal"
) -> NDArray[np.int64]:
    """Index of the newest sample at or before each query time, at least 0."""
    if sample_t_ns.size == 0:
        raise DataError(f"{name}: no samples to look up")
    index = np.searchsorted(sample_t_ns, query_t_ns, side="right") - 1
    return np.maximum(index, 0)
