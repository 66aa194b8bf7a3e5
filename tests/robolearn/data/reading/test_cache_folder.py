"""Listing and clearing what training keeps outside the stores."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.reading.cache import cached
from robolearn.data.reading.cache_folder import cache_entries, clear_cache
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.store import EpisodeStore
from tests.episodes import TOOL, small_episode


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with two copies of one store, the older unused for ten days."""
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    store = EpisodeStore.create(tmp_path / "store")
    for k in range(2):
        with store.writer() as writer:
            writer.append(small_episode(k, 8))
        made = cached(StoreSource(store, DataConfig((TOOL,)))).folder
        assert made is not None
        if k == 0:
            past = time.time() - 10 * 86400
            for file in made.iterdir():
                os.utime(file, (past, past))
    (tmp_path / "cache" / "uploads").mkdir()
    return tmp_path / "cache"


def test_they_are_listed_with_what_they_hold(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = cache_entries()
    assert (old.episodes, new.episodes) == (1, 2)
    assert old.signals == new.signals == (TOOL,)
    assert 9.9 < old.unused_days < 10.1
    assert new.unused_days < 0.1
    assert new.size_bytes == sum(f.stat().st_size for f in new.path.iterdir())
    assert main(["data", "cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(old.path.name)
    assert lines[2].startswith("2 copies")
    assert main(["data", "cache", "--days", "5", "--json"]) == 0
    (copy,) = json.loads(capsys.readouterr().out)["copies"]
    assert copy["path"] == str(old.path)


def test_clear_takes_what_is_old_enough_and_nothing_else(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "cache", "--clear", "--days", "5"]) == 0
    assert capsys.readouterr().out.startswith("removed: 1 copies")
    (left,) = cache_entries()
    assert left.episodes == 2
    assert (root / "uploads").is_dir()
    assert main(["data", "cache", "--clear", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["removed"]) == 1
    assert cache_entries() == ()
    assert (root / "uploads").is_dir()
    assert main(["data", "cache", "--days", "-1"]) == 2
    assert "--days must be at least 0" in capsys.readouterr().err


def test_a_copy_in_use_stays_readable_and_a_build_at_work_is_left_alone(root: Path) -> None:
    store = EpisodeStore.open(root.parent / "store")
    flat = cached(StoreSource(store, DataConfig((TOOL,))))
    building = root / ".flat-at-work"
    building.mkdir()
    lock = StoreLock(building)
    gone, busy = clear_cache()
    assert len(gone) == 2
    assert [e.path for e in busy] == [building]
    assert not busy[0].complete
    assert np.isfinite(flat.observations[TOOL][np.arange(16)]).all()
    lock.release()
    clear_cache()
    assert not building.exists()
