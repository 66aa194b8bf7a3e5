"""Knows the messages between the page and the program, and refuses all others.

The page says, as JSON with "v" (the version) and "type":
    hand     seq, t_ms, held, away,                what the hand does, 40 times a second: how far
             twist [6] | turn [4] | xy [2]         it deflects pads and keys, how the device that
                                                   it holds is turned (qw, qx, qy, qz), a point;
                                                   away: the page has not the focus
    key      key                                   start, keep, discard, ...
    gripper  opening                               how far it should be open, 0 to 1
    claim                                          this page wants to drive
    seen     camera | nothing                      a camera's picture, or the view, was drawn

The program says:
    scene    see Layout                            once: what there is to see
    role     driving, why                          whether this page drives
    view     see View                              how it goes
    look     curves [{name, values}],              the attempt that is over, in small; nothing
             strips [{camera, pictures}]           while one goes on. Pictures: JPEG in base 64
    (bytes)  version, camera (a byte each), number (4 bytes, big-endian), JPEG
"""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from base64 import b64encode
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from hardware.teleop.device import HandPose, Key, Look, Rate, TablePoint, View
from hardware.teleop.page.layout import Control, Layout
from hardware.teleop.page.pictures import jpeg_of
from robolearn.errors import DataError
from robolearn.geometry import Quaternions, pose, rotation_from_quat

VERSION = 1
# The page tells what the hand does this often, moved or not [s].
BEAT_S = 0.025
KEYS: tuple[Key, ...] = get_args(Key)
PICTURE_HEAD = struct.Struct(">BBI")
# No table is larger [m].
_FAR_M = 100.0
# A rotation's quaternion is as long as this at most.
_UNIT = 1.01
# A page that counts so far has counted for years.
_MOST = 2.0**53


@dataclass(frozen=True, slots=True)
class Hand:
    """What the hand does: ``seq`` counts a page's messages, ``t_ms`` is the page's own clock."""

    seq: int
    t_ms: float
    held: bool
    motion: Rate | HandPose | TablePoint
    # The page has not the focus, or is hidden: nobody is there who could let go.
    away: bool = False

    @property
    def control(self) -> Control:
        """What the page is driven by."""
        return "point" if isinstance(self.motion, TablePoint) else "rate"


@dataclass(frozen=True, slots=True)
class Press:
    """A key was pressed."""

    key: Key


@dataclass(frozen=True, slots=True)
class Grip:
    """The gripper should be open so far, 0 to 1."""

    opening: float


@dataclass(frozen=True, slots=True)
class Claim:
    """The page wants to drive."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A picture of this camera was drawn, or the view (None): the next one may come."""

    camera: int | None = None


Message = Hand | Press | Grip | Claim | Seen


def decode(text: str | bytes) -> Message:
    """What a page said; DataError for anything else."""
    try:
        raw: Any = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"a message that is no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise DataError("a message that is no JSON object")
    version = _get(raw, "v", int)
    if version != VERSION:
        raise DataError(
            f"a message of version {version}, but this program speaks {VERSION}: reload"
        )
    kind = _get(raw, "type", str)
    if kind == "hand":
        return _hand(raw)
    if kind == "key":
        key = _get(raw, "key", str)
        for known in KEYS:
            if key == known:
                return Press(known)
        raise DataError(f"a key that is not there: {key[:40]!r}")
    if kind == "gripper":
        return Grip(_share(raw, "opening"))
    if kind == "claim":
        return Claim()
    if kind == "seen":
        return Seen(_get(raw, "camera", int) if "camera" in raw else None)
    raise DataError(f"a message of an unknown type: {kind[:40]!r}")


def scene_text(layout: Layout) -> str:
    """What there is to see, once."""
    told = {"v": VERSION, "type": "scene", "beat_ms": 1e3 * BEAT_S}
    return json.dumps(told | dataclasses.asdict(layout))


def view_text(view: View) -> str:
    """How it goes; pictures go their own way."""
    told: dict[str, Any] = {"v": VERSION, "type": "view"}
    for spec in dataclasses.fields(view):
        # The attempt in small is told once; a start in small is for terminals.
        if spec.name not in ("pictures", "jpegs", "start", "tool", "things", "look", "cameras"):
            told[spec.name] = getattr(view, spec.name)
    told["tool"] = None if view.tool is None else dataclasses.asdict(view.tool)
    told["things"] = [dataclasses.asdict(thing) for thing in view.things]
    told["cameras"] = [dataclasses.asdict(c) | {"trouble": c.trouble} for c in view.cameras]
    return json.dumps(_finite(told))


def look_text(look: Look) -> str:
    """The attempt that is over, in small."""
    told = {
        "v": VERSION,
        "type": "look",
        "curves": [dataclasses.asdict(curve) for curve in look.curves],
        "strips": [
            {"camera": name, "pictures": [b64encode(jpeg_of(p)).decode() for p in pictures]}
            for name, pictures in look.strips
        ],
    }
    return json.dumps(_finite(told))


def role_text(driving: bool, why: str) -> str:
    """Whether the page drives, and if not, why."""
    return json.dumps({"v": VERSION, "type": "role", "driving": driving, "why": why})


def picture_bytes(camera: int, number: int, jpeg: bytes) -> bytes:
    """One picture of one camera."""
    return PICTURE_HEAD.pack(VERSION, camera, number % 2**32) + jpeg


def _hand(raw: dict[str, Any]) -> Hand:
    seq, t_ms = _get(raw, "seq", int), _number(raw.get("t_ms"), "t_ms", _MOST)
    if not 0 <= seq < _MOST:
        raise DataError(f"a sequence number of {seq}")
    held, away = _get(raw, "held", bool), _get(raw, "away", bool)
    motion: Rate | HandPose | TablePoint
    if "twist" in raw:
        motion = Rate(_numbers(raw, "twist", 6, 1.0))
    elif "turn" in raw:
        motion = _turned(_numbers(raw, "turn", 4, _UNIT))
    else:
        motion = TablePoint(_numbers(raw, "xy", 2, _FAR_M))
    return Hand(seq, t_ms, held, motion, away)


def _turned(wxyz: Quaternions) -> HandPose:
    norm = float(np.linalg.norm(wxyz))
    if abs(norm - 1.0) > _UNIT - 1.0:
        raise DataError(f"a rotation whose quaternion has norm {norm:.3g}")
    return HandPose(pose(rotation_from_quat(wxyz / norm), np.zeros(3)))


def _get(raw: dict[str, Any], name: str, kind: type) -> Any:
    value = raw.get(name)
    # True is an int, too.
    if type(value) is not kind:
        raise DataError(f"'{name}' must be of type {kind.__name__}, got {str(value)[:40]!r}")
    return value


def _number(value: Any, name: str, most: float) -> float:
    if type(value) not in (int, float) or not abs(value) <= most:
        raise DataError(f"'{name}' must be a number of at most {most:g}, got {str(value)[:40]!r}")
    return float(value)


def _share(raw: dict[str, Any], name: str) -> float:
    value = _number(raw.get(name), name, 1.0)
    if value < 0.0:
        raise DataError(f"'{name}' must be 0 to 1, got {value}")
    return value


def _numbers(raw: dict[str, Any], name: str, size: int, most: float) -> Any:
    values = raw.get(name)
    if not isinstance(values, list) or len(values) != size:
        raise DataError(f"'{name}' must be {size} numbers, got {str(values)[:40]!r}")
    return np.array([_number(value, name, most) for value in values])


def _finite(value: Any) -> Any:
    """``value`` with null for numbers that JSON has not: a browser refuses NaN."""
    if isinstance(value, dict):
        return {name: _finite(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
