"""Reads from observations what a person should see: where tool and things are, and pictures.

How old the pictures are and how many did not come, while the person still stands there. Of an
attempt that is over a strip of pictures and a curve per joint, which show at once what
numbers do not: that the arm stood still, that a camera saw nothing, that the gripper closed late.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.shapes import ResizedPicture
from hardware.teleop.device import CameraState, Curve, Look, Thing, View
from hardware.teleop.targets import POSE, WIDTH, XY_TABLE
from robolearn.data.insight.missed_frames import missed_between
from robolearn.geometry import names_rotation, rotation_from_quat, yaw_of
from robolearn.shapes import AnyArray, Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Observation, SampleBatch

# Shapes of a pose on the table (x, y, yaw), and of one in space (x, y, z, qw, qx, qy, qz).
_FLAT, _SPACE = (3,), (7,)
# Points of a curve, pictures of a strip, curves that are shown at most.
POINTS, PICTURES, CURVES = 18, 5, 9
# Width of a picture of the strip [px].
WIDTH_PX = 72
# Columns of a wanted start in a terminal, two rows of pixels to a character.
START_COLUMNS = 48
# A picture that is older is said to be [s]; one that comes so rarely: after as many periods.
OLD_S, OLD_PERIODS = 1.0, 2.0
_JOINTS = "/joint_position"


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


def jpegs_of(observation: Observation) -> dict[str, bytes]:
    """Of the pictures that came as plain JPEGs the files, by the name of the camera's part."""
    samples = observation.samples.items()
    return {name.partition("/")[0]: sample.file for name, sample in samples if sample.file}


def view_of(observation: Observation | None) -> View:
    """A view that knows where things are and what cameras saw, and nothing of how it goes."""
    if observation is None:
        return View("resetting")
    return View(
        "resetting",
        tool=tool_of(observation),
        things=things_of(observation),
        fingers_m=fingers_of(observation),
        pictures=pictures_of(observation),
        jpegs=jpegs_of(observation),
    )


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


@runtime_checkable
class Wanted(Protocol):
    """Lays the start that is wanted over what a camera sees."""

    @property
    def camera(self) -> str:
        """The name of the camera's part."""
        ...

    @property
    def note(self) -> str:
        """What the person is told of it."""
        ...

    def over(self, condition: Condition, seen: Picture) -> Picture:
        """``seen``, of any size, with the start over it."""
        ...


def with_start(view: View, wanted: Wanted, condition: Condition) -> View:
    """``view`` for somebody who places things: the camera's picture as they belong, in full and in
    small; as it was where the camera sees nothing.
    """
    name = wanted.camera
    if name not in view.pictures:
        return view
    seen = view.pictures[name]
    height, width = seen.shape[:2]
    rows = max(2, round(START_COLUMNS * height / width))
    return dataclasses.replace(
        view,
        pictures={**view.pictures, name: wanted.over(condition, seen)},
        # The camera's own file is not what is shown.
        jpegs={other: file for other, file in view.jpegs.items() if other != name},
        start=(name, wanted.over(condition, thinned(seen, rows, START_COLUMNS))),
        message=f"{view.message} {wanted.note}".lstrip(),
    )


