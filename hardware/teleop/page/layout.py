"""Says what the page shows and by what it is driven, from what the arm is commanded by.

``tool/xy_table`` is driven by a point on the picture of the table, every other tool by deflections
of pads and keys along the axes that the action leaves free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hardware.teleop.device import Surroundings
from hardware.teleop.targets import WIDTH, XY_TABLE, JointTarget, find_target
from robolearn import pusht
from robolearn.errors import SpecMismatchError
from robolearn.spec import EmbodimentSpec
from robolearn.types import Outline

Control = Literal["point", "rate"]
_CIRCLE = 32


@dataclass(frozen=True, slots=True)
class CameraPlace:
    """Where a camera's pictures go: their size is known before the first one comes; ``drives``:
    the hand counts in the axes of this picture.
    """

    name: str
    width: int
    height: int
    drives: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """``free``: which of x, y, z and the turns about them a hand may move; ``low`` and ``high``:
    where the tool may be [m], empty where the action does not say; ``heading_rad``: the person's
    forward, drawn upwards.
    """

    task: str
    control: Control
    free: tuple[bool, ...]
    gripper: bool
    rate_hz: float
    heading_rad: float
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    outlines: tuple[Outline, ...] = ()
    cameras: tuple[CameraPlace, ...] = ()


def layout_of(around: Surroundings) -> Layout:
    """The page of what is driven; :class:`SpecMismatchError` where a page cannot drive it."""
    if around.spec is None:
        raise SpecMismatchError("the page needs to know what it drives; use --agent keyboard here")
    target, grip = find_target(around.spec)
    if isinstance(target, JointTarget):
        raise SpecMismatchError(
            f"'{around.spec.name}' is commanded by joint angles ({target.spec.name}), which a page"
            " does not give: a leader arm does (--agent leader)"
        )
    flat = target.spec.name == XY_TABLE
    heading = around.heading_rad
    if heading is None:
        heading = math.pi / 2 if flat else 0.0
    placed = target.spec.mode == "absolute"
    outlines = around.outlines
    if around.task == "pusht":
        # Also of cells, and of worlds that know no shapes.
        outlines = pusht_outlines(
            pusht.recorded_goal({pusht.TASK_PARAMS: around.task_params or {}})
        )
    return Layout(
        task=around.task,
        control="point" if flat else "rate",
        free=tuple(bool(v) for v in target.free),
        gripper=grip is not None and grip.name == WIDTH,
        rate_hz=around.spec.rate_hz,
        heading_rad=heading,
        low=target.spec.low[:3] if placed else (),
        high=target.spec.high[:3] if placed else (),
        outlines=outlines,
        cameras=_cameras(around.spec, around.camera),
    )


def pusht_outlines(goal: pusht.Pose) -> tuple[Outline, ...]:
    """Push-T's T and its goal, and the disc that pushes it."""
    tee = tuple(_rows(part.tolist()) for part in pusht.tee_polygons())
    turns = [2.0 * math.pi * i / _CIRCLE for i in range(_CIRCLE)]
    r = pusht.TOOL_RADIUS_M
    disc = tuple((r * math.cos(turn), r * math.sin(turn)) for turn in turns)
    x, y, yaw = (float(v) for v in goal)
    return (Outline("goal", tee, (x, y, yaw)), Outline("block", tee), Outline("tool", (disc,)))


def _rows(points: list[list[float]]) -> tuple[tuple[float, float], ...]:
    return tuple((x, y) for x, y in points)


def _cameras(spec: EmbodimentSpec, drives: str) -> tuple[CameraPlace, ...]:
    seen = [(s.name.partition("/")[0], s) for s in spec.signals if s.is_image and not s.is_depth]
    return tuple(
        CameraPlace(name, s.shape[1], s.shape[0], drives=name == drives) for name, s in seen
    )
