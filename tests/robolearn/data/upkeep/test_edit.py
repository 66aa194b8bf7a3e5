"""Filter, split and merge: copies as committed, complete or not there at all."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.data.episode import Episode
from robolearn.data.store.annotations import Annotated, Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import (
    Selection,
    assign_splits,
    diff_embodiments,
    filter_store,
    merge_stores,
    select,
    split_store,
)
from robolearn.errors import DataError, SpecMismatchError, StoreCorruptError, StoreError
from tests.episodes import assert_same, embodiment, small_episode

ROOT = Path(__file__).resolve().parents[4]

# One child per step; each dies by SIGKILL just before its n-th call while it merges.
KILL_MERGES = """
import json, os, signal, sys
from pathlib import Path
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import merge_stores
from robolearn.data.store.store import EpisodeStore
base, first, stride = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
stores = [EpisodeStore.open(base / "a"), EpisodeStore.open(base / "b")]
results = []
for n in range(first, 5000, stride):
    pid = os.fork()
    if pid == 0:
        count = 0
        def wrap(name):
            real = getattr(os, name)
            def call(*args, **kwargs):
                global count
                count += 1
                if count == n:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **kwargs)
            setattr(os, name, call)
        for name in ("fsync", "rename", "replace", "unlink", "mkdir", "pwrite"):
            wrap(name)
        merge_stores(stores, base / f"out{n}")
        os._exit(7)
    _, status = os.waitpid(pid, 0)
    out = base / f"out{n}"
    whole = out.exists() and check_store(out).findings == () and len(EpisodeStore.open(out).ids())
    results.append([os.WIFEXITED(status), out.exists(), whole, check_store(base / "a").sound])
    if os.WIFEXITED(status):
        break
