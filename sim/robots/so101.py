"""Writes the SO-101 hobby arm as MJCF: five joints, a jaw that swings against a fixed one.

Frames, masses and inertias of the arm: ``robolearn.arms.models.SO101``; of the jaw, the same source
(TheRobotStudio/SO-ARM100, Simulation/SO101/so101_new_calib.urdf). Drawn with capsules and boxes.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.models import SO101
from robolearn.geometry import inverse, pose, pose_from_rpy, quat_from_rotation, rot_z
from sim.robots.mjcf import FIXED, HAND, OBJECT, ArmLook, Shape, arm_model, num, vec

# Joint "gripper" of the URDF: origin in the last link, range [rad], servo torque [N m].
_JAW_ORIGIN = (0.0202, 0.0188, -0.0234, 0.5 * math.pi, 0.0, 0.0)
JAW_CLOSED, JAW_OPEN = -0.174533, 1.74533
_TORQUE = SO101.max_torque[0]
# The pads: where they meet (the gripper frame of the URDF), and their half sizes [m].
_TIP = SO101.flange[:3]
_PAD = (0.003, 0.009, 0.012)
# From the jaw's axis to the middle of its pad [m]: the opening is this times the jaw's angle.
LEVER_M = math.hypot(_JAW_ORIGIN[0] - _TIP[0], _JAW_ORIGIN[2] - _TIP[2] - _PAD[2])

_PRINT, _SERVO = "print", "servo"
LOOK = ArmLook(
    colours={_PRINT: ".98 .80 .16 1", _SERVO: ".14 .14 .15 1"},
    base=(
        Shape((0.0207, 0.03, 0.012), (0.0207, -0.03, 0.012), 0.012, _PRINT),
        Shape((0.0207, -0.02, 0.02), (0.0207, -0.02, 0.085), 0.022, _PRINT, "cylinder"),
        Shape((0.0207, 0.035, 0.03), (0.0207, 0.035, 0.07), 0.012, _SERVO),
    ),
    links=(
        (Shape((-0.0304, 0.0, -0.02), (-0.0304, 0.0, -0.055), 0.02, _SERVO),),
        (
            Shape((0.0, 0.0, 0.018), (-0.10, -0.005, 0.018), 0.016, _PRINT),
            Shape((-0.112, -0.028, 0.0), (-0.112, -0.028, 0.036), 0.017, _SERVO, touch=True),
        ),
        (
            Shape((0.0, 0.0, 0.018), (-0.12, 0.003, 0.018), 0.015, _PRINT, touch=True),
            Shape((-0.1349, 0.0052, 0.002), (-0.1349, 0.0052, 0.036), 0.016, _SERVO, touch=True),
        ),
        (Shape((0.0, -0.015, 0.018), (0.0, -0.05, 0.018), 0.018, _SERVO, touch=True),),
        (
            Shape((0.0, 0.0, -0.01), (0.012, 0.0, -0.03), 0.018, _PRINT, touch=True),
            Shape((-0.014, 0.0, -0.03), (-0.014, 0.0, -0.085), 0.006, _PRINT),
        ),
    ),
    # A hobby servo is soft: 50 N m/rad, about critically damped. Rotor inertia as in the
    # project's own MuJoCo model (Simulation/SO101/joints_properties.xml).
    stiffness=(50.0,) * 5,
    armature=(0.028,) * 5,
    lead_s=0.06,
)


def so101_mjcf() -> str:
    """The arm with its jaw as a MuJoCo model (``so101.xml`` of the scenes)."""
    bits = f'contype="{HAND}" conaffinity="{FIXED | OBJECT | HAND}"'
    rubber = 'friction="1.2 .01 .0001" condim="4" solref=".005 1" priority="1"'
    look = 'group="1" rgba=".98 .80 .16 1"'
    T_flange_link = inverse(pose_from_rpy(SO101.flange))
    jaw = T_flange_link @ pose_from_rpy(_JAW_ORIGIN)
    # Pads in the last link's frame: beside each other when the jaw is closed.
    fixed = T_flange_link @ pose(None, (_TIP[0] - _PAD[0], _TIP[1], _TIP[2] + _PAD[2]))
    closed = pose_from_rpy(_JAW_ORIGIN) @ pose(rot_z(JAW_CLOSED))
    moving = inverse(closed) @ pose(None, (_TIP[0] + _PAD[0], _TIP[1], _TIP[2] + _PAD[2]))
    tool = [
        '<site name="tool" rgba="0 0 0 0"/>',
        '<camera name="wrist" pos="-.05 0 -.06" xyaxes="0 1 0 .94 0 -.34" fovy="75"/>',
        (
            f'<geom name="pad_fixed" type="box"{_at(fixed)} size="{vec(*_PAD)}" {bits} {look}'
            f" {rubber}/>"
        ),
        f'<body name="jaw"{_at(jaw)} gravcomp="1">',
        (
            '  <inertial pos="-0.00157495 -0.0300244 0.0192755" mass="0.012" fullinertia='
            '"6.61427e-06 1.89032e-06 5.28738e-06 -3.19807e-07 -5.90717e-09 -1.09945e-07"/>'
        ),
        f'  <joint name="jaw" axis="0 0 1" range="{vec(JAW_CLOSED, JAW_OPEN)}" armature=".01"/>',
        (
            f'  <geom type="capsule" fromto="{vec(0.0, 0.0, 0.0189, *(0.9 * moving[:3, 3]))}"'
            f' size=".006" {bits} {look}/>'
        ),
        (
            f'  <geom name="pad_jaw" type="box"{_at(moving)} size="{vec(*_PAD)}" {bits} {look}'
            f" {rubber}/>"
        ),
        "</body>",
    ]
    actuator = [
        "<actuator>",
        (
            f'  <position name="gripper" joint="jaw" kp="20" kv="1.2"'
            f' forcerange="{vec(-_TORQUE, _TORQUE)}"/>'
        ),
        "</actuator>",
        "<contact>",
        '  <exclude body1="jaw" body2="flange"/>',
        "</contact>",
    ]
    return arm_model(SO101, LOOK, tool, actuator)


def _at(T: np.ndarray) -> str:
    quat = quat_from_rotation(T[:3, :3])
    return f' pos="{vec(*(float(num(v)) for v in T[:3, 3]))}" quat="{vec(*quat)}"'
