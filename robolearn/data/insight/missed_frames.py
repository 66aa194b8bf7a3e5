"""Counts the frames of a camera that did not come, from when the others did."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import numpy as np

from robolearn.shapes import Times

LATE = 1.5
"""Periods: from here on a tick is late, and between two frames one is missing."""


def missed_between(t_ns: Times, rate_hz: float) -> int:
    """Frames that did not come between those that did; ``rate_hz`` 0: it is theirs."""
    gaps = np.diff(t_ns) * 1e-9
    if not len(gaps):
        return 0
    period = 1.0 / rate_hz if rate_hz > 0 else float(np.median(gaps))
    wide = gaps[gaps > LATE * period] if period > 0 else gaps[:0]
    return int(np.round(wide / period - 1.0).sum()) if len(wide) else 0


def missed_beyond(t_ns: Times, rate_hz: float, begin_ns: int, end_ns: int) -> int:
    """Frames that did not come from ``begin_ns`` to the first one that did, and from the last one
    to ``end_ns``.
    """
    ends = np.array([t_ns[0] - begin_ns, end_ns - t_ns[-1]]) * 1e-9
    return int(np.floor(ends[ends > LATE / rate_hz] * rate_hz).sum())
