"""Runs the lab's workcell in process: the same plant, faster than real time, as an env.

A command takes the path that it takes on a robot (``robolearn.arms.limiter``), without wire,
tracker or the controller's servo lag.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from robolearn.arms.limiter import PathLimits, SetpointGenerator, TableMapping
from robolearn.arms.models import UR5E
from robolearn.config import config_hash
from robolearn.pusht import BLOCK, GOAL, RATE_HZ, TOOL, block_signal, target_action, tool_signal
from robolearn.spec import EmbodimentSpec, SignalSpec
from sim.adapters.pusht.base import PushTEnv
from sim.adapters.stepped import Poses
from sim.plants.pusht import BLOCK as OBJECT
from sim.plants.pusht import PlantConfig, PyBulletPlant
from sim.world_name import WorldName, only_top

JOINT_POSITION, JOINT_VELOCITY = "arm/joint_position", "arm/joint_velocity"
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


class PyBulletEnv(PushTEnv):
    """Push-T in the lab's physics; deterministic per seed of the hidden physics."""

    def __init__(
        self,
        config: PlantConfig | None = None,
        seed: int = 0,
        image_size: int = 0,
        goal: Sequence[float] = GOAL,
    ) -> None:
        super().__init__(SPEC, image_size, goal)
        self.config = config or PlantConfig()
        self._seed = seed
        self._plant = PyBulletPlant(self.config, seed, self._task.goal)
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
        self._last = np.zeros((2, UR5E.dof))

    @classmethod
    def named(cls, name: WorldName) -> PyBulletEnv:
        """From a parsed world name."""
        return cls(image_size=only_top(name), goal=name.goal() or GOAL)

    @property
    def engine(self) -> str:
        """Physics engine and version."""
        return f"pybullet {importlib.metadata.version('pybullet')}"

    @property
    def scene_hash(self) -> str:
        """Digest of geometry, physics, seed and of another goal."""
        more = (self.task_params,) if self.task_params else ()
        return config_hash(self.config, self._seed, self.engine, *more)

    def _place(self, poses: Poses) -> None:
        # In a new engine; the hidden physics comes from the env's seed.
        self._plant.reset()
        if TOOL in poses:
            self._plant.set_joints(self._mapping.joints(UR5E, poses[TOOL]))
        if BLOCK in poses:
            self._plant.place_object(OBJECT, poses[BLOCK])
        q = self._plant.joint_positions()
        self._path.reset(q)
        self._last = np.stack([q, np.zeros_like(q)])

    def _move_to(self, target: NDArray[np.float64]) -> None:
        self._path.set_target(target, self.now_ns() * 1e-9)

    def _step(self) -> None:
        for _ in range(round(SETPOINT_HZ / RATE_HZ)):
            point = self._path.step()
            ahead = np.stack([point.q, point.qd])
            for i in range(1, self._steps + 1):
                now = self._last + (ahead - self._last) * (i / self._steps)
                self._plant.set_joint_targets(now[0], now[1])
                self._plant.step(1.0 / self.config.step_hz)
            self._last = ahead

    def _poses(self) -> Poses:
        q = self._plant.joint_positions()
        return {
            TOOL: np.array(self._mapping.xy(UR5E, q)),
            BLOCK: self._plant.true_pose(OBJECT),
            JOINT_POSITION: q,
            JOINT_VELOCITY: self._plant.joint_velocities(),
        }

    def _picture(self, width: int, height: int) -> NDArray[np.uint8]:
        return self._plant.picture("top", width, height)

    def close(self) -> None:
        """Release the engine; safe to call twice."""
        self._plant.close()
