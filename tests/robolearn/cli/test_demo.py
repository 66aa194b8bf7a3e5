"""What ``robolearn demo`` says of its stages (`make demo` runs them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from robolearn.cli import demo
from robolearn.cli.demo import trusted, updates
from robolearn.cli.main import main
from robolearn.operations.stages import Stage, stage_keys


def _stages(monkeypatch: pytest.MonkeyPatch, log: list[str], stopped: tuple[str, ...] = ()) -> None:
    def step(name: str):
        def run(out: Path) -> None:
            log.append(name)
            (out / name / "result").write_text(name)
            if name in stopped:
                raise KeyboardInterrupt

        return run

    chain = (
        Stage("one", "first", step("one")),
        Stage("two", "second", step("two"), needs=("one",), resumable=True),
    )
    monkeypatch.setattr(demo, "stages", lambda: chain)


def test_it_says_what_is_done_and_what_is_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    _stages(monkeypatch, log)
    assert main(["demo", "--out", str(tmp_path / "d")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[:5] == [
        f"robolearn demo -> {tmp_path / 'd'}",
        "  1 one       first",
        "  2 two       second",
        "[1/2] one: first",
        "[1/2] one: done in 0 s",
    ]
    assert f"report: {tmp_path / 'd' / 'report' / 'report.html'}" in out
    assert main(["demo", "--out", str(tmp_path / "d")]) == 0
    assert log == ["one", "two"]
    told = "[2/2] two: reused (same code, configuration and data; 0 s then)"
    assert told in capsys.readouterr().out


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
    assert main(["demo", "--out", str(tmp_path), "--fresh"]) == 0
    assert log == ["one", "two"] * 2


def test_stop_says_what_is_finished_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []
    _stages(monkeypatch, log, stopped=("two",))
    assert main(["demo", "--out", str(tmp_path)]) == 130
    assert "finished stages: one\n" in capsys.readouterr().out
    _stages(monkeypatch, log)
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "[2/2] two: second (going on)" in capsys.readouterr().out


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


def test_keys_depend_on_the_stages_before() -> None:
    chain = demo.stages()
    keys = stage_keys(chain)
    assert len(set(keys.values())) == len(keys) == 9
    assert list(keys) == [stage.name for stage in chain]


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


def test_it_says_what_so_few_policies_show(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    file.write_text('[{"k": 3, "verdict": "not shown", "why": "too few"}]')
    assert trusted(file).endswith("3 policies: not shown (too few)")
