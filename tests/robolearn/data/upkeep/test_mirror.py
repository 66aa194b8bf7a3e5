"""Push, pull, merging into a store that exists, emptying the trash, and format versions."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import pytest

from robolearn.cli.data.commands import main
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.commit import CommitLog
from robolearn.data.store.manifest import LogEntry, next_entry, parse_log
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import merge_into
from robolearn.data.upkeep.mirror import copy_store
from robolearn.errors import DataError, StoreCorruptError, StoreError
from tests.episodes import assert_same, small_episode

_count = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))


def make(path: Path | str, *seeds: int) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for seed in seeds:
            writer.append(small_episode(seed, steps=4))
    return store


def test_push_and_pull_copy_a_store_as_it_is(tmp_path: Path) -> None:
    store, url = make(tmp_path / "a", 0, 1, 2), f"memory://push{next(_count)}/x"
    with store.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "me", note="x", add_labels=("dark",)))
        writer.remove(("ep_000001",), "me")
    pushed, new = copy_store(store, url)
    assert (new, pushed.uuid, pushed.log()) == (5, store.uuid, store.log())
    assert pushed.content_hash() == store.content_hash()
    assert check_store(url).findings == ()
    assert copy_store(store, url)[1] == 0
    # What is appended over there comes back, folder names included, and goes on from here.
    with pushed.writer() as writer:
        writer.append(small_episode(3, steps=4))
    pulled, _ = copy_store(pushed, tmp_path / "b")
    assert pulled.content_hash() == pushed.content_hash()
    assert_same(pulled.read("ep_000003"), small_episode(3, steps=4))
    assert check_store(pulled.path).findings == ()
    with pulled.writer() as writer:
        writer.restore(("ep_000001",), "me")
        writer.remove(("ep_000003",), "me")
        writer.restore(("ep_000003",), "me")
        writer.append(small_episode(4, steps=4))
    assert check_store(pulled.path).findings == ()
    assert copy_store(pulled, url)[1] == 4
    assert EpisodeStore.open(url).content_hash() == pulled.content_hash()
    assert copy_store(EpisodeStore.open(url), store.path)[0].log() == pulled.log()
    assert check_store(store.path).findings == ()


def test_stores_that_went_apart_are_refused(tmp_path: Path) -> None:
    store, url = make(tmp_path / "a", 0), f"memory://apart{next(_count)}"
    pushed, _ = copy_store(store, url)
    for changed, seed in ((store, 1), (pushed, 2)):
        with changed.writer() as writer:
            writer.append(small_episode(seed, steps=4))
    with pytest.raises(StoreError, match="merge"):
        copy_store(store, url)
    with pytest.raises(StoreError, match="another store"):
        copy_store(make(tmp_path / "other", 5), url)
    with pushed.writer() as writer:
        writer.remove(("ep_000000",), "me")
        writer.empty_trash("me")
    with pytest.raises(StoreError, match="for good"):
        copy_store(pushed, tmp_path / "c")


def test_a_push_that_was_interrupted_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, url = make(tmp_path / "a", 0, 1, 2), f"memory://half{next(_count)}"

    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_store(store, url, stop)
    assert EpisodeStore.open(url).ids() == ("ep_000000",)
    assert copy_store(store, url)[1] == 2
    assert EpisodeStore.open(url).content_hash() == store.content_hash()


def test_merge_into_a_store_that_exists_is_resumed_not_repeated(tmp_path: Path) -> None:
    a, b, target = make(tmp_path / "a", 0, 1), make(tmp_path / "b", 2), make(tmp_path / "t", 9)
    with a.writer() as writer:
        writer.annotate(Annotation(("ep_000001",), "me", note="x"))
    steps = iter(range(2))

    def killed(done: int) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_into([a, b], target, advance=killed)
    assert len(target.ids()) == 4
    target = EpisodeStore.open(target.path)
    assert merge_into([a, b], target) == ()
    assert merge_into([a, b], target) == ()
    seeds = [target.meta(i).provenance["seed"] for i in target.ids()]
    assert seeds == [9, 0, 1, 2]
    assert target.annotated("ep_000002").notes == ("x",)
    with a.writer() as writer:
        writer.append(small_episode(7, steps=4))
    assert merge_into([a, b], target) == ("ep_000004",)
    assert check_store(target.path).findings == ()
    with pytest.raises(DataError, match="into itself"):
        merge_into([target], EpisodeStore.open(target.path))


def test_an_annotation_that_a_killed_merge_left_out_is_added(tmp_path: Path) -> None:
    a, target = make(tmp_path / "a", 0), make(tmp_path / "t")
    merge_into([a], target)
    with a.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "me", success=False))
    assert merge_into([a], target) == ()
    assert not target.info("ep_000000").success


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "a", 0, 1)
    make(tmp_path / "b", 2)
    url = f"memory://cli{next(_count)}/x"
    assert main(["push", str(tmp_path / "a"), url]) == 0
    assert "2 new records, 2 episodes" in capsys.readouterr().out
    assert main(["merge", str(tmp_path / "b"), "--into", url]) == 0
    assert "1 episodes added" in capsys.readouterr().out
    assert main(["ls", url]) == 0
    assert "ep_000002" in capsys.readouterr().out
    assert main(["show", url, "ep_000002"]) == 0
    assert main(["rm", url, "ep_000000"]) == 0
    capsys.readouterr()
    assert main(["trash", url]) == 0
    assert capsys.readouterr().out == "in the trash: ep_000000\n"
    assert main(["trash", url, "--empty", "--author", "me", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": ["ep_000000"]}
    assert main(["log", url]) == 0
    assert "deleted for good" in capsys.readouterr().out
    assert main(["check", url, "--deep"]) == 0
    said = capsys.readouterr().out
    assert "the chain of 6 commits, 2 manifests, 2 annotations" in said
    assert "all arrays of 2 episodes, decoded" in said
    assert main(["pull", str(tmp_path / "a"), str(tmp_path / "c"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2


@pytest.fixture
def emptied(tmp_path: Path) -> EpisodeStore:
    store = make(tmp_path / "p", 0, 1, 2)
    with store.writer() as writer:
        writer.remove(("ep_000000", "ep_000002"), "me")
        assert writer.empty_trash("me", episodes=("ep_000000",)) == ("ep_000000",)
        with pytest.raises(DataError, match="not in the trash"):
            writer.empty_trash("me", episodes=("ep_000001",))
        with pytest.raises(DataError, match="not in the trash"):
            writer.restore(("ep_000000",), "me")
    return store


def test_an_emptied_trash_is_gone_logged_and_sound(emptied: EpisodeStore) -> None:
    assert emptied.ids() == ("ep_000001",)
    assert emptied.trash() == ("ep_000002",)
    assert check_store(emptied.path).findings == ()
    assert [a.id for a in emptied.annotations()] == ["rm_000004", "pg_000005"]
    with pytest.raises(StoreError, match="for good"):
        emptied.read("ep_000000")
    with emptied.writer() as writer:
        assert writer.append(small_episode(3, steps=4)) == "ep_000003"
        with pytest.raises(DataError, match="for good"):
            writer.annotate(Annotation(("ep_000000",), "me", note="x"))


def test_a_kill_while_the_trash_is_emptied_is_finished_by_the_next_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make(tmp_path / "p", 0, 1)
    with store.writer() as writer:
        writer.remove(("ep_000000",), "me")

    def killed(self: CommitLog, entry: LogEntry) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(CommitLog, "_move", killed)
        with pytest.raises(KeyboardInterrupt), store.writer() as writer:
            writer.empty_trash("me")
    assert check_store(store.path).sound
    assert store.trash() == ()
    with store.writer() as writer:
        writer.append(small_episode(5, steps=4))
    assert check_store(store.path).findings == ()
    assert not list((store.path / "trash/episodes").iterdir())


def as_version_1(store: Path) -> None:
    """What an older robolearn made: version 1, and a log that begins with its hash."""
    file = store / "store.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 1}))
    import hashlib

    log = store / "commits.jsonl"
    entries = parse_log(log.read_bytes(), log)
    files = dict(entries[0].files)
    files["store.json"] = hashlib.sha256(file.read_bytes()).hexdigest()
    lines = [next_entry(None, "", files)]
    for e in entries[1:]:
        lines.append(next_entry(lines[-1], e.id, e.files, e.episodes, e.needs))
    log.write_bytes(b"".join(e.line() for e in lines))


def test_an_old_store_is_read_and_written(tmp_path: Path) -> None:
    store = make(tmp_path / "v1", 0)
    as_version_1(store.path)
    old = EpisodeStore.open(store.path)
    assert_same(old.read("ep_000000"), small_episode(0, steps=4))
    with old.writer() as writer:
        writer.append(small_episode(1, steps=4))
        writer.annotate(Annotation(("ep_000000",), "me", note="x"))
    assert check_store(old.path).findings == ()
    # Nothing so far is new to the older version, so nothing says that it needs more.
    assert b"needs" not in (old.path / "commits.jsonl").read_bytes()
    with old.writer() as writer:
        writer.remove(("ep_000000",), "me")
        writer.empty_trash("me")
    assert [e.needs for e in old.log()] == [0, 0, 0, 0, 0, 2]
    assert check_store(old.path).findings == ()


def test_a_line_that_needs_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    store = make(tmp_path / "s", 0)
    log = store.path / "commits.jsonl"
    entry = next_entry(store.log()[-1], "xx_000002", {"x": "0"}, (), 3)
    # A newer version may have more fields, and cover them by its hash in its own way.
    line = json.loads(entry.line()) | {"hash": "unknown", "more": 1}
    shutil.copy(log, tmp_path / "before")
    log.write_bytes(log.read_bytes() + json.dumps(line).encode() + b"\n")
    newer = EpisodeStore.open(store.path)
    with pytest.raises(StoreError, match=r"needs format version 3.*upgrade") as caught:
        newer.ids()
    assert not isinstance(caught.value, StoreCorruptError)
    with pytest.raises(StoreError, match="upgrade"), newer.writer():
        pass
    with pytest.raises(StoreError, match="upgrade"):
        check_store(store.path)
    shutil.copy(tmp_path / "before", log)
    assert check_store(store.path).findings == ()
