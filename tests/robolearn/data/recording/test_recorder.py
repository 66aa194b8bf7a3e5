"""The recorder: everything of the loop arrives, the loop never waits, a kill leaves nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.data.episode import Episode
from robolearn.data.recording.recorder import DraftRecorder, EpisodeRecorder
from robolearn.data.store.drafts import Drafts, EpisodeDraft, PreparedEpisode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.repair import recover
from robolearn.errors import (
    DataError,
    RobotError,
    SafetyStopError,
    SpecMismatchError,
    StoreError,
    StoreLockedError,
)
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Observation, SampleBatch, Tick
from tests.episodes import IMAGE, TOOL
from tests.recording import (
    END,
    FORCE,
    HEADER,
    PERIOD,
    RUNNING,
    SPEC,
    make_tick,
    picture,
    record,
    samples,
)
from tests.waiting import wait_until


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def recorder_for(store: EpisodeStore, **options: Any) -> EpisodeRecorder:
    return EpisodeRecorder(store, spec=SPEC, kind="rollout", operator="me", **options)


def test_all_samples_arrive_at_their_own_rates(store: EpisodeStore) -> None:
    with recorder_for(store, task_text="push it") as recorder:
        record(recorder)
    assert recorder.saved == ["ep_000000"]
    episode = store.read("ep_000000")
    assert episode.steps == 20
    assert len(episode.streams[FORCE].t_ns) == 100
    force = episode.streams[FORCE]
    np.testing.assert_allclose(force.value[:, 0], force.t_ns * 1e-9)
    np.testing.assert_array_equal(episode.observed_t_ns(FORCE), episode.tick_t_ns)
    np.testing.assert_allclose(episode.observed(TOOL)[:, 0], episode.tick_t_ns * 1e-9)
    np.testing.assert_array_equal(episode.observed(IMAGE)[:, 0, 0, 0], np.arange(20))
    np.testing.assert_array_equal(episode.observed_t_ns(IMAGE), episode.tick_t_ns - 30_000_000)
    assert episode.streams[IMAGE].valid.all()


def test_commands_sent_outcome_and_metadata_are_kept(store: EpisodeStore) -> None:
    with recorder_for(store, task_text="push it") as recorder:
        record(recorder, ticks=4)
    episode = store.read("ep_000000")
    meta = episode.meta
    np.testing.assert_allclose(episode.action[TOOL][:, 0], [0.0, 0.01, 0.02, 0.03])
    assert episode.source == ("human:browser", "scripted", "human:browser", "scripted")
    np.testing.assert_array_equal(episode.sent.seq, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(episode.sent.action[TOOL][:, 1], [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(episode.terminal, [False, False, False, True])
    np.testing.assert_array_equal(episode.inference_ns, [7, 7, 7, 7])
    np.testing.assert_array_equal(episode.overrun_ns, [0, 1, 2, 3])
    np.testing.assert_allclose(episode.reward, [0.1, 0.1, 0.1, 1.0])
    assert (meta.kind, meta.task, meta.agent, meta.env) == ("rollout", "push", "tester", "rig")
    assert (meta.operator, meta.task_text, meta.start_wall_ns) == ("me", "push it", 5)
    assert meta.embodiment == SPEC
    assert meta.condition == HEADER.reset.requested
    assert meta.achieved == {TOOL: (0.1, 0.21)}
    assert meta.outcome == END
    assert meta.provenance["config"] == "x.yaml"
    assert meta.provenance["recorder"]["lost_frames"] == 0
    assert meta.versions["numpy"] == np.__version__


def test_a_shown_sample_that_was_not_drained_is_put_in(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        for k in range(3):
            recorder.on_tick(make_tick(k, last=k == 2, tool__xy_table=k == 1, top__image=True))
        recorder.on_end(END)
    episode = store.read("ep_000000")
    np.testing.assert_allclose(episode.observed(TOOL)[:, 0], episode.tick_t_ns * 1e-9)
    np.testing.assert_array_equal(episode.observed(IMAGE)[:, 0, 0, 0], [0, 1, 2])


def test_a_signal_never_seen_is_said(store: EpisodeStore) -> None:
    spec = EmbodimentSpec(
        "rig", (*SPEC.signals, SignalSpec("wrist/torque", (3,), "N m")), SPEC.actions, 10.0
    )
    with EpisodeRecorder(store, spec=spec, kind="deployment") as recorder:
        record(recorder, ticks=2)
    episode = store.read("ep_000000")
    assert "wrist/torque" not in episode.streams
    notes = episode.meta.provenance["recorder"]
    assert notes["signals_without_samples"] == ["wrist/torque"]


def test_keep_and_discard(store: EpisodeStore) -> None:
    with recorder_for(store, autosave=False) as recorder:
        record(recorder)
        assert store.ids() == ()
        recorder.discard()
        record(recorder)
        assert recorder.keep() == "ep_000000"
        with pytest.raises(StoreError, match="no finished episode"):
            recorder.keep()
        record(recorder)
    assert store.ids() == ("ep_000000",)
    assert check_store(store.path).findings == ()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads that made an episode durable, when they had."""
    names: list[str] = []
    whole = Drafts.prepare

    def prepare(own: Drafts, draft: EpisodeDraft, episode: Episode) -> PreparedEpisode:
        made = whole(own, draft, episode)
        names.append(threading.current_thread().name)
        return made

    monkeypatch.setattr(Drafts, "prepare", prepare)
    return names


