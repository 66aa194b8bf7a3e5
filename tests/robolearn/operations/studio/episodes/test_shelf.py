"""A store's list is worked out once after every change, and what is shown first is read first."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from robolearn.data.store.annotations import Annotation
from robolearn.data.store.manifest import Manifest
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.episodes import shelf
from robolearn.operations.studio.episodes.shelf import OpenStore, open_store
from robolearn.operations.studio.episodes.table import table
from robolearn.operations.studio.library import Library
from tests.episodes import small_episode
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    with EpisodeStore.create(tmp_path / "lab" / "store").writer() as writer:
        for seed in range(5):
            writer.append(small_episode(seed, 8))
    library = Library([tmp_path / "lab"])
    return Ask(library, library.things()[0])


def _writer(ask: Ask) -> AbstractContextManager[StoreWriter]:
    return EpisodeStore.open(ask.thing.path).writer()


def test_the_columns_are_made_once_until_something_changes(ask: Ask):
    first = table(ask)
    assert table(ask) is first
    with _writer(ask) as writer:
        writer.annotate(Annotation(("ep_000003",), "anna", success=False, add_labels=("slip",)))
    said = table(ask)
    assert said is not first
    assert said.labels.words[said.labels.index[3]] == "slip"
    assert not said.success[3]
    with _writer(ask) as writer:
        writer.append(small_episode(7, 8))
    assert table(ask).number.tolist() == [0, 1, 2, 3, 4, 5]
    with _writer(ask) as writer:
        writer.remove(("ep_000003",), "anna")
    assert table(ask).number.tolist() == [0, 1, 2, 4, 5]
    # What was said of it went with it.
    assert set(table(ask).labels.words) == {""}


def test_the_first_answer_waits_for_few_manifests(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    for name, value in (("FIRST", 2), ("BLOCK", 1), ("PAUSE_S", 0.0)):
        monkeypatch.setattr(shelf, name, value)
    opened = open_store(ask)
    read: list[str] = []
    manifest = opened.store.manifest

    def counted(episode_id: str) -> Manifest:
        read.append(episode_id)
        return manifest(episode_id)

    monkeypatch.setattr(opened.store, "manifest", counted)
    first = opened.shown()
    assert [r.id for r in first.rows[:2]] == ["ep_000000", "ep_000001"]
    assert first.total == 5
    wait_until(lambda: len(opened.shown().rows) == 5, 10.0, what="the rest of the list")
    assert read == [f"ep_{k:06d}" for k in range(5)]
    # What was read once is kept: another program reads no manifest.
    again = OpenStore(EpisodeStore.open(ask.thing.path), opened.cache)
    monkeypatch.setattr(again.store, "manifest", counted)
    wait_until(lambda: len(again.shown().rows) == 5, 10.0, what="the list that was kept")
    assert len(read) == 5
    assert again.shown().infos == opened.shown().infos


def test_many_questions_about_one_log_walk_it_once(ask: Ask, monkeypatch: pytest.MonkeyPatch):
    opened = open_store(ask)
    opened.shown()
    walked: list[int] = []
    ids = opened.store.ids
    monkeypatch.setattr(opened.store, "ids", lambda: walked.append(1) or ids())
    assert [opened.row(k).id for k in (0, 4, 2)] == ["ep_000000", "ep_000004", "ep_000002"]
    with pytest.raises(NotHere, match="ep_000009"):
        opened.row(9)
    assert not walked


def test_what_is_damaged_of_what_was_said_costs_only_itself(ask: Ask):
    with _writer(ask) as writer:
        writer.annotate(Annotation(("ep_000000",), "anna", add_labels=("good",)))
        writer.annotate(Annotation(("ep_000001",), "anna", add_labels=("slip",)))
    (ask.thing.path / "annotations" / "an_000006.json").write_text("{}")
    listed = table(ask)
    labels = [listed.labels.words[k] for k in listed.labels.index]
    assert sorted(labels) in (["", "", "", "", "good"], ["", "", "", "", "slip"])
    assert open_store(ask).standing("ep_000000") == []


def test_who_said_what_is_known_by_episode(ask: Ask):
    opened = open_store(ask)
    with _writer(ask) as writer:
        writer.annotate(Annotation(("ep_000000", "ep_000001"), "anna", note="a"))
        writer.annotate(Annotation(("ep_000001",), "ben", note="b"))
    assert [r.note for r in opened.standing("ep_000001")] == ["a", "b"]
    last = opened.standing("ep_000001")[-1]
    with _writer(ask) as writer:
        writer.annotate(Annotation(last.episodes, "ben", undoes=last.id))
    assert [r.note for r in opened.standing("ep_000001")] == ["a"]
    assert opened.standing("ep_000004") == []
