"""Drives a plant's arm as a deployment does, in simulated time: the supervisor's follower, the
controller's servo law, what is between it and the arm, the gripper's registers and servo.
"""

from __future__ import annotations

import numpy as np

from hardware.cell.config import CellConfig
from hardware.devices.gripper_config import GripperCellConfig
from hardware.drivers.robotiq import RobotiqConfig
from hardware.emulators.drivetrain import DrivetrainConfig, behind
from hardware.emulators.plant import Plant
from hardware.emulators.robotiq import RobotiqEmulator
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.supervisor.follower import Follower
from hardware.supervisor.link import Target
from robolearn.arms.shapes import Joints
from robolearn.errors import ConfigError
from robolearn.geometry import Vector
from robolearn.operations.lab.cameras import Workcell
from robolearn.operations.lab.workcell import LabConfig, build_fingers, build_plant
from robolearn.timing.overrun import Overrun

# Fingers that are this near to where an episode begins are there [m].
_THERE_M = 0.002


class DrivenArm:
    """The arm of one episode, with a plant of its own: a used engine keeps impulses.

    ``stopped``: why controller or supervisor stopped it; "" while it runs. ``told``, ``force``:
    the newest set-point after all limits [rad], and what its controller says of the force at the
    tool [N] in the base frame.
    """

    def __init__(
        self,
        cell: CellConfig,
        lab: LabConfig,
        drivetrain: DrivetrainConfig,
        follower: Follower,
        seed: int,
    ) -> None:
        self.plant: Plant
        self.workcell: Workcell
        self.told: Joints
        self.force: Vector
        self.plant, self.workcell = build_plant(lab, seed)
        self._seen = behind(self.plant, drivetrain, seed)
        self._follower = follower
        self._fingers = build_fingers(lab, self.plant)
        self._gripper, self._hand = _gripper(cell)
        self._emulated = RobotiqEmulator(self._fingers, activated=True)
        self._motion = JointMotion(self._seen.joint_positions(), MotionLimits())
        self.dt_s = 1.0 / lab.devices.controller.rate_hz
        self._lookahead_s = float(cell.driver.get("lookahead_s", 0.1))
        self._gain = float(cell.driver.get("gain", 300.0))
        supervisor = cell.supervisor
        self._force = Overrun(supervisor.max_tool_force_n, supervisor.overload_s)
        self._wanted_m = 0.0
        self.stopped = ""
        self.told, self.force = self._seen.joint_positions(), self._seen.tool_force()

    def put(self, q: Joints, width_m: float) -> None:
        """At rest at ``q`` [rad]; the fingers go to ``width_m`` while time passes."""
        self._seen.set_joints(q)
        self.told = q
        self._motion.hold_here(q)
        self._follower.start(q)
        self.grip(width_m)

    def follow(self, target: Target, now_ns: int) -> None:
        """From now on go there."""
        self._follower.target(target, now_ns)

    def grip(self, width_m: float) -> None:
        """From now on the fingers go to this distance [m]."""
        self._wanted_m = width_m
        if self._hand is None or self._gripper is None:
            return
        counts = self._hand.counts(width_m)
        speed, force = round(255 * self._gripper.speed), round(255 * self._gripper.force)
        self._emulated.answer(f"SET POS {counts} SPE {speed} FOR {force} GTO 1")

    def step(self, now_ns: int) -> None:
        """One period of the controller."""
        if not self.stopped:
            self.told = q = self._follower.step(self.dt_s, now_ns, moving=True)
            dt_s = self.dt_s
            self.stopped = self._motion.servo(q, dt_s, self._lookahead_s, self._gain, dt_s)
        self.stopped = self.stopped or self._motion.step(self.dt_s)
        self._seen.set_joint_targets(self._motion.q, self._motion.qd)
        self._seen.step(self.dt_s)
        if self._fingers is not None:
            self._emulated.step(now_ns)
        self.force = self._seen.tool_force()
        force_n = float(np.linalg.norm(self.force))
        if not self.stopped and self._force.over(force_n, now_ns):
            self.stopped = f"tool force {force_n:.0f} N, at most {self._force.limit:g}"
        if self.stopped:
            self._motion.stop(MotionLimits().protective_stop_rad_s2)

    @property
    def ready(self) -> bool:
        """Whether the fingers are where an episode begins."""
        return self._fingers is None or abs(self._fingers.width() - self._wanted_m) < _THERE_M

    def joints(self) -> tuple[Joints, Joints]:
        """Measured angles [rad] and speeds [rad/s]."""
        return self._seen.joint_positions(), self._seen.joint_velocities()

    @property
    def width_m(self) -> float | None:
        """Distance of the fingers as the gripper tells it [m]; None without one."""
        if self._hand is None:
            return None
        return self._hand.width(self._emulated.status()["POS"])

    @property
    def opening_m(self) -> float | None:
        """Their true distance [m], for pictures."""
        return None if self._fingers is None else self._fingers.width()

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self.plant.close()


def _gripper(cell: CellConfig) -> tuple[GripperCellConfig | None, RobotiqConfig | None]:
    if cell.gripper is None:
        return None, None
    hand = cell.gripper.driver_config()
    if not isinstance(hand, RobotiqConfig):
        raise ConfigError(f"cell '{cell.name}': in process only a Robotiq gripper is known")
    return cell.gripper, hand
