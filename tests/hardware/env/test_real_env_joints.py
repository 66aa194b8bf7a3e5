"""A joint-space cell over the fake robot, with its supervisor in a process of its own."""

import dataclasses

import numpy as np
import pytest
import yaml

from hardware.cell.config import CellConfig
from hardware.cell.limits import RunLimits
from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition
from tests.hardware.joint_wave import NoTask, Wave
from tests.hardware.lab import CONFIG
from tests.mocks import Listener

HOME = (0.0, -1.9, 1.9, -1.6, -1.57, 0.0)
CELL = f"""
name: joint_cell
driver: {{kind: fake, joint_position: {list(HOME)}, watchdog_s: 5.0}}
arm: ur5e
joints:
  home: {list(HOME)}
  limits:
    low: [-3.0, -3.0, -3.0, -3.0, -3.0, -3.0]
    high: [3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    speed: [2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    acceleration: [20.0, 20.0, 20.0, 20.0, 20.0, 20.0]
  table_height_m: 0.0
rate_hz: 20
# Nothing here is about lateness: a busy machine must not stop the arm.
supervisor: {{late_s: 2.0, heartbeat_s: 2.0, frozen_s: 5.0, state_late_s: 1.0, state_stale_s: 2.0,
  goto_speed: 2.0, goto_acceleration: 12.0}}
"""


def cell() -> CellConfig:
    return from_dict(CellConfig, yaml.safe_load(CELL), "cell")


def turned(angle: float) -> np.ndarray:
    """Home with the first joint at an angle [rad]."""
    return np.array([angle, *HOME[1:]])


def test_an_episode_in_joint_space_is_run_and_reported():
    env = RealEnv(cell(), place=lambda _: "nothing to place", scorer=NoTask())
    listener = Listener()
    start = tuple(turned(0.1))
    try:
        condition = Condition("c", 1, {JOINT_POSITION: start})
        result = run_episode(env, Wave(start), None, [listener], condition, max_steps=12)
        assert "off by 0.000" in result.reset.note
        np.testing.assert_allclose(result.reset.achieved[JOINT_POSITION], start, atol=1e-3)
        sent = [t.drained.sent for t in listener.ticks]
        rows = np.concatenate([s.action[JOINT_POSITION] for s in sent])
        assert rows.shape[1] == 6
        assert np.all(np.diff(rows[:, 0]) >= -1e-9)
        assert 0.1 < rows[-1, 0] <= 0.22
        # The set-points are those rows, and what the arm was told outside of commands.
        told = np.concatenate([t.drained.signals[JOINT_SETPOINT].value for t in listener.ticks])
        assert len(told) >= len(rows) - 1
        assert {r.tobytes() for r in rows[:-50]} <= {r.tobytes() for r in told}
        first = listener.ticks[0].observation.samples[JOINT_SETPOINT]
        np.testing.assert_allclose(first.value, start, atol=1e-3)
        assert env.interventions == []
        with pytest.raises(DataError, match="shape"):
            env.apply(Command(99, {JOINT_POSITION: np.zeros(2)}, env.now_ns(), "x"))
        env.home()
        q = env.supervisor.state().joint_position
        np.testing.assert_allclose(q, HOME, atol=1e-6)
    finally:
        env.close()


def test_what_a_joint_cell_offers_is_known_without_a_robot():
    spec = cell_spec(cell())
    assert [a.name for a in spec.actions] == [JOINT_POSITION]
    assert spec.actions[0].shape == (6,)
    assert "block/pose" not in [s.name for s in spec.signals]


def test_a_cell_is_a_table_or_joints():
    raw = yaml.safe_load(CELL)
    with pytest.raises(ConfigError, match="either"):
        from_dict(CellConfig, {k: v for k, v in raw.items() if k != "joints"}, "cell")
    raw["joints"]["limits"]["speed"] = [9.0] * 6
    with pytest.raises(ConfigError, match="outside those of ur5e"):
        from_dict(CellConfig, raw, "cell").follower()
    table = load_cell(CONFIG)
    wide = dataclasses.replace(table, limits=dataclasses.replace(table.limits, max_joint_speed=9.0))
    with pytest.raises(ConfigError, match="9 rad/s is outside that of ur5e"):
        wide.follower()


def test_a_run_may_only_tighten_the_limits():
    table, joints = load_cell(CONFIG), cell()
    slow = RunLimits(max_tool_speed=0.2, max_joint_speed=1.0, max_tool_force_n=30.0).on(table)
    assert (slow.limits.max_tool_speed, slow.limits.max_joint_speed) == (0.2, 1.0)
    assert slow.supervisor.max_tool_force_n == 30
    assert RunLimits().on(table) == table
    assert RunLimits(max_joint_speed=0.5).on(joints).joints.limits.speed == (0.5,) * 6
    for wide in (
        RunLimits(max_tool_speed=0.6),
        RunLimits(max_joint_speed=9.0),
        RunLimits(max_tool_force_n=500.0),
        RunLimits(max_tool_speed=-1.0),
        RunLimits(max_tool_speed=float("nan")),
    ):
        with pytest.raises(ConfigError, match="tighten"):
            wide.on(table)


def test_a_start_of_another_arm_is_refused():
    motion = cell().motion()
    with pytest.raises(DataError, match="6 joints"):
        motion.start(Condition("c", 0, {JOINT_POSITION: (0.0,) * 7}))
    unchanged = dataclasses.replace(cell(), lift_m=0.2).motion()
    assert unchanged.start(Condition("c", 0, {})) == []
