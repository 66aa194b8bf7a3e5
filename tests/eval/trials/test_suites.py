from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import zarr

from eval.trials.suites import (
    ConditionConfig,
    make_suite,
    moved,
    repeated,
    suite_yaml,
)
from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.errors import ConfigError
from robolearn.operations.suites import TaskStarts, open_suite
from robolearn.pusht import BLOCK, TOOL, coverage, px_from_pose
from sim.tasks.pusht import PushT
from sim.tasks.starts import draw_start, pusht_problem

ROOT = Path(__file__).parents[3]
SUITE = ROOT / "configs" / "eval" / "pusht.yaml"


@pytest.fixture(scope="module")
def suite():
    return open_suite(SUITE)


def test_the_file_is_what_the_generator_draws(suite):
    config = suite.config
    drawn = [
        draw_start("pusht", PushT().sample_condition, config.seed, i)
        for i in range(len(config.conditions))
    ]
    assert suite.select(100) == tuple(drawn)
    assert len({c.seed for c in drawn}) == 100


def test_selection_is_a_prefix_and_goes_on_beyond_the_file(suite):
    many = suite.select(130)
    assert many[:100] == suite.select(100)
    assert len({c.id for c in many}) == 130
    assert suite.select(25) == many[:25]
    assert (suite.count_for("gym_pusht"), suite.count_for("pusht_ur5e")) == (100, 25)
    with pytest.raises(ConfigError, match="at least 1"):
        suite.select(0)


def test_every_task_goes_on_beyond_its_file():
    """From its own distribution, in the suite's source world; a prefix stays a prefix."""
    drawer = open_suite(ROOT / "configs" / "eval" / "drawer.yaml")
    listed = len(drawer.config.conditions)
    more = drawer.select(listed + 2)
    assert more[:listed] == drawer.select(listed)
    assert [c.id for c in more[listed:]] == [f"drawer-{i:04d}" for i in (listed, listed + 1)]
    assert len({tuple(sorted(c.poses.items())) for c in more}) == listed + 2


def test_every_start_is_feasible_and_not_solved(suite):
    for c in suite.select(120):
        assert pusht_problem(c.poses) == ""
        assert coverage(c.poses[BLOCK]) <= 0.95


def test_starts_lie_in_the_ranges_of_gym_pusht(suite):
    tools = np.array([c.poses[TOOL] for c in suite.select(100)]) * 1000
    assert tools[:, 0].min() >= 50
    assert tools[:, 0].max() <= 450
    angles = np.array([c.poses[BLOCK][2] for c in suite.select(100)])
    assert np.histogram(angles, 4, (-np.pi, np.pi))[0].min() > 12


def test_disjoint_from_the_recorded_starts(suite):
    recorded = zarr.open_group(str(pusht_demonstrations_path()), mode="r")
    ends = np.asarray(recorded["meta/episode_ends"])
    state = np.asarray(recorded["data/state"], dtype=np.float64)
    starts = state[np.concatenate([[0], ends[:-1]])]
    assert len(starts) == 206
    for c in suite.select(100):
        pose = px_from_pose(np.array(c.poses[BLOCK]))
        apart = np.hypot(*(starts[:, 2:4] - pose[:2]).T)
        turn = np.abs((starts[:, 4] - pose[2] + np.pi) % (2 * np.pi) - np.pi)
        assert np.all((apart > 1.0) | (turn > np.radians(1.0)))


@pytest.mark.parametrize(
    ("poses", "reason"),
    [
        ({TOOL: (0.1, 0.1)}, "lacks"),
        ({TOOL: (0.1, 0.1), BLOCK: (0.3, 0.3)}, "expected 2 values"),
        ({TOOL: (0.6, 0.1), BLOCK: (0.3, 0.3, 0.0)}, "off the table"),
        ({TOOL: (0.1, 0.1), BLOCK: (0.03, 0.3, 0.0)}, "wall"),
        ({TOOL: (0.3, 0.3), BLOCK: (0.3, 0.3, 0.0)}, "overlap"),
        ({TOOL: (0.1, 0.1), BLOCK: (0.256, 0.256, -np.pi / 4)}, "already met"),
    ],
)
def test_infeasible_starts_are_named(suite, poses, reason):
    assert reason in pusht_problem(poses)
    broken = dataclasses.replace(
        suite.config, subset=1, conditions=(ConditionConfig("x", 1, poses),)
    )
    with pytest.raises(ConfigError, match="'x' is not feasible"):
        make_suite(broken, starts=TaskStarts.of)


def test_hash_follows_the_content(suite, tmp_path):
    again = tmp_path / "again.yaml"
    again.write_text(suite_yaml(suite.config))
    assert open_suite(again).hash == suite.hash
    fewer = dataclasses.replace(suite.config, conditions=suite.config.conditions[:50])
    assert make_suite(fewer).hash != suite.hash
    assert make_suite(fewer).label.startswith("pusht@")


def test_bad_files(suite, tmp_path):
    with pytest.raises(ConfigError, match="given twice"):
        dataclasses.replace(suite.config, conditions=(suite.config.conditions[0],) * 2, subset=1)
    odd = make_suite(dataclasses.replace(suite.config, task="push"), starts=TaskStarts.of)
    with pytest.raises(ConfigError, match=r"task 'push' cannot be drawn from 'gym_pusht'.*'pusht'"):
        odd.select(101)
    with pytest.raises(ConfigError, match=r"no start 100.*take fewer conditions"):
        make_suite(suite.config).select(101)
    (tmp_path / "x.yaml").write_text("name: x\nconditons: []\n")
    with pytest.raises(ConfigError, match="Did you mean 'conditions'"):
        open_suite(tmp_path / "x.yaml")


def test_repeats_keep_the_start_and_change_the_seed(suite):
    chosen = suite.select(3)
    again = repeated(chosen)
    assert [c.poses for c in again] == [c.poses for c in chosen]
    assert all(a.seed != b.seed for a, b in zip(chosen, again, strict=True))
    assert repeated(chosen) == again


def test_moved_starts_are_close_feasible_and_keep_the_seed(suite):
    chosen = suite.select(40)
    again = moved(suite, chosen)
    assert [c.seed for c in again] == [c.seed for c in chosen]
    assert all((a.id, a.variant) == (c.id, "moved") for a, c in zip(again, chosen, strict=True))
    assert all(pusht_problem(c.poses) == "" for c in again)
    shift = np.array(
        [np.subtract(a.poses[BLOCK], c.poses[BLOCK]) for a, c in zip(again, chosen, strict=True)]
    )
    assert 0.15e-3 < shift[:, :2].std() < 0.5e-3
    assert 0 < np.abs(shift[:, 2]).max() < np.radians(0.5)
    assert moved(suite, chosen) == again
