"""The episode store on an S3-compatible server: contract, commit rule, two writers, damage."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from robolearn.data.store.annotations import Annotation
from robolearn.data.store.manifest import next_entry
from robolearn.data.store.object_commit import ObjectCommits
from robolearn.data.store.storage import Bucket, ObjectPath
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep import repair
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.rebuild import rebuild_log
from robolearn.errors import StoreCorruptError, StoreError
from tests.contracts import StoreContract
from tests.episodes import TOOL, assert_same, small_episode

moto = pytest.importorskip("moto.server", reason="needs moto (the dev extra)")
ROOT = Path(__file__).resolve().parents[4]
_count = itertools.count()


@pytest.fixture(scope="module")
def endpoint() -> Generator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(autouse=True)
def cloud(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that a user would set."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "ROBOLEARN_S3_RETRY_S": "1",
        "ROBOLEARN_CACHE": str(tmp_path / "cache"),
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket(endpoint: str) -> str:
    """A new bucket's URL."""
    import urllib.request

    name = f"robots{next(_count)}"
    with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")):
        return f"s3://{name}"


class TestObjectStoreInMemory(StoreContract):
    def make(self, tmp_path: Path) -> EpisodeStore:
        return EpisodeStore.create(f"memory://contract{next(_count)}/prefix")


@pytest.fixture
def store(bucket: str) -> EpisodeStore:
    made = EpisodeStore.create(f"{bucket}/lab/pick")
    with made.writer() as writer:
        for k in range(2):
            writer.append(small_episode(k, steps=5, image=k == 1))
    return made


def objects(store: EpisodeStore) -> Bucket:
    assert isinstance(store.path, ObjectPath)
    return store.path.bucket


def test_an_episode_written_to_s3_is_read_back_by_another_client(store: EpisodeStore) -> None:
    again = EpisodeStore.open(str(store.path))
    assert again.ids() == ("ep_000000", "ep_000001")
    for k, episode_id in enumerate(again.ids()):
        assert_same(again.read(episode_id), small_episode(k, steps=5, image=k == 1))
    assert set(again.read("ep_000001", [TOOL]).streams) == {TOOL}
    assert again.content_hash() == store.content_hash()
    report = check_store(str(store.path), deep=True)
    assert (report.sound, report.findings, report.decoded) == (True, (), 2)
    assert report.files == len(objects(store).under("")) - 3  # the log has its own chain


def test_plain_zarr_reads_it_through_its_object_store(store: EpisodeStore) -> None:
    from zarr.storage import ObjectStore

    held = ObjectStore(objects(store).objects, read_only=True)
    root: Any = zarr.open_group(held, path="episodes", mode="r")
    episode = root[store.manifest("ep_000001").folder]
    expected = small_episode(1, steps=5, image=True)
    assert episode.attrs["task"] == "point"
    np.testing.assert_array_equal(episode[f"action/{TOOL}"][:], expected.action[TOOL])


def test_annotations_trash_and_purge(store: EpisodeStore) -> None:
    before = store.content_hash()
    with store.writer() as writer:
        note = writer.annotate(Annotation(("ep_000000",), "me", success=False, note="slip"))
        assert not store.info("ep_000000").success
        writer.annotate(Annotation((), "me", undoes=note))
        assert store.content_hash() == before
        writer.remove(("ep_000000",), "me")
        assert store.ids() == ("ep_000001",)
        assert store.trash() == ("ep_000000",)
        with pytest.raises(StoreError, match="in the trash"):
            store.read("ep_000000")
        assert check_store(store.path).findings == ()
        writer.restore(("ep_000000",), "me")
        assert store.content_hash() == before
        writer.remove(("ep_000000",), "me")
        assert writer.empty_trash("me") == ("ep_000000",)
    with pytest.raises(StoreError, match="for good"):
        store.read("ep_000000")
    assert check_store(store.path).findings == ()
    assert not any("ep_000000" in m.key for m in objects(store).under("episodes"))
    with store.writer() as writer:
        assert writer.append(small_episode(2)) == "ep_000002"


def test_two_writers_never_commit_the_same_id(
    store: EpisodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(store.path)
    ids: list[str] = []
    with store.writer() as here:
        monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "another_machine"))
        with EpisodeStore.open(url).writer() as there:
            # Each of them believes that the next id is free, with other or the very same contents.
            for k in range(2):
                ids.append(here.append(small_episode(10 + k, steps=4)))
                ids.append(there.append(small_episode(10 + k if k else 20, steps=4)))
            note = here.annotate(Annotation(("ep_000000",), "me", note="x"))
            other = there.annotate(Annotation(("ep_000000",), "you", note="y"))
    assert ids == [f"ep_{k:06d}" for k in range(2, 6)]
    assert note != other
    read = EpisodeStore.open(url)
    seeds = [read.meta(i).provenance["seed"] for i in ids]
    assert seeds == [10, 20, 11, 11]
    assert read.annotated("ep_000000").notes == ("x", "y")
    report = check_store(url)
    assert report.findings == ()
    assert report.commits == 9


