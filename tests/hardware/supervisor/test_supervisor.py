"""The supervisor's logic on a virtual clock: every fault, every limit, every latch."""

import dataclasses

import numpy as np
import pytest

from hardware.drivers.fakes.robot import FakeFault
from hardware.supervisor.link import LINK_CAUSES, Cause, Mode, SupervisorConfig, unpack_text
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError, RobotConnectionError, RobotError
from tests.hardware.workcell import FOLLOWER, RATE_HZ, TICK_NS, WORKCELL, Cell, joints_at


@pytest.fixture
def cell():
    made = Cell()
    yield made
    made.close()


def test_holds_still_until_asked(cell):
    start = cell.xy
    cell.command((0.4, 0.4))
    cell.run(0.1)
    assert cell.mode is Mode.HOLD
    np.testing.assert_allclose(cell.xy, start, atol=1e-9)
    assert len(cell.robot.sent) == 50


def test_follows_commands_to_their_target(cell):
    cell.follow()
    cell.drive([(0.3, 0.32)] * 12)
    np.testing.assert_allclose(cell.xy, (0.3, 0.32), atol=1e-3)
    assert cell.causes == []
    assert cell.status.mode is Mode.FOLLOW
    cell.assert_within_limits()


def test_a_late_agent_means_brake_and_hold_then_go_on(cell):
    cell.follow()
    cell.drive([(0.3, 0.3), (0.35, 0.3), (0.4, 0.3)])
    cell.run(0.05 + 0.11)
    assert cell.causes == [Cause.AGENT_LATE]
    cell.run(0.1)
    assert np.all(cell.speeds(cell.now_ns - 20 * TICK_NS) < 1e-9)
    assert cell.mode is Mode.FOLLOW
    cell.drive([(0.4, 0.3)] * 10)
    assert cell.causes == [Cause.AGENT_LATE, Cause.AGENT_BACK]
    np.testing.assert_allclose(cell.xy, (0.4, 0.3), atol=2e-3)
    cell.assert_within_limits()


def test_a_plan_bridges_a_command_that_is_a_little_late(cell):
    cell.follow()
    cell.command((0.3, 0.3), plan=[(0.35, 0.3), (0.4, 0.3)])
    cell.run(0.1)
    without = cell.generator.target.tolist()
    cell.run(0.03)
    assert without == [0.3, 0.3]
    assert cell.generator.target.tolist() == [0.35, 0.3]
    assert cell.causes == []


def test_after_a_pause_the_plan_goes_on_where_it_was(cell):
    cell.follow()
    cell.command((0.3, 0.3), plan=[(0.35, 0.3)])
    cell.run(0.106)
    cell.robot.fault = FakeFault.FROZEN
    cell.run(0.026)
    assert Cause.STATE_LATE in cell.causes
    cell.robot.fault = FakeFault.NONE
    # The arm was halted; three states show that it stands, then its way goes on.
    cell.run(0.01)
    assert cell.generator.target.tolist() == [0.35, 0.3]
    assert not cell.generator._holding


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, -1.0])
@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(SupervisorConfig)])
def test_a_limit_that_would_switch_a_check_off_is_refused(name, value):
    with pytest.raises(ConfigError):
        SupervisorConfig(**{name: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01])
@pytest.mark.parametrize("name", ["joint_margin", "workspace_margin"])
def test_a_margin_that_would_open_the_limits_is_refused(name, value):
    limits = dataclasses.replace(FOLLOWER.limits, **{name: value})
    with pytest.raises(ConfigError, match=name):
        dataclasses.replace(FOLLOWER, limits=limits)


def test_a_dead_agent_stops_the_arm_for_good(cell):
    cell.follow()
    cell.drive([(0.3, 0.3), (0.4, 0.3)])
    cell.inbox.closed = Cause.AGENT_DEAD
    at = cell.now_ns
    cell.run(0.3)
    assert cell.mode is Mode.STOPPED
    assert cell.supervisor.finished
    assert cell.causes == [Cause.AGENT_DEAD]
    assert cell.robot.stops == 1
    last = [t for t, _ in cell.robot.sent][-1]
    # 0.5 m/s braked at 0.7 * 6 m/s^2 takes 0.12 s.
    assert last - at < 0.2e9
    cell.assert_within_limits()


