"""A pick in the virtual lab: unmodified ``ur_rtde`` and the Robotiq driver, physical fingers.

The same pick in process, at the gripper's socket protocol, is
``tests/sim/plants/test_grip_plant.py``.
"""

import dataclasses

import numpy as np
import pytest
import yaml

from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from hardware.devices.gripper_config import WIDTH
from hardware.emulators.lab.launch import LabProcess
from hardware.emulators.plant import KinematicPlant
from hardware.env.real_env import RealEnv
from hardware.supervisor.link import Cause
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError, GripperError, RobotError
from robolearn.geometry import pose, rot_x
from robolearn.operations.lab.workcell import build_fingers, load_lab
from robolearn.runtime import run_episode
from robolearn.types import Condition
from tests.hardware.env.test_real_env_gripper import watch
from tests.hardware.joint_wave import NoTask, Scripted
from tests.hardware.lab import CONFIG, address
from tests.hardware.real_cell import PATIENT
from tests.mocks import Listener

GRIPPER_LAB = CONFIG.with_name("lab_ur5e_gripper.yaml")
# The table's frame in the arm's base frame, and the fingers' tips before the flange: ur5e_table.
TABLE_X_M, REACH_M = 0.5, 0.145
CUBE = (0.06, -0.05, 0.0)
OPEN = 0.085


def joints_over(x, y, z, near):
    """Joint positions with the fingers' tips at a place on the table, pointing down."""
    T_base_tool = pose(rot_x(np.pi), (TABLE_X_M + x, y, z))
    return UR5E.ik(T_base_tool @ pose(None, (0.0, 0.0, -REACH_M)), np.array(near))


class Pick(Scripted):
    """Down, close, up: joint targets and widths by time, in ``ticks``."""

    name = "pick"

    def __init__(self, home, ticks=14):
        above = joints_over(*CUBE[:2], 0.12, home)
        down = joints_over(*CUBE[:2], 0.02, above)
        self.stages = [(above, above, OPEN), (above, down, OPEN), (down, down, 0.0)]
        self.stages += [(down, above, 0.0), (above, above, 0.0)]
        self.start, self.ticks = above, ticks

    def action(self, k):
        stage, tick = divmod(k, self.ticks)
        begin, end, width = self.stages[min(stage, len(self.stages) - 1)]
        share = min(1.0, 1.5 * (tick + 1) / self.ticks)
        return {JOINT_POSITION: begin + share * (end - begin), WIDTH: np.array([width])}


@pytest.fixture(scope="module")
def lab():
    with LabProcess(GRIPPER_LAB, address=address(70), seed=4) as made:
        yield made


@pytest.fixture(scope="module")
def client(lab):
    with lab.where.connect() as made:
        yield made


@pytest.fixture(scope="module")
def env(lab, client):
    cell = load_cell(GRIPPER_LAB)
    where = lab.where.address
    gripper = cell.gripper
    driver = {**gripper.driver, "address": where, "answer_s": 0.5}
    made = RealEnv(
        dataclasses.replace(
            cell,
            driver={**cell.driver, "address": where, "watchdog_hz": 5.0},
            gripper=dataclasses.replace(gripper, driver=driver, max_age_s=2.0),
            supervisor=dataclasses.replace(PATIENT, goto_speed=1.4, goto_acceleration=6.0),
        ),
        place=lambda _: client.place("cube", CUBE) or "placed by the lab",
        scorer=NoTask(),
    )
    yield made
    made.close()


def heights(client):
    return client.call("gripper")["heights_m"]["cube"]


@pytest.mark.slow
def test_a_cube_is_picked_with_unmodified_drivers(env, client):
    agent, listener = Pick(env.config.joints.home), Listener()
    condition = Condition("pick", 0, {JOINT_POSITION: tuple(agent.start)})
    result = run_episode(env, agent, None, [listener], condition, max_steps=5 * agent.ticks)
    env.hold()
    assert result.steps == 5 * agent.ticks
    # A machine that is shared may make the agent late: the arm holds, and goes on.
    assert {e.cause for e in env.interventions} <= {Cause.AGENT_LATE, Cause.AGENT_BACK}
    truth = client.call("gripper")
    assert truth["heights_m"]["cube"] > 0.08, "the cube hangs in the air"
    state = env.supervisor.gripper_state()
    assert state.holding
    # Counts of the gripper are 0.4 mm wide; the pads give way by less than a millimetre.
    assert state.width_m == pytest.approx(truth["width_m"], abs=5e-4)
    assert state.width_m == pytest.approx(0.04, abs=2e-3)
    widths = np.concatenate([t.drained.signals[WIDTH].value[:, 0] for t in listener.ticks])
    assert widths.max() > 0.08
    assert widths.min() == pytest.approx(state.width_m, abs=1e-3)
    sent = np.concatenate([t.drained.sent.action[WIDTH][:, 0] for t in listener.ticks])
    assert (sent.min(), sent.max()) == (0.0, OPEN)


@pytest.mark.slow
def test_a_stop_of_the_arm_does_not_drop_the_cube(env, client):
    before = heights(client)
    assert before > 0.08
    env.estop()
    with pytest.raises(RobotError):
        env.observe()
    assert heights(client) == pytest.approx(before, abs=2e-3)
    env.clear_stop()
    assert heights(client) == pytest.approx(before, abs=2e-3)
    assert env.supervisor.gripper_state().holding


@pytest.mark.slow
def test_a_gripper_that_falls_silent_stops_the_arm_until_the_operator_clears(env, client):
    client.fault("gripper_mute")
    with pytest.raises(GripperError, match=r"gripper_(fault|stale)"):
        watch(env, 10.0)
    client.fault("gripper_listen")
    env.clear_stop()
    assert env.supervisor.gripper_state().width_m < OPEN + 1e-3


def test_a_lab_without_fingers_says_so(tmp_path):
    raw = yaml.safe_load(CONFIG.read_text())
    raw["lab"]["devices"]["gripper"] = {}
    config = tmp_path / "lab.yaml"
    config.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match="round tool"):
        build_fingers(load_lab(config), KinematicPlant(np.zeros(6)))
