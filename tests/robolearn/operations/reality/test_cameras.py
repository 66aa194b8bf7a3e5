"""A reality that is looked at: pictures are late, noisy and repeat; tags tell where things are."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.errors import ConfigError, StaleSignalError
from robolearn.operations.code_hash import reality_files
from robolearn.operations.reality.worlds import make_world
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, Observation, SampleBatch
from sim.contract import World
from tests.hardware.lab import CONFIG

pytest.importorskip("pybullet")
IMAGE = "top/image"


@pytest.fixture
def cell(tmp_path: Path):
    """Writes the cell with a camera, with changes of what stands for the camera."""

    def write(**device: object) -> Path:
        raw = yaml.safe_load((CONFIG.parent / "lab_ur5e_camera.yaml").read_text())
        (camera,) = raw["lab"]["cameras"]
        camera["device"] |= device
        path = tmp_path / "cell.yaml"
        path.write_text(yaml.safe_dump(raw))
        return path

    return write


def driven(env: World, ticks: int, seed: int = 5) -> list[tuple[Observation, SampleBatch]]:
    """What is seen while the tool moves, and what was drained with it."""
    condition = env.sample_condition(seed)
    env.reset(condition, np.random.default_rng(0))
    start = condition.poses[TOOL]
    found = []
    for k in range(ticks):
        seen = env.observe()
        target = np.clip(np.array(start) + 0.01 * k, 0.02, 0.5)
        env.apply(Command(seq=k, action={TOOL: target}, due_ns=env.now_ns(), source="test"))
        env.advance()
        found.append((seen, env.drain()))
    return found


def test_pictures_are_late_and_repeat_and_the_rest_is_shown_as_of_them() -> None:
    with contextlib.closing(make_world("reality/pusht_camera,seed=3")) as env:
        first = driven(env, 4)
        assert first[0][0].value(IMAGE).shape == (96, 128, 3)
        again, other = driven(env, 4), driven(env, 2, seed=6)
        true = env.sample_condition(5).poses[BLOCK]
    for (a, _), (b, _) in zip(first, again, strict=True):
        assert all(np.array_equal(a.value(n), b.value(n)) for n in a.samples)
    assert not np.array_equal(first[1][0].value(IMAGE), other[1][0].value(IMAGE))
    for k, (seen, batch) in enumerate(first[1:], 1):
        taken = seen.samples[IMAGE].t_ns
        # As late as the camera is, and not later than its next picture would be.
        assert 30e6 <= seen.t_ns - taken < 90e6
        for name in (TOOL, "arm/joint_position"):
            assert seen.samples[name].t_ns == taken
            # Every observation finds its sample in the drain of its own tick.
            assert taken in batch.signals[name].t_ns.tolist()
        assert taken in batch.signals[IMAGE].t_ns.tolist()
        assert seen.t_ns == k * 100_000_000
    # Between what was there before and after.
    x = [seen.value(TOOL)[0] for seen, _ in first]
    assert 0.0 < x[-1] - x[0] < 0.05
    # Where the T is the tags in the pictures tell: near, and not as exactly as it is known.
    pose = first[0][0].value(BLOCK)
    assert 0.0 < np.abs(pose[:2] - true[:2]).max() < 0.002


def test_a_lens_that_nobody_knows_is_the_seeds(cell) -> None:
    path = cell(noise=0.0)
    raw = yaml.safe_load(path.read_text())
    raw["lab"]["cameras"][0] |= {"intrinsics": "drawn", "pose": "drawn"}
    path.write_text(yaml.safe_dump(raw))
    found = []
    for seed in (1, 2):
        with contextlib.closing(make_world(f"reality/pusht,seed={seed},cell={path}")) as env:
            env.reset(env.sample_condition(5), np.random.default_rng(0))
            found.append((env.observe().value(IMAGE).astype(float), env.scene_hash))
    (one, a), (two, b) = found
    assert a != b
    assert np.abs(one - two).mean() > 0.5


def test_what_no_camera_can_tell_is_said(cell) -> None:
    lost = cell(dropout_rate=1.0)
    said = r"\['block/pose', 'top/image'\].*picture lost"
    with (
        contextlib.closing(make_world(f"reality/pusht,cell={lost}")) as env,
        pytest.raises(StaleSignalError, match=said),
    ):
        env.reset(env.sample_condition(5), np.random.default_rng(0))
    with pytest.raises(ConfigError, match=r"has a camera 'top'.*Did you mean 'tip'"):
        make_world(f"reality/pusht,cell={cell(name='tip')}")


def test_two_cameras_of_a_cell_see_the_arm_from_beside_and_from_its_flange() -> None:
    with contextlib.closing(make_world("reality/pick_place_camera,seed=1")) as env:
        condition = env.sample_condition(2)
        env.reset(condition, np.random.default_rng(0))
        top, wrist = (env.observe().value(f"{name}/image") for name in ("top", "wrist"))
        assert top.shape == wrist.shape == (256, 256, 3)
        assert top.std() > 5
        assert wrist.std() > 5
        moved = dataclasses.replace(condition, poses={**condition.poses, "cube/pose": CUBE})
        env.reset(moved, np.random.default_rng(0))
        changed = np.abs(env.observe().value("top/image").astype(int) - top).max(axis=2) > 40
        # A cube is gone here and there, and nothing else.
        assert 20 < changed.sum() < 2000


CUBE = (-0.05, -0.05, 0.02, 1.0, 0.0, 0.0, 0.0)


def test_the_code_of_its_cameras_decides_its_trials() -> None:
    names = [path.as_posix() for path in reality_files()]
    for ending in ("reality/cameras.py", "emulators/sensor.py", "drivers/aruco_tracker.py"):
        assert any(name.endswith(ending) for name in names), ending
