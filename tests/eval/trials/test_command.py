"""``robolearn evaluate`` as typed: from any folder, with the suite that fits the world."""

from __future__ import annotations

import json

import pytest

from eval.trials.suites import ConditionConfig, SuiteConfig, load_suite, suite_yaml
from robolearn.cli.main import main
from robolearn.config import find_config, load_yaml, shipped_configs
from robolearn.errors import ConfigError
from robolearn.operations.evaluate import repeats
from sim.scene.load import SCENES


def test_it_works_from_any_folder_with_the_suite_of_the_worlds_task(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ("--conditions", "2", "--workers", "0", "--videos", "0", "--no-repeat", "--json")
    assert main(["evaluate", "scripted", "--worlds", "drawer", *few, "--out", "a"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["suite"].startswith("drawer@")
    # A suite without worlds: its own one; a file of configs/ needs no configs/ here.
    suite = ("--suite", "configs/eval/drawer.yaml")
    assert main(["evaluate", "scripted", *suite, *few, "--out", "a"]) == 0
    assert json.loads(capsys.readouterr().out)["results"] == document["results"]
    assert main(["evaluate", "scripted", "--worlds", "panda_bimanual", "--out", "b"]) == 2
    said = capsys.readouterr().err
    assert "no suite comes with the task 'lift_bar'" in said
    assert "robolearn suite draw panda_bimanual" in said
    assert not (tmp_path / "b").exists()


def test_the_suite_of_a_task_is_found_whatever_its_file_is_called(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ("--conditions", "1", "--workers", "0", "--videos", "0", "--no-repeat", "--json")
    assert main(["evaluate", "scripted", "--worlds", "so101_reach", *few, "--out", "a"]) == 0
    assert json.loads(capsys.readouterr().out)["suite"].startswith("so101_reach@")


def test_a_file_that_is_here_goes_before_the_one_that_came_with_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = shipped_configs() / "eval" / "drawer.yaml"
    relative = path.relative_to(shipped_configs().parent)
    assert find_config(relative) == path
    (tmp_path / relative).parent.mkdir(parents=True)
    (tmp_path / relative).write_text("name: mine\n")
    assert load_yaml(relative) == {"name": "mine"}
    assert find_config(SCENES) == SCENES
    with pytest.raises(ConfigError, match=r"Did you mean 'drawer\.yaml'"):
        load_yaml(relative.with_name("drawr.yaml"))


def test_starts_that_only_a_seed_names_are_paired_but_never_moved(tmp_path, capsys):
    world, path = "robosuite/Lift", tmp_path / "lift.yaml"
    conditions = tuple(ConditionConfig(f"lift-{i}", 10 + i, {}) for i in range(3))
    config = SuiteConfig("lift", "robosuite_Lift", 5, 1, world, 2, "as judged", conditions)
    path.write_text(suite_yaml(config))
    suite = load_suite(path)
    assert repeats(suite, {world: suite.select(3)}) == {}
    few = ("--workers", "0", "--videos", "0", "--out", str(tmp_path / "r"))
    assert main(["evaluate", "scripted", "--suite", str(path), "--repeat", *few]) == 0
    assert "follow from their seeds alone" in capsys.readouterr().out
    placed = load_suite(shipped_configs() / "eval" / "drawer.yaml")
    again = repeats(placed, {"drawer": placed.select(3)})
    assert len(again["drawer"]) == 6
