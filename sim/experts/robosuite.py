"""Solves robosuite's Lift and Can: the same scripts, commanded by small steps of the tool.

robosuite's controller makes the measured pose plus the command its goal, and travels about an
eighth of it in a tick (docs/worlds.md); so the command is several times what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robolearn.geometry import rot_x, rot_z, rotation_from_quat, rotvec_from_rotation
from robolearn.spec import EmbodimentSpec
from robolearn.types import Observation
from sim.experts.script import TOOL, Hand, Script, ScriptedExpert, Target
from sim.experts.skills import above_by, pick, release
from sim.shapes import Values

DELTA, GRIPPER = "tool/delta_pose", "gripper/command"
CUBE, CAN = "cube/pose", "can/pose"
# Set-points of the fingers below this width [m] mean: close.
CLOSE_BELOW_M = 0.06
# The largest command moves the tool at 0.05 m / 8 * 20 Hz = 0.125 m/s.
SPEED = 0.1
# Where the can is let go, world frame [m]: in its compartment (robosuite 1.5.2, PickPlace: 0.1 to
# 0.295 by 0.28 to 0.525, the floor at 0.8), nearer to the robot than its middle, which a Panda
# whose tool points down hardly reaches.
COMPARTMENT = np.array([0.155, 0.345, 0.8])
# Heights above the compartment's floor [m] at which the can is carried and let go: its middle.
_OVER_M, _LET_GO_M = 0.25, 0.08
# The can's middle lies 6 cm below its top: it is held a little above it.
_GRASP_M, _REACH_M = 0.015, 0.05


@dataclass(frozen=True, slots=True)
class Steps:
    """Commands ``gain`` times the way from the measured pose to the target, tool pointing down."""

    gain: float = 4.0
    names: tuple[str, ...] = (DELTA, GRIPPER)

    def action(self, target: Target, view: Observation) -> dict[str, Values]:
        """See the class."""
        pose = view.value(TOOL)
        R_world_target = rot_z(target.yaw) @ rot_x(np.pi)
        turn = rotvec_from_rotation(R_world_target @ rotation_from_quat(pose[3:7]).T)
        way = np.concatenate([np.array(target.xyz) - pose[:3], turn])
        fingers = 1.0 if target.width < CLOSE_BELOW_M else -1.0
        return {DELTA: self.gain * way, GRIPPER: np.array([fingers])}


def lift(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Picks the cube up, again until it is up."""
    return ScriptedExpert("robosuite_lift", _lift, embodiment, noise, (CUBE,), commanding=Steps())


def can(embodiment: EmbodimentSpec, noise: float = 0.0) -> ScriptedExpert:
    """Carries the can into its compartment and lets go."""
    return ScriptedExpert("robosuite_can", _can, embodiment, noise, (CAN,), commanding=Steps())


def _lift(hand: Hand) -> Script:
    hand.speed = SPEED
    while not (yield from pick(hand, CUBE, up=0.12)):
        yield from hand.open(0.08)


def _can(hand: Hand) -> Script:
    hand.speed, hand.eased = SPEED, False
    while True:
        held = yield from pick(hand, CAN, up=0.2, above=_GRASP_M, reach=_REACH_M)
        if held:
            offset = hand.tool - hand.view.value(CAN)[:3]
            over = COMPARTMENT + above_by(_OVER_M) + offset
            yield from hand.move(over, near=0.02)
            yield from hand.move(COMPARTMENT + above_by(_LET_GO_M) + offset, near=0.02)
            yield from release(hand)
        else:
            yield from hand.open(0.08)
