"""What the network sees can be undone exactly: rotations, relative and delta actions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.geometry import inverse, pose, quat_from_rotation, rotation_from_quat
from robolearn.representation import (
    ActionKind,
    Representation,
    RepresentationConfig,
    from_six_d,
    to_six_d,
)
from robolearn.spec import ActionSpec, SignalSpec, TaskSpace

SPACE = TaskSpace(
    observations=(
        SignalSpec("tool/pose", (7,), "m, quaternion wxyz", 20.0, frame="table"),
        SignalSpec("gripper/width", (1,), "m", 20.0),
        SignalSpec("cube/pose", (7,), "m, quaternion wxyz", 20.0, frame="table"),
    ),
    actions=(
        ActionSpec("tool/pose", (7,), "m", 20.0, frame="table"),
        ActionSpec("gripper/width", (1,), "m", 20.0, low=(0.0,), high=(0.08,)),
        ActionSpec("tool/xyz_yaw", (4,), "m, m, m, rad", 20.0, frame="table"),
    ),
    rate_hz=20.0,
)


def quaternions(rng: np.random.Generator, *shape: int) -> np.ndarray:
    q = rng.normal(size=(*shape, 4))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)


def poses(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.concatenate([rng.uniform(-0.5, 0.5, (*shape, 3)), quaternions(rng, *shape)], axis=-1)


def batch(seed: int, b: int = 3, h: int = 5) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    observations = {
        "tool/pose": poses(rng, b, 2),
        "gripper/width": rng.uniform(0, 0.08, (b, 2, 1)),
        "cube/pose": poses(rng, b, 2),
    }
    observations = {k: v.astype(np.float32) for k, v in observations.items()}
    heading = np.concatenate(
        [rng.uniform(-0.5, 0.5, (b, h, 3)), rng.uniform(-np.pi, np.pi, (b, h, 1))], axis=-1
    )
    actions = np.concatenate([poses(rng, b, h), rng.uniform(0, 0.08, (b, h, 1)), heading], axis=-1)
    return actions.astype(np.float32), observations


KINDS = st.sampled_from(["absolute", "relative", "delta"])


@given(KINDS, KINDS, KINDS, st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_decoding_undoes_encoding(
    tool: ActionKind, width: ActionKind, heading: ActionKind, six_d: bool, fine: bool, seed: int
) -> None:
    kinds: dict[str, ActionKind] = {
        "tool/pose": tool,
        "gripper/width": width,
        "tool/xyz_yaw": heading,
    }
    resolutions = {
        name: (1e-3, 2e-3, 1e-3, 0.01)[: 3 if name == "tool/pose" else 4]
        for name in ("tool/pose", "tool/xyz_yaw")
        if fine and kinds[name] != "absolute"
    }
    representation = Representation(RepresentationConfig(kinds, six_d, resolutions), SPACE)
    actions, observations = batch(seed)
    chunk = representation.encode(actions, observations)
    assert chunk.shape == (3, 5, representation.inner.action_size)
    assert np.isfinite(chunk).all()
    back = representation.decode(chunk, observations)
    np.testing.assert_allclose(back[..., :3], actions[..., :3], atol=1e-6)
    np.testing.assert_allclose(back[..., 7:11], actions[..., 7:11], atol=1e-6)
    turned = np.abs(np.sum(back[..., 3:7] * actions[..., 3:7], axis=-1))
    np.testing.assert_allclose(turned, 1.0, atol=1e-6)
    np.testing.assert_allclose(np.cos(back[..., 11] - actions[..., 11]), 1.0, atol=1e-9)


def matrix(values: np.ndarray) -> np.ndarray:
    return pose(rotation_from_quat(values[3:].astype(float)), values[:3].astype(float))


def test_relative_poses_are_rigid_motions_from_where_the_tool_is() -> None:
    """Against 4x4 matrices: T_start^-1 T_target, and for delta T_previous^-1 T_target."""
    actions, observations = batch(4)
    start = matrix(observations["tool/pose"][1, -1])
    for kind in ("relative", "delta"):
        config = RepresentationConfig({"tool/pose": kind})  # type: ignore[dict-item]
        chunk = Representation(config, SPACE).encode(actions, observations)
        for i in range(5):
            earlier = start if kind == "relative" or i == 0 else matrix(actions[1, i - 1, :7])
            want = inverse(earlier) @ matrix(actions[1, i, :7])
            np.testing.assert_allclose(chunk[1, i, :3], want[:3, 3], atol=1e-6)
            turn = quat_from_rotation(want[:3, :3])
            np.testing.assert_allclose(chunk[1, i, 3:7], turn, atol=1e-6)


def test_six_numbers_are_columns_of_the_rotation_and_have_no_jump() -> None:
    rng = np.random.default_rng(0)
    values = poses(rng, 20)
    six = to_six_d(values)
    for row, value in zip(six, values, strict=True):
        R = rotation_from_quat(value[3:])
        np.testing.assert_allclose(row[3:], R[:, :2].T.ravel(), atol=1e-12)
    # q and -q are one rotation: as quaternions half a turn apart they are far from each other.
    flipped = np.concatenate([values[:, :3], -values[:, 3:]], axis=-1)
    np.testing.assert_allclose(to_six_d(flipped), six, atol=1e-12)
    noisy = six + rng.normal(0, 0.05, six.shape)
    back = from_six_d(noisy)
    np.testing.assert_allclose(np.linalg.norm(back[:, 3:], axis=1), 1.0, atol=1e-12)
    assert (np.abs(np.sum(back[:, 3:] * values[:, 3:], axis=1)) > 0.98).all()
    for nothing in (np.zeros((1, 9)), np.tile([0, 0, 0, 1.0, 2, 3, 1, 2, 3], (1, 1))):
        assert np.isfinite(from_six_d(nothing)).all()


def test_the_heading_is_relative_to_the_pose_that_is_observed() -> None:
    actions, observations = batch(1)
    tilt = np.array([0.0, np.cos(0.3), np.sin(0.3), 0.0])  # Pointing down, turned by 0.6 rad.
    observations["tool/pose"][:, -1, 3:] = tilt
    config = RepresentationConfig({"tool/xyz_yaw": "relative"})
    chunk = Representation(config, SPACE).encode(actions, observations)
    expected = np.angle(np.exp(1j * (actions[..., 11] - 0.6)))
    np.testing.assert_allclose(chunk[..., 11], expected, atol=1e-6)


def test_answers_stay_within_the_limits_of_the_action() -> None:
    actions, observations = batch(2)
    representation = Representation(RepresentationConfig({"gripper/width": "delta"}), SPACE)
    chunk = representation.encode(actions, observations)
    back = representation.decode(chunk + 1.0, observations)
    assert back[..., 7].max() == 0.08
    assert representation.inner.actions[1].high == ()


@pytest.mark.parametrize("kind", ["relative", "delta"])
def test_what_the_network_does_is_never_mistaken_for_what_is_commanded(kind: str) -> None:
    """Actions without limits, in a representation that keeps their shape: who compares task spaces
    (a run that builds on another one) still tells the two apart.
    """
    free = dataclasses.replace(SPACE, actions=SPACE.actions[2:])
    config = RepresentationConfig({"tool/xyz_yaw": kind})  # type: ignore[dict-item]
    assert Representation(config, free).inner != free
    assert Representation(RepresentationConfig(), free).inner == free


def test_fine_steps_are_linear_below_the_resolution_and_logarithmic_above() -> None:
    config = RepresentationConfig({"tool/xyz_yaw": "relative"}, fine={"tool/xyz_yaw": (1e-3,) * 4})
    representation = Representation(config, SPACE)
    _, observations = batch(6, b=1)
    start = observations["tool/pose"][0, -1, :3].astype(float)
    actions = np.zeros((1, 5, 12))
    actions[..., 3] = 1.0
    steps = np.array([0.0, 1e-4, 0.01, 0.1, 0.2])
    actions[0, :, 8:11] = start + steps[:, None]
    seen = representation.encode(actions, observations)[0, :, 8]
    np.testing.assert_allclose(seen[:2], [0.0, 0.1], atol=2e-4)
    # Ten times as far, and twice as far, are one distance each wherever one is.
    np.testing.assert_allclose(np.diff(seen)[2:], np.log([10.0, 2.0]), atol=3e-3)
    # The same error of the network: 10 um where the arm is, 2 mm in free motion.
    off = np.zeros((1, 5, 12))
    off[..., 8] = 0.01
    chunk = representation.encode(actions, observations)
    moved = representation.decode(chunk + off, observations) - representation.decode(
        chunk, observations
    )
    np.testing.assert_allclose(moved[0, [0, 4], 8], [1e-5, 2e-3], rtol=0.02)
    wild = representation.decode(np.full((1, 5, 12), 1e6), observations)
    assert np.isfinite(wild).all()


def test_mistakes_are_explained() -> None:
    for fine, text in (
        ({"gripper/width": (1e-3,)}, "named under representation.actions"),
        ({"tool/xyz_yaw": (1e-3,) * 3}, "needs 4 positive numbers"),
        ({"tool/xyz_yaw": (1e-3, 1e-3, 0.0, 1e-3)}, "needs 4 positive numbers"),
    ):
        with pytest.raises(ConfigError, match=text):
            Representation(RepresentationConfig({"tool/xyz_yaw": "relative"}, fine=fine), SPACE)
    with pytest.raises(ConfigError, match=r"no action 'tool/pos'\. Did you mean 'tool/pose'"):
        Representation(RepresentationConfig({"tool/pos": "delta"}), SPACE)
    blind = dataclasses.replace(SPACE, observations=SPACE.observations[1:])
    for name in ("tool/pose", "tool/xyz_yaw"):
        with pytest.raises(SpecMismatchError, match="'tool/pose' \\(7,\\) is observed"):
            Representation(RepresentationConfig({name: "relative"}), blind)
