"""Which suite can be deployed on which cell, and where a task's parameters come from."""

import contextlib
import dataclasses
from pathlib import Path

import pytest

from eval.trials.suites import load_suite
from hardware.cell.load import load_cell
from robolearn.errors import ConfigError
from robolearn.operations.cell.placing import require_starts
from robolearn.operations.deploy.options import DeployOptions
from robolearn.operations.deploy.task import task_of

ROOT = Path(__file__).parents[3]
SUITES = sorted((ROOT / "configs/eval").glob("*.yaml"))
CELLS = sorted((ROOT / "configs/hardware").glob("*.yaml"))


def where_it_fits(suite_file, cells):
    """Names of the cells on which a suite can be deployed."""
    suite = load_suite(suite_file)
    try:
        task_of(suite, next(iter(cells.values())), CELLS[0], suite_file)
    except ConfigError:
        return set()
    found = set()
    for name, cell in cells.items():
        with contextlib.suppress(ConfigError):
            require_starts(suite.select(2), cell, suite_file)
            found.add(name)
    return found


def test_the_table_of_the_docs_is_what_deploy_does():
    rows = {}
    for line in (ROOT / "docs/deploy.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0] == "suite (task)":
            names = cells[1:]
        elif cells[0] in {s.stem for s in SUITES}:
            rows[cells[0]] = {n for n, c in zip(names, cells[1:], strict=True) if c == "yes"}
    assert names == [c.stem for c in CELLS]
    cells = {c.stem: load_cell(c) for c in CELLS}
    found = {s.stem: where_it_fits(s, cells) for s in SUITES}
    assert rows == found


def test_a_task_gets_its_parameters_from_the_scene_or_the_cell(tmp_path):
    drawer, cell_file = ROOT / "configs/eval/drawer.yaml", ROOT / "configs/hardware/lab_ur5e.yaml"
    suite, cell = load_suite(drawer), load_cell(cell_file)
    assert task_of(suite, cell, cell_file, drawer).name == "drawer"
    given = dataclasses.replace(
        cell, task_params={"area": [[0.1, 0.2], [-0.1, 0.1]], "yaw": [-0.4, 0.4], "target_m": 0.05}
    )
    assert task_of(suite, given, cell_file, drawer)._target == 0.05
    wrong = dataclasses.replace(cell, task_params={"yaw": [-0.4, 0.4], "targt_m": 0.05})
    with pytest.raises(ConfigError) as caught:
        task_of(suite, wrong, cell_file, drawer)
    said = str(caught.value)
    assert "missing ['area'], unknown ['targt_m']" in said
    assert "target_m" in said
    assert f"'task_params' in the section 'robot' of {cell_file}" in said
    # A suite whose data comes from no scene that this installation knows.
    elsewhere = dataclasses.replace(
        suite, config=dataclasses.replace(suite.config, source_world="somewhere_else")
    )
    with pytest.raises(ConfigError, match=r"missing \['area', 'yaw'\].*'source_world' of .*drawer"):
        task_of(elsewhere, cell, cell_file, drawer)


def test_options_are_checked_before_anything_is_started():
    there = {"run": Path("run"), "robot": CELLS[0], "out": Path("out")}
    for wrong, text in (
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"guidance": "hard", "runtime": "onnx"}, "goes with real-time chunking"),
    ):
        with pytest.raises(ConfigError, match=text):
            DeployOptions(**there, **wrong)
    assert not DeployOptions(**there, runtime="onnx").executed.realtime_chunking
