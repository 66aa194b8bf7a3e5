"""``robolearn data``: import, ls, show, check; exit codes and one-line errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.data.commands import VERBS, main
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from tests.episodes import small_episode


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with EpisodeStore.create(path).writer() as writer:
        for k in range(2):
            writer.append(small_episode(k))
    return path


def test_import_of_the_bundled_demonstrations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "store"
    assert main(["import", "--out", str(out), "--limit", "2", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["imported"], result["steps"]) == (2, 279)
    assert (result["first"], result["last"]) == ("ep_000000", "ep_000001")
    assert main(["import", "--out", str(out), "--limit", "3"]) == 0
    said = capsys.readouterr().out
    assert "imported 1 episodes, 141 steps" in said
    assert "there before, bit for bit: 2 of 3 episodes" in said
    assert len(EpisodeStore.open(out).ids()) == 3


def test_a_failed_import_creates_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "store"
    assert robolearn(["data", "import", str(tmp_path / "absent"), "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert "does not exist" in error
    assert "\n" not in error
    assert not out.exists()


def test_a_store_is_merged_not_imported(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert robolearn(["data", "import", str(store), "--out", str(tmp_path / "out")]) == 2
    assert "is an episode store already; 'robolearn data merge" in capsys.readouterr().err


def test_ls_json_has_exactly_one_key(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(store), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["episodes"]
    assert [(e["id"], e["steps"]) for e in document["episodes"]] == [
        ("ep_000000", 12),
        ("ep_000001", 12),
    ]


def test_ls_for_a_person(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", str(store)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ep_000000")
    assert lines[-1] == "2 episodes"


def test_ls_of_a_damaged_store_lists_the_rest(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "manifests/ep_000000.json").unlink()
    assert main(["ls", str(store), "--json"]) == 2
    captured = capsys.readouterr()
    assert [e["id"] for e in json.loads(captured.out)["episodes"]] == ["ep_000001"]
    assert "1 damaged" in captured.err


def test_show_a_store_and_an_episode(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(store), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["episodes"], summary["steps"], summary["successes"]) == (2, 24, 2)
    assert main(["show", str(store), "ep_000001", "--json"]) == 0
    episode = json.loads(capsys.readouterr().out)
    assert episode["signals"][0]["rate_hz"] == pytest.approx(10.0)
    assert episode["actions"][0]["saturated"] == 0.0
    assert main(["show", str(store), "ep_000001"]) == 0
    assert "tool/xy_table" in capsys.readouterr().out


def test_stats(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(store), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["signals"]
    assert [(r["role"], r["name"], r["unit"]) for r in rows] == [
        ("obs", "tool/xy_table", "m"),
        ("action", "tool/xy_table", "m"),
    ]
    values = np.concatenate([small_episode(k).observed("tool/xy_table") for k in range(2)])
    assert rows[0]["stats"]["count"] == 24
    assert rows[0]["stats"]["mean"] == pytest.approx(values.mean(axis=0))
    assert main(["stats", str(store)]) == 0
    assert "tool/xy_table [m], 24 values" in capsys.readouterr().out


def test_check(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(store)]) == 0
    assert "2 episodes" in capsys.readouterr().out
    chunk = next((store / "episodes/ep_000001/ticks/reward").glob("c.*"))
    chunk.write_bytes(b"")
    assert main(["check", str(store), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert not report["sound"]
    assert [f["kind"] for f in report["findings"]] == ["size"]
    assert main(["check", str(store)]) == 2
    assert "DAMAGED" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["ls", "show", "check"])
@pytest.mark.parametrize("kind", ["absent", "foreign", "newer", "file"])
def test_what_is_no_store_gets_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, kind: str
) -> None:
    path = tmp_path / "x"
    if kind == "file":
        path.write_text("x")
    elif kind != "absent":
        path.mkdir()
        (path / "mine.txt").write_text("x")
    if kind == "newer":
        identity = {"format": "robolearn-episode-store", "version": 99, "uuid": "0"}
        (path / "store.json").write_text(json.dumps(identity))
    assert robolearn(["data", verb, str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("robolearn data: ")
    assert len(captured.err.splitlines()) == 1


def test_a_store_that_lost_its_identity_is_damaged(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "store.json").unlink()
    assert robolearn(["data", "check", str(store)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_and_unknown_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    page = capsys.readouterr().out
    assert all(verb in page for verb in VERBS)
    assert main(["chek"]) == 2
    assert "Did you mean 'check'" in capsys.readouterr().err
    for verb in VERBS:
        with pytest.raises(SystemExit) as exit_info:
            main([verb, "--help"])
        assert exit_info.value.code == 0
