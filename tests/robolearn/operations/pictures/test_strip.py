"""An episode is drawn as one picture by a function."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robolearn.data.importers.recording import ImportOptions
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.pictures.strip import draw_strip
from robolearn.operations.stores.importing import import_recording


def test_the_newest_episode_is_drawn_from_its_poses(tmp_path: Path, capsys) -> None:
    store, out = tmp_path / "store", tmp_path / "strip.png"
    ids = import_recording(store, options=ImportOptions(limit=2)).ids
    assert draw_strip(store, out) == ids[-1]
    with Image.open(out) as picture:
        flat = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (flat == (144, 238, 144)).all(axis=1).sum() > 1000
    newest = out.read_bytes()
    assert draw_strip(store, out, episode=ids[0], frames=3) == ids[0]
    assert out.read_bytes() != newest
    assert capsys.readouterr().out == ""


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(ConfigError, match="has no episodes to look at"):
        draw_strip(tmp_path / "empty", tmp_path / "a.png")
    with pytest.raises(ConfigError, match="frames must be at least 1, got 0"):
        draw_strip(tmp_path / "empty", tmp_path / "a.png", frames=0)
    with pytest.raises(DataError, match=r"name it a\.png"):
        draw_strip(tmp_path / "empty", tmp_path / "a.jpg", episode="ep_000000")
    assert not list(tmp_path.glob("*.png"))
