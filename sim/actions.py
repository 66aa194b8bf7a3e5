"""Refuses commands that no world could carry out."""

from __future__ import annotations

import numpy as np

from robolearn.errors import DataError
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command

# Commands may miss the range by rounding only.
ACTION_TOLERANCE = 1e-9


def check_action(command: Command, spec: EmbodimentSpec) -> None:
    """Raise :class:`DataError` unless the command has every action: finite, in shape, in range."""
    for action in spec.actions:
        if action.name not in command.action:
            raise DataError(
                f"{spec.name}: the command lacks '{action.name}'; it has {sorted(command.action)}"
            )
        value = np.asarray(command.action[action.name], dtype=np.float64)
        if value.shape != action.shape:
            raise DataError(
                f"{action.name}: expected shape {action.shape}, got {value.shape} ({value!r})"
            )
        low, high = np.array(action.low), np.array(action.high)
        inside = (value >= low - ACTION_TOLERANCE) & (value <= high + ACTION_TOLERANCE)
        if not inside.all():
            raise DataError(
                f"{action.name}: {value.tolist()} is not within {list(action.low)} to"
                f" {list(action.high)} [{action.unit}]; clip it to the action's range"
            )
