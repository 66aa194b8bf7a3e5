"""The expert of the scene drives the virtual lab: RTDE, the gripper's socket, tracked in space."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from eval.trials.suites import load_suite
from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from robolearn.arms.tool_commands import values_from_pose
from robolearn.geometry import (
    pose,
    rot_x,
    rot_y,
    rot_z,
    rotation_from_quat,
    rotvec_from_rotation,
)
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.placing import LabPlacement
from robolearn.operations.cell.scoring import LabScorer
from robolearn.operations.deploy.task import task_of
from robolearn.operations.lab.workcell import load_lab
from robolearn.runtime import run_episode
from robolearn.spec import diff_task_spaces
from sim.experts.registry import build_expert
from sim.worlds import make_world
from tests.hardware.joint_wave import Towards
from tests.hardware.lab import CONFIG, address
from tests.hardware.real_cell import PATIENT
from tests.mocks import Listener

ROBOT = CONFIG.with_name("lab_ur5e_pick_place.yaml")
WHOLE_POSE = CONFIG.with_name("lab_ur5e_tool_pose.yaml")
SUITE = Path(__file__).parents[4] / "configs/eval/pick_place.yaml"
OBSERVED = ["tool/pose", "gripper/width", "cube/pose", "goal/pose", "arm/joint_position"]


def test_a_policy_of_the_scene_fits_the_cell_and_the_other_way_round():
    scene, cell = make_world("pick_place_ur5e").spec, cell_spec(load_cell(ROBOT))
    assert diff_task_spaces(scene.task_space(OBSERVED), cell) == []
    assert diff_task_spaces(cell.task_space(OBSERVED), scene) == []
    # What the cell allows is what the scene allows.
    for here, there in zip(cell.actions, scene.actions, strict=True):
        assert (here.name, here.low, here.high) == (there.name, there.low, there.high)


@contextlib.contextmanager
def connected(robot, lab):
    """The cell of a file in the lab."""
    cell, where = load_cell(robot), lab.where.address
    udp = dataclasses.replace(cell.trackers["cube/pose"].udp, address=where, max_age_s=1.0)
    gripper = {**cell.gripper.driver, "address": where, "answer_s": 0.5}
    cell = dataclasses.replace(
        cell,
        driver={**cell.driver, "address": where, "watchdog_hz": 5.0},
        gripper=dataclasses.replace(cell.gripper, driver=gripper, max_age_s=2.0),
        trackers={"cube/pose": dataclasses.replace(cell.trackers["cube/pose"], udp=udp)},
        supervisor=dataclasses.replace(PATIENT, goto_speed=1.4, goto_acceleration=6.0),
    )
    task = task_of(load_suite(SUITE), cell, robot, SUITE)
    with lab.where.connect() as client:
        objects = {"cube/pose": "cube"}
        scorer = LabScorer(client, task, objects)
        made = RealEnv(cell, place=LabPlacement(client, objects), scorer=scorer)
        with contextlib.closing(made):
            yield made


@pytest.fixture
def lab():
    with LabProcess(ROBOT, address=address(71), seed=4) as made:
        yield made


@pytest.fixture
def env(lab):
    with connected(ROBOT, lab) as made:
        yield made


@pytest.mark.slow
def test_the_expert_of_the_scene_picks_and_places_in_the_lab(env, lab):
    agent, won = build_expert("pick_place", env.spec), 0
    for condition in load_suite(SUITE).select(10):
        listener = Listener()
        watching = [listener, HoldAtEnd(env)]
        result = run_episode(env, agent, None, watching, condition, max_steps=300)
        won += result.outcome.success
        poses = np.concatenate([t.drained.signals["cube/pose"].value for t in listener.ticks])
        assert poses[:, 2].max() > 0.08, "the tracker saw the cube lifted"
        wrench = np.concatenate([t.drained.signals["tool/wrench"].value for t in listener.ticks])
        assert np.isfinite(wrench).all()
        assert np.abs(wrench).max() > 0.3, "the weight of the cube, at least"
        np.testing.assert_allclose(np.linalg.norm(poses[:, 3:], axis=1), 1.0, atol=1e-9)
        with lab.where.connect() as client:
            goal = client.truth().poses["goal"]
        np.testing.assert_allclose(goal, condition.poses["goal/pose"], atol=1e-6)
    assert won >= 9


def test_the_cell_of_the_whole_pose_is_the_same_lab():
    assert load_lab(WHOLE_POSE) == load_lab(ROBOT)
    down, whole = load_cell(ROBOT), load_cell(WHOLE_POSE)
    tool = dataclasses.replace(whole.tool, action=down.tool.action)
    assert dataclasses.replace(whole, name=down.name, tool=tool) == down
    assert whole.tool.action == "tool/pose"


@pytest.mark.slow
def test_an_arm_commanded_by_the_whole_pose_leans_over_and_closes_its_fingers():
    place, tilt = (0.05, 0.05, 0.22), 0.35
    goal = values_from_pose(pose(rot_z(0.2) @ rot_x(np.pi) @ rot_y(tilt), place))
    condition = load_suite(SUITE).select(1)[0]
    agent, listener = Towards({"tool/pose": goal, "gripper/width": [0.02]}), Listener()
    with (
        LabProcess(WHOLE_POSE, address=address(72), seed=4) as lab,
        connected(WHOLE_POSE, lab) as env,
    ):
        run_episode(env, agent, None, [listener, HoldAtEnd(env)], condition, max_steps=50)
        with lab.where.connect() as client:
            assert "protective_stop" not in {e.kind for e in client.log().events}
    seen = listener.ticks[-1].observation
    at = seen.value("tool/pose")
    np.testing.assert_allclose(at[:3], place, atol=5e-3)
    off = rotation_from_quat(at[3:]).T @ rotation_from_quat(goal[3:])
    assert np.linalg.norm(rotvec_from_rotation(off)) < 0.02
    assert seen.value("gripper/width")[0] == pytest.approx(0.02, abs=0.005)
    sent = np.concatenate([t.drained.sent.action["tool/pose"] for t in listener.ticks])
    np.testing.assert_allclose(sent[-1], goal, atol=2e-3)
