"""A killed recording is recovered up to its last flush; committed episodes are never touched."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.recording import recorder as recording
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.chunks import json_bytes
from robolearn.data.store.manifest import sha256
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.repair import discard, find_recoverable, recover
from robolearn.errors import DataError, StoreError, StoreLockedError
from robolearn.machine.interrupt import hang_up, remembered
from tests.episodes import assert_same
from tests.robolearn.data.recording.test_recorder import (
    END,
    FORCE,
    HEADER,
    IMAGE,
    SPEC,
    TOOL,
    make_tick,
)

ROOT = Path(__file__).resolve().parents[4]

# Ready when two chunks of frames, and two flushes after them, are on disk.
RECORD_FOREVER = """
import itertools, sys, time
from pathlib import Path
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from tests.robolearn.data.recording.test_recorder import HEADER, SPEC, make_tick
store = EpisodeStore.open(sys.argv[1])
recorder = EpisodeRecorder(store, spec=SPEC, kind="demonstration", flush_s=0.02)
recorder.on_start(HEADER)
folder, needed = store.path / "tmp", None
for k in itertools.count():
    recorder.on_tick(make_tick(k))
    time.sleep(0.001)
    flushes = len(list(folder.glob("*.journal/*.npz")))
    if needed is None and list(folder.glob("*.tmp/signals/top/image/value/c.1.*")):
        needed = flushes + 2
    if needed is not None and 0 < needed <= flushes:
        print("ready", flush=True)
        needed = -1
