"""A cell that is commanded by its tool's pose, over the fake robot."""

import dataclasses

import numpy as np
import yaml

from hardware.cell.config import CellConfig
from hardware.cell.motion import TOOL_POSE
from hardware.env.real_env import RealEnv
from robolearn.config import from_dict
from robolearn.runtime import run_episode
from robolearn.types import Condition
from tests.hardware.joint_wave import NoTask, Scripted
from tests.mocks import Listener

HOME = (2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407)
CELL = f"""
name: tool_cell
driver: {{kind: fake, joint_position: {list(HOME)}, watchdog_s: 5.0}}
arm: ur5e
tool:
  frame: {{origin_m: [0.5, 0.0, 0.0]}}
  tool_offset_m: [0.0, 0.0, 0.145]
  fingers_m: 0.03
  home: {list(HOME)}
  limits:
    workspace_low: [-0.25, -0.4, 0.005]
    workspace_high: [0.25, 0.4, 0.5]
rate_hz: 20
# Nothing here is about lateness: a busy machine must not stop the arm.
supervisor: {{late_s: 2.0, heartbeat_s: 2.0, frozen_s: 5.0, state_late_s: 1.0, state_stale_s: 2.0,
  goto_speed: 2.0, goto_acceleration: 12.0}}
"""
START = (0.02, 0.03, 0.2, 0.0, 1.0, 0.0, 0.0)


def cell(**tool) -> CellConfig:
    made = from_dict(CellConfig, yaml.safe_load(CELL), "cell")
    return dataclasses.replace(made, tool=dataclasses.replace(made.tool, **tool))


class Towards(Scripted):
    """Commands the same values at every tick."""

    name = "towards"

    def __init__(self, action, value):
        self.commanded = {action: np.array(value)}

    def action(self, k):
        return self.commanded


def test_an_episode_of_a_tools_pose_is_run_and_reported():
    env = RealEnv(cell(), place=lambda _: "nothing to place", scorer=NoTask())
    listener = Listener()
    goal = (0.05, 0.0, 0.18, 0.2)
    try:
        condition = Condition("c", 1, {TOOL_POSE: START})
        agent = Towards("tool/xyz_yaw", goal)
        result = run_episode(env, agent, None, [listener], condition, max_steps=25)
        assert "tool/pose off by 0." in result.reset.note
        np.testing.assert_allclose(result.reset.achieved[TOOL_POSE], START, atol=2e-3)
        sent = np.concatenate([t.drained.sent.action["tool/xyz_yaw"] for t in listener.ticks])
        np.testing.assert_allclose(sent[-1], goal, atol=2e-3)
        at = listener.ticks[-1].observation.value(TOOL_POSE)
        np.testing.assert_allclose(at[:3], goal[:3], atol=5e-3)
        assert env.interventions == []
        env.home()
        q = env.supervisor.state().joint_position
        np.testing.assert_allclose(q, HOME, atol=5e-3)
    finally:
        env.close()
