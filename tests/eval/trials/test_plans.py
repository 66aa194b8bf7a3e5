"""A plan from the command line: what it is kept to, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from eval.trials.suites import SuiteConfig, suite_yaml
from eval.trials.table import read_trials
from robolearn.cli.main import main
from robolearn.config import load_config, shipped_configs

FEW = ("--workers", "0", "--videos", "0")
POLICIES = ("scripted", "scripted:0.3")


@pytest.fixture
def suite(tmp_path) -> str:
    """Three starts of the drawer, short."""
    config = load_config(SuiteConfig, shipped_configs() / "eval" / "drawer.yaml")
    few = dataclasses.replace(config, max_steps=5, conditions=config.conditions[:3], subset=2)
    path = tmp_path / "suite.yaml"
    path.write_text(suite_yaml(few))
    return str(path)


def plan(suite: str, out: Path, *more: str) -> int:
    return main(["suite", "plan", suite, "--out", str(out), "--by", "score", *more])


def evaluate(suite: str, out: Path, *more: str) -> int:
    return main(["evaluate", *POLICIES, "--suite", suite, "--out", str(out), *FEW, *more])


def test_a_plan_is_kept_to_from_the_first_trial_to_the_page(suite, tmp_path, capsys):
    file, out = tmp_path / "plan.yaml", tmp_path / "r"
    named = ("--policies", "scripted", "scripted-0.3")
    assert plan(suite, file, "--n-max", "2", *named, "--json") == 0
    digest = json.loads(capsys.readouterr().out)["plan"]
    assert evaluate(suite, out, "--plan", str(file)) == 0
    said = capsys.readouterr().out
    assert f"plan {digest}: scripted, scripted-0.3 in drawer over 2 starts" in said
    assert f"every comparison: planned (plan {digest}" in said
    assert {r.plan for r in read_trials(out)} == {digest}
    assert len(read_trials(out)) == 4
    assert main(["compare", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rule"]["by"] == "score"
    assert [s["planned"] for s in document["standings"]] == [True]
    assert main(["compare", str(out), "--by", "success"]) == 0
    assert "its measure is score, here success" in capsys.readouterr().out
    # The same words again go on; without the plan the trials would be something else.
    assert evaluate(suite, out, "--plan", str(file), "--json") == 0
    capsys.readouterr()
    assert evaluate(suite, out, "--conditions", "2") == 2
    assert f"run under plan {digest}; here they are" in capsys.readouterr().err


def test_what_was_not_planned_is_refused_before_anything_is_computed(suite, tmp_path, capsys):
    file, out = tmp_path / "plan.yaml", tmp_path / "r"
    assert plan(suite, file, "--policies", "scripted", "other") == 0
    assert plan(suite, file) == 2
    assert "a plan is not written over" in capsys.readouterr().err
    assert evaluate(suite, out, "--plan", str(file)) == 2
    assert "the policies ['scripted', 'other'], not ['scripted-0.3']" in capsys.readouterr().err
    everyone = tmp_path / "everyone.yaml"
    assert plan(suite, everyone, "--n-max", "2") == 0
    assert evaluate(suite, out, "--plan", str(everyone), "--conditions", "3") == 2
    assert "the plan is about 2 starts, got 3" in capsys.readouterr().err
    assert evaluate("configs/eval/drawer.yaml", out, "--plan", str(everyone)) == 2
    assert "is about the suite drawer@" in capsys.readouterr().err
    everyone.write_text(everyone.read_text().replace("n_max: 2", "n_max: 3"))
    assert evaluate(suite, out, "--plan", str(everyone)) == 2
    assert "was edited since it was written" in capsys.readouterr().err
    assert not out.exists()


def test_a_plan_does_not_take_over_trials_that_were_there(suite, tmp_path, capsys):
    out, late = tmp_path / "r", tmp_path / "late.yaml"
    assert evaluate(suite, out) == 0
    assert plan(suite, late) == 0
    capsys.readouterr()
    assert evaluate(suite, out, "--plan", str(late)) == 2
    assert "has 6 of these trials already, run under no plan" in capsys.readouterr().err
    assert not (out / "plans").exists()
