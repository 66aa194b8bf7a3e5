"""Refuses commands that no world could carry out."""

from __future__ import annotations

import numpy as np

from robolearn.errors import DataError
from robolearn.spec import ActionSpec, EmbodimentSpec
from robolearn.types import Command

# Commands may miss the range by rounding only.
ACTION_TOLERANCE = 1e-9
# Kinds of numpy's types that are real numbers.
_NUMBERS = "fiu"


class ActionCheck:
    """Checks the commands of one embodiment; the ranges are looked up once."""

    def __init__(self, spec: EmbodimentSpec) -> None:
        self._owner = spec.name
        self._ranges = [
            (a, [v - ACTION_TOLERANCE for v in a.low], [v + ACTION_TOLERANCE for v in a.high])
            for a in spec.actions
        ]

    def __call__(self, command: Command) -> None:
        """Raise :class:`DataError` unless every action is there: finite, in shape, in range."""
        for action, low, high in self._ranges:
            given = command.action.get(action.name)
            if given is None:
                raise DataError(
                    f"{self._owner}: the command lacks '{action.name}'; it has"
                    f" {sorted(command.action)}"
                )
            try:
                value = np.asarray(given)
            except ValueError as error:
                raise DataError(f"{action.name}: {given!r} is no array of numbers") from error
            if value.shape != action.shape or value.dtype.kind not in _NUMBERS:
                raise _refusal(action, value)
            # NaN is not within anything. Plain numbers are faster than arrays at this size.
            for least, number, most in zip(low, value.ravel().tolist(), high, strict=True):
                if not least <= number <= most:
                    raise _refusal(action, value)


def check_action(command: Command, spec: EmbodimentSpec) -> None:
    """One check; see :class:`ActionCheck`."""
    ActionCheck(spec)(command)


def _refusal(action: ActionSpec, value: np.ndarray) -> DataError:
    if value.dtype.kind not in _NUMBERS:
        return DataError(f"{action.name}: expected real numbers, got {value!r}")
    if value.shape != action.shape:
        return DataError(
            f"{action.name}: expected shape {action.shape}, got {value.shape} ({value!r})"
        )
    return DataError(
        f"{action.name}: {value.tolist()} is not within {list(action.low)} to"
        f" {list(action.high)} [{action.unit}]; clip it to the action's range"
    )
