"""The same scene in Bullet: kinematics, rest poses and motion agree with MuJoCo."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import SceneError
from robolearn.geometry import pose_error
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition
from sim.worlds import build_operator, make_world
from tests.contracts import EnvContract


class TestPickPlaceInBullet(EnvContract):
    # Joints and poses go through Bullet's floats.
    exact = 1e-6

    def make(self) -> Env:
        return make_world("pybullet/pick_place")

    def condition(self, seed: int) -> Condition:
        return make_world("pick_place").sample_condition(seed)


@pytest.fixture(scope="module")
def worlds() -> Any:
    pair = (make_world("pick_place"), make_world("pybullet/pick_place"))
    yield pair
    for world in pair:
        world.close()


def matrix(position: np.ndarray, R: np.ndarray) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R, position
    return T


def run(world: Any, seed: int, ticks: int, move: np.ndarray) -> list[dict[str, np.ndarray]]:
    world.reset(world.sample_condition(seed), np.random.default_rng(0))
    start = world.observe().value("tool/pose")
    rows = []
    for seq in range(ticks):
        target = np.array([*start[:3], 0.0]) + move * min(1.0, seq / 20)
        action = {"tool/xyz_yaw": target, "gripper/width": np.array([0.06])}
        world.apply(Command(seq, action, world.now_ns(), "test"))
        world.advance()
        world.drain()
        rows.append({n: s.value for n, s in world.observe().samples.items()})
    return rows


def test_forward_kinematics_agree(worlds: Any) -> None:
    _, bullet = worlds
    bullet.reset(bullet.sample_condition(0), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    for _ in range(5):
        low, high = bullet.model.jnt_range[:9].T
        bullet.data.qpos[:9] = rng.uniform(low, high)
        mujoco.mj_kinematics(bullet.model, bullet.data)
        bullet._push_state()
        for body in bullet._bodies:
            T_bullet = matrix(*bullet.link_pose(body))
            T_mujoco = matrix(bullet.data.xpos[body], bullet.data.xmat[body].reshape(3, 3))
            distance, angle = pose_error(T_bullet, T_mujoco)
            assert distance < 1e-5, bullet.model.body(body).name
            assert angle < 1e-4, bullet.model.body(body).name


def test_masses_and_inertias_agree(worlds: Any) -> None:
    _, bullet = worlds
    bullet.reset(bullet.sample_condition(0), np.random.default_rng(0))
    for body, (unit, link) in bullet._bodies.items():
        info = bullet._p.getDynamicsInfo(unit, link, **bullet._id)
        if bullet.model.body_mass[body] > 0:
            np.testing.assert_allclose(info[0], bullet.model.body_mass[body], rtol=1e-6)
            np.testing.assert_allclose(info[2], bullet.model.body_inertia[body], rtol=1e-5)


def test_objects_rest_where_they_rest_in_mujoco(worlds: Any) -> None:
    poses = [run(world, 3, 20, np.zeros(4))[-1]["cube/pose"] for world in worlds]
    assert np.abs(poses[0][:3] - poses[1][:3]).max() < 1e-3
    assert 2 * np.arccos(min(1.0, abs(poses[0][3:] @ poses[1][3:]))) < np.radians(1.0)


def test_the_same_commands_move_the_tool_alike(worlds: Any) -> None:
    move = np.array([0.08, -0.06, -0.05, 0.3])
    first, second = (run(world, 3, 30, move) for world in worlds)
    apart = [
        np.linalg.norm(a["tool/pose"][:3] - b["tool/pose"][:3])
        for a, b in zip(first, second, strict=True)
    ]
    # A stiff motor and a position servo: a few millimetres on the way, one at rest.
    assert max(apart) < 0.01
    assert apart[-1] < 0.002
    assert abs(first[-1]["gripper/width"][0] - second[-1]["gripper/width"][0]) < 0.002


@pytest.mark.slow
@pytest.mark.parametrize("scene", ["pick_place", "drawer", "panda_bimanual"])
def test_the_expert_succeeds_in_another_engine(scene: str) -> None:
    world = make_world(f"pybullet/{scene}")
    agent = build_operator(world, "scripted", 0.0)
    solved = 0
    for seed in range(100, 105):
        condition = world.sample_condition(seed)
        result = run_episode(world, agent, None, [], condition, max_steps=world.max_steps)
        solved += result.outcome.success
    world.close()
    assert solved >= 4


def test_what_bullet_cannot_rebuild_is_said() -> None:
    with pytest.raises(SceneError, match="explicit contact pairs"):
        make_world("pybullet/pusht_ur5e")
    with pytest.raises(SceneError, match="Did you mean 'pick_place'"):
        make_world("pybullet/pick_plac")
