"""Writes parallel grippers as MJCF: two fingers on slides, kept symmetric, one servo.

The tool's frame (site ``tool``) is between the finger tips: z points out of the hand, the fingers
move along y. The opening between the pads is the sum of the two slides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sim.robots.mjcf import FIXED, HAND, OBJECT, num, quat_z, vec


@dataclass(frozen=True, slots=True)
class ParallelGripper:
    """Lengths [m], masses [kg], forces [N]; inertias are those of solid boxes of the same size.

    ``yaw`` [rad] of the hand about the flange's z axis. ``reach_m`` from the flange to the tool's
    frame. ``camera_m`` and ``camera_tilt`` [rad]: where the wrist camera is in the hand's frame and
    how far it looks inwards. A pad is a box of ``pad_size_m`` (half sizes: across, thickness, along
    the finger).
    """

    name: str
    yaw: float
    hand_mass_kg: float
    hand_com: tuple[float, float, float]
    hand_inertia: tuple[float, float, float]
    hand_boxes: tuple[tuple[tuple[float, float, float], tuple[float, float, float]], ...]
    finger_mass_kg: float
    finger_z_m: float
    finger_half_m: tuple[float, float, float]
    opening_m: float
    reach_m: float
    pad_size_m: tuple[float, float, float]
    force_n: float
    camera_m: tuple[float, float, float]
    camera_tilt: float
    stiffness: float = 10000.0
    lead_s: float = 0.02

    def flange_lines(self) -> list[str]:
        """Lines inside the body ``flange``."""
        hand = f'contype="{HAND}" conaffinity="{FIXED | OBJECT | HAND}"'
        lines = [
            f'<body name="hand" quat="{quat_z(self.yaw)}" gravcomp="1">',
            (
                f'  <inertial pos="{vec(*self.hand_com)}" mass="{num(self.hand_mass_kg)}"'
                f' diaginertia="{vec(*self.hand_inertia)}"/>'
            ),
        ]
        for at, half in self.hand_boxes:
            lines.append(
                f'  <geom type="box" pos="{vec(*at)}" size="{vec(*half)}" {hand} group="1"'
                ' rgba=".93 .93 .93 1"/>'
            )
        lines.append(f'  <site name="tool" pos="{vec(0.0, 0.0, self.reach_m)}" rgba="0 0 0 0"/>')
        lines.append(f"  {self._camera()}")
        for side, sign in (("left", 1.0), ("right", -1.0)):
            lines += ["  " + line for line in self._finger(side, sign, hand)]
        return [*lines, "</body>"]

    def _camera(self) -> str:
        """The wrist camera: beside the hand, looking past the finger tips."""
        c, s = math.cos(self.camera_tilt), math.sin(self.camera_tilt)
        axes = vec(0.0, 1.0, 0.0, c, 0.0, s)
        return f'<camera name="wrist" pos="{vec(*self.camera_m)}" xyaxes="{axes}" fovy="75"/>'

    def _finger(self, side: str, sign: float, hand: str) -> list[str]:
        hx, hy, hz = self.finger_half_m
        px, py, pz = self.pad_size_m
        # The finger stands behind its pad; the pads' faces meet at y = 0 when closed.
        tip = self.reach_m - self.finger_z_m
        ixx = self.finger_mass_kg / 3.0 * (hy * hy + hz * hz)
        iyy = self.finger_mass_kg / 3.0 * (hx * hx + hz * hz)
        izz = self.finger_mass_kg / 3.0 * (hx * hx + hy * hy)
        middle = vec(0.0, sign * (2.0 * py + hy), hz)
        return [
            f'<body name="finger_{side}" pos="{vec(0.0, 0.0, self.finger_z_m)}" gravcomp="1">',
            (
                f'  <inertial pos="{middle}" mass="{num(self.finger_mass_kg)}"'
                f' diaginertia="{vec(ixx, iyy, izz)}"/>'
            ),
            (
                f'  <joint name="finger_{side}" type="slide" axis="{vec(0.0, sign, 0.0)}"'
                f' range="{vec(0.0, 0.5 * self.opening_m)}" armature=".1" damping="10"/>'
            ),
            (
                f'  <geom type="box" pos="{middle}" size="{vec(hx, hy, hz)}" {hand} group="1"'
                ' rgba=".55 .56 .58 1"/>'
            ),
            (
                f'  <geom name="pad_{side}" type="box" pos="{vec(0.0, sign * py, tip)}"'
                f' size="{vec(px, py, pz)}" {hand} group="1" rgba=".15 .15 .16 1"'
                ' friction="1.5 .01 .0001" condim="4" solref=".005 1" priority="1"/>'
            ),
            "</body>",
        ]

    def sections(self) -> list[str]:
        """Sections after the arm's actuators: the hand's servo and its coupling."""
        return [
            "<actuator>",
            (
                f'  <position name="gripper" joint="finger_left" kp="{num(self.stiffness)}"'
                f' kv="{num(self.stiffness * self.lead_s)}"'
                f' forcerange="{vec(-self.force_n, self.force_n)}"/>'
            ),
            "</actuator>",
            "<equality>",
            '  <joint joint1="finger_right" joint2="finger_left" solref=".005 1"/>',
            "</equality>",
            "<contact>",
            '  <exclude body1="finger_left" body2="finger_right"/>',
            "</contact>",
        ]


# Franka Emika, Franka Hand product manual: opening 80 mm, fingers 50 mm/s each, continuous
# grasping force 70 N. Mass, centre of mass, inertia and the tool's frame (103.4 mm from the
# flange): frankaemika/franka_ros, franka_description, and the documented end-effector
# configuration. The servo pulls on one finger of the pair: its force is the grasping force.
FRANKA_HAND = ParallelGripper(
    name="franka_hand",
    yaw=-0.7853981633974483,
    hand_mass_kg=0.73,
    hand_com=(-0.01, 0.0, 0.03),
    hand_inertia=(0.001, 0.0025, 0.0017),
    hand_boxes=(((0.0, 0.0, 0.033), (0.02, 0.1, 0.033)),),
    finger_mass_kg=0.015,
    finger_z_m=0.0584,
    finger_half_m=(0.0105, 0.0055, 0.0269),
    opening_m=0.08,
    reach_m=0.1034,
    pad_size_m=(0.0088, 0.0035, 0.0088),
    force_n=70.0,
    # A small camera on a bracket in front of the hand.
    camera_m=(0.07, 0.0, 0.02),
    camera_tilt=0.35,
)

# UFACTORY, xArm gripper: stroke 84 mm, tool centre 172 mm from the flange, 0.82 kg, clamping force
# up to 30 N. The real fingers swing on parallelograms; here they slide. Inertia: a solid box.
XARM_GRIPPER = ParallelGripper(
    name="xarm_gripper",
    yaw=0.0,
    hand_mass_kg=0.74,
    hand_com=(0.0, 0.0, 0.055),
    hand_inertia=(0.0012, 0.0010, 0.0007),
    hand_boxes=(((0.0, 0.0, 0.06), (0.03, 0.045, 0.06)),),
    finger_mass_kg=0.04,
    finger_z_m=0.115,
    finger_half_m=(0.011, 0.006, 0.032),
    opening_m=0.084,
    reach_m=0.172,
    pad_size_m=(0.010, 0.0035, 0.012),
    force_n=30.0,
    camera_m=(0.075, 0.0, 0.06),
    camera_tilt=0.35,
)

# Robotiq, 2F-85 instruction manual: stroke 85 mm, force 20 to 235 N (here 100), speed 20 to
# 150 mm/s, 0.925 kg, pads 22 mm wide, 162.8 mm from the flange to the fingertips when open. The
# real fingers swing on four-bar linkages; here they slide. Inertia: a solid box.
WIDE_GRIPPER = ParallelGripper(
    name="parallel_85",
    yaw=0.0,
    hand_mass_kg=0.825,
    hand_com=(0.0, 0.0, 0.05),
    hand_inertia=(0.0012, 0.0010, 0.0008),
    hand_boxes=(((0.0, 0.0, 0.047), (0.0375, 0.0375, 0.047)),),
    finger_mass_kg=0.05,
    finger_z_m=0.094,
    finger_half_m=(0.011, 0.007, 0.0345),
    opening_m=0.085,
    reach_m=0.145,
    pad_size_m=(0.011, 0.004, 0.0175),
    force_n=100.0,
    camera_m=(0.085, 0.0, 0.04),
    camera_tilt=0.35,
)
