"""Names a region that a signal may be in: a box or a ball of some of its numbers.

    {signal: tool/xy_table, low: [0.2, 0.1], high: [0.3, 0.4]}                a box
    {signal: arm/joint_position, index: [0, 1], centre: [0, -1], radius: 0.2}  a ball of two joints

What must not happen is often a place. Data say with the same region what it cost to be there
(``data.cost``) that an evaluation counts by (``forbidden`` of a suite).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robolearn.errors import ConfigError, DataError
from robolearn.shapes import AnyRows, Flags


@dataclass(frozen=True, slots=True)
class Region:
    """Everything between ``low`` and ``high``, or within ``radius`` (Euclidean) of ``centre``; all
    in the signal's own unit, edges included.
    """

    signal: str
    # Ends of a box, one per number that counts.
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    # Middle of a ball.
    centre: tuple[float, ...] = ()
    radius: float | None = None
    # Which of the signal's numbers count; empty: all of them.
    index: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        box, ball = bool(self.low or self.high), bool(self.centre) or self.radius is not None
        if box == ball:
            raise ConfigError(
                f"region of '{self.signal}': give either low and high (a box) or centre and radius"
                " (a ball)"
            )
        if box and (len(self.low) != len(self.high) or not self._rises()):
            raise ConfigError(
                f"region of '{self.signal}': low and high must be of one length and rise, got"
                f" {list(self.low)} and {list(self.high)}"
            )
        if ball and (not self.centre or self.radius is None or not self.radius > 0):
            raise ConfigError(
                f"region of '{self.signal}': a ball needs a centre and a radius above 0, got"
                f" {list(self.centre)} and {self.radius}"
            )
        if not all(map(math.isfinite, (*self.low, *self.high, *self.centre))):
            raise ConfigError(f"region of '{self.signal}': expected finite numbers")
        if self.index and (len(self.index) != self.size or min(self.index) < 0):
            raise ConfigError(
                f"region of '{self.signal}': expected one index from 0 per number, got"
                f" {list(self.index)} for {self.size} numbers"
            )

    @property
    def size(self) -> int:
        """How many numbers count."""
        return len(self.low) or len(self.centre)

    def holds(self, values: AnyRows) -> Flags:
        """Which of the rows ``values [n, *shape]`` of the signal are inside.

        Errors: :class:`DataError` for a signal of another size.
        """
        flat = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        chosen = self.index or tuple(range(self.size))
        if max(chosen) >= flat.shape[1] or (not self.index and self.size != flat.shape[1]):
            raise DataError(
                f"'{self.signal}' has {flat.shape[1]} numbers, its region names {self.size} with"
                f" index {list(self.index)}"
            )
        flat = flat[:, list(chosen)]
        if self.radius is None:
            inside = (flat >= np.array(self.low)) & (flat <= np.array(self.high))
            return inside.all(axis=1)
        return np.linalg.norm(flat - np.array(self.centre), axis=1) <= self.radius

    def _rises(self) -> bool:
        return all(low < high for low, high in zip(self.low, self.high, strict=True))
