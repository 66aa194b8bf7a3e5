"""Tasks with a cell and a scene each: a report each, and one pooled over all of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from eval.trials.table import TrialStore
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.trials import trust_of_trials
from tests.robolearn.operations.trust.test_folders import rows, written


def both_tasks(folder: Path) -> tuple[list[Path], list[Path]]:
    """A folder per side and task, as evaluations of scenes and deployments on cells make them."""
    real = [
        written(folder / "real push", rows("push_cell", "lab", "push@1")),
        written(folder / "real lift", rows("lift_cell", "lab", "lift@1")),
    ]
    sim = [
        written(folder / "sim push", rows("push_scene", "sim", "push@1")),
        written(folder / "sim lift", rows("lift_scene", "sim", "lift@1")),
    ]
    return real, sim


def test_tasks_of_different_scenes_are_pooled(tmp_path: Path, capsys) -> None:
    """They were refused: 'of several worlds'; one could be named, which left one task."""
    real, sim = both_tasks(tmp_path)
    report = trust_of_trials(real, sim).report
    assert [t.task for t in report.tasks] == ["push", "lift"]
    assert report.pooled is not None
    assert report.pooled.table.k == 8
    for task, folders in zip(report.tasks, zip(real, sim, strict=True), strict=True):
        alone = trust_of_trials([folders[0]], [folders[1]]).report.tasks[0]
        assert (task.measures, task.judgement) == (alone.measures, alone.judgement)
    words = ["trust", "--real", *map(str, real), "--sim", *map(str, sim), "--json"]
    assert main(words) == 0
    assert [t["task"] for t in json.loads(capsys.readouterr().out)] == [
        *("push", "lift"),
        report.pooled.task,
    ]


def test_within_a_task_there_is_one_world_in_one_version(tmp_path: Path, capsys) -> None:
    real, sim = both_tasks(tmp_path)
    more = written(tmp_path / "more", rows("lift_copy", "sim", "lift@1"))
    with pytest.raises(DataError, match="'lift' are of several worlds: lift_scene, lift_copy"):
        trust_of_trials(real, [*sim, more])
    # Named, one world of each task; of tasks without a named one it is said.
    found = trust_of_trials(real, [*sim, more], sim_world=("lift_copy", "push_scene")).report
    assert [t.task for t in found.tasks] == ["push", "lift"]
    only = trust_of_trials(real, [*sim, more], sim_world="lift_copy").report
    assert [t.task for t in only.tasks] == ["lift"]
    said = "push: left out, as its simulated trials are in none of the worlds that are named"
    assert f"{said} (push_scene)" in only.notes
    with pytest.raises(ConfigError, match="lift_scene and lift_copy are both of 'lift'"):
        trust_of_trials(real, [*sim, more], sim_world=("lift_copy", "lift_scene"))
    with pytest.raises(DataError, match="no simulated trials in 'moon'"):
        trust_of_trials(real, sim, sim_world=("lift_scene", "moon"))
    words = ["trust", "--real", *map(str, real), "--sim", *map(str, [*sim, more])]
    assert main([*words, "--sim-world", "push_scene", "lift_copy"]) == 0
    assert "lift:" in capsys.readouterr().out
    other = [dataclasses.replace(r, env_hash="v2", policy="z") for r in rows("lift_scene", "sim")]
    other = written(tmp_path / "v2", [dataclasses.replace(r, suite="lift@1") for r in other])
    with pytest.raises(DataError, match="different versions of the world"):
        trust_of_trials(real, [*sim, other])
    # In another task the same scene may be of another day.
    same = written(tmp_path / "same", rows("lift_scene", "sim", "push@1", env_hash="v2"))
    assert len(trust_of_trials(real, [same, sim[1]]).report.tasks) == 2


def test_a_task_that_one_side_has_alone_is_said(tmp_path: Path) -> None:
    real, sim = both_tasks(tmp_path)
    notes = trust_of_trials(real, sim[:1]).report.notes
    assert "lift: left out, as it has no simulated trials" in notes
    notes = trust_of_trials(real[1:], sim).report.notes
    assert "push: left out, as it has no real trials" in notes


def test_a_world_is_reality_or_simulator_in_all_tasks(tmp_path: Path) -> None:
    one, two = (rows(w, "sim", "push@1", env_hash=f"h-{w}") for w in ("one", "two"))
    three, four = (rows(w, "sim", "lift@1", env_hash=f"h-{w}") for w in ("two", "one"))
    real = [written(tmp_path / "a", one), written(tmp_path / "b", three)]
    sim = [written(tmp_path / "c", two), written(tmp_path / "d", four)]
    with pytest.raises(DataError, match="both sides are trials of one world"):
        trust_of_trials(real, sim)


def test_what_stands_beside_is_of_each_task_s_own_worlds(tmp_path: Path) -> None:
    real, sim = both_tasks(tmp_path)
    for folders, cell, kind in ((real, "cell", "lab"), (sim, "scene", "sim")):
        for folder, task in zip(folders, ("push", "lift"), strict=True):
            with TrialStore(folder) as table:
                table.add([
                    dataclasses.replace(
                        r,
                        env=f"{r.env}~mass=1",
                        env_hash="heavy",
                        episode=f"heavy-{r.episode}" if kind == "lab" else "",
                        started="",
                    )
                    for r in rows(f"{task}_{cell}", kind, f"{task}@1")
                    if r.policy != "p7"
                ])  # fmt: skip
    tasks = trust_of_trials(real, sim).report.tasks
    for task in tasks:
        assert task.variants is not None
        assert [c.name for c in task.variants.changes] == ["mass=1"]
        assert len(task.variants.changes[0].policies) == 7
    told = Beside(changed=("push_cell~mass=1=>push_scene~mass=1",
                           "lift_cell~mass=1=>lift_scene~mass=1"))  # fmt: skip
    again = trust_of_trials(real, sim, beside=told).report.tasks
    assert [t.variants for t in again] == [t.variants for t in tasks]
    with pytest.raises(ConfigError, match="in which of push_scene, lift_scene they are replayed"):
        trust_of_trials(real, sim, beside=Beside(trajectories=tmp_path / "store"))
