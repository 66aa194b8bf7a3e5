"""robosuite's tasks as envs: the contract, its units against robosuite, resets, pictures, names."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import DataError, SceneError
from robolearn.geometry import rotation_from_quat, rotvec_from_rotation
from robolearn.types import Command, Condition
from sim.worlds import make_world
from tests.contracts import EnvContract

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("robosuite") is None, reason="robosuite is not installed (an extra)"
)
CUBE = "cube/pose"


class TestLift(EnvContract):
    def make(self) -> Env:
        return make_world("robosuite/Lift")

    def condition(self, seed: int) -> Condition:
        angle = 0.3 * seed
        pose = (0.01 * seed, -0.02, 0.83, np.cos(angle), 0.0, 0.0, np.sin(angle))
        return Condition(id=f"lift-{seed}", seed=seed, poses={CUBE: pose})


@pytest.fixture(scope="module")
def lift() -> Any:
    env = make_world("robosuite/Lift")
    yield env
    env.close()


def start(env: Any, seed: int = 0) -> None:
    env.reset(env.sample_condition(seed), np.random.default_rng(0))


def push(env: Any, seq: int, **parts: Any) -> None:
    action = {a.name: np.zeros(a.shape) for a in env.spec.actions}
    action |= {name.replace("__", "/"): np.array(v, dtype=float) for name, v in parts.items()}
    env.apply(Command(seq=seq, action=action, due_ns=env.now_ns(), source="test"))
    env.advance()
    env.drain()


def test_signals_are_what_robosuite_observes(lift: Any) -> None:
    start(lift, 4)
    for seq in range(3):
        push(lift, seq, tool__delta_pose=[0.02, 0, -0.01, 0, 0, 0.1])
    seen = lift._env._get_observations(force_update=True)
    values = {name: sample.value for name, sample in lift.observe().samples.items()}
    np.testing.assert_allclose(values["arm/joint_position"], seen["robot0_joint_pos"])
    np.testing.assert_allclose(values["tool/pose"][:3], seen["robot0_eef_pos"], atol=1e-12)
    np.testing.assert_allclose(values[CUBE][:3], seen["cube_pos"], atol=1e-12)
    # robosuite's quaternions are xyzw.
    wxyz = np.roll(seen["cube_quat"], 1)
    assert abs(values[CUBE][3:] @ wxyz) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(values["gripper/width"], np.ptp(seen["robot0_gripper_qpos"]))


def test_the_set_point_is_what_the_next_command_moves(lift: Any) -> None:
    start(lift, 4)
    assert lift.signals()["gripper/set_point"] == pytest.approx([0.02, -0.02])
    for seq, opens in enumerate((-1.0, -1.0, 1.0)):
        push(lift, seq, gripper__command=[opens])
        told = lift.signals()["gripper/set_point"]
        np.testing.assert_allclose(told, lift.data.ctrl[lift._drives], atol=1e-12)
        np.testing.assert_allclose(told[0], 0.02 + 0.004 * (1, 2, 1)[seq], atol=1e-9)
    start(lift, 4)
    assert lift.signals()["gripper/set_point"] == pytest.approx([0.02, -0.02])


def test_the_tool_is_asked_for_metres_and_radians(lift: Any) -> None:
    start(lift)
    before = lift.observe().value("tool/pose")
    base = lift.data.body("robot0_base").xpos
    push(lift, 0, tool__delta_pose=[0.05, -0.02, 0.03, 0, 0, 0.5])
    controller = lift._robot.part_controllers["right"]
    np.testing.assert_allclose(controller.goal_pos + base - before[:3], [0.05, -0.02, 0.03], 1e-6)
    turned = controller.goal_ori @ rotation_from_quat(before[3:]).T
    np.testing.assert_allclose(rotvec_from_rotation(turned), [0, 0, 0.5], atol=1e-6)
    # robosuite's gains follow an eighth of that per tick.
    moved = lift.observe().value("tool/pose")[:3] - before[:3]
    assert 0.002 < moved[0] < 0.02


def test_starts_are_drawn_from_the_seed_alone(lift: Any) -> None:
    starts = []
    for seed in (1, 2, 1):
        start(lift, seed)
        starts.append(lift.state())
    assert np.array_equal(starts[0], starts[2])
    assert np.abs(starts[0] - starts[1]).max() > 1e-3


def test_a_state_can_be_set(lift: Any) -> None:
    start(lift, 5)
    push(lift, 0)
    state = lift.state()
    seen = lift.signals()
    start(lift, 6)
    lift.set_state(state)
    assert np.array_equal(lift.state(), state)
    # robosuite computes its own vector from the poses of one physics step ago.
    names = [s.name for s in lift.spec.signals if s.name != "object/state"]
    for name in names:
        value = lift.signals()[name]
        np.testing.assert_allclose(value, seen[name], atol=1e-12, err_msg=name)
    with pytest.raises(DataError, match="expected a finite state"):
        lift.set_state(state[:-1])


def test_lifting_the_cube_is_success_and_ends_the_task(lift: Any) -> None:
    start(lift)
    state = lift.state()
    # Time, then seven arm joints, two fingers, and the cube's free joint.
    state[1 + 9 + 2] = 0.95
    lift.set_state(state)
    push(lift, 0)
    outcome = lift.outcome()
    assert outcome.success
    assert outcome.terminal
    assert outcome.progress == 1.0
    assert outcome.reason == "success"


def test_cameras_on_request() -> None:
    env = make_world("robosuite/Lift,camera=agentview+robot0_eye_in_hand,size=48")
    start(env)
    images = [env.observe().value(f"{c}/image") for c in ("agentview", "robot0_eye_in_hand")]
    assert all(i.shape == (48, 48, 3) and i.dtype == np.uint8 for i in images)
    # Tables, robot and background: many colours, and two cameras see different things.
    assert all(len(np.unique(i.reshape(-1, 3), axis=0)) > 50 for i in images)
    assert np.abs(images[0].astype(int) - images[1]).mean() > 5
    env.close()


def test_other_robots_and_controllers() -> None:
    env = make_world("robosuite/Lift,robot=UR5e,control=joint")
    assert [a.name for a in env.spec.actions] == ["arm/joint_position", "gripper/command"]
    assert env.spec.actions[0].high == (0.05,) * 6
    start(env)
    before = env.observe().value("arm/joint_position")
    push(env, 0, arm__joint_position=[0.05, 0, 0, 0, 0, 0])
    moved = env.observe().value("arm/joint_position") - before
    assert moved[0] > 0.001
    assert np.abs(moved[1:]).max() < moved[0]
    env.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("robosuite/Lifft", "Did you mean 'Lift'"),
        ("robosuite/Lift,robot=Pandaa", "Did you mean 'Panda'"),
        ("robosuite/Lift,colour=red", "no option 'colour'"),
        ("robosuite/Lift,robot", "expected options like"),
        ("robosuite/Lift,camera=moon", "no camera 'moon'"),
        ("robosuite/Lift,size=ten", "8 to 1024"),
    ],
)
def test_wrong_names_are_explained(name: str, message: str) -> None:
    with pytest.raises(SceneError, match=message):
        make_world(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", ["Stack", "Can", "PickPlace", "Square", "NutAssembly", "Door", "Wipe", "ToolHang"]
)
def test_every_task_keeps_the_contract(task: str) -> None:
    class OfTask(EnvContract):
        def make(self) -> Env:
            return make_world(f"robosuite/{task}")

        def condition(self, seed: int) -> Condition:
            return Condition(id=f"{task}-{seed}", seed=seed, poses={})

    contract = OfTask()
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()
