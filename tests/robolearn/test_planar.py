"""Moves over a table are isometries, undo each other, and leave alone what has no place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.chunks.mirror import Mirror, MirrorConfig
from robolearn.errors import SpecMismatchError
from robolearn.geometry import quat_from_rotation, rotation_from_rotvec
from robolearn.planar import PlanarMove, blend, kind_of
from robolearn.spec import ActionSpec, SignalSpec, TaskSpace

POSE = SignalSpec("cube/pose", (7,), "m, quaternion wxyz")
YAWED = ActionSpec("tool/xyz_yaw", (4,), "m, m, m, rad")
BLOCK = SignalSpec("block/pose", (3,), "m, m, rad", angular=(2,))
PLACE = SignalSpec("tool/xy_table", (2,), "m")
JOINTS = SignalSpec("arm/joint_position", (7,), "rad")
WIDTH = ActionSpec("gripper/width", (1,), "m")

angle, length = st.floats(-3.0, 3.0), st.floats(-0.5, 0.5)


def _pose(rng: np.random.Generator) -> np.ndarray:
    q = quat_from_rotation(rotation_from_rotvec(rng.normal(size=3)))
    return np.concatenate([rng.normal(size=3), q])


@settings(max_examples=30)
@given(turn=angle, x=length, y=length, axis=st.floats(-180, 180), body=st.floats(-90, 90))
def test_distances_stay_and_a_move_is_undone(turn, x, y, axis, body) -> None:
    rng = np.random.default_rng(0)
    rows = np.stack([_pose(rng) for _ in range(4)])
    there = PlanarMove(turn, (x, y), (y, x))
    moved = there.apply(POSE, rows)
    apart = np.linalg.norm(rows[1:, :3] - rows[:-1, :3], axis=1)
    np.testing.assert_allclose(np.linalg.norm(np.diff(moved[:, :3], axis=0), axis=1), apart)
    np.testing.assert_array_equal(moved[:, 2], rows[:, 2])
    back = PlanarMove(-turn, (x + y, y + x), (-y, -x))
    again = back.apply(POSE, moved)
    np.testing.assert_allclose(again[:, :3], rows[:, :3], atol=1e-9)
    # Of a rotation's two quaternions either.
    np.testing.assert_allclose(np.abs((again[:, 3:] * rows[:, 3:]).sum(axis=1)), 1.0, atol=1e-9)
    mirror = PlanarMove.reflection((x, y), axis, body)
    twice = mirror.apply(POSE, mirror.apply(POSE, rows))
    np.testing.assert_allclose(twice[:, :3], rows[:, :3], atol=1e-9)
    np.testing.assert_allclose(np.abs((twice[:, 3:] * rows[:, 3:]).sum(axis=1)), 1.0, atol=1e-9)


@settings(max_examples=30)
@given(turn=angle, x=length, y=length, yaw=angle, axis=st.floats(-180, 180))
def test_headings_and_attitudes_agree(turn, x, y, yaw, axis) -> None:
    """The pose of something that lies flat says the same as its x, y and yaw."""
    flat = np.array([0.1, 0.2, 0.0, math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)])
    for move in (PlanarMove(turn, (x, y), (y, x)), PlanarMove.reflection((x, y), axis, 30.0)):
        pose, planar = move.apply(POSE, flat), move.apply(BLOCK, np.array([0.1, 0.2, yaw]))
        np.testing.assert_allclose(pose[:2], planar[:2], atol=1e-12)
        heading = 2 * math.atan2(pose[6], pose[3])
        assert math.cos(heading - planar[2]) == pytest.approx(1.0, abs=1e-9)
        assert move.apply(YAWED, np.array([0.1, 0.2, 0.7, yaw]))[3] == pytest.approx(planar[2])


def test_a_goal_that_nobody_named_is_nowhere_and_stays_so() -> None:
    rng = np.random.default_rng(2)
    rows = np.stack([_pose(rng), np.zeros(7), _pose(rng)])
    for move in (PlanarMove(0.7, (0.1, 0.2), (0.3, 0.0)), PlanarMove.reflection((0.1, 0.2), 40.0)):
        moved = move.apply(POSE, rows)
        np.testing.assert_array_equal(moved[1], np.zeros(7))
        np.testing.assert_array_equal(move.apply(POSE, np.zeros(7)), np.zeros(7))
        for k in (0, 2):
            np.testing.assert_allclose(moved[k], move.apply(POSE, rows[k]), atol=1e-12)
    nowhere = np.zeros((2, 7))
    np.testing.assert_array_equal(blend("pose", nowhere, nowhere, np.array([0.0, 0.5])), nowhere)


def test_training_reflects_rows_as_episodes_are_reflected() -> None:
    """One arithmetic: the mirror of batches and the move of stores."""
    mirror = Mirror(
        MirrorConfig((0.25, 0.1), 30.0, 90.0, ("tool/xy_table",), ("block/pose",)),
        TaskSpace((PLACE, BLOCK), (ActionSpec("tool/xy_table", (2,), "m"),), 10.0),
    )
    move = PlanarMove.reflection((0.25, 0.1), 30.0, 90.0)
    values = np.random.default_rng(1).uniform(-0.4, 0.4, (5, 3))
    for spec, rows in ((BLOCK, values), (PLACE, values[:, :2])):
        torched = mirror.reflect(spec.name, torch.from_numpy(rows))
        np.testing.assert_allclose(move.apply(spec, rows), torched.numpy(), atol=1e-6)


def test_what_has_no_place_stays_and_joints_cannot_be_commanded_elsewhere() -> None:
    move = PlanarMove(1.0, (0.1, 0.2), (0.3, 0.0))
    assert [kind_of(s) for s in (POSE, YAWED, BLOCK, PLACE, JOINTS, WIDTH)] == [
        "pose", "xyz_yaw", "xy_yaw", "xy", "still", "still",
    ]  # fmt: skip
    joints, width = np.arange(7.0), np.array([0.04])
    assert move.apply(JOINTS, joints) is joints
    assert move.apply(WIDTH, width) is width
    with pytest.raises(SpecMismatchError, match=r"'arm/joint_position' .* cannot be moved"):
        move.apply(ActionSpec("arm/joint_position", (7,), "rad"), joints)
    step = ActionSpec("tool/step", (2,), "m", mode="relative")
    np.testing.assert_allclose(
        PlanarMove(math.pi / 2, (5.0, 5.0), (1.0, 1.0)).apply(step, np.array([0.1, 0.0])),
        [0.0, 0.1],
        atol=1e-15,
    )


def test_going_over_from_one_to_the_other_takes_the_short_way_round() -> None:
    before, after = np.array([[0.0, 0.0, 3.0]]), np.array([[1.0, 0.0, -3.0]])
    half = blend("xy_yaw", before, after, np.array([0.5]))
    assert half[0, 0] == 0.5
    assert math.cos(half[0, 2] - math.pi) == pytest.approx(1.0)
