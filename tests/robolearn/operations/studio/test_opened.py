"""A store that is recorded into is opened once, and what happens to it meanwhile is seen."""

import gc
import shutil
import weakref
from pathlib import Path

import pytest

from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio import opened
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.episodes.shelf import open_store
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.opened import OpenStores
from tests.episodes import small_episode


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with EpisodeStore.create(tmp_path / "lab" / "store").writer() as writer:
        writer.append(small_episode(0, 8))
    return tmp_path / "lab" / "store"


def _say(store: Path, note: str) -> None:
    with EpisodeStore.open(store).writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "anna", note=note))


def test_the_walk_and_the_pages_share_one_store_which_is_read_on(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    library, asked = Library([store.parent]), list[Path]()
    shown = open_store(Ask(library, library.things()[0]))
    assert shown.store is library.stores.open(store)
    for note in ("a", "b"):
        _say(store, note)
        with monkeypatch.context() as counted:
            counted.setattr(EpisodeStore, "open", asked.append)
            assert library.look()
            assert open_store(Ask(library, library.things()[0])) is shown
    assert not asked
    assert [r.note for r in shown.standing("ep_000000")] == ["a", "b"]


def test_what_happens_to_an_open_store_is_told(store: Path, tmp_path: Path):
    library = Library([store.parent])
    assert library.things()[0].problem == ""
    log, identity = store / "commits.jsonl", store / "store.json"
    whole, name = log.read_bytes(), identity.read_bytes()
    log.write_bytes(whole.replace(b"ep_000000", b"ep_000009"))
    assert library.look()
    assert "chain of commits is broken" in library.things()[0].problem
    log.write_bytes(whole)
    assert library.look()
    assert library.things()[0].problem == ""
    identity.write_bytes(name.replace(b'"uuid"', b'"vuid"'))
    assert library.look()
    assert "store.json was altered" in library.things()[0].problem
    before = library.stores.open(store)
    shutil.move(store, tmp_path / "away")
    other = EpisodeStore.create(store)
    library.look()
    assert library.things()[0].problem == ""
    assert (library.stores.open(store).uuid, before.uuid == other.uuid) == (other.uuid, False)


def test_few_stores_stay_open_but_those_that_somebody_holds(
    store: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opened, "KEPT", 1)
    stores, other = OpenStores(), store.parent / "other"
    EpisodeStore.create(other)
    held, loose = stores.open(store), weakref.ref(stores.open(other))
    assert stores.open(store) is held
    gc.collect()
    assert loose() is None
