"""A tool that does less than it was asked to: told once, while it lasts."""

import dataclasses
from typing import Any

import numpy as np

from hardware.supervisor.link import Cause, Mode
from hardware.supervisor.tool_follower import ToolFollowerConfig, ToolFrame, ToolSpace
from robolearn.arms.differential import Limited
from robolearn.arms.models import UR5E
from robolearn.arms.slowing import Slowed
from robolearn.arms.slowing_watch import SlowingWatch
from robolearn.arms.tool_commands import values_from_pose
from robolearn.arms.tool_path import ToolPathLimits
from tests.hardware.workcell import RATE_HZ, Cell

HOME = np.array([2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])
LIMITS = ToolPathLimits((-1.4, -1.4, -1.0), (1.0, 1.4, 1.4))
SPACE = ToolSpace(
    ToolFrame((0.5, 0.0, 0.0)), (0.0, 0.0, 0.145), tuple(HOME), LIMITS, action="tool/pose"
)
RECIPE: Any = ToolFollowerConfig(SPACE, "ur5e", 0.05, collision=None)
KINEMATICS = SPACE.kinematics(UR5E)
PERIOD_S = 0.05


def bent(q, joint, angle):
    out = np.array(q)
    out[joint] = angle
    return out


def pose_at(q):
    return values_from_pose(KINEMATICS.pose(q))


def led(q, *ways, recipe=RECIPE):
    """Events of a tool that is led from ``q`` to the poses, each for so long [s]."""
    cell = Cell(recipe=recipe, q=q)
    cell.follow()
    for goal, seconds in ways:
        cell.drive([goal] * round(seconds / PERIOD_S), PERIOD_S)
    assert cell.mode is Mode.FOLLOW
    found = cell.events
    cell.close()
    return found


def test_a_singularity_is_told_once_and_its_end():
    q = bent(HOME, 4, 0.3)
    events = led(q, (pose_at(bent(q, 4, -0.3)), 0.6), (pose_at(q), 1.0))
    # On the way out its joints are as fast as they may be.
    causes = [Cause.SLOWED_SINGULARITY, Cause.SLOWED_JOINT_SPEED, Cause.SLOWED_OVER]
    assert [e.cause for e in events] == causes
    begin, after, _ = events
    assert 0.02 < begin.value < begin.limit == 0.08
    # While it was led inwards, and a little longer.
    assert 0.3 < 1e-9 * (after.t_ns - begin.t_ns) < 1.0
    assert begin.seq >= 0
    assert not any(e.cause.latches for e in events)


def test_a_motion_within_all_limits_is_not_told():
    goal = pose_at(HOME)
    goal[:3] += (0.1, -0.15, -0.1)
    assert led(HOME, (goal, 1.0), (pose_at(HOME), 0.6)) == []


def test_a_joint_that_nears_its_end_is_told():
    q = bent(HOME, 5, UR5E.high[5] - 0.3)
    (event,) = led(q, (pose_at(bent(q, 5, q[5] + 0.6)), 0.45))
    assert event.cause is Cause.SLOWED_JOINT_LIMIT
    assert 0.1 < event.value < 0.3
    assert event.limit == LIMITS.joint_margin


def test_joints_that_are_too_slow_for_the_tool_are_told():
    slow = dataclasses.replace(SPACE, limits=dataclasses.replace(LIMITS, max_joint_speed=0.1))
    goal = pose_at(HOME)
    goal[:3] += (0.1, -0.15, -0.1)
    events = led(HOME, (goal, 0.5), recipe=dataclasses.replace(RECIPE, space=slow))
    assert [e.cause for e in events] == [Cause.SLOWED_JOINT_SPEED]
    assert 0.0 < events[0].value < 0.9


def test_a_stop_ends_it():
    q = bent(HOME, 4, 0.3)
    cell = Cell(recipe=RECIPE, q=q)
    cell.follow()
    cell.drive([pose_at(bent(q, 4, -0.3))] * 16, PERIOD_S)
    cell.ask("estop")
    cell.run(0.6)
    assert cell.causes == [Cause.SLOWED_SINGULARITY, Cause.ESTOP, Cause.SLOWED_OVER]
    cell.close()


def told(watch, *spells):
    """What a watch tells over spells of (limited, seconds)."""
    found = []
    for limited, seconds in spells:
        found += [watch.changed(limited) for _ in range(round(seconds * RATE_HZ))]
    return [t for t in found if t is not None]


def test_a_brief_touch_is_nothing_and_flicker_is_one():
    watch, flicker = SlowingWatch(RATE_HZ), ((Limited.SINGULAR, 0.004), (Limited.NONE, 0.008))
    assert told(watch, (Limited.SINGULAR, 0.03), (Limited.NONE, 0.3), *flicker * 20) == []
    assert told(watch, (Limited.SINGULAR, 0.1), *flicker * 30) == [Slowed.SINGULARITY]
    assert told(watch, (Limited.NONE, 0.15)) == []
    assert told(watch, (Limited.NONE, 0.3)) == [Slowed.OVER]
    # A servo at a low rate has ticks as long as that.
    assert SlowingWatch(5.0).changed(Limited.SPEED) is Slowed.JOINT_SPEED


def test_of_several_things_the_most_telling_is_told():
    watch, both = SlowingWatch(RATE_HZ), Limited.SINGULAR | Limited.SPEED
    assert told(watch, (Limited.SPEED, 0.02), (Limited.NONE, 1.0)) == []
    spells = ((Limited.SPEED, 0.3), (both, 0.3), (Limited.SPEED, 0.5), (Limited.NONE, 0.5))
    assert told(watch, *spells) == [
        Slowed.JOINT_SPEED,
        Slowed.SINGULARITY,
        Slowed.JOINT_SPEED,
        Slowed.OVER,
    ]
