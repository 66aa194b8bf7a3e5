"""``docs/python.md``: its experiment runs as it stands there, and its table names what exists."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from eval.trials.table import read_trials
from hardware.cell.load import load_cell
from robolearn.operations.deploy import run as deployment
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.options import DeployOptions
from robolearn.operations.suites import open_suite

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
EXPERIMENT, DEPLOYMENT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


class NoArm:
    """Stands for what a deployment came to, as far as the page shows it."""

    def text(self) -> str:
        return "1 trial(s)"


def test_the_experiment_runs_as_it_stands_and_is_forty_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len([line for line in EXPERIMENT.splitlines() if line.strip()]) <= 40
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(EXPERIMENT, "docs/python.md", "exec"), names)

    folder = tmp_path / "experiment"
    assert names["recorded"].successes == len(names["recorded"].saved) == 8
    assert {r.policy for r in names["found"].data.results} == {"bc-4", "bc-80", "scripted"}
    assert len(read_trials(folder / "trials")) == len(names["found"].trials) == 24
    assert "An arm that reaches" in (folder / "report.html").read_text(encoding="utf-8")
    # Nobody but the page itself prints.
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.count("ep_0") == 8

    asked: list[DeployOptions] = []

    def deploy(options: DeployOptions, operator: Operator) -> NoArm:
        operator.consent("the arm would move")
        asked.append(options)
        return NoArm()

    monkeypatch.setattr(deployment, "deploy", deploy)
    exec(compile(DEPLOYMENT, "docs/python.md", "exec"), names)
    (options,) = asked
    assert options.run == names["runs"][-1]
    assert load_cell(options.robot).lab
    assert open_suite(options.suite).config.task == "reach"


def test_the_table_names_functions_with_their_arguments() -> None:
    rows = re.findall(r"^\| `([\w.]+)\.(\w+)\(([\w, ]+)\)`", PAGE, re.MULTILINE)
    assert len(rows) > 8
    for module, name, arguments in rows:
        function = getattr(importlib.import_module(f"robolearn.operations.{module}"), name)
        taken = list(inspect.signature(function).parameters)
        given = arguments.split(", ")
        assert taken[: len(given)] == given, f"{module}.{name} takes {taken}"
