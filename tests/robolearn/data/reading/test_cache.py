"""The flat cache: equal to the source, reused, rebuilt when the content changes, never half."""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Iterable, Sequence
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from robolearn.data.reading.cache import cached, flatten, user_cache_dir
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.store.decoded import FramePart
from robolearn.data.store.lock import StoreLock
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
    assert mapped.done[mapped.starts[1:] - 1].tolist() == [False, True, False, True]
    assert mapped.done.sum() == 2
    assert isinstance(mapped.actions, np.memmap)


class CountingSource:
    def __init__(self, source: ArraySource) -> None:
        self.source, self.reads = source, 0
        self.content_hash, self.task_space = source.content_hash, source.task_space
        self.steps = source.steps

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        self.reads += 1
        return self.source.episodes(images)

    def frames(self, name: str) -> Sequence[FramePart]:
        return self.source.frames(name)


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


class OneByOne(CountingSource):
    """Counts how many episodes exist at the same time, and may be interrupted."""

    def __init__(self, source: ArraySource, stop_after: int = 99) -> None:
        super().__init__(source)
        self.alive = self.most = 0
        self.stop_after = stop_after

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        for k, episode in enumerate(self.source.episodes()):
            if k == self.stop_after:
                raise KeyboardInterrupt
            copy = dataclasses.replace(episode, actions=np.array(episode.actions))
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(copy.actions, self._gone)
            yield copy
            del copy, episode

    def _gone(self) -> None:
        self.alive -= 1


def test_episodes_are_read_one_by_one_and_progress_is_told(tmp_path: Path) -> None:
    source, told = OneByOne(random_source((5,) * 9)), list[tuple[int, int]]()
    cached(source, tmp_path, on_episode=lambda done, of: told.append((done, of)))
    assert source.most <= 2
    assert told == [(k, 9) for k in range(1, 10)]


def test_an_interrupted_build_starts_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        cached(OneByOne(random_source(), stop_after=2), tmp_path)
    assert not list(tmp_path.iterdir())
    assert cached(random_source(), tmp_path).ids == ("e0", "e1", "e2", "e3")


def test_what_a_killed_build_left_is_removed_and_a_live_one_is_not(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".flat-0-dead", tmp_path / ".flat-0-alive"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "actions.npy").write_bytes(b"half")
        os.utime(folder, (0, 0))
    lock = StoreLock(alive)
    cached(random_source(), tmp_path)
    lock.release()
    assert not dead.exists()
    assert alive.exists()


def test_a_listing_that_does_not_fit_is_explained(tmp_path: Path) -> None:
    for steps in ((7, 12, 9, 21), (7, 12, 9), (7, 12, 9, 20, 3)):
        source = CountingSource(random_source())
        source.steps = steps
        with pytest.raises(DataError, match=r"listing says otherwise|are listed"):
            cached(source, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_noticed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(free=100)
    monkeypatch.setattr("robolearn.data.reading.cache.shutil.disk_usage", lambda _: full)
    source = CountingSource(random_source())
    with pytest.raises(StoreError, match=r"needs .* GB, .* has .* free; set ROBOLEARN_CACHE"):
        cached(source, tmp_path)
    assert source.reads == 0


def test_a_mapped_copy_is_pickled_by_name(tmp_path: Path) -> None:
    mapped = cached(random_source((400, 400)), tmp_path)
    data = bytes(ForkingPickler.dumps(mapped))
    assert len(data) < 2000
    again = ForkingPickler.loads(data)
    np.testing.assert_array_equal(again.actions, mapped.actions)
    assert isinstance(again.actions, np.memmap)
