"""Foreign recordings are imported by a function: once each, and all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from robolearn.data.importers.recording import ImportOptions
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.stores.importing import import_recording


def test_what_is_there_already_is_left_out(tmp_path: Path, capsys) -> None:
    told: list[tuple[int, int]] = []
    options = ImportOptions(limit=2, on_episode=lambda done, of: told.append((done, of)))
    done = import_recording(tmp_path / "store", options=options)
    assert told == [(1, 2), (2, 2)]
    assert (done.ids, done.steps) == (("ep_000000", "ep_000001"), 279)
    assert (done.format, done.there_before, done.skipped) == ("diffusion-policy", 0, {})
    again = import_recording(tmp_path / "store", options=ImportOptions(limit=3))
    assert (again.ids, again.steps, again.there_before) == (("ep_000002",), 141, 2)
    assert EpisodeStore.open(done.store).ids() == (*done.ids, *again.ids)
    assert capsys.readouterr().out == ""


def test_what_is_refused_leaves_no_store(tmp_path: Path) -> None:
    out = tmp_path / "store"
    for options, why in (
        (ImportOptions(limit=0), "limit must be at least 1, got 0"),
        (ImportOptions(images=True), "images: .* has no pictures"),
        (ImportOptions(rename={"a": "b"}), "rename is for LeRobot"),
    ):
        with pytest.raises(ConfigError, match=why):
            import_recording(out, options=options)
    with pytest.raises(DataError, match="does not exist"):
        import_recording(out, tmp_path / "absent")
    assert not out.exists()
