"""Inserts the peg: picks it, brings it over the hole by sight, lowers it by sight."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from robolearn.geometry import XY
from robolearn.spec import EmbodimentSpec
from sim.experts.noise import NoiseScale
from sim.experts.script import TOOL, Hand, Script, ScriptedExpert, tool_yaw
from sim.experts.skills import QUARTER, Skill, above_by, carry, holds, level_heading, pick, release
from sim.tasks.insertion import BLOCK_HEIGHT_M, CHAMFER_M, HOLE, PEG, PEG_LENGTH_M, PEG_SIDE_M

# The peg is held this far above its middle [m]: the fingers stay clear of the block.
_GRIP_M = 0.032
_REACH_M = 0.06
_OVER_M = 0.02
# The target of a descent is this far below the hand, and at most so far beside it.
_DOWN_M, _SHIFT_M, _TURN_RAD = 0.0065, 0.008, 0.06
# Error at which the descent stops at the hole's mouth, and how much that grows with the height.
_MOUTH_M, _FUNNEL = 0.0015, 0.125
# Half a millimetre of clearance needs a smaller dial than a square of 10 cm.
_NOISE = NoiseScale(position_m=0.012, yaw=0.15)


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Tries again until the peg is in the hole."""
    return ScriptedExpert("insertion", plan, embodiment, noise, (PEG, HOLE), _NOISE)


def plan(hand: Hand) -> Script:
    """The script of one episode."""
    while True:
        if not holds(hand, PEG, _REACH_M) and not (
            yield from pick(hand, PEG, above=_GRIP_M, up=0.10, reach=_REACH_M)
        ):
            continue
        hole = hand.view.value(HOLE)
        over = hole[:3] + above_by(BLOCK_HEIGHT_M + PEG_LENGTH_M / 2 + _OVER_M)
        if not (yield from carry(hand, PEG, over, heading=level_heading(hole), reach=_REACH_M)):
            continue
        if not (yield from lower(hand)):
            yield from hand.rise(hand.target.xyz[2] + 0.04)


def lower(hand: Hand) -> Skill:
    """Lower the peg into the hole by sight; False if it got stuck or lost.

    What is commanded depends on what is seen now and on nothing else, so that it can be imitated.
    """
    deepest, stuck = hand.view.value(PEG)[2], 0
    while holds(hand, PEG, _REACH_M):
        shift, turn = errors(hand)
        down = descent(hand, shift, turn)
        step = np.clip(shift, -_SHIFT_M, _SHIFT_M)
        # Seen from where the hand is: it never pushes further into what does not give way.
        x, y, z = hand.tool.tolist()
        yaw = tool_yaw(hand.view.value(TOOL)) + float(np.clip(turn, -_TURN_RAD, _TURN_RAD))
        xyz = (x + float(step[0]), y + float(step[1]), z - down)
        yield from hand.tick(replace(hand.target, xyz=xyz, yaw=yaw))
        z = float(hand.view.value(PEG)[2])
        stuck = 0 if down == 0.0 or z < deepest - 0.0003 else stuck + 1
        deepest = min(z, deepest)
        if stuck > 1.0 * hand.rate_hz:
            return False
    yield from release(hand)
    return False


def descent(hand: Hand, shift: XY, turn: float) -> float:
    """How far below the hand its target is [m]: a funnel over the hole, narrow at its mouth."""
    height = float(hand.view.value(PEG)[2]) - PEG_LENGTH_M / 2 - BLOCK_HEIGHT_M
    if height < -CHAMFER_M:
        return _DOWN_M
    off = float(np.linalg.norm(shift)) + 0.5 * PEG_SIDE_M * abs(turn)
    margin = _MOUTH_M + _FUNNEL * max(height, 0.0) - off
    return _DOWN_M * float(np.clip(margin / 0.001, 0.0, 1.0))


def errors(hand: Hand) -> tuple[XY, float]:
    """What the peg is off: ``[2]`` [m] sideways, and heading [rad]."""
    peg, hole = hand.view.value(PEG), hand.view.value(HOLE)
    turn = math.remainder(level_heading(hole) - level_heading(peg), QUARTER)
    return hole[:2] - peg[:2], turn