def test_an_episode_is_durable_while_somebody_decides(
    store: EpisodeStore, prepared: list[str]
) -> None:
    with recorder_for(store, autosave=False) as recorder:
        record(recorder)
        wait_until(lambda: prepared)
        assert store.ids() == ()
        assert recorder.waiting().steps == 20
        recorder.keep()
        assert len(prepared) == 1
        assert prepared[0].startswith("prepare")
        for decided in (recorder.discard, lambda: recorder.on_abort(RobotError("gone"))):
            record(recorder)
            decided()
    assert store.ids() == ("ep_000000",)
    # The one that an error ended is left to whoever repairs.
    assert recover(store).saved == ("ep_000001",)
    assert store.info("ep_000001").steps == 20
    assert check_store(store.path).findings == ()


def test_what_could_not_be_made_durable_is_told_to_whoever_keeps_it(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with recorder_for(store, autosave=False) as recorder:
        with monkeypatch.context() as patched:
            patched.setattr(Drafts, "prepare", full)
            record(recorder)
            with pytest.raises(StoreError, match="full"):
                recorder.keep()
        record(recorder)
        recorder.keep()
    assert store.ids() == ("ep_000000",)
    assert recover(store).saved == ("ep_000001",)


def test_on_saved_is_called_after_the_commit(store: EpisodeStore) -> None:
    seen: list[tuple[str, int]] = []
    with recorder_for(store, on_saved=lambda i: seen.append((i, store.info(i).steps))) as recorder:
        record(recorder, ticks=3)
        record(recorder, ticks=4)
    assert seen == [("ep_000000", 3), ("ep_000001", 4)]


def test_an_aborted_episode_leaves_nothing(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        recorder.on_tick(make_tick(0))
        recorder.on_abort(KeyboardInterrupt())
        with pytest.raises(StoreError, match="outside an episode"):
            recorder.on_tick(make_tick(1))
        record(recorder, ticks=2)
    assert store.ids() == ("ep_000000",)
    assert list((store.path / "tmp").iterdir()) == []


def test_the_store_is_locked_until_the_recorder_is_closed(store: EpisodeStore) -> None:
    first = recorder_for(store)
    with pytest.raises(StoreLockedError):
        recorder_for(store)
    first.close()
    first.close()
    recorder_for(store).close()


def test_a_slow_disk_never_blocks_the_loop_and_lost_frames_are_marked(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    write = EpisodeDraft.add_frames

    def slow(self: EpisodeDraft, *args: Any) -> None:
        assert gate.wait(20)
        write(self, *args)

    monkeypatch.setattr(EpisodeDraft, "add_frames", slow)
    frame = picture(0).nbytes
    with recorder_for(store, max_waiting_bytes=3 * frame) as recorder:
        recorder.on_start(HEADER)
        for k in range(10):  # returns although nothing can be written
            recorder.on_tick(make_tick(k, last=k == 9))
        # Told while it is recorded, not when it is too late.
        assert recorder.lost_frames == 7
        gate.set()
        recorder.on_end(END)
        assert recorder.lost_frames == 7
    assert recorder.load.lost_frames == 7
    assert recorder.load.max_waiting >= 9
    episode = store.read("ep_000000")
    np.testing.assert_array_equal(episode.streams[IMAGE].valid, [True] * 3 + [False] * 7)
    np.testing.assert_array_equal(episode.streams[IMAGE].value[:, 0, 0, 0], [0, 1, 2] + [0] * 7)
    np.testing.assert_array_equal(episode.observed_t_ns(IMAGE), episode.tick_t_ns - 30_000_000)
    assert len(episode.streams[FORCE].t_ns) == 50
    assert episode.meta.provenance["recorder"]["lost_frames"] == 7


def test_an_episode_that_the_supervisor_stopped_waits_as_one_that_ended(
    store: EpisodeStore,
) -> None:
    with recorder_for(store, autosave=False, keep_interrupted=True) as recorder:
        assert recorder.keep_stopped() == ""
        recorder.on_start(HEADER)
        for k in range(5):
            recorder.on_tick(make_tick(k))
        recorder.on_abort(SafetyStopError("pushed"))
        kept = recorder.keep_stopped()
        assert recorder.keep_stopped() == ""
        # What else ended one is left to repair, and a stop before the first tick leaves nothing.
        recorder.on_start(HEADER)
        recorder.on_tick(make_tick(0))
        recorder.on_abort(RobotError("gone"))
        assert recorder.keep_stopped() == ""
        recorder.on_start(HEADER)
        recorder.on_abort(SafetyStopError("pushed"))
        assert recorder.keep_stopped() == ""
    assert store.ids() == (kept,)
    episode = store.read(kept)
    assert episode.steps == 5
    assert (episode.meta.outcome.reason, episode.meta.outcome.success) == ("safety_stop", False)
    assert episode.meta.outcome.truncated


def test_a_stopped_episode_that_cannot_be_written_does_not_hide_the_stop(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space left on device")

    with recorder_for(store, autosave=False, keep_interrupted=True) as recorder:
        recorder.on_start(HEADER)
        for k in range(40):
            recorder.on_tick(make_tick(k))
        recorder.flush()
        recorder.on_abort(SafetyStopError("pushed"))
        with monkeypatch.context() as patched:
            patched.setattr(Drafts, "prepare", full)
            assert recorder.keep_stopped() == ""
    assert "no space left" in caplog.text
    assert len(recover(store).saved) == 1


def test_an_error_of_the_writer_thread_reaches_the_loop(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        tick = make_tick(0)
        # A picture of another size than the embodiment says.
        wrong = SampleBatch(
            {IMAGE: samples([PERIOD], lambda _: np.zeros((2, 2, 3), dtype=np.uint8))},
            tick.drained.sent,
        )
        recorder.on_tick(Tick(0, Observation(PERIOD, {}), tick.command, wrong, RUNNING))
        with pytest.raises(DataError, match="shape"):
            recorder.on_end(END)
        recorder.discard()
    assert store.ids() == ()


def test_an_unknown_signal_is_an_error(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        tick = make_tick(0)
        extra = SampleBatch({"arm/other": tick.drained.signals[TOOL]}, tick.drained.sent)
        recorder.on_tick(Tick(0, tick.observation, tick.command, extra, RUNNING))
        with pytest.raises(SpecMismatchError, match="no signal"):
            recorder.on_end(END)


def test_an_episode_without_ticks_is_refused(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        with pytest.raises(DataError, match="before its first tick"):
            recorder.on_end(END)
    assert store.ids() == ()


def test_late_samples_are_counted_not_reordered(store: EpisodeStore) -> None:
    with recorder_for(store) as recorder:
        recorder.on_start(HEADER)
        recorder.on_tick(make_tick(0))
        late = make_tick(1, last=True)
        block = samples([PERIOD - 5, 2 * PERIOD], lambda t: [t * 1e-9, 0.5])
        signals = dict(late.drained.signals) | {TOOL: block}
        recorder.on_tick(
            Tick(
                1,
                late.observation,
                late.command,
                SampleBatch(signals, late.drained.sent),
                late.outcome,
            )
        )
        recorder.on_end(END)
    episode = store.read("ep_000000")
    np.testing.assert_array_equal(episode.streams[TOOL].t_ns, [PERIOD, 2 * PERIOD])
    assert episode.meta.provenance["recorder"]["late_samples"] == {TOOL: 1}


def test_frames_are_durable_before_the_end(
    store: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        "robolearn.data.store.chunks.fsync_path", lambda path: synced.append(str(path))
    )
    with recorder_for(store, flush_s=0.0) as recorder:
        recorder.on_start(HEADER)
        for k in range(40):
            recorder.on_tick(make_tick(k, last=k == 39))
        recorder.flush()
        before = [p for p in synced if "top/image/value/c." in p]
        synced.clear()
        recorder.on_end(END)
    assert len(before) == 2
    assert len([p for p in synced if "top/image/value/c." in p]) == 1
    assert store.info("ep_000000").steps == 40


def test_a_simulation_records_the_same_without_a_thread_and_without_the_lock(
    store: EpisodeStore,
) -> None:
    with recorder_for(store) as recorder:
        record(recorder)
    with store.writer() as writer:
        lanes = [DraftRecorder(store.drafts(), spec=SPEC, kind="online", live=False) for _ in "ab"]
        before = threading.active_count()
        for lane in lanes:
            lane.on_start(HEADER)
        for k in range(20):
            for lane in lanes:
                lane.on_tick(make_tick(k, last=k == 19))
        assert threading.active_count() == before
        lanes[0].flush()
        assert not list(store.staging.glob("*.journal"))
        for lane in lanes:
            lane.on_end(END)
        # Prepared in another order than they are committed.
        prepared = [lane.finished().prepare() for lane in reversed(lanes)]
        assert store.ids() == ("ep_000000",)
        ids = [writer.commit(one) for one in reversed(prepared)]
        with pytest.raises(StoreError, match="no finished episode"):
            lanes[0].finished()
        lanes[1].on_start(HEADER)
        lanes[1].on_tick(make_tick(0))
        lanes[1].on_abort(ValueError("the simulation broke"))
        assert not list(store.staging.iterdir())
    assert check_store(store.path).findings == ()
    live = store.read("ep_000000")
    for episode in map(store.read, ids):
        assert episode.meta.kind == "online"
        assert episode.source == live.source
        for name, block in live.streams.items():
            np.testing.assert_array_equal(episode.streams[name].t_ns, block.t_ns)
            np.testing.assert_array_equal(episode.streams[name].value, block.value)
            np.testing.assert_array_equal(episode.view[name], live.view[name])
        np.testing.assert_array_equal(episode.action[TOOL], live.action[TOOL])
