"""What people say about episodes: one more record each, counted in the hash, undone by another."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.data.store.annotations import Annotated, Annotation, active, combine
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError, StoreCorruptError, StoreError
from tests.episodes import assert_same, small_episode

FIRST, SECOND = "ep_000000", "ep_000001"


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    made = EpisodeStore.create(tmp_path / "store")
    with made.writer() as writer:
        for k in range(3):
            writer.append(small_episode(k))
    return made


def say(store: EpisodeStore, *episodes: str, **fields: object) -> str:
    with store.writer() as writer:
        return writer.annotate(Annotation(episodes, "anna", **fields))


def snapshot(store: EpisodeStore) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(store.path.rglob("*")) if p.is_file()}


def test_the_effective_outcome_is_read_and_the_files_do_not_change(store: EpisodeStore) -> None:
    before = snapshot(store)
    record = say(store, FIRST, success=False, reason="slip", add_labels=("slip", "slow"))
    assert record == "an_000004"
    assert not store.info(FIRST).success
    assert store.info(FIRST).labels == ("slip", "slow")
    assert not store.read(FIRST).success
    assert store.meta(FIRST).outcome.reason == "slip"
    assert store.info(SECOND).success
    assert_same(store.read(SECOND), small_episode(1))
    after = snapshot(store)
    log = str(store.path / "commits.jsonl")
    assert after[log].startswith(before.pop(log))
    assert {name: after[name] for name in before} == before
    (entry,) = store.annotations()
    assert (entry.author, entry.episodes) == ("anna", (FIRST,))
    assert entry.wall_ns > 1_700_000_000_000_000_000
    assert check_store(store.path).findings == ()


def test_annotations_count_in_the_hash_and_undo_is_another_record(store: EpisodeStore) -> None:
    plain = store.content_hash()
    first = say(store, FIRST, SECOND, split="val", note="dim light")
    said = store.content_hash()
    assert said != plain
    assert EpisodeStore.open(store.path).content_hash() == said
    undo = say(store, undoes=first)
    assert store.content_hash() == plain
    assert store.annotated(SECOND) == Annotated()
    say(store, undoes=undo)
    assert store.content_hash() == said
    assert store.annotated(SECOND) == Annotated(notes=("dim light",), split="val")
    assert len(store.annotations()) == 3
    with pytest.raises(DataError, match="undone already"):
        say(store, undoes=undo)


def test_labels_add_up_and_the_last_split_holds(store: EpisodeStore) -> None:
    say(store, FIRST, add_labels=("b", "a"), split="train")
    say(store, FIRST, add_labels=("c",), remove_labels=("a",), split="val")
    assert store.annotated(FIRST) == Annotated(labels=("b", "c"), split="val")
    say(store, FIRST, split="")
    assert store.info(FIRST).split == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"note": "x", "episodes": ("ep_000009",)}, "no episode 'ep_000009'.*Did you mean"),
        ({"note": "x", "episodes": (FIRST, FIRST)}, "named twice"),
        ({"note": "x", "episodes": ()}, "at least one episode"),
        ({"note": "x", "author": " "}, "needs an author"),
        ({}, "says nothing"),
        ({"add_labels": ("two words",)}, "words without spaces"),
        ({"split": "a,b"}, "words without spaces"),
        ({"add_labels": ("x",), "remove_labels": ("x",)}, "both added and removed"),
        ({"reason": "slip"}, "belongs to an outcome"),
        ({"undoes": "an_000077"}, "no annotation 'an_000077'"),
    ],
)
def test_bad_records_are_refused_and_change_nothing(
    store: EpisodeStore, fields: dict[str, object], message: str
) -> None:
    before = snapshot(store)
    record = dataclasses.replace(Annotation((FIRST,), "anna"), **fields)
    with store.writer() as writer, pytest.raises(DataError, match=message):
        writer.annotate(record)
    assert snapshot(store) == before


def test_a_damaged_annotation_costs_only_its_own_episodes(store: EpisodeStore) -> None:
    record = say(store, FIRST, note="x")
    say(store, SECOND, success=False)
    path = store.path / f"annotations/{record}.json"
    path.write_bytes(path.read_bytes().replace(b'"x"', b'"y"'))
    again = EpisodeStore.open(store.path)
    with pytest.raises(StoreCorruptError, match="altered"):
        again.read(FIRST)
    assert not again.read(SECOND).success
    assert [i.id for i in again.list(strict=False)] == [SECOND, "ep_000002"]
    with pytest.raises(StoreCorruptError):
        again.content_hash()
    path.unlink()
    with pytest.raises(StoreCorruptError, match="lost"):
        EpisodeStore.open(store.path).info(FIRST)


def test_removed_episodes_are_gone_until_restored(store: EpisodeStore) -> None:
    say(store, FIRST, note="kept with the episode")
    whole = store.content_hash()
    with store.writer() as writer:
        writer.remove((FIRST, "ep_000002"), "anna", "wrong camera")
    assert (store.ids(), store.trash()) == ((SECOND,), (FIRST, "ep_000002"))
    assert store.content_hash() != whole
    with pytest.raises(StoreError, match=r"in the trash.*restore"):
        store.read(FIRST)
    with pytest.raises(DataError, match="in the trash"):
        say(store, FIRST, note="x")
    report = check_store(store.path)
    assert report.findings == ()
    assert report.episodes == 3
    with store.writer() as writer:
        assert writer.append(small_episode(3)) == "ep_000003"  # ids are never used twice
        with pytest.raises(DataError, match="not in the trash"):
            writer.restore((SECOND,), "anna")
        writer.remove(("ep_000003",), "anna")
        writer.restore((FIRST, "ep_000002"), "anna")
    assert store.content_hash() == whole
    assert_same(store.read(FIRST), small_episode(0))
    assert store.info(FIRST).notes == ("kept with the episode",)
    assert [a.id[:2] for a in store.annotations()] == ["an", "rm", "rm", "rs"]
    assert check_store(store.path).findings == ()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=12), st.randoms())
def test_undo_is_an_involution(plan: list[tuple[bool, int]], rng: random.Random) -> None:
    history: list[Annotation] = []
    for undo, pick in plan:
        record_id = f"an_{len(history):06d}"
        standing = active(history)
        if undo and standing:
            target = standing[pick % len(standing)].id
            history.append(Annotation(("e",), "a", undoes=target, id=record_id))
        else:
            history.append(Annotation(("e",), "a", add_labels=(f"l{pick}",), id=record_id))
    standing = active(history)
    before = combine(history)
    if standing:
        target = rng.choice(standing).id
        undo = Annotation(("e",), "a", undoes=target, id="an_900000")
        redo = Annotation(("e",), "a", undoes=undo.id, id="an_900001")
        assert combine([*history, undo, redo]) == before
    labels = {name for r in standing for name in r.add_labels}
    assert set(before.get("e", Annotated()).labels) == labels
