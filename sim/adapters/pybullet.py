"""The lab's workcell in process: the same plant, faster than real time, behind the env contract.

A command takes the path that it takes on a robot (``robolearn.limiter``), without wire, tracker or
the controller's servo lag.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.kinematics import UR5E
from robolearn.limiter import PathLimits, SetpointGenerator, TableMapping
from robolearn.pusht import BLOCK, RATE_HZ, TOOL, block_signal, target_action, tool_signal
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
)
from sim.actions import check_action
from sim.logs import SampleLog, SentLog, check_poses
from sim.plant import BLOCK as OBJECT
from sim.plant import PlantConfig, PyBulletPlant
from sim.tasks.pusht import PushT

JOINT_POSITION, JOINT_VELOCITY = "arm/joint_position", "arm/joint_velocity"
TICK_NS = round(1e9 / RATE_HZ)
# The limiter runs at the rate of the recordings' own law; the plant gets every step in between.
SETPOINT_HZ = 100.0
TIP_HEIGHT_M = 0.005

SPEC = EmbodimentSpec(
    name="pusht_pybullet",
    signals=(
        tool_signal(),
        block_signal(),
        SignalSpec(JOINT_POSITION, (6,), unit="rad", rate_hz=RATE_HZ),
        SignalSpec(JOINT_VELOCITY, (6,), unit="rad/s", rate_hz=RATE_HZ),
    ),
    actions=(target_action(),),
    rate_hz=RATE_HZ,
)


class PyBulletEnv:
    """Push-T in the lab's physics; deterministic per seed of the hidden physics."""

    def __init__(self, config: PlantConfig | None = None, seed: int = 0) -> None:
        self.config = config or PlantConfig()
        self._seed = seed
        self._plant = PyBulletPlant(self.config, seed)
        self._mapping = TableMapping.level(
            self.config.origin_m,
            self.config.heading_rad,
            tool_length_m=self.config.tool_length_m,
            tip_height_m=TIP_HEIGHT_M,
            tool_yaw=float(np.pi),
            home=self.config.home,
        )
        self._path = SetpointGenerator(UR5E, self._mapping, PathLimits(), 1.0 / SETPOINT_HZ)
        self._steps = round(self.config.step_hz / SETPOINT_HZ)
        self._task = PushT()
        self._tick = -1
        self._last = np.zeros((2, UR5E.dof))
        self._samples = SampleLog(SPEC.name, SPEC.signals)
        self._sent = SentLog(TOOL, 2)
        self._outcome: Outcome | None = None

    @property
    def spec(self) -> EmbodimentSpec:
        """Tool, block and joints; the tool's target."""
        return SPEC

    @property
    def capabilities(self) -> Capabilities:
        """A simulator: everything."""
        return Capabilities(settable_poses=True, true_state=True, faster_than_real_time=True)

    @property
    def engine(self) -> str:
        """Physics engine and version."""
        return f"pybullet {importlib.metadata.version('pybullet')}"

    @property
    def scene_hash(self) -> str:
        """Digest of geometry, physics and seed."""
        return config_hash(self.config, self._seed, self.engine)

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._task.name

    def sample_condition(self, seed: int) -> Condition:
        """The start that gym-pusht draws for the same seed."""
        return self._task.sample_condition(seed)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start at the requested poses, at rest, in a new engine."""
        del rng  # The hidden physics comes from the env's seed; nothing else is random.
        poses = check_poses(condition, (TOOL, BLOCK), SPEC)
        self._plant.reset()
        if TOOL in poses:
            self._plant.set_joints(self._mapping.joints(UR5E, poses[TOOL]))
        if BLOCK in poses:
            self._plant.place_object(OBJECT, poses[BLOCK])
        q = self._plant.joint_positions()
        self._path.reset(q)
        self._last = np.stack([q, np.zeros_like(q)])
        self._task.reset()
        self._tick, self._outcome = 0, None
        self._sent.clear()
        self._samples.clear()
        self._samples.add(0, self._read())
        achieved = {name: self._samples.newest[name].value for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return max(0, self._tick) * TICK_NS

    def observe(self) -> Observation:
        """The state at this tick."""
        self._samples.require()
        return Observation(t_ns=self.now_ns(), samples=dict(self._samples.newest))

    def apply(self, command: Command) -> None:
        """Follow this target within the limits of the path."""
        self._samples.require()
        check_action(command, SPEC)
        value = np.array(command.action[TOOL], dtype=np.float64)
        self._path.set_target(value, self.now_ns() * 1e-9)
        self._sent.add(command.seq, self.now_ns(), value)

    def advance(self) -> None:
        """One control period of physics."""
        self._samples.require()
        for _ in range(round(SETPOINT_HZ / RATE_HZ)):
            point = self._path.step()
            ahead = np.stack([point.q, point.qd])
            for i in range(1, self._steps + 1):
                now = self._last + (ahead - self._last) * (i / self._steps)
                self._plant.set_joint_targets(now[0], now[1])
                self._plant.step(1.0 / self.config.step_hz)
            self._last = ahead
        self._tick += 1
        self._samples.add(self.now_ns(), self._read())
        self._outcome = None

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        return SampleBatch(signals=self._samples.drain(self.now_ns()), sent=self._sent.drain())

    def outcome(self) -> Outcome:
        """Coverage, progress and success."""
        self._samples.require()
        if self._outcome is None:
            self._outcome = self._task.judge(self._samples.values())
        return self._outcome

    def render(self, width: int, height: int) -> NDArray[np.uint8]:
        """Picture from above ``[height, width, 3]``."""
        self._samples.require()
        return self._plant.picture("top", width, height)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()

    def _read(self) -> dict[str, NDArray[np.float64]]:
        q = self._plant.joint_positions()
        return {
            TOOL: np.array(self._mapping.xy(UR5E, q)),
            BLOCK: self._plant.true_pose(OBJECT),
            JOINT_POSITION: q,
            JOINT_VELOCITY: self._plant.joint_velocities(),
        }
