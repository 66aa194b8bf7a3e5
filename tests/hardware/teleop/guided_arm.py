"""A UR5e in this process that gives way to a hand: the emulator's model of freedrive, no wire.

For a session of a person who guides the arm itself, in simulated time; over the wire it is
tests/robolearn/operations/cell/test_collect_freedrive.py.
"""

from __future__ import annotations

import numpy as np

from hardware.emulators.plant import KinematicPlant
from hardware.emulators.ur.hand import Freedrive, Hand
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from robolearn.arms.models import UR5E
from robolearn.arms.tool_commands import values_from_pose
from robolearn.shapes import OwnFloats
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
    SentBlock,
)

RATE_HZ, STEP_S = 20.0, 0.004
HOME = np.array([2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])
OPEN_M, FINGERS_M_S = 0.08, 0.1


class GuidedArm:
    """Solved when the tool is within 15 mm of where the condition wants it, with closed fingers."""

    spec = EmbodimentSpec(
        "guided",
        (SignalSpec("tool/pose", (7,), rate_hz=RATE_HZ), SignalSpec("gripper/width", (1,), "m")),
        (
            ActionSpec("tool/pose", (7,), low=(-1.5,) * 7, high=(1.5,) * 7),
            ActionSpec("gripper/width", (1,), "m", low=(0.0,), high=(OPEN_M,)),
        ),
        RATE_HZ,
    )
    capabilities = Capabilities(True, False, False)
    slowed = guided_until = ""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.goal = np.zeros(3)
        self._ticks = 0
        self._start(HOME)

    def _start(self, q: OwnFloats) -> None:
        self._plant, self._hand = KinematicPlant(q), Hand(UR5E)
        self.motion = JointMotion(q, MotionLimits())
        self._freedrive = Freedrive(self._plant, self.motion, self._hand, STEP_S)
        self.width = self._wanted = OPEN_M

    @property
    def tool(self) -> OwnFloats:
        return UR5E.fk(self._plant.joint_positions())[:3, 3]

    def pull(self, by_m: OwnFloats, limit_n: float) -> None:
        """Somebody pulls the tool so far aside, and holds it upright as it was at first."""
        self._hand.pull(self.tool + by_m, limit_n, HOME)

    # -- an env ----------------------------------------------------------------------------------

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        del rng
        self.said.append("reset")
        self._start(HOME)
        self.goal = np.array(condition.poses["goal/place"])
        return ResetReport(condition, {})

    def now_ns(self) -> int:
        return round(1e9 * self._ticks / RATE_HZ)

    def observe(self) -> Observation:
        t_ns = self.now_ns()
        pose = values_from_pose(UR5E.fk(self._plant.joint_positions()))
        return Observation(
            t_ns,
            {
                "tool/pose": Sample(t_ns, pose),
                "gripper/width": Sample(t_ns, np.array([self.width])),
            },
        )

    def apply(self, command: Command) -> None:
        self._wanted = float(command.action["gripper/width"][0])

    def drain(self) -> SampleBatch:
        none = np.zeros(0, dtype=np.int64)
        return SampleBatch({}, SentBlock(none, none, {}))

    def advance(self) -> None:
        for _ in range(round(1.0 / (RATE_HZ * STEP_S))):
            self._freedrive.tick()
            self.motion.step(STEP_S)
            self._plant.set_joints(self.motion.q)
        most = FINGERS_M_S / RATE_HZ
        self.width += float(np.clip(self._wanted - self.width, -most, most))
        self._ticks += 1

    def outcome(self) -> Outcome:
        away = float(np.linalg.norm(self.tool - self.goal))
        done = away < 0.015 and self.width < 0.01
        return Outcome(done, float(done), float(done), done, reason="success" if done else "")

    def close(self) -> None: ...

    # -- a cell's arm ----------------------------------------------------------------------------

    def begin(self, condition: Condition, *, guided: bool = False) -> ResetReport:
        self.said.append("gives way" if guided else "follows")
        assert not self._freedrive.begin()
        return ResetReport(condition, {})

    def look(self) -> Observation:
        return self.observe()

    def hold(self) -> None:
        self.said.append("hold")
        self.motion.hold_here(self._plant.joint_positions())

    def home(self) -> None:
        self.said.append("home")

    def estop(self) -> None:
        self.said.append("estop")

    def clear_stop(self) -> None: ...
