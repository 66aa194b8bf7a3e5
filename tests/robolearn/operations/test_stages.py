"""Stages as a function: what is reused, what starts over, what goes on, what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.evaluation import read_evaluation, write_evaluation
from eval.trials.table import TrialStore, read_trials
from robolearn.errors import ConfigError
from robolearn.operations import stages as operation
from robolearn.operations.report import best_run
from robolearn.operations.stages import (
    Stage,
    StageListener,
    StageRun,
    finished,
    run_stages,
    stage_keys,
)
from tests.eval.report_folder import trial


def two(log: list[str], second: Callable[[Path], None] | None = None) -> tuple[Stage, Stage]:
    """A chain of two stages that write into ``log``."""

    def step(name: str) -> Callable[[Path], None]:
        def run(out: Path) -> None:
            log.append(name)
            (out / name / "result").write_text(name)

        return run

    one = Stage("one", "first", step("one"))
    return one, Stage("two", "second", second or step("two"), needs=("one",))


def test_what_nothing_changed_for_is_reused(tmp_path: Path, capsys) -> None:
    log: list[str] = []
    told: list[object] = []
    listener = StageListener(
        lambda stage, going_on: told.append((stage.name, going_on)), told.append
    )
    chain = two(log)
    first = run_stages(chain, tmp_path / "d", listener=listener)
    assert log == ["one", "two"]
    assert [(r.stage.name, r.reused) for r in first] == [("one", False), ("two", False)]
    assert told == [("one", False), first[0], ("two", False), first[1]]
    assert finished(chain, tmp_path / "d") == ("one", "two")
    again = run_stages(chain, tmp_path / "d", listener=listener)
    assert log == ["one", "two"]
    assert [r.reused for r in again] == [True, True]
    assert told[4:] == list(again)
    assert isinstance(again[0], StageRun)
    assert capsys.readouterr() == ("", "")


def test_other_code_and_other_configs_start_over(tmp_path: Path, monkeypatch) -> None:
    log: list[str] = []
    config = tmp_path / "config.yaml"
    config.write_text("steps: 1")
    one, second = two(log)
    chain = (dataclasses.replace(one, configs=(config,)), second)
    run_stages(chain, tmp_path / "d")
    monkeypatch.setattr(operation, "source_hash", lambda: "other")
    run_stages(chain, tmp_path / "d")
    assert log == ["one", "two"] * 2
    config.write_text("steps: 2")
    run_stages(chain, tmp_path / "d")
    assert log == ["one", "two"] * 3, "who needs it starts over, too"
    assert len(set(stage_keys(chain).values())) == 2


def test_a_single_stage_needs_the_ones_before(tmp_path: Path) -> None:
    log: list[str] = []
    chain = two(log)
    with pytest.raises(ConfigError, match=r"needs 'one', which is not done.*run the stage 'one'"):
        run_stages(chain, tmp_path, only="two")
    assert [r.stage.name for r in run_stages(chain, tmp_path, only="one")] == ["one"]
    run_stages(chain, tmp_path, only="two")
    assert log == ["one", "two"]
    with pytest.raises(ConfigError, match=r"no stage 'tow'\. Did you mean 'two'\? Stages"):
        run_stages(chain, tmp_path, only="tow")


@pytest.mark.parametrize("resumable", [True, False])
def test_a_stop_leaves_a_readable_state_and_what_is_resumable_goes_on(
    tmp_path: Path, resumable: bool
) -> None:
    log: list[str] = []
    found: list[list[str]] = []

    def stop(out: Path) -> None:
        found.append([p.name for p in (out / "two").iterdir()])
        (out / "two" / "half").write_text("half")
        if len(found) == 1:
            raise KeyboardInterrupt

    one, second = two(log, stop)
    chain = (one, dataclasses.replace(second, resumable=resumable))
    with pytest.raises(KeyboardInterrupt):
        run_stages(chain, tmp_path)
    assert finished(chain, tmp_path) == ("one",)
    stages = json.loads((tmp_path / operation.RECORD).read_text())["stages"]
    assert (stages["one"]["status"], stages["two"]["status"]) == ("done", "running")
    going: list[bool] = []
    listener = StageListener(on_begin=lambda stage, going_on: going.append(going_on))
    run_stages(chain, tmp_path, listener=listener)
    assert log == ["one"]
    assert going == [resumable]
    assert found == [[], ["half"] if resumable else []]


def test_fresh_deletes_only_what_stages_made(tmp_path: Path) -> None:
    log: list[str] = []
    (tmp_path / "thesis.txt").write_text("three years of work")
    run_stages(two(log), tmp_path)
    run_stages(two(log), tmp_path, fresh=True)
    assert log == ["one", "two"] * 2
    run_stages(two(log), tmp_path, only="one", fresh=True)
    assert log[4:] == ["one"]
    assert (tmp_path / "two" / "result").is_file()
    assert (tmp_path / "thesis.txt").read_text() == "three years of work"


def test_a_half_written_record_is_explained(tmp_path: Path) -> None:
    (tmp_path / operation.RECORD).write_text('{"stag')
    with pytest.raises(ConfigError, match="delete it to start over"):
        run_stages(two([]), tmp_path)


@pytest.mark.parametrize(("first", "best"), [((0.8, 0.8, 0.8), "b"), ((1.0, 0.5, 0.5), "a")])
def test_the_best_run_is_that_of_the_world_asked_for_by_what_decides(
    tmp_path: Path, first: tuple[float, ...], best: str
) -> None:
    # What is solved counts before the score.
    scores = {("a", "gym_pusht"): first, ("b", "gym_pusht"): (0.9,) * 3}
    scores[("a", "pusht_ur5e")] = (0.99,) * 3
    with TrialStore(tmp_path) as store:
        store.add(
            [trial(p, w, i, s, s == 1.0) for (p, w), v in scores.items() for i, s in enumerate(v)]
        )
    asked = read_evaluation(tmp_path, read_trials(tmp_path))
    runs = tuple(dataclasses.replace(p, run=f"train/{p.name}") for p in asked.policies)
    write_evaluation(tmp_path, dataclasses.replace(asked, policies=runs, inferred=False))
    assert best_run(tmp_path, "gym_pusht") == Path(f"train/{best}")
    assert best_run(tmp_path, "pusht_ur5e") == Path("train/a")
