"""The lab's workcell in process: the same plant, faster than real time, behind the env contract.

A command takes the path that it takes on a robot (``robolearn.limiter``), without wire, tracker or
the controller's servo lag.
"""

from __future__ import annotations

import importlib.metadata

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.errors import DataError
from robolearn.kinematics import UR5E
from robolearn.limiter import PathLimits, SetpointGenerator, TableMapping
from robolearn.pusht import BLOCK, RATE_HZ, TABLE_SIZE_M, TOOL
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    Sample,
    SampleBatch,
    SampleBlock,
    SentBlock,
)
from sim.actions import check_action
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
        SignalSpec(TOOL, (2,), unit="m", rate_hz=RATE_HZ, components=("x", "y"), frame="table"),
        SignalSpec(
            BLOCK,
            (3,),
            unit="m, m, rad",
            rate_hz=RATE_HZ,
            components=("x", "y", "yaw"),
            angular=(2,),
            frame="table",
        ),
        SignalSpec(JOINT_POSITION, (6,), unit="rad", rate_hz=RATE_HZ),
        SignalSpec(JOINT_VELOCITY, (6,), unit="rad/s", rate_hz=RATE_HZ),
    ),
    actions=(
        ActionSpec(
            TOOL,
            (2,),
            unit="m",
            rate_hz=RATE_HZ,
            frame="table",
            low=(0.0, 0.0),
            high=(TABLE_SIZE_M, TABLE_SIZE_M),
        ),
    ),
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
        self._newest: dict[str, Sample] = {}
        self._waiting: list[dict[str, Sample]] = []
        self._sent: list[tuple[int, int, NDArray[np.float64]]] = []
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
        poses = _checked(condition)
        self._plant.reset()
        if TOOL in poses:
            self._plant.set_joints(self._mapping.joints(UR5E, poses[TOOL]))
        if BLOCK in poses:
            self._plant.place_object(OBJECT, poses[BLOCK])
        q = self._plant.joint_positions()
        self._path.reset(q)
        self._last = np.stack([q, np.zeros_like(q)])
        self._task.reset()
        self._tick, self._sent, self._outcome = 0, [], None
        self._newest = self._read()
        self._waiting = [self._newest]
        achieved = {name: self._newest[name].value for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return max(0, self._tick) * TICK_NS

    def observe(self) -> Observation:
        """The state at this tick."""
        self._require_reset()
        return Observation(t_ns=self.now_ns(), samples=dict(self._newest))

    def apply(self, command: Command) -> None:
        """Follow this target within the limits of the path."""
        self._require_reset()
        check_action(command, SPEC)
        value = np.array(command.action[TOOL], dtype=np.float64)
        self._path.set_target(value, self.now_ns() * 1e-9)
        self._sent.append((command.seq, self.now_ns(), value))

    def advance(self) -> None:
        """One control period of physics."""
        self._require_reset()
        for _ in range(round(SETPOINT_HZ / RATE_HZ)):
            point = self._path.step()
            ahead = np.stack([point.q, point.qd])
            for i in range(1, self._steps + 1):
                now = self._last + (ahead - self._last) * (i / self._steps)
                self._plant.set_joint_targets(now[0], now[1])
                self._plant.step(1.0 / self.config.step_hz)
            self._last = ahead
        self._tick += 1
        self._newest = self._read()
        self._waiting.append(self._newest)
        self._outcome = None

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        past, self._waiting = self._waiting[:-1], self._waiting[-1:]
        rows, self._sent = self._sent, []
        return SampleBatch(
            signals={s.name: _block([row[s.name] for row in past], s) for s in SPEC.signals},
            sent=SentBlock(
                seq=np.array([r[0] for r in rows], dtype=np.int64),
                t_ns=np.array([r[1] for r in rows], dtype=np.int64),
                action={TOOL: np.array([r[2] for r in rows]).reshape(-1, 2)},
            ),
        )

    def outcome(self) -> Outcome:
        """Coverage, progress and success."""
        self._require_reset()
        if self._outcome is None:
            self._outcome = self._task.judge({n: s.value for n, s in self._newest.items()})
        return self._outcome

    def render(self, width: int, height: int) -> NDArray[np.uint8]:
        """Picture from above ``[height, width, 3]``."""
        self._require_reset()
        return self._plant.picture("top", width, height)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()

    def _require_reset(self) -> None:
        if self._tick < 0:
            raise DataError("pusht_pybullet: call reset() before the first tick")

    def _read(self) -> dict[str, Sample]:
        q = self._plant.joint_positions()
        values = {
            TOOL: np.array(self._mapping.xy(UR5E, q)),
            BLOCK: self._plant.true_pose(OBJECT),
            JOINT_POSITION: q,
            JOINT_VELOCITY: self._plant.joint_velocities(),
        }
        for value in values.values():
            value.setflags(write=False)
        return {name: Sample(self.now_ns(), value) for name, value in values.items()}


def _checked(condition: Condition) -> dict[str, NDArray[np.float64]]:
    poses = {name: np.array(value, dtype=np.float64) for name, value in condition.poses.items()}
    for name, pose in poses.items():
        size = {TOOL: 2, BLOCK: 3}.get(name)
        if size is None or pose.shape != (size,) or not np.isfinite(pose).all():
            raise DataError(
                f"condition '{condition.id}': cannot set {name} to {pose.tolist()};"
                f" settable: {TOOL} [2], {BLOCK} [3], finite"
            )
    return poses


def _block(rows: list[Sample], signal: SignalSpec) -> SampleBlock:
    return SampleBlock(
        t_ns=np.array([s.t_ns for s in rows], dtype=np.int64),
        value=np.array([s.value for s in rows], dtype=np.float64).reshape(-1, *signal.shape),
        valid=np.ones(len(rows), dtype=np.bool_),
    )
