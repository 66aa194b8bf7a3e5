"""Moves what is commanded by what a hand does: one class per kind of motion.

    take(motion, at)        the hand takes hold of the state ``at``, or says why not yet
    move(motion, at, dt_s)  the state that it wants next; None: it has lost hold

Every hold begins without a jump: rates at rest, poses where the clutch closed, a leader arm beside
the arm that follows, a pointer on the tool, a hand at the arm itself.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from hardware.teleop.axes import PersonAxes
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import Guided, HandPose, JointAngles, Rate, Steps, TablePoint
from hardware.teleop.filters import PoseFilter, shaped, slewed
from hardware.teleop.shapes import Deflection, State
from hardware.teleop.targets import XY_TABLE, JointTarget, ToolTarget
from robolearn.arms.shapes import Joints
from robolearn.errors import SpecMismatchError
from robolearn.geometry import Pose, pose, rotvec_from_rotation

# A tracked hand does not move further than this between two looks [m, rad]: the tracker jumped.
HAND_JUMP_M, HAND_JUMP_RAD = 0.15, 0.8
# A leader arm that is this near to the arm has been caught up with [rad].
ALIGNED_RAD = 0.05
# ... and one that jumps by this is not held any more [rad].
LEADER_JUMP_RAD = 0.5


@runtime_checkable
class Hold(Protocol):
    """How a kind of motion moves what is commanded."""

    # Whether the command may be only so far ahead of what is measured.
    led: bool
    # Whether it takes what is measured, which may still be on its way, rather than what was
    # commanded.
    seen: bool

    def take(self, motion: Any, at: State) -> str:
        """Take hold of the state ``at``; "" when it worked, else why not yet."""
        ...

    def move(self, motion: Any, at: State, dt_s: float) -> State | None:
        """The state that the hand wants after ``at``; None: it has lost hold."""
        ...


class RateHold:
    """Deflections are speeds."""

    led = True
    seen = False

    def __init__(self, config: MappingConfig, axes: PersonAxes) -> None:
        self._config, self._axes = config, axes
        speeds = [config.translation_m_s] * 3 + [config.rotation_rad_s] * 3
        self._speeds = np.array(speeds)
        self._now: Deflection = np.zeros(6)

    def take(self, motion: Rate, at: State) -> str:
        """At rest only."""
        del at
        self._now = np.zeros(6)
        return "" if not self._live(motion).any() else "let go of it first"

    def move(self, motion: Rate, at: State, dt_s: float) -> Pose | None:
        """Integrates the speed on what was commanded."""
        self._now = slewed(self._now, self._live(motion), dt_s / self._config.ramp_s)
        return self._axes.moved(at, self._now * self._speeds * dt_s)

    def _live(self, motion: Rate) -> Deflection:
        twist = shaped(motion.twist, self._config.dead_zone, self._config.exponent)
        if self._config.one_axis:
            twist = np.where(np.arange(6) == int(np.argmax(np.abs(twist))), twist, 0.0)
        return twist


class StepsHold:
    """Steps are changes."""

    led = True
    seen = False

    def __init__(self, config: MappingConfig, axes: PersonAxes) -> None:
        del config
        self._axes = axes
        self._before = np.zeros(6)

    def take(self, motion: Steps, at: State) -> str:
        """At once; steps of before do not count."""
        del at
        self._before = motion.total
        return ""

    def move(self, motion: Steps, at: State, dt_s: float) -> Pose | None:
        """Adds what was stepped since."""
        del dt_s
        change, self._before = motion.total - self._before, motion.total
        return self._axes.moved(at, change) if change.any() else at


class HandHold:
    """Changes of a hand's pose since the clutch closed are those of the tool, scaled."""

    led = True
    seen = False

    def __init__(self, config: MappingConfig, axes: PersonAxes) -> None:
        self._scale, self._axes = config.scale, axes
        self._filter = PoseFilter(config.min_cutoff_hz, config.beta)
        self._raw = self._hand = np.eye(4)

    def take(self, motion: HandPose, at: State) -> str:
        """At once, wherever the hand is."""
        del at
        self._filter.reset()
        self._raw, self._hand = motion.T, self._filter(motion.T, 1.0)
        return ""

    def move(self, motion: HandPose, at: State, dt_s: float) -> Pose | None:
        """Adds the hand's change since the last look: what is cut off by a limit is not owed."""
        step = motion.T[:3, 3] - self._raw[:3, 3]
        turn = rotvec_from_rotation(motion.T[:3, :3] @ self._raw[:3, :3].T)
        if np.linalg.norm(step) > HAND_JUMP_M or np.linalg.norm(turn) > HAND_JUMP_RAD:
            return None
        before, self._raw = self._hand, motion.T
        self._hand = self._filter(motion.T, dt_s)
        change = self._scale * (self._hand[:3, 3] - before[:3, 3])
        turned = rotvec_from_rotation(self._hand[:3, :3] @ before[:3, :3].T)
        return self._axes.moved(at, np.concatenate([change, turned]))


