"""Expert of peg insertion: pick the peg, bring it over the hole by sight, lower it by sight."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robolearn.spec import EmbodimentSpec
from sim.experts.noise import NoiseScale
from sim.experts.script import Hand, Script, ScriptedExpert
from sim.experts.skills import QUARTER, Skill, above_by, carry, holds, level_heading, pick, release
from sim.tasks.insertion import BLOCK_HEIGHT_M, HOLE, PEG, PEG_LENGTH_M

Array = NDArray[np.float64]

# The peg is held this far above its middle [m]: the fingers stay clear of the block.
_GRIP_M = 0.032
_REACH_M = 0.06
_OVER_M = 0.02
_ALIGNED_M, _ALIGNED_RAD = 0.0004, 0.008
# Half a millimetre of clearance needs a smaller dial than a square of 10 cm.
_NOISE = NoiseScale(position_m=0.012, yaw=0.15)


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Tries again until the peg is in the hole."""
    return ScriptedExpert("insertion", plan, embodiment, noise, (PEG, HOLE), _NOISE)


def plan(hand: Hand) -> Script:
    """The script of one episode."""
    while True:
        if not (yield from pick(hand, PEG, above=_GRIP_M, up=0.10, reach=_REACH_M)):
            continue
        hole = hand.view.value(HOLE)
        over = hole[:3] + above_by(BLOCK_HEIGHT_M + PEG_LENGTH_M / 2 + _OVER_M)
        if not (yield from carry(hand, PEG, over, heading=level_heading(hole), reach=_REACH_M)):
            continue
        yield from align(hand)
        if not (yield from lower(hand)):
            yield from hand.rise(hand.target.xyz[2] + 0.04)


def align(hand: Hand, patience_s: float = 2.0) -> Script:
    """Move the hand until the peg is over the hole, whatever the grasp and the arm are off."""
    for _ in range(round(patience_s * hand.rate_hz)):
        shift, turn = errors(hand)
        if float(np.linalg.norm(shift)) < _ALIGNED_M and abs(turn) < _ALIGNED_RAD:
            return
        yield from corrected(hand, 0.0, gain=0.25)


def lower(hand: Hand) -> Skill:
    """Lower the peg and keep it over the hole; False if it got stuck or lost."""
    deepest, stuck = hand.view.value(PEG)[2], 0
    while holds(hand, PEG, _REACH_M):
        yield from corrected(hand, 0.06 / hand.rate_hz, gain=0.15)
        z = float(hand.view.value(PEG)[2])
        stuck = 0 if z < deepest - 0.0003 else stuck + 1
        deepest = min(z, deepest)
        if stuck > 1.0 * hand.rate_hz:
            return False
    yield from release(hand)
    return False


def corrected(hand: Hand, down: float, gain: float) -> Script:
    """One tick: ``down`` [m], and a share ``gain`` of the error sideways and in heading."""
    shift, turn = errors(hand)
    x, y, z = hand.target.xyz
    step = np.clip(gain * shift, -0.004, 0.004)
    # Never push further into what does not give way than 8 mm.
    z = max(z - down, float(hand.tool[2]) - 0.008)
    target = replace(
        hand.target,
        xyz=(x + float(step[0]), y + float(step[1]), z),
        yaw=hand.target.yaw + float(np.clip(gain * turn, -0.03, 0.03)),
    )
    yield from hand.tick(target)


def errors(hand: Hand) -> tuple[Array, float]:
    """What the peg is off: ``[2]`` [m] sideways, and heading [rad]."""
    peg, hole = hand.view.value(PEG), hand.view.value(HOLE)
    turn = math.remainder(level_heading(hole) - level_heading(peg), QUARTER)
    return hole[:2] - peg[:2], turn
