"""The episode store on a local disk: creation, appending, reading, refusals."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robolearn.data.episode import Episode
from robolearn.data.store.chunks import FileSink, read_array, rows_per_chunk, write_array
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.validate import validate_episode
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError, SpecMismatchError, StoreCorruptError, StoreError
from robolearn.types import SampleBlock
from tests.contracts import StoreContract
from tests.episodes import IMAGE, TOOL, small_episode


class TestLocalStore(StoreContract):
    def make(self, tmp_path: Path) -> EpisodeStore:
        return EpisodeStore.create(tmp_path / "store")


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    made = EpisodeStore.create(tmp_path / "store")
    with made.writer() as writer:
        writer.append(small_episode(0))
        writer.append(small_episode(1, image=True))
    return made


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_plain_zarr_reads_every_array_and_the_metadata(store: EpisodeStore) -> None:
    root: Any = zarr.open_group(str(store.path / "episodes"), mode="r")
    assert sorted(root.keys()) == ["ep_000000", "ep_000001"]
    group, episode = root["ep_000001"], small_episode(1, image=True)
    assert group.attrs["task"] == "point"
    assert group.attrs["provenance"]["nested"]["list"][3] == "é"
    for name in (TOOL, IMAGE):
        np.testing.assert_array_equal(
            group[f"signals/{name}/value"][:], episode.streams[name].value
        )
        np.testing.assert_array_equal(group[f"signals/{name}/view"][:], episode.view[name])
    np.testing.assert_array_equal(group[f"action/{TOOL}"][:], episode.action[TOOL])
    np.testing.assert_array_equal(group["ticks/terminal"][:], episode.terminal)
    assert group["sent/seq"].shape == (0,)
    assert group["ticks/source"].attrs["labels"] == ["human"]
    names = [c.to_dict()["name"] for c in group[f"signals/{IMAGE}/value"].metadata.codecs]
    assert names == ["bytes", "zstd", "crc32c"]
    assert group[f"signals/{IMAGE}/value"].chunks[0] == 16
    assert group[f"signals/{TOOL}/value"].chunks == (12, 2)


def test_large_frames_come_in_chunks_of_at_most_four_megabytes() -> None:
    uint8 = np.dtype(np.uint8)
    assert rows_per_chunk((96, 96, 3), uint8, 500) == 16
    assert rows_per_chunk((480, 640, 3), uint8, 500) == 4
    assert rows_per_chunk((3000, 4000, 3), uint8, 500) == 1
    assert rows_per_chunk((7,), np.dtype(np.float64), 500) == 500


def test_plain_zarr_notices_a_flipped_bit(store: EpisodeStore) -> None:
    chunk = next((store.path / "episodes/ep_000000/ticks/reward").glob("c.*"))
    data = bytearray(chunk.read_bytes())
    data[3] ^= 1
    chunk.write_bytes(bytes(data))
    root: Any = zarr.open_group(str(store.path / "episodes"), mode="r")
    with pytest.raises(ValueError, match="checksum"):
        root["ep_000000/ticks/reward"][:]


def test_appending_changes_nothing_that_is_committed(store: EpisodeStore) -> None:
    before = snapshot(store.path)
    with store.writer() as writer:
        writer.append(small_episode(2))
    after = snapshot(store.path)
    log = "commits.jsonl"
    assert after[log].startswith(before.pop(log))
    assert {name: after[name] for name in before} == before


def test_selected_signals_only(store: EpisodeStore) -> None:
    episode = store.read("ep_000001", signals=[TOOL])
    assert set(episode.streams) == {TOOL}
    with pytest.raises(DataError, match="It has"):
        episode.observed(IMAGE)


def test_a_store_sees_what_another_handle_appends(store: EpisodeStore) -> None:
    other = EpisodeStore.open(store.path)
    assert len(other.ids()) == 2
    with store.writer() as writer:
        writer.append(small_episode(2))
    assert len(other.ids()) == 3
    assert other.read("ep_000002").steps == 12
    assert other.uuid == store.uuid


def test_unknown_id_says_what_exists(store: EpisodeStore) -> None:
    with pytest.raises(StoreError, match=r"no episode 'ep_00001'.*Did you mean.*ep_000001"):
        store.read("ep_00001")


def test_create_refuses_what_exists_and_open_or_create_opens(store: EpisodeStore) -> None:
    with pytest.raises(StoreError, match="exists already"):
        EpisodeStore.create(store.path)
    assert EpisodeStore.open_or_create(store.path).uuid == store.uuid


def test_a_store_inside_a_store_is_refused(store: EpisodeStore) -> None:
    assert isinstance(store.path, Path)
    with pytest.raises(StoreError, match=r"sub is inside the store .*; choose a place beside it"):
        EpisodeStore.create(store.path / "episodes" / "sub")
    assert check_store(store.path).findings == ()


def test_an_empty_folder_becomes_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert EpisodeStore.open_or_create(folder).list() == ()
    assert [p.name for p in tmp_path.iterdir()] == ["empty"]


def test_a_path_through_a_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot create a store"):
        EpisodeStore.create(tmp_path / "file" / "store")
    with pytest.raises(StoreError, match="file"):
        EpisodeStore.open_or_create(tmp_path / "file")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (None, "not an episode store"),
        ({"format": "other", "version": 1}, "says format 'other'"),
        ({"format": "robolearn-episode-store", "version": 99}, "newer|upgrade"),
    ],
)
def test_foreign_and_newer_folders_are_refused_unchanged(
    tmp_path: Path, contents: dict[str, object] | None, message: str
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "data.txt").write_text("mine")
    if contents is not None:
        (folder / "store.json").write_text(json.dumps(contents))
    before = snapshot(folder)
    for attempt in (EpisodeStore.open, EpisodeStore.open_or_create):
        with pytest.raises(StoreError, match=message):
            attempt(folder)
    assert snapshot(folder) == before


def test_a_full_disk_is_said_and_leaves_nothing(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(sink: FileSink) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with store.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(FileSink, "sync", full)
            with pytest.raises(StoreError, match="disk is full"):
                writer.append(small_episode(2))
        assert list((store.path / "tmp").iterdir()) == []
        assert writer.append(small_episode(2)) == "ep_000002"


def test_a_read_only_store_is_said_and_unchanged(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(store.path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(StoreError, match="read-only"), store.writer():
        pass
    assert snapshot(store.path) == before
    assert store.read("ep_000000").steps == 12


def test_leftovers_of_killed_creations_are_swept(store: EpisodeStore) -> None:
    old, fresh = (store.path.parent / f".store.{name}.creating" for name in ("old", "fresh"))
    for folder in (old, fresh):
        folder.mkdir()
    os.utime(old, (0, 0))
    with store.writer():
        pass
    assert not old.exists()
    assert fresh.exists()


def test_a_store_behind_a_link(store: EpisodeStore, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(store.path)
    with EpisodeStore.open(link).writer() as writer:
        writer.append(small_episode(2))
    assert len(store.ids()) == 3


def test_the_lock_leaves_no_file_and_names_its_holder(store: EpisodeStore) -> None:
    before = snapshot(store.path)
    lock = StoreLock(store.path)
    with pytest.raises(StoreError, match=str(os.getpid())):
        StoreLock(store.path)
    lock.release()
    lock.release()
    StoreLock(store.path).release()
    assert snapshot(store.path) == before


def test_reading_a_shortened_chunk_raises_and_others_still_load(store: EpisodeStore) -> None:
    chunk = next((store.path / f"episodes/ep_000000/signals/{TOOL}/value").glob("c.*"))
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(StoreCorruptError, match=r"expected \d+ bytes"):
        store.read("ep_000000")
    assert store.read("ep_000001").steps == 12


def test_a_lost_manifest_is_not_taken_for_an_episode_never_committed(store: EpisodeStore) -> None:
    (store.path / "manifests/ep_000000.json").unlink()
    with pytest.raises(StoreCorruptError, match="lost"):
        store.list()
    assert [i.id for i in store.list(strict=False)] == ["ep_000001"]


def wrong(**changes: object) -> Episode:
    return dataclasses.replace(small_episode(), **changes)


def block(**changes: object) -> SampleBlock:
    return dataclasses.replace(small_episode().streams[TOOL], **changes)


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (wrong(tick_t_ns=np.arange(12)[::-1].copy()), "time goes backwards"),
        (wrong(tick_t_ns=np.zeros(0, dtype=np.int64)), "at least one tick"),
        (wrong(reward=np.zeros(11)), "expected 12 values"),
        (wrong(source=("a",)), "source"),
        (wrong(terminal=np.ones(12, dtype=np.bool_)), "before the last tick"),
        (wrong(action={}), "as in the embodiment"),
        (wrong(action={TOOL: np.zeros((12, 3))}), "shape"),
        (wrong(view={TOOL: np.full(12, 12)}), "outside"),
        (wrong(view={TOOL: np.arange(12)[::-1].copy()}), "backwards"),
        (wrong(view={}), "view"),
        (wrong(streams={TOOL: block(value=np.zeros((12, 2), dtype=np.float32))}), "dtype"),
        (wrong(streams={TOOL: block(value=np.zeros((12, 3)))}), "shape"),
        (wrong(streams={TOOL: block(value=np.zeros((11, 2)))}), "12 times"),
        (wrong(streams={TOOL: block(valid=np.ones(3, dtype=np.bool_))}), "validity"),
        (wrong(streams={TOOL: block(value=np.full((12, 2), np.inf))}), "NaN or infinity"),
    ],
)
def test_validation(episode: Episode, message: str) -> None:
    with pytest.raises(DataError, match=message):
        validate_episode(episode)


def test_a_signal_outside_the_embodiment_is_refused() -> None:
    episode = wrong(streams={"arm/other": block()})
    with pytest.raises(SpecMismatchError, match="no signal"):
        validate_episode(episode)


def test_missing_samples_may_be_nan_when_marked() -> None:
    values, valid = np.zeros((12, 2)), np.ones(12, dtype=np.bool_)
    values[3], valid[3] = np.nan, False
    validate_episode(wrong(streams={TOOL: block(value=values, valid=valid)}))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.integers(0, 40),
    item=st.sampled_from([(), (1,), (3,), (2, 2), (40, 40, 3)]),
    dtype=st.sampled_from(["bool", "uint8", "int16", "int64", "float32", "float64"]),
    seed=st.integers(0, 9),
)
def test_arrays_round_trip_through_our_reader_and_zarr(
    tmp_path: Path, rows: int, item: tuple[int, ...], dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.random((rows, *item)) * 200).astype(dtype)
    root = tmp_path / f"{rng.integers(1 << 62)}-{rows}-{len(item)}-{dtype}"
    root.mkdir(exist_ok=True)
    name = f"a{len(list(root.iterdir()))}"
    sink = FileSink(root)
    write_array(sink, name, values, {"k": 1})
    read, attributes = read_array(root, name, {e.path: e for e in sink.entries})
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values)
    np.testing.assert_array_equal(
        np.asarray(zarr.open_array(str(root / name), mode="r")[:]), values
    )
    assert attributes == {"k": 1}


def test_metadata_must_be_json(store: EpisodeStore) -> None:
    meta = dataclasses.replace(small_episode().meta, provenance={"x": float("nan")})
    with store.writer() as writer, pytest.raises(DataError, match="finite JSON"):
        writer.append(wrong(meta=meta))
    assert len(store.ids()) == 2


def test_the_snippets_of_the_documentation_run(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[4] / "docs/data_format.md").read_text()
    snippets = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    # The one about encoded cameras runs in test_picture_codec.py.
    snippets = [s for s in snippets if "offset" not in s]
    assert len(snippets) == 2
    monkeypatch.chdir(store.path.parent)
    for snippet in snippets:
        exec(snippet.replace('"STORE"', '"store"'), {})
        assert "ep_000001" in capsys.readouterr().out