class LeaderHold:
    """The joints of a leader arm are those of the arm, once both stand alike."""

    led = False
    seen = False

    def __init__(self, config: MappingConfig, target: JointTarget) -> None:
        self._config, self._size = config, target.spec.size
        self._aligned = False

    def take(self, motion: JointAngles, at: State) -> str:
        """From near (``gate_rad``) only."""
        if motion.q.shape != (self._size,):
            raise SpecMismatchError(
                f"the leader arm has {motion.q.size} joints, the arm that follows {self._size};"
                " pair them in the leader's config (joints, signs, offsets)"
            )
        off = np.abs(motion.q - at)
        self._aligned = False
        if float(off.max()) <= self._config.gate_rad:
            return ""
        worst = int(np.argmax(off))
        return (
            f"bring the leader to the arm: joint {worst + 1} is {off[worst]:.2f} rad away,"
            f" {self._config.gate_rad:g} at most"
        )

    def move(self, motion: JointAngles, at: State, dt_s: float) -> Joints | None:
        """Slowly until both are together, then wherever the leader goes; not over a jump."""
        off = motion.q - at
        if not self._aligned:
            if float(np.abs(off).max()) > 1.25 * self._config.gate_rad:
                return None
            most = self._config.ramp_rad_s * dt_s
            self._aligned = float(np.abs(off).max()) <= ALIGNED_RAD
            return at + np.clip(off, -most, most)
        return motion.q if float(np.abs(off).max()) <= LEADER_JUMP_RAD else None


class PointerHold:
    """A point on the table is where the tool goes, once it was taken hold of."""

    led = False
    seen = True

    def __init__(self, config: MappingConfig) -> None:
        self._reach_m = config.reach_m

    def take(self, motion: TablePoint, at: State) -> str:
        """From near the tool only: a pointer that comes back elsewhere does not make it jump."""
        away = float(np.linalg.norm(motion.xy - at[:2, 3]))
        return "" if away <= self._reach_m else "take hold of the tool"

    def move(self, motion: TablePoint, at: State, dt_s: float) -> Pose | None:
        """To the point."""
        del dt_s
        return pose(at[:3, :3], (float(motion.xy[0]), float(motion.xy[1]), float(at[2, 3])))


class GuidedHold:
    """The arm is moved by the hand itself; nothing is added to where it is measured."""

    led = False
    seen = False

    def take(self, motion: Guided, at: State) -> str:
        """At once: the person holds the arm."""
        del motion, at
        return ""

    def move(self, motion: Guided, at: State, dt_s: float) -> State | None:
        """Where it is."""
        del motion, dt_s
        return at


def hold_of(
    motion: Any,
    config: MappingConfig,
    target: ToolTarget | JointTarget,
    axes: PersonAxes | None,
) -> Hold:
    """What lets a motion move a target, a tool along the person's ``axes``;
    :class:`SpecMismatchError` if it cannot.
    """
    if isinstance(motion, Guided):
        return GuidedHold()
    if isinstance(target, JointTarget):
        if isinstance(motion, JointAngles):
            return LeaderHold(config, target)
    elif isinstance(motion, TablePoint):
        if target.spec.name == XY_TABLE:
            return PointerHold(config)
    elif not isinstance(motion, JointAngles) and axes is not None:
        return _TOOL_HOLDS[type(motion)](config, axes)
    raise SpecMismatchError(
        f"'{target.spec.name}' cannot be driven by {type(motion).__name__} of this device: joints"
        f" need a leader arm, a point on the table drives {XY_TABLE}, and the others the tool"
    )


_TOOL_HOLDS: dict[type, type[RateHold | StepsHold | HandHold]] = {
    Rate: RateHold,
    Steps: StepsHold,
    HandPose: HandHold,
}
