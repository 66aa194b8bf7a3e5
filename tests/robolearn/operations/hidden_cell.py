"""Stands in for a real cell in joint space: an arm whose dynamics nobody tells, without a clock."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION
from hardware.cell.spec import cell_spec
from hardware.emulators.drivetrain import behind
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.env.real_env import RealEnv
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Condition, Observation, SampleBatch, SampleBlock, SentBlock
from sim.plants.scene import ScenePlant
from tests.sim.identification.arm_lab import DT_S, hidden

WORLD = hidden(11)


class HiddenCell(RealEnv):
    """What ``RealEnv`` is to whoever moves an arm, and nothing of how it is that: set-points lie
    evenly between two targets, the emulated controller smooths them, encoders tell where the joints
    went. ``made``: all that there were.
    """

    made: ClassVar[list[HiddenCell]] = []
    spec: EmbodimentSpec = None
    interventions: list[object] = None

    def __init__(self, config: CellConfig, **rest: object) -> None:
        del rest
        assert config.joints is not None, "in joint space"
        assert not config.cameras, "no camera is looked through"
        self.spec = cell_spec(config)
        self.interventions = []
        self.homes = 0
        HiddenCell.made.append(self)
        self._home = np.array(config.joints.home)
        self._plant = ScenePlant(WORLD.plant, WORLD.seed)
        self._arm = behind(self._plant, WORLD.drivetrain, WORLD.seed)
        self._now_ns, self._at, self._target = 10**12, self._home, self._home
        self._rest()

    def _rest(self) -> None:
        self._plant.set_joints(self._home)
        self._motion = JointMotion(self._home, MotionLimits())
        self._at = self._target = self._home.copy()
        self._sent: list[tuple[int, np.ndarray]] = []
        self._measured: list[tuple[int, np.ndarray]] = []

    def watch(self, condition: Condition) -> None:
        """Nothing happens here."""

    def home(self) -> None:
        """As ever."""
        self.homes += 1

    def reset(self, condition: Condition, rng: np.random.Generator) -> None:
        """At home, at rest."""
        self._rest()

    def observe(self) -> Observation:
        """The time is all that is asked for."""
        return Observation(self._now_ns, {})

    def apply(self, command: Command) -> None:
        """The next target."""
        self._target = command.action[JOINT_POSITION]

    def advance(self) -> None:
        """A control period of set-points."""
        count = round(1.0 / self.spec.rate_hz / DT_S)
        for k in range(count):
            q = self._at + (k + 1) / count * (self._target - self._at)
            self._sent.append((self._now_ns, q))
            self._motion.servo(q, DT_S, 0.03, 500.0, DT_S)
            self._motion.step(DT_S)
            self._arm.set_joint_targets(self._motion.q, self._motion.qd)
            self._arm.step(DT_S)
            self._now_ns += round(1e9 * DT_S)
            self._measured.append((self._now_ns, self._arm.joint_positions().copy()))
        self._at = self._target

    def drain(self) -> SampleBatch:
        """What there is since the last time."""
        (sent_ns, sent), (t_ns, q) = (
            (np.array([t for t, _ in rows], dtype=np.int64), np.stack([v for _, v in rows]))
            for rows in (self._sent, self._measured)
        )
        self._sent, self._measured = [], []
        block = SampleBlock(t_ns, q, np.ones(len(q), dtype=np.bool_))
        told = SentBlock(np.zeros(len(sent), dtype=np.int64), sent_ns, {JOINT_POSITION: sent})
        return SampleBatch({JOINT_POSITION: block}, told)

    def hold(self) -> None:
        """It does."""

    def close(self) -> None:
        """Done."""
        self._plant.close()