def test_a_frozen_agent_is_noticed_by_its_heartbeat(cell):
    cell.follow()
    cell.drive([(0.3, 0.3)])
    cell.beating = False
    at = cell.now_ns
    cell.drive([(0.3, 0.3)] * 4)
    assert cell.causes == [Cause.AGENT_SILENT]
    assert np.all(cell.speeds(at + 350_000_000) < 1e-9), "at rest although commands still come"
    cell.run(0.3)
    assert cell.status.cause is Cause.AGENT_FROZEN
    assert cell.mode is Mode.STOPPED
    assert not cell.supervisor.finished


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (FakeFault.FROZEN, Cause.STATE_STALE),
        (FakeFault.PROTECTIVE_STOP, Cause.ROBOT_FAULT),
        (FakeFault.EMERGENCY_STOP, Cause.ROBOT_FAULT),
        (FakeFault.REFUSES, Cause.DRIVER_ERROR),
    ],
)
def test_robot_faults_latch_and_only_a_clear_recovers(cell, fault, cause):
    cell.follow()
    cell.drive([(0.3, 0.3)])
    cell.robot.fault = fault
    cell.command((0.35, 0.3))
    cell.run(0.15)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is cause
    assert cell.causes[-1] is cause
    assert cell.robot.stops == 1
    cell.ask("clear")
    cell.run(0.01)
    assert cell.status.refused, "the fault is still there"
    cell.robot.fault = FakeFault.NONE
    cell.run(0.1)
    assert cell.mode is Mode.STOPPED, "a fault that went away is no recovery"
    cell.ask("follow")
    cell.run(0.01)
    assert cell.mode is Mode.STOPPED
    cell.ask("clear")
    cell.run(0.01)
    assert cell.mode is Mode.HOLD
    cell.follow()


def test_a_device_that_heard_nothing_for_too_long_is_no_fault_of_the_robot(cell):
    """Its watchdog ended the program while this machine was busy: no policy did that."""
    cell.follow()
    cell.drive([(0.3, 0.3)])
    # Longer than the device's watchdog waits, shorter than the agent may be silent.
    cell.now_ns += 150_000_000
    cell.run(0.002)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.SILENCED
    assert Cause.SILENCED in LINK_CAUSES


def test_a_fault_between_the_look_at_the_state_and_the_set_point_is_the_robots(cell, monkeypatch):
    def refuse(_q):
        cell.robot.fault = FakeFault.PROTECTIVE_STOP
        raise RobotError("refuses commands")

    cell.follow()
    cell.drive([(0.3, 0.3)])
    monkeypatch.setattr(cell.robot, "servo", refuse)
    cell.command((0.35, 0.3))
    cell.run(0.002)
    assert cell.mode is Mode.STOPPED
    assert cell.causes[-1] is cell.status.cause is Cause.ROBOT_FAULT
    assert "PROTECTIVE_STOP" in unpack_text(cell.link.reason.latest())


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_stop_that_nobody_confirmed_is_left_to_the_devices_watchdog(cell, confirmed, monkeypatch):
    kicks = []
    monkeypatch.setattr(cell.robot, "stop", lambda: confirmed)
    monkeypatch.setattr(cell.robot, "keep_alive", lambda: kicks.append(1))
    cell.follow()
    cell.drive([(0.3, 0.3)])
    cell.robot.fault = FakeFault.REFUSES
    cell.run(0.02)
    assert cell.mode is Mode.STOPPED
    assert bool(kicks) is confirmed