KILLED = """
import os, signal, sys
from robolearn.data.store.storage import Bucket
from robolearn.data.store.store import EpisodeStore
from tests.episodes import small_episode
url, at = sys.argv[1], int(sys.argv[2])
store = EpisodeStore.open(url)
count = 0

def dying(real):
    def call(*args):
        global count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)
    return call

with store.writer() as writer:
    for name in ("put", "put_new", "delete"):
        setattr(Bucket, name, dying(getattr(Bucket, name)))
    writer.append(small_episode(2, steps=4))
print(count)
"""


def append_killed(url: str, at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", KILLED, url, str(at)], cwd=ROOT, capture_output=True, text=True
    )


def requests_of_an_append() -> int:
    """Files of the episode, pending, manifest, line, and the deletion of pending."""
    made = EpisodeStore.create(f"memory://count{next(_count)}")
    with made.writer() as writer:
        writer.append(small_episode(2, steps=4))
    return len(made.manifest("ep_000000").files) + 4


@pytest.mark.parametrize("back", [1, 2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_upload_is_no_episode_and_a_later_one_is_there(
    store: EpisodeStore, back: int
) -> None:
    """``back`` requests before the end of an append."""
    url, total = str(store.path), requests_of_an_append()
    done = append_killed(url, total - back)
    assert done.returncode == -signal.SIGKILL, done.stderr
    committed = back <= 1  # the manifest is there
    read = EpisodeStore.open(url)
    assert read.ids() == ("ep_000000", "ep_000001", "ep_000002")[: 3 if committed else 2]
    report = check_store(url)
    assert report.sound
    assert bool(report.findings) is True
    assert {f.kind for f in report.findings} == {"leftover"}
    with read.writer() as writer:
        writer.append(small_episode(3, steps=4))
    expected = [0, 1, 2, 3] if committed else [0, 1, 3]
    assert [read.meta(i).provenance["seed"] for i in read.ids()] == expected
    assert check_store(url).sound


def test_what_killed_uploads_left_is_swept_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    made = EpisodeStore.create(f"memory://sweep{next(_count)}")
    with made.writer() as writer:
        writer.append(small_episode(0, steps=4))
        writer.append(small_episode(1, steps=4))
        writer.remove(("ep_000001",), "me")
    held, before = objects(made), made.content_hash()
    held.put("episodes/ep_000002-00/zarr.json", b"x")
    planned = next_entry(made.log()[-1], "ep_000002", {"manifests/ep_000002.json": "0"})
    held.put("pending/ep_000002.00.json", planned.line())
    assert repair.discard(made) == ()
    assert len(check_store(made.path).findings) == 2
    monkeypatch.setattr(
        "robolearn.data.store.object_commit.time.time", lambda: time.time_ns() / 1e9 + 1e5
    )
    assert repair.discard(made) == ("ep_000002-00",)
    assert check_store(made.path).findings == ()
    assert made.content_hash() == before
    assert check_store(made.path, deep=True).decoded == 2


def test_an_upload_that_the_server_refuses_commits_nothing(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Bucket.put

    def failing(self: Bucket, key: str, data: bytes) -> None:
        if "reward" in key:
            raise StoreError("503 slow down")
        real(self, key, data)

    with store.writer() as writer, monkeypatch.context() as broken:
        broken.setattr(Bucket, "put", failing)
        with pytest.raises(StoreError, match="slow down"):
            writer.append(small_episode(2))
    assert EpisodeStore.open(f"{store.path}").ids() == ("ep_000000", "ep_000001")


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_damaged_object_is_found(every: bool) -> None:
    """In memory, where hundreds of checks are fast; the code is the same."""
    made = EpisodeStore.create(f"memory://damage{next(_count)}")
    with made.writer() as writer:
        writer.append(small_episode(0, steps=4))
        writer.append(small_episode(1, steps=4))
        writer.annotate(Annotation(("ep_000000",), "me", note="x"))
    assert check_store(made.path).findings == ()
    held, rng = objects(made), np.random.default_rng(3)
    episodes = [m.key for m in held.under("") if m.key.startswith("episodes/ep_")]
    others = [m.key for m in held.under("") if m.key not in episodes]
    chosen = [*others, *rng.choice(episodes, 20 if every else 3, replace=False).tolist()]
    modes = ("flip", "truncate", "delete")
    trials = (
        [(k, m) for k in chosen for m in modes] if every else zip(chosen, modes * 9, strict=False)
    )
    for key, mode in trials:
        original = held.get(key)
        data = bytearray(original)
        if mode == "delete":
            held.delete([key])
        else:
            if mode == "flip":
                data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
            else:
                del data[int(rng.integers(len(data))) :]
            held.put(key, bytes(data))
        report = check_store(made.path)
        assert not report.sound, (mode, key)
        if "episodes/ep_000000" in key:
            assert_same(EpisodeStore.open(made.path).read("ep_000001"), small_episode(1, steps=4))
        held.put(key, original)
    assert check_store(made.path).findings == ()


@pytest.mark.parametrize(
    "count", [28, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_a_flipped_bit_in_the_log_or_the_identity_costs_no_episode(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a folder: flips in every object of the log and in ``store.json``."""
    made = EpisodeStore.create(f"memory://flips{next(_count)}")
    with made.writer() as writer:
        for k in range(3):
            writer.append(small_episode(k, steps=4))
        writer.annotate(Annotation(("ep_000000",), "me", note="slow"))
        writer.remove(("ep_000002",), "me")
    held, rng = objects(made), np.random.default_rng(5)
    own = [m.key for m in held.under("") if m.key.startswith(("commits/", "store.json"))]
    before = {m.key: held.get(m.key) for m in held.under("")}
    assert len(own) == 7
    for k in range(count):
        key = own[k % len(own)]
        data = bytearray(before[key])
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        held.put(key, bytes(data))
        assert not check_store(made.path).sound
        store = EpisodeStore.open(str(made.path))
        assert (store.ids(), store.trash(), store.uuid) == (made.ids(), made.trash(), made.uuid)
        assert store.content_hash() == made.content_hash()
        report = rebuild_log(str(made.path))
        assert report.problems
        assert [held.get(name) for name in report.aside] == [bytes(data)]
        held.delete(report.aside)
        assert {m.key: held.get(m.key) for m in held.under("")} == before
    assert check_store(made.path).findings == ()
    assert "--rebuild-log" in caplog.text


def test_a_lost_or_damaged_log_comes_back_and_can_be_written() -> None:
    made = EpisodeStore.create(f"memory://lost{next(_count)}")
    with made.writer() as writer:
        for k in range(2):
            writer.append(small_episode(k, steps=4))
    held = objects(made)
    before = {m.key: held.get(m.key) for m in held.under("")}
    for lost in (["commits/000001.jsonl"], [k for k in before if k.startswith("commits/")]):
        held.delete(lost)
        held.put("pending/ep_000009.00.json", b"\0" * 40)
        store = EpisodeStore.open(made.path)
        assert store.ids() == ("ep_000000", "ep_000001")
        assert store.damage
        with pytest.raises(StoreCorruptError, match="--rebuild-log"), store.writer():
            pass
        report = rebuild_log(made.path)
        assert (report.commits, len(report.aside)) == (3, 1)
        held.delete(report.aside)
        assert {m.key: held.get(m.key) for m in held.under("")} == before
    assert rebuild_log(made.path).problems == ()
    with EpisodeStore.open(made.path).writer() as writer:
        assert writer.append(small_episode(2, steps=4)) == "ep_000002"
    assert check_store(made.path).findings == ()


def test_what_is_no_object_store_is_not_rebuilt() -> None:
    with pytest.raises(StoreError, match="not an episode store"):
        rebuild_log(f"memory://nothing{next(_count)}")


def test_damage_is_noticed_when_reading(store: EpisodeStore) -> None:
    held = objects(store)
    chunk = next(m.key for m in held.under("episodes") if "reward/c" in m.key)
    held.put(f"episodes/{chunk}", b"x")
    with pytest.raises(StoreCorruptError, match="bytes"):
        EpisodeStore.open(store.path).read("ep_000000")
    held.delete([f"episodes/{chunk}"])
    with pytest.raises(StoreCorruptError, match="missing"):
        EpisodeStore.open(store.path).read("ep_000000")
    assert EpisodeStore.open(store.path).read("ep_000001").steps == 5


def test_a_long_log_is_read_in_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robolearn.data.store.object_commit.SEGMENT", 4)
    made = EpisodeStore.create(f"memory://log{next(_count)}")
    with made.writer() as writer:
        writer.append(small_episode(0, steps=3))
        for k in range(9):
            writer.annotate(Annotation(("ep_000000",), "me", note=str(k)))
    assert isinstance(made.path, ObjectPath)
    asked: list[str] = []
    real = Bucket.get
    monkeypatch.setattr(Bucket, "get", lambda self, key: asked.append(key) or real(self, key))
    assert len(ObjectCommits(made.path).entries) == 11
    assert len(asked) == 3
    assert made.annotated("ep_000000").notes == tuple("012345678")


def test_what_is_no_store_and_a_server_that_does_not_answer(
    bucket: str, store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="no episode store at s3://"):
        EpisodeStore.open(f"{bucket}/elsewhere")
    with pytest.raises(StoreError, match="holds a store already"):
        EpisodeStore.create(store.path)
    assert EpisodeStore.open_or_create(str(store.path)).uuid == store.uuid
    for url in ("s3://", "s3:"):
        with pytest.raises(StoreError, match="expected s3://"):
            EpisodeStore.open(url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL"):
        EpisodeStore.open(str(store.path))


def test_a_killed_creation_is_finished_by_the_next_one(bucket: str) -> None:
    made = EpisodeStore.create(f"{bucket}/x")
    objects(made).delete(["commits/000000.jsonl"])
    with pytest.raises(StoreCorruptError, match="log"):
        made.ids()
    again = EpisodeStore.open_or_create(f"{bucket}/x")
    assert again.uuid == made.uuid
    assert again.ids() == ()
    assert check_store(again.path).findings == ()
