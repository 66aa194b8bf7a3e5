"""Picks and places: takes the cube, carries it over the square, puts it down, lets go."""

from __future__ import annotations

import numpy as np

from robolearn.spec import EmbodimentSpec
from sim.experts.script import Hand, Script, ScriptedExpert
from sim.experts.skills import above_by, carry, pick, release
from sim.tasks.manipulation import GOAL
from sim.tasks.pick_place import CUBE, SIDE_M, TOLERANCE_M

_OVER_M = 0.10


def expert(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Tries again until the cube lies on the square."""
    return ScriptedExpert("pick_place", plan, embodiment, noise, (CUBE, GOAL))


def plan(hand: Hand) -> Script:
    """The script of one episode."""
    while not _placed(hand):
        if not (yield from pick(hand, CUBE)):
            continue
        goal = hand.view.value(GOAL)[:3] + above_by(SIDE_M / 2)
        if not (yield from carry(hand, CUBE, goal + above_by(_OVER_M))):
            continue
        if (yield from carry(hand, CUBE, goal + above_by(0.003))):
            yield from release(hand)


def _placed(hand: Hand) -> bool:
    cube, goal = hand.view.value(CUBE), hand.view.value(GOAL)
    near = float(np.linalg.norm(cube[:2] - goal[:2])) < TOLERANCE_M
    return near and float(cube[2]) < SIDE_M and hand.width > SIDE_M + 0.01
