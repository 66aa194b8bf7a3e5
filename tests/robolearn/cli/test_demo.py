"""The demo's bookkeeping: stages, keys, reuse, messages (`make demo` runs the stages)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from eval.evaluation import read_evaluation, write_evaluation
from eval.trials.table import TrialStore, read_trials
from robolearn.cli import demo
from robolearn.cli.demo import updates
from robolearn.cli.main import main
from tests.eval.report_folder import trial


def _stages(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    def step(name: str, *, fail: bool = False):
        def run(ctx: demo.Context) -> None:
            log.append(name)
            (ctx.folder / "result").write_text(name)
            if fail:
                raise KeyboardInterrupt

        return run

    monkeypatch.setattr(
        demo,
        "STAGES",
        (
            demo.Stage("one", "first", (), (), step("one")),
            demo.Stage("two", "second", ("one",), (), step("two")),
        ),
    )


def test_second_run_reuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    _stages(monkeypatch, log)
    assert main(["demo", "--out", str(tmp_path / "d")]) == 0
    assert main(["demo", "--out", str(tmp_path / "d")]) == 0
    assert log == ["one", "two"]
    assert "reused (same code, configuration and data" in capsys.readouterr().out


def test_changed_code_invalidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    _stages(monkeypatch, log)
    main(["demo", "--out", str(tmp_path)])
    monkeypatch.setattr(demo, "source_hash", lambda: "other")
    main(["demo", "--out", str(tmp_path)])
    assert log == ["one", "two"] * 2


def test_single_stage_needs_the_ones_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    _stages(monkeypatch, log)
    assert main(["demo", "--out", str(tmp_path), "--stage", "two"]) == 2
    assert "needs 'one', which is not done" in capsys.readouterr().err
    assert main(["demo", "--out", str(tmp_path), "--stage", "one"]) == 0
    assert main(["demo", "--out", str(tmp_path), "--stage", "two"]) == 0
    assert log == ["one", "two"]


def test_stop_leaves_a_readable_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(ctx: demo.Context) -> None:
        raise KeyboardInterrupt

    log: list[str] = []
    _stages(monkeypatch, log)
    first = demo.STAGES[0]
    monkeypatch.setattr(demo, "STAGES", (first, demo.Stage("two", "second", ("one",), (), stop)))
    assert main(["demo", "--out", str(tmp_path)]) == 130
    assert "finished stages: one" in capsys.readouterr().out
    stages = json.loads((tmp_path / "demo.json").read_text())["stages"]
    assert stages["one"]["status"] == "done"
    assert stages["two"]["status"] == "running"


def test_half_written_record_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "demo.json").write_text('{"stag')
    assert main(["demo", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "delete it to start over" in error
    assert "Traceback" not in error


def test_unknown_stage_suggests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path), "--stage", "trian"]) == 2
    assert "Did you mean 'train'" in capsys.readouterr().err


def test_better_policy_picks_by_source_world(tmp_path: Path) -> None:
    scores = {("a", "gym_pusht"): 0.8, ("b", "gym_pusht"): 0.9, ("a", "pusht_ur5e"): 0.99}
    with TrialStore(tmp_path) as store:
        store.add([trial(p, w, i, s, False) for (p, w), s in scores.items() for i in range(3)])
    asked = read_evaluation(tmp_path, read_trials(tmp_path))
    runs = tuple(dataclasses.replace(p, run=f"train/{p.name}") for p in asked.policies)
    write_evaluation(tmp_path, dataclasses.replace(asked, policies=runs, inferred=False))
    assert demo.better_policy(tmp_path) == "train/b"


def test_keys_depend_on_the_stages_before() -> None:
    keys = demo.stage_keys()
    assert len(set(keys.values())) == len(keys)
    assert set(keys) == set(demo.stage_names())


def test_fresh_deletes_only_what_a_demo_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    _stages(monkeypatch, log)
    (tmp_path / "thesis.txt").write_text("three years of work")
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert main(["demo", "--out", str(tmp_path), "--fresh"]) == 0
    assert log == ["one", "two"] * 2
    assert (tmp_path / "thesis.txt").read_text() == "three years of work"


def test_other_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store.json").write_text("{}")
    assert main(["demo", "--out", str(tmp_path), "--fresh"]) == 2
    assert "is an episode store" in capsys.readouterr().err
    assert (tmp_path / "store.json").exists()


def test_it_says_how_many_updates_the_minutes_gave(tmp_path):
    run = tmp_path / "flow"
    run.mkdir()
    (run / "provenance.json").write_text('{"fit": {"steps": 4881, "seconds": 119.0}}')
    assert updates(run).startswith("flow: 4,881 updates in 2.0 min; a slower or busier machine")
