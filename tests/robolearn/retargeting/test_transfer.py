"""A way carried over follows its objects; where nothing moved it is the recorded one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.errors import SpecMismatchError
from robolearn.geometry import (
    inverse,
    pose,
    pose_error,
    quat_from_rotation,
    rot_z,
    rotation_from_rotvec,
)
from robolearn.retargeting.commands import nearest_turns, poses_of, tool_action, values_of
from robolearn.retargeting.strata import strata
from robolearn.retargeting.transfer import (
    Pace,
    Transfer,
    bridge,
    mended_grasp,
    moved_frame,
    pose_of,
    steps,
)
from robolearn.spec import ActionSpec, EmbodimentSpec

seeds = st.integers(0, 10_000)


def some_pose(rng: np.random.Generator, scale: float = 0.3) -> np.ndarray:
    return pose(rotation_from_rotvec(rng.normal(size=3)), scale * rng.normal(size=3))


def seven(T: np.ndarray) -> np.ndarray:
    return np.concatenate([T[:3, 3], quat_from_rotation(T[:3, :3])])


def some_way(rng: np.random.Generator, n: int = 30) -> np.ndarray:
    """A way that goes on in small steps."""
    T, rows = some_pose(rng), []
    step = pose(rotation_from_rotvec(0.02 * rng.normal(size=3)), 0.01 * rng.normal(size=3))
    for _ in range(n):
        rows.append(seven(T))
        T = T @ step
    return np.array(rows)


def same(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(a[:, :3], b[:, :3], atol=1e-9)
    # Of a rotation's two quaternions either.
    np.testing.assert_allclose(np.abs((a[:, 3:] * b[:, 3:]).sum(axis=1)), 1.0, atol=1e-9)


@settings(max_examples=8)
@given(seed=seeds)
def test_transfers_compose_and_undo_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    way, (A, B, C, D) = some_way(rng), (some_pose(rng) for _ in range(4))
    twice = Transfer(A, C).apply(Transfer(B, D).apply(way))
    same(twice, Transfer(A @ B, D @ C).apply(way))
    same(Transfer(inverse(A), inverse(C)).apply(Transfer(A, C).apply(way)), way)
    same(Transfer(A, C).apply(way), np.array([seven(A @ pose_of(row) @ C) for row in way]))


@settings(max_examples=8)
@given(seed=seeds)
def test_a_bridge_between_equal_transfers_is_the_recorded_way_moved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    way, moved = some_way(rng), Transfer(some_pose(rng), some_pose(rng, 0.0))
    for transfer in (Transfer(), moved):
        found = bridge(way, 4, 22, transfer, transfer, Pace.of(way))
        np.testing.assert_array_equal(found.ticks, np.arange(5, 22))
        same(found.way, transfer.apply(way[5:22]))


@settings(max_examples=8)
@given(seed=seeds)
def test_a_scene_that_moves_as_a_whole_moves_the_bridge_with_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    way, G = some_way(rng), some_pose(rng)
    a, b = Transfer(some_pose(rng, 0.1)), Transfer(some_pose(rng, 0.1), some_pose(rng, 0.01))
    pace = Pace.of(way)
    here = bridge(way, 3, 20, a, b, pace)
    there = bridge(way, 3, 20, Transfer(G @ a.M, a.C), Transfer(G @ b.M, b.C), pace)
    np.testing.assert_allclose(there.ticks, here.ticks)
    same(there.way, Transfer(G).apply(here.way))


@settings(max_examples=8)
@given(seed=seeds)
def test_a_bridge_is_never_faster_than_the_demonstration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    way, pace = some_way(rng), Pace(0.02, 0.1)
    a, b = Transfer(some_pose(rng)), Transfer(some_pose(rng))
    for first, last in ((3, 20), (7, 8)):
        found = bridge(way, first, last, a, b, pace)
        ends = a.apply(way[first : first + 1]), b.apply(way[last : last + 1])
        lengths, angles = steps(np.concatenate([ends[0], found.way, ends[1]]))
        assert lengths.max() <= pace.metres * (1 + 1e-6)
        assert angles.max() <= pace.radians * (1 + 1e-6)
        assert (np.diff(found.ticks) > 0).all()


@settings(max_examples=8)
@given(seed=seeds)
def test_objects_take_the_tool_with_them_and_grasps_are_mended(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = seven(some_pose(rng)), seven(some_pose(rng))
    M = moved_frame(before, after, level=False)
    assert max(pose_error(M @ pose_of(before), pose_of(after))) < 1e-7
    flat = moved_frame(before, after, level=True)
    np.testing.assert_allclose(flat @ [*before[:3], 1.0], [*after[:3], 1.0], atol=1e-9)
    np.testing.assert_allclose(flat[2, :3], [0.0, 0.0, 1.0], atol=1e-12)
    # What is held otherwise than it was ends where it ended.
    tool, held, tool_now, held_now = (seven(some_pose(rng)) for _ in range(4))
    C = mended_grasp(tool, held, tool_now, held_now, level=False)
    grip = inverse(pose_of(tool_now)) @ pose_of(held_now)
    target = M @ pose_of(tool) @ C
    assert max(pose_error(target @ grip, M @ pose_of(held))) < 1e-6


def test_commands_are_poses_and_back() -> None:
    rng = np.random.default_rng(0)
    yawed = ActionSpec("tool/xyz_yaw", (4,), "m, m, m, rad")
    rows = rng.uniform(-1.0, 1.0, (20, 4))
    way = poses_of(yawed, rows)
    np.testing.assert_allclose(values_of(yawed, way), rows, atol=1e-9)
    # The tool points down.
    np.testing.assert_allclose(pose_of(way[0])[:3, 2], [0.0, 0.0, -1.0], atol=1e-12)
    turned = Transfer(pose(rot_z(0.5))).apply(way)
    np.testing.assert_allclose(values_of(yawed, turned)[:, 3], rows[:, 3] + 0.5, atol=1e-9)
    flat = ActionSpec("tool/xy_table", (2,), "m")
    np.testing.assert_allclose(values_of(flat, poses_of(flat, rows[:, :2])), rows[:, :2])
    whole = ActionSpec("tool/pose", (7,), "m, quaternion wxyz")
    np.testing.assert_array_equal(values_of(whole, poses_of(whole, way)), way)
    np.testing.assert_allclose(
        nearest_turns(np.array([0.1, 0.2]), 6.0), np.array([0.1, 0.2]) + 2 * math.pi
    )


def test_one_absolute_place_of_the_tool_is_commanded() -> None:
    width = ActionSpec("gripper/width", (1,), "m")
    yawed = ActionSpec("tool/xyz_yaw", (4,), "m, m, m, rad")
    joints = ActionSpec("arm/joint_position", (7,), "rad")
    delta = ActionSpec("tool/pose", (7,), "m, quaternion wxyz", mode="relative")
    assert tool_action(EmbodimentSpec("a", (), (yawed, width), 20.0)) == yawed
    for actions in ((width,), (joints,), (delta,), (yawed, joints), (yawed, yawed)):
        with pytest.raises(SpecMismatchError, match="one absolute place of the tool"):
            tool_action(EmbodimentSpec("b", (), actions, 20.0))


@settings(max_examples=8)
@given(seed=seeds, n=st.integers(1, 13))
def test_strata_are_equal_and_do_not_overlap(seed: int, n: int) -> None:
    draws = np.random.default_rng(seed).normal(size=(n * 8, 3))
    draws[:, 1] = 2.0
    parts = strata(draws, n)
    assert [len(p) for p in parts] == [8] * n
    assert sorted(int(row) for p in parts for row in p) == list(range(n * 8))
    if n == 2:
        # Cut in the middle of one of the numbers.
        low, high = (draws[p] for p in parts)
        assert any(low[:, k].max() <= high[:, k].min() for k in (0, 2))
    with pytest.raises(ValueError, match="do not part into"):
        strata(draws, 8 * n + 1)
