"""After a pause of the link: what the controller makes of the path, late set-points and all.

The controller's smoothing of ``servoJ`` is the emulated one's, stepped beside the fake robot.
"""

import functools

import numpy as np
import pytest

from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.supervisor.link import Cause, Mode
from hardware.supervisor.watch.resuming import FACTOR
from robolearn.arms.models import UR5E
from tests.hardware.supervisor.test_link_pause import GOAL, fast, pause
from tests.hardware.workcell import FOLLOWER, RATE_HZ, WORKCELL, Cell

PERIOD_S, LOOKAHEAD_S, GAIN = 1.0 / RATE_HZ, 0.03, 500.0
LIMIT = FOLLOWER.limits.max_tool_acceleration


def _same(state):
    return state


@pytest.fixture
def cell():
    made = Cell(start=(0.1, 0.3))
    yield made
    made.close()


def resume(cell, ticks, arrives=lambda tick: True, every=1):
    """Drive on for so many ticks after a pause; a set-point of a tick that does not arrive is
    replaced by the next that does, and the supervisor sees the first of ``every`` states. Returns
    the peak of the tool's acceleration [m/s^2].
    """
    fast(cell)
    pause(cell, 0.06)
    motion = JointMotion(cell.robot.state().joint_position, MotionLimits())
    cell.robot.reference_velocity = motion.qd
    newest, path = cell.robot.state, []
    for tick in range(ticks):
        if tick % every == 0:
            cell.robot.state = newest
        cell.command(GOAL)
        cell.run(PERIOD_S)
        if cell.mode is Mode.STOPPED:
            break
        if arrives(tick):
            motion.servo(cell.robot.sent[-1][1], PERIOD_S, LOOKAHEAD_S, GAIN, 0.1)
        motion.step(PERIOD_S)
        if tick % every == 0:
            cell.robot.state = functools.partial(_same, newest())
        cell.robot.reference_velocity = motion.qd.copy()
        path.append(WORKCELL.xy(UR5E, motion.q))
    return float(np.linalg.norm(np.diff(path, n=2, axis=0), axis=1).max()) * RATE_HZ**2


def test_a_path_that_arrives_as_it_was_sent_keeps_the_limit(cell):
    assert resume(cell, 150) < 1.05 * LIMIT
    assert cell.causes == [Cause.STATE_LATE]


def test_a_set_point_that_is_a_period_late_is_no_reason_to_stop(cell):
    peak = resume(cell, 60, lambda tick: tick != 40)
    assert 1.05 * LIMIT < peak < FACTOR * LIMIT
    assert cell.mode is Mode.FOLLOW


@pytest.mark.parametrize("late", [2, 15])
def test_what_cannot_be_smoothed_is_latched(cell, late):
    """Two periods late are the 9.9 m/s^2 that were once seen: no more was left of the pause."""
    resume(cell, 150, lambda tick: not 30 <= tick < 30 + late)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.LINK_PAUSE
    event = next(e for e in cell.events if e.cause is Cause.LINK_PAUSE)
    assert event.limit == pytest.approx(FACTOR * LIMIT, rel=0.1)
    assert event.value > event.limit
    if late == 2:
        assert event.value < 2.0 * LIMIT


@pytest.mark.parametrize("every", [2, 3])
def test_a_state_that_was_missed_hides_no_late_set_points(cell, every):
    """The mean over the span that was not seen stays below what a peak may reach."""
    resume(cell, 150, lambda tick: not 31 <= tick < 34, every)
    assert cell.status.cause is Cause.LINK_PAUSE
    event = next(e for e in cell.events if e.cause is Cause.LINK_PAUSE)
    assert event.limit == pytest.approx((FACTOR - 0.125 * (every - 1)) * LIMIT, rel=0.1)


@pytest.mark.parametrize("every", [2, 4])
def test_a_period_late_stops_no_arm_whose_states_are_missed(cell, every):
    resume(cell, 60, lambda tick: tick != 40, every)
    assert cell.mode is Mode.FOLLOW


def test_only_the_way_on_after_a_pause_is_judged(cell):
    resume(cell, 230, lambda tick: not 210 <= tick < 225)
    assert cell.mode is Mode.FOLLOW
    fresh = Cell(start=(0.1, 0.3))
    fresh.robot.reference_velocity = np.zeros(6)
    fast(fresh)
    fresh.robot.reference_velocity = np.ones(6)
    fresh.run(PERIOD_S)
    assert fresh.mode is Mode.FOLLOW
    fresh.close()