"""


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def record(
    store: EpisodeStore, ticks: int, *, last: bool = False, autosave: bool = True
) -> EpisodeRecorder:
    """A recording with everything flushed, still open."""
    recorder = EpisodeRecorder(
        store, spec=SPEC, kind="demonstration", flush_s=0.0, autosave=autosave
    )
    recorder.on_start(HEADER)
    for k in range(ticks):
        recorder.on_tick(make_tick(k, last=last and k == ticks - 1))
    recorder.flush()
    return recorder


def killed(store: EpisodeStore, ticks: int, tmp_path: Path) -> EpisodeStore:
    """The store as it lies on disk when a recording is killed after ``ticks``."""
    with record(store, ticks):
        copy = tmp_path / f"killed-{ticks}"
        shutil.copytree(store.path, copy)
    return EpisodeStore.open(copy)


def test_a_killed_recording_is_recovered_with_all_complete_frames(
    store: EpisodeStore, tmp_path: Path
) -> None:
    with record(store, 40, last=True) as recorder:
        copy = EpisodeStore.open(shutil.copytree(store.path, tmp_path / "killed"))
        recorder.on_end(END)
    whole = store.read("ep_000000")
    (found,) = find_recoverable(copy)
    assert (found.steps, found.steps_flushed, found.task, found.problem) == (32, 40, "push", "")
    assert [f.severity for f in check_store(copy.path).findings] == ["note", "note"]
    assert recover(copy).saved == ("ep_000000",)
    episode = copy.read("ep_000000")
    assert episode.steps == 32  # two chunks of 16 frames were on disk
    outcome = episode.meta.outcome
    assert (outcome.reason, outcome.truncated, outcome.terminal) == ("recovered", True, False)
    assert episode.truncated[-1]
    assert not episode.truncated[:-1].any()
    assert episode.meta.provenance["recovered_from"] == found.name
    assert episode.meta.embodiment == SPEC
    for name in (TOOL, IMAGE):
        np.testing.assert_array_equal(episode.observed(name), whole.observed(name)[:32])
        np.testing.assert_array_equal(episode.observed_t_ns(name), whole.observed_t_ns(name)[:32])
    np.testing.assert_array_equal(episode.action[TOOL], whole.action[TOOL][:32])
    np.testing.assert_array_equal(episode.sent.seq, whole.sent.seq[:64])
    np.testing.assert_array_equal(episode.reward, whole.reward[:32])
    assert episode.source == whole.source[:32]
    force = episode.streams[FORCE]
    assert force.t_ns[-1] <= episode.tick_t_ns[-1]
    np.testing.assert_array_equal(force.value, whole.streams[FORCE].value[: len(force.t_ns)])
    assert check_store(copy.path).findings == ()
    assert find_recoverable(copy) == ()


def test_later_writers_leave_it_alone_and_the_commit_of_others_too(
    store: EpisodeStore, tmp_path: Path
) -> None:
    left = killed(store, 20, tmp_path)
    with EpisodeRecorder(left, spec=SPEC, kind="rollout") as recorder:
        recorder.on_start(HEADER)
        recorder.on_tick(make_tick(0, last=True))
        recorder.on_end(END)
    before = left.read("ep_000000")
    assert [r.steps for r in find_recoverable(left)] == [16]
    assert recover(left).saved == ("ep_000001",)
    assert_same(left.read("ep_000000"), before)


def test_discard(store: EpisodeStore, tmp_path: Path) -> None:
    left = killed(store, 20, tmp_path)
    (found,) = find_recoverable(left)
    with pytest.raises(DataError, match="no killed recording 'other'"):
        discard(left, ["other"])
    assert discard(left, [found.name]) == (found.name,)
    assert check_store(left.path).findings == ()
    assert left.ids() == ()


def test_nothing_is_offered_while_the_store_is_written(store: EpisodeStore) -> None:
    with record(store, 20), pytest.raises(StoreLockedError):
        find_recoverable(store)


def test_a_recording_without_complete_frames_is_said(store: EpisodeStore, tmp_path: Path) -> None:
    left = killed(store, 5, tmp_path)
    (found,) = find_recoverable(left)
    assert (found.steps, found.steps_flushed) == (0, 5)
    assert "no tick has all its frames" in found.problem
    report = recover(left)
    assert report.saved == ()
    assert "discard it" in report.failed[found.name]
    assert len(find_recoverable(left)) == 1


@pytest.mark.parametrize("mode", ["cut", "flip", "gone"])
def test_damage_to_the_leftovers_shortens_what_is_recovered(
    store: EpisodeStore, tmp_path: Path, mode: str
) -> None:
    with record(store, 40):
        copy = EpisodeStore.open(shutil.copytree(store.path, tmp_path / "killed"))
    frames = next((copy.path / "tmp").glob(f"*.tmp/signals/{IMAGE}/value/c.1.*"))
    data = frames.read_bytes()
    frames.write_bytes(data[:-9] if mode == "cut" else bytes([data[0] ^ 1]) + data[1:])
    if mode == "gone":
        frames.unlink()
    assert [r.steps for r in find_recoverable(copy)] == [16]
    segments = sorted((copy.path / "tmp").glob("*.journal/*.npz"))
    assert len(segments) == 40  # one per tick
    segments[-1].write_bytes(segments[-1].read_bytes()[:-20])
    header = segments[0].parent / "header.json"
    if mode == "flip":
        header.write_bytes(header.read_bytes().replace(b"push", b"pull"))
        (found,) = find_recoverable(copy)
        assert "checksum" in found.problem
        assert list(recover(copy).failed) == [found.name]
        assert copy.ids() == ()
    else:
        assert recover(copy).saved == ("ep_000000",)
        assert copy.info("ep_000000").steps == 16


@pytest.mark.parametrize("damage", ["header", "keys", "segment", "name", "link"])
def test_recovery_goes_on_after_a_damaged_draft(
    store: EpisodeStore, tmp_path: Path, damage: str
) -> None:
    left = killed(store, 20, tmp_path)
    good = next((left.path / "tmp").glob("*.journal"))
    bad = left.path / "tmp" / f"00{good.stem}.journal"  # comes first
    shutil.copytree(good, bad)
    shutil.copytree(good.with_suffix(".tmp"), bad.with_suffix(".tmp"))
    header = json.loads((bad / "header.json").read_bytes())
    if damage == "header":
        (bad / "header.json").write_bytes(b"{}")
    elif damage == "keys":
        np.savez(bad / "000000.npz", nonsense=np.zeros(3))
        for path in sorted(bad.glob("*.npz"))[1:]:
            path.unlink()
    elif damage == "segment":
        (bad / "000000.npz").write_bytes(b"")
    elif damage == "name":
        header["meta"]["embodiment"]["signals"][0]["name"] = "../.."
        header["sha256"] = sha256(json_bytes(header["meta"]))
        (bad / "header.json").write_bytes(json_bytes(header))
    else:
        shutil.rmtree(bad.with_suffix(".tmp"))
        bad.with_suffix(".tmp").symlink_to(tmp_path)
    report = recover(left)
    assert report.saved == ("ep_000000",)
    assert list(report.failed) == [bad.stem]
    assert left.info("ep_000000").steps == 16
    (found,) = find_recoverable(left)
    assert found.problem


def test_a_kill_between_the_recovery_and_its_clean_up_gives_no_second_copy(
    store: EpisodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = killed(store, 20, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("robolearn.data.upkeep.repair._remove", lambda _: None)
        assert recover(left).saved == ("ep_000000",)
    (found,) = find_recoverable(left)
    assert found.saved_as == "ep_000000"
    assert recover(left).saved == ()
    assert find_recoverable(left) == ()
    assert left.ids() == ("ep_000000",)


def test_a_commit_that_fails_leaves_the_recording_recoverable(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    recorder = record(store, 20, last=True)
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "commit", fail)
        with pytest.raises(OSError, match="Input/output"):
            recorder.on_end(END)
    recorder.close()
    assert store.ids() == ()
    assert recover(store).saved == ("ep_000000",)
    # This time the last, incomplete chunk had been written too.
    assert store.info("ep_000000").steps == 20


def test_an_error_in_the_loop_leaves_it_recoverable_an_interruption_does_not(
    store: EpisodeStore,
) -> None:
    for error, left in ((KeyboardInterrupt(), 0), (StoreError("x"), 1)):
        recorder = record(store, 20)
        recorder.on_abort(error)
        recorder.close()
        assert len(find_recoverable(store)) == left


@pytest.mark.parametrize("waits", [False, True])
def test_an_interruption_leaves_what_was_to_be_kept_and_whatever_a_closed_terminal_ended(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, *, waits: bool
) -> None:
    def interrupted(error: BaseException, *, spared: bool) -> int:
        """How many recordings can be recovered then, that were none before."""
        before = len(find_recoverable(store))
        recorder = record(store, 20, autosave=False, last=True)
        with contextlib.suppress(type(error)), recorder:
            if spared:
                recorder.spare()
            if waits:
                recorder.on_end(END)
            else:
                # As the loop does before it passes the error on.
                recorder.on_abort(error)
            raise error
        return len(find_recoverable(store)) - before

    assert interrupted(KeyboardInterrupt(), spared=False) == 0
    assert interrupted(KeyboardInterrupt(), spared=True) == 1
    # It is not decided: whoever is there again may.
    assert interrupted(StoreError("the cell is lost"), spared=False) == 1
    monkeypatch.setattr(recording, "hung_up", lambda: True)
    assert interrupted(KeyboardInterrupt(), spared=False) == 1
    # Of one that had ended, all; of one that ran, whole chunks of frames.
    assert {found.steps for found in find_recoverable(store)} == {20 if waits else 16}
    # And the next one is nobody's yet.
    monkeypatch.undo()
    with record(store, 20, autosave=False) as recorder:
        recorder.spare()
        recorder.discard()
    assert len(find_recoverable(store)) == 3


def test_a_terminals_end_is_told_twice_and_the_second_time_takes_nothing(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever reads it, and by its signal, which may come while the first is obeyed."""
    settle = recording.FinishedEpisode.settle

    def told_again(finished: recording.FinishedEpisode) -> None:
        signal.raise_signal(signal.SIGHUP)
        settle(finished)

    monkeypatch.setattr(recording.FinishedEpisode, "settle", told_again)

    def session() -> None:
        with record(store, 20, autosave=False, last=True) as recorder:
            recorder.on_end(END)
            hang_up()
            raise KeyboardInterrupt

    with remembered(), pytest.raises(KeyboardInterrupt):
        session()
    assert len(find_recoverable(store)) == 1


@pytest.mark.parametrize(
    "kills", [1, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_sigkill_during_a_recording(store: EpisodeStore, kills: int) -> None:
    for k in range(kills):
        with subprocess.Popen(
            [sys.executable, "-c", RECORD_FOREVER, str(store.path)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGKILL)
        assert check_store(store.path).sound
        (found,) = find_recoverable(store)
        assert found.steps >= 16
        assert recover(store).saved == (f"ep_{k:06d}",)
        episode = store.read(f"ep_{k:06d}")
        np.testing.assert_array_equal(
            episode.observed(IMAGE)[:, 0, 0, 0], np.arange(episode.steps) % 250
        )
        assert check_store(store.path).findings == ()
