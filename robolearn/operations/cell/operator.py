"""Describes the person beside a cell while it is checked, measured, guided or calibrated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CellOperator:
    """Who agrees to what a cell does, and whose hands do what it cannot."""

    # Agrees to what is about to happen, or raises ConfigError.
    consent: Callable[[str], None]
    # Does what the text says before it returns; None: that has been seen to.
    place: Callable[[str], None] | None = None
    # Waits for at most so long [s]; whether the person says that their hands are done with the arm.
    # None: nobody says so.
    done: Callable[[float], bool] | None = None
