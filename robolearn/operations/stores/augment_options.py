"""Configures how episodes are moved over the table, and when their replay counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class AugmentConfig:
    """How episodes are moved, and when a replay counts."""

    # Moved copies of every episode.
    copies: int = 1
    # Largest turn, either way [deg]; drawn uniformly.
    turn_deg: float = 30.0
    # Largest shift of x and of y, either way [m]; drawn uniformly.
    shift_m: float = 0.05
    # What turns are about, and reflections go through: x,y [m].
    centre: tuple[float, float] = (0.0, 0.0)
    # Direction of the line that every copy is reflected at as well [deg]; left out: none is.
    mirror_deg: float | None = None
    # The objects' own axis of symmetry in their frame [deg], for reflections.
    body_axis_deg: float = 0.0
    # The tool starts where the world starts it, so commands go over to the moved ones in this time
    # [s]; at once where the start places the tool, too.
    ramp_s: float = 1.0
    # The object may end so far from where the moved recording has it [m].
    within_m: float = 0.02
    # And be turned so far against it [deg].
    within_deg: float = 20.0
    # Of the draws.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ConfigError(f"copies must be at least 1, got {self.copies}")
        sizes = (self.turn_deg, self.shift_m, self.ramp_s, self.within_m, self.within_deg)
        if not all(math.isfinite(v) and v >= 0 for v in sizes):
            raise ConfigError(
                "turn_deg, shift_m, ramp_s, within_m and within_deg must be at least 0, got"
                f" {sizes}"
            )
        if self.turn_deg == self.shift_m == 0 and self.mirror_deg is None:
            raise ConfigError("nothing would move: give turn_deg, shift_m or mirror_deg")
        if self.turn_deg and self.mirror_deg is not None:
            raise ConfigError("a reflection that is turned is another reflection: turn_deg 0 here")
