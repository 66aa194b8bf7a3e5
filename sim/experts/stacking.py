"""Stacks: picks the red cube, carries it over the green one, puts it down, lets go."""

from __future__ import annotations

import numpy as np

from robolearn.spec import EmbodimentSpec
from sim.experts.script import Hand, Script, ScriptedExpert
from sim.experts.skills import above_by, carry, level_heading, pick, release
from sim.tasks.stacking import GREEN, RED, SIDE_M, TOLERANCE_M

_OVER_M = 0.08


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Tries again until red stands on green."""
    return ScriptedExpert("stacking", plan, embodiment, noise, (RED, GREEN))


def plan(hand: Hand) -> Script:
    """The script of one episode."""
    while not stacked(hand, RED, GREEN):
        yield from stack(hand, RED, GREEN)


def stack(hand: Hand, upper: str, lower: str) -> Script:
    """One attempt to put ``upper`` on ``lower``."""
    if not (yield from pick(hand, upper, up=0.14)):
        return
    below = hand.view.value(lower)
    goal, heading = below[:3] + above_by(SIDE_M), level_heading(below)
    if not (yield from carry(hand, upper, goal + above_by(_OVER_M), heading=heading)):
        return
    if (yield from carry(hand, upper, goal + above_by(0.002))):
        yield from release(hand)


def stacked(hand: Hand, upper: str, lower: str) -> bool:
    """True if ``upper`` stands on ``lower`` and the fingers are open."""
    step = hand.view.value(upper)[:3] - hand.view.value(lower)[:3]
    level = abs(float(step[2]) - SIDE_M) < 0.008
    return level and float(np.linalg.norm(step[:2])) < TOLERANCE_M and hand.width > SIDE_M + 0.01