def test_a_robot_that_is_gone_after_a_failed_clear_keeps_the_latch(cell, monkeypatch, caplog):
    cell.ask("estop")
    cell.run(0.01)

    def gone():
        raise RobotConnectionError("not connected")

    monkeypatch.setattr(cell.robot, "connect", gone)
    monkeypatch.setattr(cell.robot, "state", gone)
    cell.ask("clear")
    cell.run(0.1)
    assert cell.mode is Mode.STOPPED
    assert cell.status.refused
    assert cell.status.cause is Cause.ESTOP
    assert len(caplog.records) < 10, "told once, not at every tick"


def test_estop_latches(cell):
    cell.follow()
    cell.drive([(0.3, 0.3)])
    cell.ask("estop")
    cell.run(0.3)
    assert cell.status.cause is Cause.ESTOP
    assert cell.status.answered == cell.number
    assert not cell.status.refused
    cell.command((0.4, 0.3))
    before = cell.xy
    cell.run(0.1)
    np.testing.assert_array_equal(cell.xy, before)


BAD_COMMANDS = [
    ((np.nan, 0.3), 0.0, None, Cause.NOT_FINITE),
    ((0.3, np.inf), 0.0, None, Cause.NOT_FINITE),
    ((0.3, 0.3), 0.4, None, Cause.STALE_COMMAND),
    ((0.3, 0.3), -5.0, None, Cause.STALE_COMMAND),
    ((0.3, 0.3), 0.0, 0, Cause.STALE_COMMAND),
    ((3.0, -40.0), 0.0, None, Cause.FAR_OUTSIDE),
]


@pytest.mark.parametrize(("xy", "age_s", "seq", "cause"), BAD_COMMANDS)
def test_a_bad_command_means_brake_at_once_until_a_good_one(cell, xy, age_s, seq, cause):
    cell.follow()
    cell.drive([(0.3, 0.3), (0.35, 0.3)])
    # Right after a good one: nothing is late yet.
    cell.drive([(0.4, 0.3)], period=0.01)
    cell.command(xy, due_ns=cell.now_ns - round(age_s * 1e9), seq=seq)
    at, speed = cell.now_ns, tip_speeds(cell)[-1]
    cell.run(0.13)
    assert cell.causes == [cause]
    slower = tip_speeds(cell)[-65:]
    assert speed > 0.2
    assert np.all(np.diff(slower) <= 1e-9), "braked from the next set-point on"
    limits = FOLLOWER.limits
    braked_s = speed / (0.68 * limits.max_tool_acceleration) + 0.004
    assert np.all(cell.speeds(at + round(braked_s * 1e9)) < 1e-9)
    cell.seq = max(cell.seq, 2)
    cell.drive([(0.4, 0.3)] * 10)
    np.testing.assert_allclose(cell.xy, (0.4, 0.3), atol=2e-3)
    assert cell.mode is Mode.FOLLOW
    cell.assert_within_limits()


@pytest.mark.parametrize("plan", [(), [(0.4, 0.3)] * 3])
def test_an_agent_that_goes_on_commanding_far_outside_is_stopped_for_good(cell, plan):
    cell.follow()
    cell.drive([(0.3, 0.3)] * 3)
    before = cell.xy
    for _ in range(5):
        cell.command((0.256, 2.3), plan=plan)
        cell.run(0.1)
    # The last good command grows old meanwhile; that is told, too.
    told = [c for c in cell.causes if c is not Cause.AGENT_LATE]
    assert told == [*[Cause.FAR_OUTSIDE] * 5, Cause.FAR_AGENT]
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.FAR_AGENT
    assert cell.events[0].value == pytest.approx(2.3 - 0.512)
    assert cell.events[0].limit == 0.05
    # What was under way is braked; nothing leads towards the border.
    np.testing.assert_allclose(cell.xy, before, atol=0.02)
    cell.assert_within_limits()


def test_a_single_command_far_outside_is_forgotten_after_a_good_one(cell):
    cell.follow()
    for _ in range(6):
        cell.drive([(0.256, -2.0), (0.26, 0.3)])
    assert cell.causes.count(Cause.FAR_OUTSIDE) == 6
    assert cell.mode is Mode.FOLLOW


