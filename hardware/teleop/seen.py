"""Reads from an observation what a person should see: where tool and things are, and pictures."""

from __future__ import annotations

import numpy as np

from hardware.teleop.device import Thing
from hardware.teleop.targets import POSE, WIDTH, XY_TABLE
from robolearn.geometry import names_rotation, rotation_from_quat, yaw_of
from robolearn.shapes import AnyArray, Picture
from robolearn.types import Observation

# Shapes of a pose on the table (x, y, yaw), and of one in space (x, y, z, qw, qx, qy, qz).
_FLAT, _SPACE = (3,), (7,)


def tool_of(observation: Observation) -> Thing | None:
    """The tool, from ``tool/xy_table`` or ``tool/pose``; None where neither is observed."""
    samples = observation.samples
    if XY_TABLE in samples:
        x, y = (float(v) for v in samples[XY_TABLE].value)
        return Thing("tool", (x, y))
    return _thing(POSE, samples[POSE].value) if POSE in samples else None


def things_of(observation: Observation) -> tuple[Thing, ...]:
    """All parts but the tool whose ``PART/pose`` is observed."""
    found = [
        _thing(name, sample.value)
        for name, sample in observation.samples.items()
        if name.endswith("/pose") and name != POSE
    ]
    return tuple(thing for thing in found if thing is not None)


def fingers_of(observation: Observation) -> float | None:
    """How far the fingers are open [m]; None where that is not observed."""
    seen = observation.samples.get(WIDTH)
    return None if seen is None else float(seen.value.reshape(-1)[0])


def pictures_of(observation: Observation) -> dict[str, Picture]:
    """The newest picture of each camera, by the name of its part."""
    return {
        name.partition("/")[0]: sample.value
        for name, sample in observation.samples.items()
        if sample.value.ndim == 3 and sample.value.dtype.name == "uint8"
    }


def _thing(signal: str, value: AnyArray) -> Thing | None:
    part = signal.partition("/")[0]
    if not np.isfinite(value).all() or (value.shape == _SPACE and not names_rotation(value[3:])):
        return None
    if value.shape == _FLAT:
        x, y, yaw = (float(v) for v in value)
        return Thing(part, (x, y), yaw)
    if value.shape == _SPACE:
        at = (float(value[0]), float(value[1]), float(value[2]))
        # Of the x axis, also of a tool that points down.
        return Thing(part, at, yaw_of(rotation_from_quat(value[3:].astype(np.float64))))
    return None
