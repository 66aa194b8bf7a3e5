"""The flat cache: equal to the source, reused, rebuilt when the content changes, never half."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.cache import EpisodeArrays, cached, flatten, user_cache_dir
from robolearn.errors import DataError, StoreError
from tests.learning_mocks import BLOCK, TOOL, ArraySource, random_source


def test_the_cache_equals_the_source(tmp_path: Path) -> None:
    source = random_source()
    direct, mapped = flatten(source), cached(source, tmp_path)
    assert mapped.ids == direct.ids
    assert mapped.task_space == direct.task_space
    for name in (TOOL, BLOCK):
        np.testing.assert_array_equal(mapped.observations[name], direct.observations[name])
    np.testing.assert_array_equal(mapped.actions, direct.actions)
    np.testing.assert_array_equal(mapped.starts, [0, 7, 19, 28, 48])
    assert mapped.terminal.tolist() == [False, True, False, True]
    assert isinstance(mapped.actions, np.memmap)


class CountingSource:
    def __init__(self, source: ArraySource) -> None:
        self.source, self.reads = source, 0
        self.content_hash, self.task_space = source.content_hash, source.task_space

    def episodes(self) -> Iterable[EpisodeArrays]:
        self.reads += 1
        return self.source.episodes()


def test_a_second_run_reads_nothing_and_new_content_is_read(tmp_path: Path) -> None:
    source = CountingSource(random_source())
    cached(source, tmp_path)
    cached(source, tmp_path)
    assert source.reads == 1
    source.content_hash = "other"
    cached(source, tmp_path)
    assert source.reads == 2
    assert not list(tmp_path.glob(".*"))


def test_a_folder_without_index_is_not_read(tmp_path: Path) -> None:
    source = CountingSource(random_source())
    cached(source, tmp_path)
    (folder,) = tmp_path.iterdir()
    (folder / "index.json").unlink()
    for file in folder.iterdir():
        file.unlink()
    assert cached(source, tmp_path).ids == flatten(source).ids


def broken(**changes: object) -> ArraySource:
    good = random_source().items
    return ArraySource((good[0], dataclasses.replace(good[1], **changes)))


def test_nan_is_located() -> None:
    tool = np.array(random_source().items[1].observations[TOOL])
    tool[4, 1] = np.nan
    block = random_source().items[1].observations[BLOCK]
    with pytest.raises(DataError, match=r"e1: 'tool/xy_table' is not finite at step 4 of 12"):
        flatten(broken(observations={TOOL: tool, BLOCK: block}))


def test_shapes_and_missing_signals_are_explained() -> None:
    with pytest.raises(DataError, match=r"expected actions \(12, 2\), got \(12, 3\)"):
        flatten(broken(actions=np.zeros((12, 3))))
    with pytest.raises(DataError, match="lacks 'tool/xy_table'"):
        flatten(broken(observations={BLOCK: np.zeros((12, 3))}))
    with pytest.raises(DataError, match="has no steps"):
        flatten(broken(actions=np.zeros((0, 2))))
    with pytest.raises(DataError, match="no episodes to train on"):
        flatten(ArraySource(()))


def test_an_unwritable_place_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="ROBOLEARN_CACHE"):
        cached(random_source(), tmp_path / "file" / "below")


def test_the_place_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", "/a/b")
    assert user_cache_dir() == Path("/a/b")
    monkeypatch.delenv("ROBOLEARN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert user_cache_dir() == Path("/c/robolearn")
