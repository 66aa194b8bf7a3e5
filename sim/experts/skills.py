"""Picks, carries and places with one hand; all of it by looking at signals.

A skill is a generator for ``yield from``; where it can fail it returns whether it worked.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from robolearn.geometry import Vector, rotation_from_quat
from robolearn.types import Observation
from sim.experts.script import Hand, Script, Target
from sim.shapes import PoseValues

Skill = Generator[Target, Observation, bool]

OPEN_M = 0.08
# Held: the fingers are further apart than this [m], and the object is between them.
EMPTY_M = 0.008
QUARTER = math.pi / 2


def above_by(z: float) -> Vector:
    """The step straight up by ``z`` [m]."""
    return np.array([0.0, 0.0, z])


def level_heading(pose: PoseValues, quarter: bool = True) -> float:
    """Heading [rad] of a box that lies on any of its sides: of whichever axis is most level.

    With ``quarter`` the box has four-fold symmetry and the choice does not matter.
    """
    R = rotation_from_quat(pose[3:7])
    axis = int(np.argmin(np.abs(R[2]))) if quarter else 0
    return math.atan2(float(R[1, axis]), float(R[0, axis]))


def nearest_turn(angle: float, reference: float, symmetry: float) -> float:
    """``angle`` plus a multiple of ``symmetry`` [rad], as near to ``reference`` as possible."""
    return reference + math.remainder(angle - reference, symmetry)


def holds(hand: Hand, name: str, reach: float = 0.035) -> bool:
    """True if the object is between the closed fingers."""
    distance = float(np.linalg.norm(hand.tool - hand.view.value(name)[:3]))
    return hand.width > EMPTY_M and distance < reach


def pick(
    hand: Hand,
    name: str,
    *,
    up: float = 0.12,
    above: float = 0.0,
    reach: float = 0.035,
    open_m: float = OPEN_M,
) -> Skill:
    """Grasp a box ``above`` [m] its middle and lift it by ``up``; True if it came along."""
    pose = hand.view.value(name)
    yaw = nearest_turn(level_heading(pose), hand.home_yaw, QUARTER)
    clear = max(up, above + 0.06)
    yield from hand.rise(float(pose[2]) + clear)
    yield from hand.move(pose[:3] + above_by(clear), yaw, width=open_m)
    pose = hand.view.value(name)
    point = pose[:3] + above_by(above) + hand.noise.miss()
    yield from hand.move(point, yaw, speed=0.18)
    yield from hand.close()
    yield from hand.move(point + above_by(up), yaw, speed=0.2, patience_s=0.2)
    return holds(hand, name, reach)


def carry(
    hand: Hand, name: str, goal: Vector, *, heading: float | None = None, reach: float = 0.035
) -> Skill:
    """Bring the held box's middle to ``goal [3]`` [m] (and its heading to ``heading``), in a
    straight line; False if it was lost on the way.
    """
    offset = hand.view.value(name)[:3] - hand.tool
    yaw = hand.target.yaw
    if heading is not None:
        turn = math.remainder(heading - level_heading(hand.view.value(name)), QUARTER)
        c, s = math.cos(turn), math.sin(turn)
        offset = np.array([c * offset[0] - s * offset[1], s * offset[0] + c * offset[1], offset[2]])
        yaw += turn
    if hand.noise.lets_go():
        middle = 0.5 * (np.array(hand.target.xyz) + goal - offset)
        yield from hand.move(middle, yaw)
        yield from hand.open(OPEN_M)
        return False
    yield from hand.move(goal - offset, yaw)
    return holds(hand, name, reach)


def release(hand: Hand, up: float = 0.10) -> Script:
    """Open the fingers, wait until the object rests, and go up."""
    yield from hand.open(OPEN_M)
    x, y, z = hand.target.xyz
    yield from hand.move(np.array([x, y, z + up]), speed=0.25, patience_s=0.2)
