"""A policy is tried and deployed at the goal of its recordings, where nobody says another one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from eval.blinded.plan import FILE_NAME
from eval.trials.suites import suite_yaml
from hardware.cell.load import load_cell
from policies.imitation.flow import FlowConfig
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError, SceneError
from robolearn.operations.compose import ComposedBuilder, write_composed
from robolearn.operations.deploy.task import recorded_params, task_of
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.goals import common_goal, goal_run, trained_goal, world_for
from robolearn.operations.suites import open_suite
from robolearn.operations.trial.options import DesignOptions, TrialOptions
from robolearn.operations.trial.planned import open_trials
from robolearn.pusht import GOAL, TASK_PARAMS, Pose
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import PROVENANCE
from sim.tasks.pusht import PushT
from sim.worlds import make_world, said_goal
from tests.learning_mocks import BLOCK, TOOL, random_source
from tests.robolearn.operations.trial.files import RUNS, write_files
from tests.robolearn.test_pusht_goal import OTHER, scene_with

SUITE = Path("configs/eval/pusht.yaml")
LAB = Path(__file__).parents[3] / "configs/hardware/lab_ur5e.yaml"


def trained(run: Path, *goals: Pose) -> Path:
    """A tiny run on recordings with these goals."""
    config = FlowConfig(n_obs=2, horizon=8, execute=4, width=16, blocks=1, batch_size=8)
    fit = FitConfig(steps=1, warmup=1, log_every=1, checkpoint_every=1)
    source = dataclasses.replace(random_source(), goals=goals)
    experiment = Experiment("flow", DataConfig(observations=(TOOL, BLOCK)), config, fit)
    train(experiment, source, run, cache_dir=run.parent / "cache")
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("goals")
    goals = {"other": (OTHER,), "usual": (GOAL,), "both": (OTHER, GOAL), "none": ()}
    return {name: trained(folder / name, *g) for name, g in goals.items()}


def test_blinded_trials_are_judged_by_no_goal_that_chance_chooses(tmp_path: Path) -> None:
    """It was that of the run whose alias came first; refused is before anything is locked."""
    write_files(tmp_path, 2)

    def learned(name: str, goal: Pose | None) -> Path:
        params = {} if goal is None else {TASK_PARAMS: {"goal": list(goal)}}
        (tmp_path / name / PROVENANCE).write_text(json.dumps(params))
        return tmp_path / name

    design = DesignOptions(
        policies=tuple(str(tmp_path / name) for name in RUNS), suite=tmp_path / "suite.yaml"
    )
    options = TrialOptions(
        out=tmp_path / "out", robot=tmp_path / "cell.yaml", design=design, operator="me"
    )
    first, second = (learned(name, goal) for name, goal in zip(RUNS, (OTHER, GOAL), strict=True))
    with pytest.raises(ConfigError, match=r"different goals.*try them apart"):
        open_trials(options)
    assert not (options.out / FILE_NAME).exists()
    learned(first.name, None)
    learned(second.name, OTHER)
    assert goal_run([first, second], PushT.name) == goal_run([second, first], PushT.name) == second
    assert open_trials(options).began


def test_a_run_says_the_goal_of_its_recordings(runs: dict[str, Path], tmp_path: Path) -> None:
    told = {name: trained_goal(run) for name, run in runs.items()}
    assert told == {"other": OTHER, "usual": GOAL, "both": None, "none": None}
    assert trained_goal(tmp_path / "nowhere") is None
    parts = (runs["other"], runs["none"])
    write_composed(tmp_path / "composed", ComposedBuilder(parts, "convex", (0.5, 0.5), 4))
    assert trained_goal(tmp_path / "composed") == OTHER
    with pytest.raises(ConfigError, match=r"different goals.*try them apart"):
        common_goal([runs["other"], runs["usual"]])


def test_worlds_that_say_nothing_have_the_goal_of_the_recordings(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    assert world_for("gym_pusht", "pusht", [runs["usual"]]) == "gym_pusht"
    assert world_for("gym_pusht", "pusht", [runs["none"]]) == "gym_pusht"
    assert world_for("drawer", "drawer", [runs["other"]]) == "drawer"
    scene = str(scene_with(tmp_path, list(OTHER)))
    assert world_for(scene, "pusht", [runs["other"]]) == scene
    for world in ("gym_pusht", "pusht_reference", "pusht_reference~friction=1", "pusht_pybullet"):
        name = world_for(world, "pusht", [runs["other"]])
        assert said_goal(name) == OTHER
        env = make_world(name)
        try:
            assert env.task_params == {"goal": list(OTHER)}
            other, usual = env.scene_hash, make_world(world)
            assert usual.scene_hash != other
            usual.close()
        finally:
            env.close()
    with pytest.raises(ConfigError, match=r"has its goal at.*but the recordings of"):
        world_for(scene, "pusht", [runs["usual"]])


@pytest.mark.parametrize("goal", ["1", "a:b:c", "0.1:0.2:3:4", "9:9:0"])
def test_a_goal_that_is_none_is_refused(goal: str) -> None:
    with pytest.raises(SceneError, match="expected goal=X:Y:YAW"):
        make_world(f"gym_pusht,goal={goal}")
    with pytest.raises(SceneError, match="only Push-T has a goal"):
        make_world("drawer,goal=0.1:0.1:0")


def test_an_evaluation_runs_at_the_goal_of_the_recordings(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    suite = open_suite(SUITE).config
    short = dataclasses.replace(suite, max_steps=150, subset=1, conditions=suite.conditions[:1])
    (tmp_path / "short.yaml").write_text(suite_yaml(short))
    options = EvaluateOptions(
        suite=tmp_path / "short.yaml", worlds=("pusht_reference",), workers=0, videos=0,
        repeat=False,
    )  # fmt: skip
    done = evaluate((runs["other"], "scripted"), tmp_path / "r", options)
    usual = evaluate((runs["none"], "scripted"), tmp_path / "u", options)
    hashes = {t.env_hash for t in done.trials}
    assert {t.env for t in (*done.trials, *usual.trials)} == {"pusht_reference"}
    assert hashes.isdisjoint({t.env_hash for t in usual.trials})
    # The expert pushes to where the policies learned the goal to be, and is judged there.
    (expert,) = (t for t in done.trials if t.policy == "scripted")
    assert expert.score > 0.9
    with pytest.raises(ConfigError, match="different goals"):
        evaluate((runs["other"], runs["usual"]), tmp_path / "n", options)
    assert not (tmp_path / "n").exists()


def test_a_deployment_is_judged_at_the_goal_of_the_recordings(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    suite, cell = open_suite(SUITE), load_cell(LAB)

    def task(cell_params: dict[str, Any], run: Path | None) -> Any:
        asked = dataclasses.replace(cell, task_params=cell_params)
        return task_of(suite, asked, LAB, SUITE, run)

    for run, goal in (("other", OTHER), ("usual", GOAL), ("none", GOAL)):
        found = task({}, runs[run])
        assert isinstance(found, PushT)
        assert found.goal == goal
        params = {} if goal == GOAL else {TASK_PARAMS: {"goal": list(OTHER)}}
        assert recorded_params(found) == json.loads(json.dumps(params))
    assert task({}, None).goal == GOAL
    assert task({"goal": list(OTHER)}, runs["other"]).goal == OTHER
    assert task({"goal": list(OTHER)}, runs["none"]).goal == OTHER
    with pytest.raises(ConfigError, match=r"'task_params' of .* has the goal at.*leave it out"):
        task({"goal": list(OTHER)}, runs["usual"])