def test_a_command_a_little_outside_is_followed_to_the_border(cell):
    cell.follow()
    cell.drive([(0.256, 0.55)] * 20)
    assert set(cell.causes) == {Cause.OUT_OF_RANGE}
    np.testing.assert_allclose(cell.xy, (0.256, 0.512), atol=1e-3)


def test_a_plan_that_leads_far_outside_is_followed_up_to_there(cell):
    cell.follow()
    cell.drive([(0.256, 0.3)])
    cell.command((0.27, 0.3), plan=[(0.27, 3.0), (0.3, 0.3)])
    cell.run(0.14)
    np.testing.assert_allclose(cell.xy[1], 0.3, atol=1e-3)
    assert cell.causes == []


def test_goto_moves_slowly_through_waypoints_and_rests(cell):
    cell.ask("goto", [joints_at(xy, lift) for xy, lift in (((0.2, 0.3), 0.1), ((0.2, 0.4), 0.0))])
    cell.run(4.0)
    assert cell.mode is Mode.HOLD
    assert cell.status.answered == cell.number
    np.testing.assert_allclose(cell.xy, (0.2, 0.4), atol=1e-6)
    assert cell.speeds().max() <= cell.supervisor.config.goto_speed * 1.001
    cell.follow()


@pytest.mark.parametrize(
    "waypoint",
    [
        np.zeros(6),  # stretched out flat: under the table
        np.full(6, np.nan),
        joints_at((0.256, 0.3))[:3],
        np.array([0.0, -1.5, 3.3, -1.0, 0.0, 0.0]),  # beyond the elbow's limit
    ],
)
def test_goto_that_would_leave_the_limits_is_refused_before_it_starts(cell, waypoint):
    before = cell.xy
    cell.ask("goto", [waypoint])
    cell.run(0.2)
    assert cell.status.refused
    assert cell.mode is Mode.HOLD
    assert cell.causes == [Cause.UNREACHABLE]
    np.testing.assert_array_equal(cell.xy, before)


def test_a_guided_move_pauses_when_the_agent_dies(cell):
    cell.ask("goto", [joints_at((0.1, 0.4))])
    cell.run(0.4)
    assert cell.speeds().max() > 0.05
    cell.inbox.closed = Cause.AGENT_DEAD
    cell.run(0.3)
    assert cell.supervisor.finished
    assert np.all(np.diff(cell.speeds()[-50:].max(axis=1)) <= 1e-9)


def test_the_last_gate_refuses_what_the_generator_should_never_make(cell):
    cell.follow()
    cell.drive([(0.3, 0.3)])
    jump = cell.robot.sent[-1][1] + 0.5
    cell.follower.step = lambda *_, **__: jump
    sent = len(cell.robot.sent)
    cell.run(0.01)
    assert cell.mode is Mode.STOPPED
    assert cell.status.cause is Cause.LIMIT_VIOLATION
    assert len(cell.robot.sent) == sent


def test_hold_request_brakes_and_answers_at_rest(cell):
    cell.follow()
    cell.drive([(0.3, 0.3), (0.4, 0.3)])
    cell.ask("hold")
    cell.run(0.004)
    assert cell.mode is Mode.FOLLOW
    cell.run(0.3)
    assert cell.mode is Mode.HOLD
    assert cell.status.answered == cell.number


@pytest.mark.parametrize("seed", range(10))
def test_randomised_faults_never_send_an_unsafe_set_point(seed):
    rng = np.random.default_rng(seed)
    cell = Cell(start=tuple(rng.uniform(0.1, 0.4, 2)))
    cell.follow()
    for _ in range(8):
        kind = rng.integers(6)
        xy = rng.uniform(-0.2, 0.7, 2)
        if kind == 0:
            xy = rng.choice([np.nan, np.inf, 1e300, -1e9], 2)
        due = cell.now_ns + round(rng.normal(0, 0.2) * 1e9) if kind == 1 else None
        plan = rng.choice([0.3, np.nan, 5.0], (4, 2)) if kind == 2 else rng.uniform(0, 0.5, (3, 2))
        cell.command(xy, plan=plan, due_ns=due)
        cell.run(rng.uniform(0.02, 0.2) if kind == 3 else 0.1)
    fault = rng.integers(1, 6)
    if fault == 5:
        cell.inbox.closed = Cause.AGENT_DEAD
    else:
        cell.robot.fault = FakeFault(int(fault))
    cell.command(rng.uniform(0, 0.5, 2))
    cell.run(0.4)
    assert cell.mode is Mode.STOPPED
    assert cell.robot.stops == 1
    cell.assert_within_limits()
    cell.close()


