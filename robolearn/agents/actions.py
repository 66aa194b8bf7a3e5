"""Holds an arm where it is and clips actions to their limits, which every agent needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import SpecMismatchError
from robolearn.geometry import rotation_from_quat, yaw_of
from robolearn.spec import ActionSpec
from robolearn.types import Observation, Signals


def hold_action(actions: Sequence[ActionSpec], observation: Observation) -> Signals:
    """The action that keeps things where they are: the current value, or zero if relative.

    ``<tool>/xyz_yaw`` (the tool points down) is held by what ``<tool>/pose`` shows.
    """
    out: dict[str, NDArray[Any]] = {}
    for action in actions:
        part, _, kind = action.name.partition("/")
        if action.mode == "relative":
            out[action.name] = np.zeros(action.shape)
        elif action.name in observation.samples:
            out[action.name] = np.array(observation.value(action.name), dtype=np.float64)
        elif kind == "xyz_yaw" and f"{part}/pose" in observation.samples:
            pose = np.array(observation.value(f"{part}/pose"), dtype=np.float64)
            yaw = yaw_of(rotation_from_quat(pose[3:]))
            out[action.name] = np.array([*pose[:3], yaw])
        else:
            raise SpecMismatchError(
                f"cannot hold '{action.name}': it is commanded but not observed."
                f" Observed: {sorted(observation.samples)}"
            )
    return clip_action(actions, out)


def clip_action(actions: Sequence[ActionSpec], values: Signals) -> Signals:
    """``values[name] [..., *shape]`` within the range that each action accepts (envs refuse
    others).
    """
    return {a.name: _clipped(a, values[a.name]) for a in actions}


def clip_slight(actions: Sequence[ActionSpec], values: Signals) -> Signals:
    """As :func:`clip_action`, but an action ``[*shape]`` with a component further outside than its
    tolerance stays as it is, whole: whoever sends it is out of order, and the robot refuses it.
    """
    out: dict[str, NDArray[Any]] = {}
    for action in actions:
        value = np.asarray(values[action.name], dtype=np.float64)
        clipped = _clipped(action, value)
        if action.tolerance is not None:
            own = tuple(range(value.ndim - len(action.shape), value.ndim))
            far = (np.abs(value - clipped) > action.tolerance).any(axis=own, keepdims=True)
            clipped = np.where(far, value, clipped)
        out[action.name] = clipped
    return out


def _clipped(action: ActionSpec, given: NDArray[Any]) -> NDArray[np.float64]:
    value = np.asarray(given, dtype=np.float64)
    if not (action.low and action.high):
        return value
    low, high = (np.reshape(v, action.shape) for v in (action.low, action.high))
    return np.clip(value, low, high)