print(json.dumps(results))
"""


def make(path: Path, *seeds: int, image: bool = False) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for seed in seeds:
            writer.append(small_episode(seed, steps=5 + seed, image=image))
    return store


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def without_origin(store: EpisodeStore, episode_id: str) -> Episode:
    episode = store.read(episode_id)
    provenance = {k: v for k, v in episode.meta.provenance.items() if k != "origin"}
    return dataclasses.replace(
        episode, meta=dataclasses.replace(episode.meta, provenance=provenance)
    )


def test_merge_renumbers_keeps_the_origin_and_the_annotations(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 0, 1), make(tmp_path / "b", 2, 3)
    with b.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "anna", success=False, reason="slip", note="x"))
        writer.annotate(Annotation(("ep_000000",), "ben", note="y", add_labels=("z",)))
        writer.remove(("ep_000001",), "ben")
    before = snapshot(tmp_path)
    merged = merge_stores([a, b], tmp_path / "out")
    assert {k: v for k, v in snapshot(tmp_path).items() if k in before} == before
    assert merged.ids() == ("ep_000000", "ep_000001", "ep_000002")
    for k, episode_id in enumerate(merged.ids()[:2]):
        assert_same(without_origin(merged, episode_id), small_episode(k, steps=5 + k))
    origin = merged.meta("ep_000002").provenance["origin"]
    digest = next(e for e in b.log() if e.id == "ep_000000").files["manifests/ep_000000.json"]
    assert origin == [{"store": b.uuid, "episode": "ep_000000", "sha256": digest}]
    assert merged.annotated("ep_000002") == b.annotated("ep_000000")
    assert merged.annotated("ep_000002") == Annotated(False, "slip", ("z",), ("x", "y"))
    assert check_store(merged.path).findings == ()
    again = merge_stores([merged, make(tmp_path / "c", 4)], tmp_path / "out2")
    assert [o["store"] for o in again.meta("ep_000002").provenance["origin"]] == [
        b.uuid,
        merged.uuid,
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "c", "out", "out2"]


def test_merge_refuses_different_embodiments_readably(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 0), make(tmp_path / "b", 1, image=True)
    with pytest.raises(SpecMismatchError, match=r"top/image: not wanted.*\n.*--allow"):
        merge_stores([a, b], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(merge_stores([a, b], tmp_path / "out", allow=True).ids()) == 2
    assert diff_embodiments(embodiment(), embodiment()) == []


def test_merge_refuses_twice_the_same_one_alone_and_what_exists(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 0), make(tmp_path / "b", 1)
    with pytest.raises(DataError, match="named twice"):
        merge_stores([a, EpisodeStore.open(a.path)], tmp_path / "out")
    with pytest.raises(DataError, match="at least two"):
        merge_stores([a], tmp_path / "out")
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match="exists already"):
        merge_stores([a, b], b.path)
    assert snapshot(tmp_path) == before


def test_a_damaged_source_gives_no_store_at_all(tmp_path: Path) -> None:
    a, b = make(tmp_path / "a", 0), make(tmp_path / "b", 1)
    chunk = next((b.path / "episodes/ep_000000/ticks/reward").glob("c.*"))
    data = chunk.read_bytes()
    chunk.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(StoreCorruptError, match="altered"):
        merge_stores([a, b], tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), "0123"),
        (Selection(ids=("ep_000002", "ep_000001")), "12"),
        (Selection(kinds=("demonstration",)), "0123"),
        (Selection(success=True), "123"),
        (Selection(success=False), "0"),
        (Selection(min_steps=7), "23"),
        (Selection(labels=("good",)), "13"),
        (Selection(labels=("good",), without_labels=("slow",)), "1"),
        (Selection(split="val"), "2"),
        (Selection(split=""), "013"),
        (Selection(tasks=("point",), min_score=0.0, max_score=1.0), "0123"),
    ],
)
def test_filter(tmp_path: Path, selection: Selection, expected: str) -> None:
    store = make(tmp_path / "a", 0, 1, 2, 3)
    with store.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "me", success=False))
        writer.annotate(Annotation(("ep_000001", "ep_000003"), "me", add_labels=("good",)))
        writer.annotate(Annotation(("ep_000003",), "me", add_labels=("slow",)))
        writer.annotate(Annotation(("ep_000002",), "me", split="val"))
    ids = tuple(f"ep_00000{k}" for k in expected)
    assert select(store, selection) == ids
    if len(ids) < 3:
        made = filter_store(store, selection, tmp_path / "out")
        assert [made.annotated(n) for n in made.ids()] == [store.annotated(o) for o in ids]
        assert check_store(made.path).findings == ()


def test_filter_that_finds_nothing_creates_nothing(tmp_path: Path) -> None:
    store = make(tmp_path / "a", 0)
    for selection, message in (
        (Selection(kinds=("rollout",)), "satisfies this"),
        (Selection(ids=("ep_000008",)), "no episode 'ep_000008'"),
    ):
        with pytest.raises(DataError, match=message):
            filter_store(store, selection, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_split_is_written_as_annotations(tmp_path: Path) -> None:
    store = make(tmp_path / "a", *range(5))
    dealt = split_store(store, {"train": 0.8, "val": 0.2}, seed=3, author="me")
    assert [len(v) for v in dealt.values()] == [4, 1]
    assert {i.id: i.split for i in store.list()} == {
        i: name for name, ids in dealt.items() for i in ids
    }
    assert assign_splits(store.ids(), {"train": 0.8, "val": 0.2}, seed=3) == dealt


@pytest.mark.parametrize("parts", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 0.999, "b": 0.001}])
def test_bad_splits(parts: dict[str, float]) -> None:
    with pytest.raises(DataError):
        assign_splits(["x", "y"], parts, 0)


@given(st.integers(4, 60), st.integers(0, 99), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_episode_is_in_exactly_one_part(count: int, seed: int, weights: list[int]) -> None:
    parts = {f"p{k}": w / sum(weights) for k, w in enumerate(weights)}
    ids = [f"e{k:03d}" for k in range(count)]
    try:
        dealt = assign_splits(ids, parts, seed)
    except DataError:
        return
    assert sorted(i for chosen in dealt.values() for i in chosen) == ids
    for name, chosen in dealt.items():
        assert abs(len(chosen) - parts[name] * count) <= 1


@pytest.mark.parametrize(
    ("first", "stride"), [(5, 60), pytest.param(1, 1, marks=[pytest.mark.slow])]
)
def test_a_kill_during_merge_leaves_nothing_half(tmp_path: Path, first: int, stride: int) -> None:
    make(tmp_path / "a", 0)
    b = make(tmp_path / "b", 1)
    with b.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "me", note="x"))
    done = subprocess.run(
        [sys.executable, "-c", KILL_MERGES, str(tmp_path), str(first), str(stride)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results[-1][0]
    for _, there, whole, source_sound in results:
        assert source_sound
        assert whole == (2 if there else False)
