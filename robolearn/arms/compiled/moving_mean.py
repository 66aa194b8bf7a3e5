"""Takes the mean of the newest rows, as ``robolearn/arms/moving_mean.py`` does."""

from __future__ import annotations

from robolearn.arms.compiled.kernel import part
from robolearn.shapes import FloatRows, Floats, Index


@part
def add_row(rows: FloatRows, at: Index, new: Floats, out: Floats) -> None:
    """The mean of ``rows [window, n]`` with ``new [n]`` in place ``at [1]``, into ``out [n]``."""
    for k in range(len(new)):
        rows[at[0], k] = new[k]
        total = 0.0
        for i in range(len(rows)):
            total += rows[i, k]
        out[k] = total / len(rows)
    at[0] = (at[0] + 1) % len(rows)
