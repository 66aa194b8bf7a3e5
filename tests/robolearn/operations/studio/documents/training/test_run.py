"""Runs are described whatever state they are in; what is wrong stands beside what is not."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from robolearn.operations.studio.documents.training import run as run_module
from robolearn.operations.studio.documents.training.differences import ABSENT, run_differences
from robolearn.operations.studio.documents.training.run import LIVE_S, RunDocument, run_document
from robolearn.operations.studio.encoding import encode as encoded

SETTINGS = {"policy": "flow", "seed": 3, "fit": {"steps": 40}, "data": {"stores": []}}


def make_run(path: Path, *, complete: bool = True, **settings) -> Path:
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(SETTINGS | settings))
    provenance = {"complete": complete, "episodes": 5, "data_hash": "d1", "held_out": ["e1"]}
    (path / "provenance.json").write_text(json.dumps(provenance))
    lines = [
        {"step": s, "seconds": s / 10, "loss/flow": 1 / s, "held_out/flow": 2 / s}
        for s in range(10, 41, 10)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return path


def described(path: Path, **more) -> RunDocument:
    found = run_document(path, **more)
    json.loads(encoded(found))
    return found


def test_a_finished_run_and_the_commands_about_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "my run")
    store = tmp_path / "store"
    found = described(run, stores={"d1": store})
    assert found.problems == ()
    assert (found.state, found.updates, found.wanted, found.episodes) == ("finished", 40, 40, "5")
    assert found.figures == ("loss/flow",)
    assert found.held_out == ("held_out/flow",)
    assert found.held_out_episodes == ("e1",)
    repeat = shlex.split(found.commands[0].command)
    assert repeat[:2] == ["robolearn", "train"]
    assert repeat[repeat.index("--config") + 1] == str(run / "config.yaml")
    assert repeat[repeat.index("--store") + 1] == str(store)
    assert not found.commands[0].missing
    assert {shlex.split(c.command)[1] for c in found.commands} == {"train", "evaluate", "deploy"}


def test_a_run_that_goes_on_and_one_that_stopped(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", complete=False)
    newest = (run / "metrics.jsonl").stat().st_mtime
    assert described(run, now_s=newest + 1).state == "training"
    stopped = described(run, now_s=newest + LIVE_S + 60)
    assert stopped.state == "stopped"
    assert "--resume" in stopped.commands[0].command
    assert stopped.commands[0].missing == ("STORE",)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.yaml", "policy: [flow", "config.yaml"),
        ("config.yaml", "- a list", None),
        ("config.yaml", "\xff\x00", "config.yaml"),
        ("provenance.json", '{"complete": tr', "provenance.json"),
        ("provenance.json", "[]", "provenance.json"),
        ("metrics.jsonl", '{"step": 10}\n{"step": \n{"step": 30}\n', "log"),
        ("metrics.jsonl", '[1]\n"word"\n', None),
        ("metrics.jsonl", "", None),
    ],
)
def test_a_damaged_file_is_said_and_the_rest_is_told(
    tmp_path: Path, name: str, content: str, said: str | None
) -> None:
    run = make_run(tmp_path / "run")
    (run / name).write_bytes(content.encode("latin-1"))
    found = described(run)
    assert found.path == str(run)
    if said is not None:
        assert any(said in p.where or said in p.words for p in found.problems)
    if name == "metrics.jsonl":
        assert (found.state, found.episodes, found.policy) == ("finished", "5", "flow")
    if name == "config.yaml":
        assert found.episodes == "5"


def test_an_empty_folder_a_file_and_one_that_vanished(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for name in ("empty", "file", "gone"):
        found = described(tmp_path / name)
        assert found.state == "unreadable"
        assert found.problems
    assert "not there any more" in described(tmp_path / "gone").problems[0].words


def test_a_long_log_is_not_read_as_a_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run_module, "MOST_LOG_BYTES", 50)
    found = described(make_run(tmp_path / "run"))
    assert found.state == "finished"
    assert "its curves are shown" in found.problems[0].words


def test_runs_are_told_apart(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two", seed=4, data={"stores": ["s"]}, extra={"a": 1})
    (two / "provenance.json").write_text('{"data_hash": "d2", "episodes": 5}')
    found = run_differences([one, two])
    rows = {(r.kind, r.name): r.values for r in found.rows}
    assert rows["config", "seed"] == ("3", "4")
    assert rows["config", "extra.a"] == (ABSENT, "1")
    assert rows["data", "data_hash"] == ("d1", "d2")
    assert ("config", "fit.steps") not in rows
    assert found.alike >= 3
    broken = run_differences([one, tmp_path / "gone"])
    assert [p.where for p in broken.problems] == ["gone/config.yaml", "gone/provenance.json"]


def test_describing_runs_and_trust_needs_neither_torch_nor_mujoco() -> None:
    # The page of trust waited for both before it said anything.
    names = ", ".join(
        f"robolearn.operations.studio.documents.{n}"
        for n in ("training.run", "training.practice", "trust")
    )
    code = f"import sys, {names}; print(sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    ).stdout
    assert "'torch'" not in told
    assert "'mujoco'" not in told


def test_a_practice_that_has_learned_nothing_yet_can_be_read(tmp_path: Path):
    (tmp_path / "practice.jsonl").write_text('{"number": 0, "driver": "parent"}\n')
    found = run_document(tmp_path)
    assert (found.state, found.practised) == ("training", True)
    assert [p.words for p in found.problems] == ["nothing was logged yet"]
    assert run_document(tmp_path, now_s=time.time() + 600).state == "stopped"