def test_limits_of_the_workcell_are_reachable():
    assert FOLLOWER.build(500.0).violation(joints_at((0.256, 0.256)), None, 0.002) == ""


def tip_speeds(cell):
    """Of consecutive set-points [m/s]."""
    tips = np.array([WORKCELL.tip(UR5E, q)[:3, 3] for _, q in cell.robot.sent])
    return np.linalg.norm(np.diff(tips, axis=0), axis=1) * RATE_HZ


def test_the_last_gate_stops_a_tool_that_is_too_fast(cell, monkeypatch):
    cell.follow()
    cell.drive([(0.3, 0.3)])
    step = cell.generator.step

    def hasty():
        point = step()
        return dataclasses.replace(point, q=joints_at((point.xy[0] + 0.0014, point.xy[1])))

    monkeypatch.setattr(cell.generator, "step", hasty)
    monkeypatch.setattr(cell.follower, "rough", lambda _: "")
    sent = len(cell.robot.sent)
    cell.run(0.01)
    assert cell.mode is Mode.STOPPED
    assert cell.causes == [Cause.LIMIT_VIOLATION]
    assert len(cell.robot.sent) == sent


@pytest.mark.parametrize("offset", [1e-4, 4e-4])
def test_the_last_gate_stops_a_jerk(offset):
    limits = dataclasses.replace(FOLLOWER.limits, max_tool_jerk=300.0)
    cell = Cell(recipe=dataclasses.replace(FOLLOWER, limits=limits))
    cell.follow()
    cell.drive([(0.3, 0.3)] * 2)
    assert cell.causes == []
    before = cell.generator._out[:2].copy()
    cell.generator._mean._rows[:, :2] += offset
    cell.run(0.01)
    assert cell.mode is Mode.STOPPED
    np.testing.assert_allclose(cell.xy, before, atol=1e-9)
    cell.close()


def test_guided_moves_keep_the_tools_speed_and_their_jerk(cell):
    fast = Cell(config=SupervisorConfig(goto_speed=2.5, goto_acceleration=12.0, goto_jerk=400.0))
    fast.ask("goto", [joints_at((0.1, 0.3), 0.1), joints_at((0.45, 0.05), 0.1)])
    fast.run(0.5)
    fast.ask("hold")
    fast.run(0.5)
    assert fast.mode is Mode.HOLD
    fast.ask("goto", [joints_at((0.1, 0.1))])
    fast.run(3.0)
    np.testing.assert_allclose(fast.xy, (0.1, 0.1), atol=1e-6)
    assert fast.causes == []
    assert 0.4 < tip_speeds(fast).max() <= FOLLOWER.limits.max_tool_speed
    q = np.array([q for _, q in fast.robot.sent])
    assert np.abs(np.diff(q, n=3, axis=0)).max() * RATE_HZ**3 <= 400.0
    fast.close()


@pytest.mark.parametrize(
    ("rate_hz", "late_s"),
    [(500.0, 0.02), (250.0, 0.02), (125.0, 0.04), (60.0, 5 / 60), (10.0, 0.1)],
)
def test_when_a_state_is_late_follows_the_rate_of_the_robot(rate_hz, late_s):
    config = SupervisorConfig()
    assert config.late_state_s(rate_hz) == pytest.approx(late_s)
    assert dataclasses.replace(config, state_late_s=0.05).late_state_s(rate_hz) == 0.05
