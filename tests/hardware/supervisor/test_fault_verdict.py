"""What is allowed after a fault, against the supervisor's braking and the emulated servos."""

import numpy as np
import pytest

from hardware.emulators.lab.admin import LabEvent, LabLog
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from hardware.supervisor.link import Cause, Mode
from tests.hardware.fault_trials import trial_cell
from tests.hardware.fault_verdict import (
    NOTICE_S,
    PERIOD_S,
    REST_RAD_S,
    Ending,
    agent_allowed,
    ending,
    excused,
    gaps,
    link_allowed,
    speeds,
    still_after,
)
from tests.hardware.workcell import Cell

SERVO = {"time_s": PERIOD_S, "lookahead_s": 0.03, "gain": 500.0, "since_s": PERIOD_S}
CONFIG = trial_cell("127.0.0.1")


def rested_s(log, at_ns):
    """When the emulated arm that gets these set-points is at rest."""
    motion = JointMotion(log.setpoint_q[0], MotionLimits())
    rest_ns = at_ns
    for t, q in zip(log.setpoint_t_ns.tolist(), log.setpoint_q, strict=True):
        assert motion.servo(q, **SERVO) == ""
        motion.step(PERIOD_S)
        rest_ns = t if np.abs(motion.qd).max() >= REST_RAD_S else rest_ns
    return (rest_ns - at_ns) * 1e-9


@pytest.mark.parametrize("late_s", [0.0, 0.09, 0.13])
def test_braking_within_the_time_to_notice_is_allowed_and_not_much_more(late_s):
    cell = Cell()
    cell.follow()
    cell.drive([(0.1, 0.1), (0.42, 0.42), (0.42, 0.42)])
    at_ns = cell.now_ns
    cell.command((0.42, 0.42))
    cell.run(late_s)
    cell.inbox.closed = Cause.AGENT_DEAD
    cell.run(0.5)
    t_ns, q = (np.array(v) for v in zip(*cell.robot.sent, strict=True))
    cell.close()
    # At rest the device holds the last set-point.
    more = t_ns[-1] + 2_000_000 * np.arange(1, 100)
    log = LabLog(0, False, np.append(t_ns, more), np.vstack([q, np.repeat(q[-1:], 99, 0)]), ())
    allowed = agent_allowed(log, at_ns, CONFIG)
    assert 0.3 < allowed.speed < 0.5
    still_s, rest_s = still_after(log, at_ns, at_ns + 10**9), rested_s(log, at_ns)
    assert (still_s <= allowed.still_s) is (late_s <= NOTICE_S)
    assert (rest_s <= allowed.rest_s) is (late_s <= NOTICE_S)
    if late_s == 0.0:
        # Nothing is given away: what is left is the time to notice, and the arm's largest gain.
        assert NOTICE_S - 0.005 < allowed.still_s - still_s < NOTICE_S + 0.01
        assert NOTICE_S - 0.005 < allowed.rest_s - rest_s < NOTICE_S + 0.04


def test_a_cut_link_is_allowed_what_the_slowest_of_stops_needs():
    t_ns = 2_000_000 * np.arange(200)
    q = np.outer(np.minimum(t_ns * 1e-9, 0.2), [1.0, 0, 0, 0, 0, 0])
    log = LabLog(0, False, t_ns, q, ())
    assert speeds(log, 10**8, 10**8)[1] == pytest.approx(1.0)
    assert 0.25 < link_allowed(log, 10**8, 10**8, CONFIG).rest_s < 0.28
    resting = link_allowed(log, 35 * 10**7, 35 * 10**7, CONFIG)
    assert resting.rest_s == pytest.approx(NOTICE_S + PERIOD_S)


def test_only_ticks_that_were_lost_in_the_span_excuse_a_trial():
    events = (LabEvent(10**9, "stall", "40.0"), LabEvent(2 * 10**9, "stall", "500.0"))
    log = LabLog(0, False, np.zeros(0, np.int64), np.zeros((0, 6)), events)
    assert gaps(log, 98 * 10**7, 12 * 10**8) == pytest.approx([0.02])
    assert gaps(log, 1, 10**8) == []
    assert excused(0.02, [0.01, 0.011])
    assert not excused(0.03, [0.01, 0.011])
    assert not excused(0.0, [1.0])


@pytest.mark.parametrize(
    ("fault", "end", "wrong"),
    [
        ("nan", Ending(Mode.FOLLOW, Cause.NONE), ""),
        ("nan", Ending(Mode.STOPPED, Cause.FAR_AGENT, 0.4), "latched a stop: FAR_AGENT"),
        ("stale", Ending(Mode.STOPPING, Cause.STATE_STALE, 0.4), "latched a stop: STATE_STALE"),
        ("far", Ending(Mode.STOPPED, Cause.FAR_AGENT, 0.36), ""),
        ("far", Ending(Mode.STOPPED, Cause.FAR_AGENT, 0.34), "after 340 of 350 to 530 ms"),
        ("far", Ending(Mode.STOPPED, Cause.FAR_AGENT, 0.54), "after 540 of 350 to 530 ms"),
        ("far", Ending(Mode.FOLLOW, Cause.NONE), "expected a stop for FAR_AGENT"),
        ("far", Ending(Mode.STOPPED, Cause.STATE_STALE, 0.4), "expected a stop for FAR_AGENT"),
    ],
)
def test_only_targets_far_outside_may_latch_and_must(fault, end, wrong):
    said = ending(fault, end, far_s=0.35, period_s=0.08)
    assert wrong in said
    assert bool(said) is bool(wrong)
