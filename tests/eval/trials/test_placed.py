"""Suites of tasks in space: their files, and what moving a start means there."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from eval.trials.suites import load_suite, make_suite, moved
from robolearn.errors import ConfigError
from robolearn.geometry import rotation_from_quat, rotvec_from_rotation
from robolearn.seeding import child_seed
from sim.tasks.registry import TASKS
from sim.worlds import make_world

FOLDER = Path(__file__).parents[3] / "configs" / "eval"
NAMES = ("pick_place", "stacking", "drawer", "insertion", "play_table")


@pytest.mark.parametrize("name", NAMES)
def test_suites_hold_starts_of_their_task(name):
    suite = load_suite(FOLDER / f"{name}.yaml")
    config = suite.config
    world = make_world(config.source_world)
    assert config.name == config.task == world.task == name
    assert config.max_steps == world.max_steps
    for k in (0, 7, 99):
        drawn = world.sample_condition(child_seed(config.seed, name, k))
        listed = config.conditions[k]
        assert set(listed.poses) == set(drawn.poses)
        for signal, pose in drawn.poses.items():
            assert listed.poses[signal] == pytest.approx(pose, abs=1e-6)
    first, *_ = suite.select(1)
    report = world.reset(first, np.random.default_rng(0))
    for signal, pose in first.poses.items():
        assert report.achieved[signal] == pytest.approx(np.array(pose), abs=2e-6)
    world.close()


def test_moved_starts_stay_on_the_table_and_keep_their_goals():
    suite = load_suite(FOLDER / "play_table.yaml")
    starts = suite.select(40)
    shifts, turns = [], []
    for start, again in zip(starts, moved(suite, starts), strict=True):
        assert again.seed == start.seed
        for name, pose in start.poses.items():
            other = again.poses[name]
            if len(pose) != 7:
                assert other == pose
                continue
            assert other[2] == pose[2]
            shifts.append(np.subtract(other[:2], pose[:2]))
            assert np.linalg.norm(other[3:]) == pytest.approx(1.0, abs=1e-5)
            R = [rotation_from_quat(np.array(p[3:])) for p in (pose, other)]
            turn = rotvec_from_rotation(R[1] @ R[0].T)
            assert np.abs(turn[:2]).max() < 1e-9
            turns.append(turn[2])
    assert np.std(shifts) == pytest.approx(0.3e-3, rel=0.2)
    assert np.std(turns) == pytest.approx(np.radians(0.1), rel=0.25)


def test_impossible_places_are_explained():
    config = load_suite(FOLDER / "drawer.yaml").config
    first, *rest = config.conditions

    def change(**poses):
        bad = dataclasses.replace(first, poses={**first.poses, **poses})
        return dataclasses.replace(config, conditions=(bad, *rest))

    with pytest.raises(ConfigError, match=r"cabinet/pose: the quaternion .* must have norm 1"):
        make_suite(change(**{"cabinet/pose": (0.1, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0)}))
    with pytest.raises(ConfigError, match=r"drawer/opening .* must be finite"):
        make_suite(change(**{"drawer/opening": (float("nan"),)}))
    assert set(NAMES) <= set(TASKS)
