"""Says what a cell offers: its signals and actions, known without connecting to anything."""

from __future__ import annotations

import dataclasses

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT, JOINT_VELOCITY, WRENCH
from robolearn.spec import EmbodimentSpec, SignalSpec

EVENT = SignalSpec("supervisor/event", (4,), "", 0.0, components=("cause", "value", "limit", "seq"))
"""One sample per event of the supervisor; cause 0 is the start of an episode."""


def cell_spec(config: CellConfig) -> EmbodimentSpec:
    """The embodiment of a cell."""
    rate_hz = float(config.driver.get("rate_hz", 500.0))
    motion, follower = config.motion(), config.follower()
    joints, far = follower.joints, follower.far
    return EmbodimentSpec(
        name=config.name,
        signals=(
            *motion.signals(rate_hz),
            *config.tracked_signals,
            SignalSpec(JOINT_POSITION, (joints,), "rad", rate_hz),
            SignalSpec(JOINT_VELOCITY, (joints,), "rad/s", rate_hz),
            SignalSpec(JOINT_SETPOINT, (joints,), "rad", rate_hz),
            *((_wrench_signal(rate_hz),) if config.wrench else ()),
            *(() if config.gripper is None else (config.gripper.signal,)),
            EVENT,
            *(goal.signal for goal in config.goals),
            *(spec for camera in config.cameras for spec in camera.specs),
        ),
        actions=(
            dataclasses.replace(motion.action, tolerance=far),
            *(() if config.gripper is None else (config.gripper.action(config.rate_hz),)),
        ),
        rate_hz=config.rate_hz,
    )


def _wrench_signal(rate_hz: float) -> SignalSpec:
    """Force and torque at the tool, in axes of the arm's base."""
    components = ("fx", "fy", "fz", "tx", "ty", "tz")
    return SignalSpec(WRENCH, (6,), "N, N m", rate_hz, components=components, frame="base")
