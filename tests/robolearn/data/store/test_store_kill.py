"""A writer killed at any instant, the store's creation included, costs at most its own episode."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from tests.episodes import assert_same, small_episode
from tests.waiting import pass_time

ROOT = Path(__file__).resolve().parents[4]

APPEND_FOREVER = """
import itertools, sys
from robolearn.data.store.store import EpisodeStore
from tests.episodes import small_episode
print("ready", flush=True)
store = EpisodeStore.open_or_create(sys.argv[1])
start = len(store.ids())
with store.writer() as writer:
    for k in itertools.count(start):
        print(writer.append(small_episode(k, steps=6)), flush=True)
"""

# Forks one child per step of the protocol; each dies by SIGKILL just before its n-th call.
DIE_AT = """
import json, os, signal, sys
from pathlib import Path
from robolearn.data.store.annotations import Annotation
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import merge_into
from robolearn.data.store.store import EpisodeStore
from tests.episodes import small_episode
base, first, stride, limit = Path(sys.argv[1]), *map(int, sys.argv[2:])
os.environ.clear()

def die_at(n):
    count = 0
    def wrap(name):
        real = getattr(os, name)
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == n:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        setattr(os, name, call)
    for name in ("fsync", "rename", "replace", "unlink", "mkdir", "pwrite", "ftruncate", "rmdir"):
        wrap(name)

def killed_at(n, work, path):
    # True when the work was done before the n-th call.
    pid = os.fork()
    if pid == 0:
        die_at(n)
        work(path)
        os._exit(7)
    return os.WIFEXITED(os.waitpid(pid, 0)[1])
"""

KILL_AT_EACH_CALL = (
    DIE_AT
    + """
def work(path):
    store = EpisodeStore.open_or_create(path)
    with store.writer() as writer:
        for k in range(2):
            writer.append(small_episode(len(store.ids()), steps=4))
        first = store.ids()[:1]
        writer.annotate(Annotation(first, "me", note="seen", add_labels=("old",)))
        writer.remove(first, "me")
        writer.restore(first, "me")

results = []
for n in range(first, limit, stride):
    path = base / f"s{n}"
    finished = killed_at(n, work, path)
    sound = check_store(path).sound if path.exists() else True
    store = EpisodeStore.open(path) if path.exists() else None
    before = len(store.ids()) + len(store.trash()) if store else 0
    history = [a.id for a in store.annotations()] if store else []
    if store and store.trash():
        with store.writer() as writer:
            writer.restore(store.trash(), "me")
    work(path)
    store = EpisodeStore.open(path)
    assert [a.id for a in store.annotations()][:len(history)] == history
    reads = [store.read(i).meta.provenance["seed"] for i in store.ids()]
    results.append([n, finished, sound, before, reads, check_store(path).sound,
                    len(check_store(path).findings)])
    if finished:
        break
print(json.dumps(results))
"""
)

# 'merge --into' a store that holds something, and 'trash --empty' of it, killed and done again.
KILL_MERGE_AND_TRASH = (
    DIE_AT
    + """
def store_of(path, *seeds):
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for seed in seeds:
            writer.append(small_episode(seed, steps=4))
    return store

source = store_of(base / "source", 7)
with source.writer() as writer:
    writer.annotate(Annotation(source.ids(), "me", note="seen"))

def merge(path):
    merge_into([source], EpisodeStore.open(path))

def empty(path):
    store = EpisodeStore.open(path)
    with store.writer() as writer:
        writer.empty_trash("me")

results = []
for name, work in (("merge", merge), ("empty", empty)):
    for n in range(first, limit, stride):
        path = base / f"{name}{n}"
        with store_of(path, 0, 1).writer() as writer:
            writer.remove(("ep_000001",), "me")
        finished = killed_at(n, work, path)
        sound, left = check_store(path).sound, set(EpisodeStore.open(path).ids())
        work(path)
        work(path)
        store = EpisodeStore.open(path)
        results.append([
            name, n, finished, sound, "ep_000000" in left,
            [store.read(i).meta.provenance["seed"] for i in store.ids()],
            [store.info(i).notes for i in store.ids()], store.trash(),
            [f.message for f in check_store(path).findings],
            sorted(p.name for p in (path / "trash").rglob("ep_*")),
        ])
        if finished:
            break
print(json.dumps(results))
"""
)


def run_killed(store: Path, delay_s: float) -> list[str]:
    """Start a writer, kill it ``delay_s`` after it began; the ids it had acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", APPEND_FOREVER, str(store)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pass_time(delay_s, "it is killed at any moment")
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().split("\n")
    assert process.returncode == -signal.SIGKILL
    return [line for line in lines[:-1] if line]


@pytest.mark.parametrize(
    "kills", [4, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_no_acknowledged_episode_is_lost_when_a_writer_is_killed(
    tmp_path: Path, kills: int
) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "store"
    acknowledged: list[str] = []
    for _ in range(kills):
        acknowledged += run_killed(path, float(rng.uniform(0.0, 0.15)))
        if not path.exists():
            continue  # killed before the store itself existed
        assert check_store(path).sound
        ids = EpisodeStore.open(path).ids()
        assert set(acknowledged) <= set(ids)
        assert ids == tuple(f"ep_{k:06d}" for k in range(len(ids)))
    store = EpisodeStore.open_or_create(path)
    with store.writer() as writer:
        last = writer.append(small_episode(len(store.ids()), steps=6))
    assert last == store.ids()[-1]
    for k, episode_id in enumerate(store.ids()[-20:], start=max(0, len(store.ids()) - 20)):
        assert_same(store.read(episode_id), small_episode(k, steps=6))
    report = check_store(path)
    assert report.sound
    assert report.findings == ()
    left = [p.name for p in tmp_path.iterdir() if not p.name.endswith(".creating")]
    assert left == ["store"]


@pytest.mark.parametrize(
    ("first", "stride"), [(3, 101), pytest.param(1, 1, marks=[pytest.mark.slow])]
)
def test_a_kill_before_each_single_system_call(tmp_path: Path, first: int, stride: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_AT_EACH_CALL, str(tmp_path), str(first), str(stride), "2000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results[-1][1], "the limit of calls was reached before the work was done"
    assert len(results) >= 3
    for n, _, sound, before, reads, sound_after, findings in results:
        assert sound, f"unsound after a kill at call {n}"
        assert reads == list(range(before + 2)), f"episodes lost or mixed up at call {n}"
        assert sound_after
        assert findings == 0


@pytest.mark.parametrize(
    ("first", "stride"), [(4, 40), pytest.param(1, 1, marks=[pytest.mark.slow])]
)
def test_a_kill_while_merging_into_a_store_and_while_emptying_its_trash(
    tmp_path: Path, first: int, stride: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILL_MERGE_AND_TRASH, str(tmp_path), str(first), str(stride), "999"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    for name in ("merge", "empty"):
        mine = [r for r in results if r[0] == name]
        assert mine[-1][2], "the limit of calls was reached before the work was done"
        assert len(mine) >= 2
    for name, n, _, sound, kept, seeds, notes, trash, findings, left in results:
        where = f"{name}, killed at call {n}"
        assert sound, where
        assert kept, where
        assert findings == [], where
        assert (seeds, notes) == (([0, 7], [[], ["seen"]]) if name == "merge" else ([0], [[]]))
        assert trash == (["ep_000001"] if name == "merge" else []), where
        assert left == (["ep_000001", "ep_000001.json"] if name == "merge" else []), where