class CameraWatch:
    """From :meth:`begin` on one :meth:`add` per tick; :meth:`states` at any time. Times are those
    of the env's clock.
    """

    def __init__(self, spec: EmbodimentSpec) -> None:
        cameras = [s for s in spec.signals if s.is_image and not s.is_depth and s.rate_hz > 0]
        self._rates = {s.name: s.rate_hz for s in cameras}
        self._last: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """A new attempt."""
        self._newest: dict[str, int] = {}
        self._missed: Counter[str] = Counter()

    def add(self, drained: SampleBatch) -> None:
        """What came in a tick."""
        for name, rate_hz in self._rates.items():
            block = drained.signals.get(name)
            if block is None or not len(block.t_ns):
                continue
            before = [self._newest[name]] if name in self._newest else []
            came = np.array([*before, *block.t_ns[block.valid]], dtype=np.int64)
            self._missed[name] += missed_between(came, rate_hz)
            if len(came):
                self._newest[name] = int(came[-1])

    def states(self, observation: Observation | None, now_ns: int) -> tuple[CameraState, ...]:
        """Of every camera, as ``observation`` shows it and the attempt so far; nothing before
        anybody looked.
        """
        if observation is None:
            return ()
        for name in self._rates:
            if name in observation.samples:
                self._last[name] = observation.samples[name].t_ns
        return tuple(self._state(name, rate, now_ns) for name, rate in self._rates.items())

    def _state(self, name: str, rate_hz: float, now_ns: int) -> CameraState:
        part = name.partition("/")[0]
        if name not in self._last:
            return CameraState(part, None, old=True, missed=self._missed[name])
        age_s = max(0.0, 1e-9 * (now_ns - self._last[name]))
        old = age_s > max(OLD_S, OLD_PERIODS / rate_hz)
        return CameraState(part, age_s, old=old, missed=self._missed[name])


class QuickLook:
    """From :meth:`begin` on one :meth:`add` per tick; :attr:`look` at the end."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """A new attempt."""
        self._numbers: dict[str, list[float]] = {}
        self._small: dict[str, list[Picture]] = {}
        self._every, self._count = 1, 0
        self._look: Look | None = None

    def add(self, observation: Observation) -> None:
        """What is seen in a tick."""
        self._look = None
        for name, value in _numbers(observation).items():
            self._numbers.setdefault(name, []).append(value)
        if self._count % self._every == 0:
            for name, picture in pictures_of(observation).items():
                self._small.setdefault(name, []).append(_small(picture))
            if max(map(len, self._small.values()), default=0) >= 2 * PICTURES:
                # Half as many from now on, and of those so far: evenly spread at any length.
                self._small = {name: kept[::2] for name, kept in self._small.items()}
                self._every *= 2
        self._count += 1

    @property
    def look(self) -> Look:
        """At what was added; the same object until something is."""
        if self._look is None:
            curves = tuple(Curve(name, _spread(v)) for name, v in self._numbers.items())
            strips = tuple(
                (name, tuple(kept[i] for i in _places(len(kept), PICTURES)))
                for name, kept in self._small.items()
            )
            self._look = Look(curves[:CURVES], strips)
        return self._look


def _numbers(observation: Observation) -> dict[str, float]:
    out: dict[str, float] = {}
    for name, sample in observation.samples.items():
        if name.endswith(_JOINTS):
            values = sample.value.reshape(-1).tolist()
            out |= {f"joint {k + 1}": float(v) for k, v in enumerate(values)}
    tool = None if out else tool_of(observation)
    if tool is not None:
        out |= {f"tool {axis}": v for axis, v in zip("xyz", tool.at, strict=False)}
    fingers = fingers_of(observation)
    return out if fingers is None else {**out, "fingers": fingers}


def _small(picture: Picture) -> ResizedPicture:
    """Every so many pixels, without a copy of the picture being kept alive."""
    height, width = picture.shape[:2]
    columns = min(WIDTH_PX, width)
    return thinned(picture, max(1, round(height * columns / width)), columns)


def thinned(picture: Picture, rows: int, columns: int) -> ResizedPicture:
    """So many rows and columns of it, evenly spread; all where there are fewer."""
    height, width = picture.shape[:2]
    below = [row * height // rows for row in range(rows)] if rows < height else range(height)
    beside = [k * width // columns for k in range(columns)] if columns < width else range(width)
    return picture[np.ix_(below, beside)]


def _spread(values: list[float]) -> tuple[float, ...]:
    kept = [values[i] for i in _places(len(values), POINTS)]
    return tuple(v if math.isfinite(v) else math.nan for v in kept)


def _places(count: int, most: int) -> list[int]:
    """So many of ``count`` places, evenly spread, first and last among them."""
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]
