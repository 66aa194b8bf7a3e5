"""Holds how the cell of a configuration is opened."""

from __future__ import annotations

from dataclasses import dataclass, field

from hardware.cell.limits import RunLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """How a cell is opened."""

    # Start the virtual lab of the cell and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Tighter limits for this run.
    limits: RunLimits = field(default_factory=RunLimits)
