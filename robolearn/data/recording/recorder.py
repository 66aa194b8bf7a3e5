"""Records the loop into a store without ever blocking it.

    loop thread     on_tick -> queue (never waits) ............ on_end -> waits, commits
    writer thread        queue -> frames to disk, samples in memory; once a second all is flushed,
                         so that a killed recording is recoverable (``robolearn data repair``)

When the disk cannot keep up, waiting frames are bounded: a frame over the limit is replaced by a
missing one (``valid`` false at its time) and counted; low-dimensional samples are always kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from robolearn.data.episode import EpisodeKind, EpisodeMeta
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.recording.assemble import EpisodeAssembler
from robolearn.data.store.picture_codec import FRAME_CODECS, camera_codecs
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import EpisodeDraft, is_frames
from robolearn.errors import RobolearnError, StoreError
from robolearn.spec import EmbodimentSpec
from robolearn.types import EpisodeHeader, Outcome, SampleBatch, SampleBlock, Tick

_log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 256 * 2**20
FLUSH_S = 1.0
"""A killed recording loses at most this long, and a started chunk of frames."""


@dataclass(frozen=True, slots=True)
class RecorderLoad:
    """Back-pressure: most ticks waiting at once, frames lost to the bound."""

    max_waiting: int
    lost_frames: int

    def join(self, other: RecorderLoad) -> RecorderLoad:
        """Of two episodes together."""
        return RecorderLoad(
            max(self.max_waiting, other.max_waiting), self.lost_frames + other.lost_frames
        )


class EpisodeRecorder:
    """A subscriber of ``run_episode`` that appends to ``store``.

    Holds the store's lock from construction to :meth:`close` (or use ``with``). With
    ``autosave`` an episode is committed when it ends; without, the finished episode waits for
    :meth:`keep` or :meth:`discard`. ``saved`` lists committed ids, ``load`` is the back-pressure of
    the last episode and ``total`` that of all saved ones; ``on_saved(id)`` is called after each
    commit. An episode that ends by an error stays recoverable as far as it was flushed (every
    ``flush_s``); one that the operator interrupts leaves nothing, or with ``keep_interrupted`` all
    that was recorded, as one that failed then does. ``codecs``: how cameras are stored, by name
    (``{"top/image": "jpeg:90"}``); the others as :func:`default_codec` says.
    """

    def __init__(
        self,
        store: EpisodeStore,
        *,
        spec: EmbodimentSpec,
        kind: EpisodeKind,
        task_text: str = "",
        operator: str = "",
        autosave: bool = True,
        on_saved: Callable[[str], None] | None = None,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        flush_s: float = FLUSH_S,
        codecs: Mapping[str, str] | None = None,
        keep_interrupted: bool = False,
    ) -> None:
        self._keep_interrupted = keep_interrupted
        self.codecs = camera_codecs(spec, codecs or {})
        self.saved: list[str] = []
        self.load = self.total = RecorderLoad(0, 0)
        self._spec, self._task_text, self._operator = spec, task_text, operator
        self._kind: EpisodeKind = kind
        self._autosave, self._on_saved, self._limit = autosave, on_saved, max_waiting_bytes
        self._flush_s = flush_s
        self._git, self._versions = git_revision(), library_versions()
        self._stack = ExitStack()
        self._writer = self._stack.enter_context(store.writer())
        self._take: _Take | None = None
        self._finished: EpisodeMeta | None = None

    def __enter__(self) -> EpisodeRecorder:  # noqa: PYI034 - beartype cannot check Self
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_start(self, episode: EpisodeHeader) -> None:
        """Begin a draft; an undecided finished episode is discarded."""
        self.discard()
        meta = self._meta(episode, Outcome(False, 0.0, 0.0, truncated=True))
        draft = self._writer.begin(self.codecs)
        self._take = _Take(meta, self._spec, draft, self._limit, self._flush_s)

    def on_tick(self, tick: Tick) -> None:
        """Hand the tick over; returns at once. Raises what the writer thread ran into."""
        self._running().put(tick)

    def flush(self) -> None:
        """Wait until all ticks of the running episode would survive a kill; frames do so by whole
        chunks. Raises what the writer thread ran into.
        """
        self._running().settle()

    def on_end(self, outcome: Outcome) -> None:
        """Finish writing; commit, or wait for :meth:`keep` or :meth:`discard`."""
        take = self._running()
        self.load = take.finish(flush=not self._autosave)
        notes = dataclasses.asdict(self.load) | take.assembler.notes()
        provenance = dict(take.meta.provenance) | {"recorder": notes}
        self._finished = dataclasses.replace(take.meta, outcome=outcome, provenance=provenance)
        if self._autosave:
            self.keep()

    def on_abort(self, error: BaseException) -> None:
        """Leave the episode in progress to ``data repair``; forget one that was interrupted, unless
        the recorder keeps those, too.
        """
        take = self._take
        if take is not None and (self._keep_interrupted or isinstance(error, Exception)):
            self._take, self._finished = None, None
            if self._keep_interrupted:
                # What failed to be written must not hide why the episode ended.
                with contextlib.suppress(RobolearnError):
                    take.finish(flush=True)
            take.cancel()
            take.draft.abandon()
            if take.draft.journal.flushed:
                _log.warning("episode not saved: %s; 'robolearn data repair' recovers it", error)
                return
        _log.info("episode not saved: %s", error)
        self.discard()

    def keep(self) -> str:
        """Commit the finished episode; returns its id."""
        take, meta = self._take, self._finished
        if take is None or meta is None:
            raise StoreError("there is no finished episode to keep")
        self._take, self._finished = None, None
        try:
            episode = take.assembler.finish(meta)
            episode_id = self._writer.commit(self._writer.prepare(take.draft, episode))
        except BaseException:
            take.draft.abandon()
            raise
        self.saved.append(episode_id)
        self.total = self.total.join(self.load)
        if self._on_saved is not None:
            self._on_saved(episode_id)
        return episode_id

    def discard(self) -> None:
        """Forget the episode in progress or waiting, if any."""
        take, self._take, self._finished = self._take, None, None
        if take is not None:
            take.cancel()
            take.draft.discard()

    def close(self) -> None:
        """Discard what is undecided and release the store; safe to call twice."""
        self.discard()
        self._stack.close()

    def _running(self) -> _Take:
        if self._take is None or self._finished is not None:
            raise StoreError("the recorder was told about a tick outside an episode")
        return self._take

    def _said(self) -> dict[str, dict[str, str]]:
        names = {name: str(codec) for name, codec in self.codecs.items()}
        return {FRAME_CODECS: names} if names else {}

    def _meta(self, header: EpisodeHeader, outcome: Outcome) -> EpisodeMeta:
        return EpisodeMeta(
            kind=self._kind,
            task=header.task,
            embodiment=self._spec,
            condition=header.reset.requested,
            outcome=outcome,
            agent=header.agent,
            env=header.env,
            task_text=self._task_text,
            operator=self._operator,
            start_wall_ns=header.start_wall_ns,
            achieved={
                name: tuple(float(v) for v in np.asarray(value).reshape(-1))
                for name, value in header.reset.achieved.items()
            },
            reset_note=header.reset.note,
            provenance=dict(header.provenance) | self._said(),
            git_revision=self._git,
            versions=self._versions,
        )


class _Take:
    """One episode in progress: its draft, its queue and its writer thread."""

    def __init__(
        self,
        meta: EpisodeMeta,
        spec: EmbodimentSpec,
        draft: EpisodeDraft,
        limit: int,
        flush_s: float,
    ) -> None:
        self.meta, self.draft = meta, draft
        self.assembler = EpisodeAssembler(spec, draft)
        self._frames = frozenset(s.name for s in spec.signals if is_frames(s))
        self._limit, self._flush_s = limit, flush_s
        self._queue: queue.SimpleQueue[tuple[Tick, int] | threading.Event | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._waiting_bytes = self._max_waiting = self._lost = 0
        self._error: Exception | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._write, name="recorder", daemon=True)
        self._thread.start()

    def put(self, tick: Tick) -> None:
        """Queue a tick; frames over the limit become missing ones."""
        self._raise()
        size = sum(
            block.value.nbytes
            for name, block in tick.drained.signals.items()
            if name in self._frames
        )
        if size:
            with self._lock:
                full = self._waiting_bytes + size > self._limit
                self._waiting_bytes += 0 if full else size
            if full:
                tick, size = self._without_frames(tick), 0
        self._queue.put((tick, size))
        self._max_waiting = max(self._max_waiting, self._queue.qsize())

    def finish(self, *, flush: bool) -> RecorderLoad:
        """Wait until everything queued is written, and recoverable with ``flush``."""
        self.stop()
        self._raise()
        if flush:
            self._flush()
        return RecorderLoad(self._max_waiting, self._lost)

    def settle(self) -> None:
        """Wait until everything queued is written and flushed; the thread goes on."""
        done = threading.Event()
        self._queue.put(done)
        done.wait()
        self._raise()

    def cancel(self) -> None:
        """Write nothing more and end the thread."""
        self._cancelled = True
        self.stop()

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _raise(self) -> None:
        error = self._error
        if isinstance(error, RobolearnError):
            raise error
        if error is not None:
            raise StoreError(f"the episode could not be written: {error}") from error

    def _write(self) -> None:
        flushed = time.monotonic()
        while True:
            wait_s = max(0.0, flushed + self._flush_s - time.monotonic())
            try:
                item = self._queue.get(timeout=wait_s)
            except queue.Empty:
                self._guarded(self._flush)
                flushed = time.monotonic()
                continue
            if item is None:
                return
            if isinstance(item, threading.Event):
                self._guarded(self._flush)
                flushed = time.monotonic()
                item.set()
                continue
            tick, size = item
            self._guarded(functools.partial(self.assembler.add, tick))
            with self._lock:
                self._waiting_bytes -= size
            if time.monotonic() >= flushed + self._flush_s:
                self._guarded(self._flush)
                flushed = time.monotonic()

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._error is None and not self._cancelled:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised in the loop at its next tick
                self._error = error

    def _flush(self) -> None:
        segment = self.assembler.segment()
        if segment:
            self.draft.flush(self.meta, segment)

    def _without_frames(self, tick: Tick) -> Tick:
        signals = dict(tick.drained.signals)
        for name in self._frames & signals.keys():
            block = signals[name]
            rows = len(block.t_ns)
            self._lost += rows
            blank = np.zeros((), dtype=block.value.dtype)
            signals[name] = SampleBlock(
                t_ns=block.t_ns,
                value=np.broadcast_to(blank, block.value.shape),
                valid=np.zeros(rows, dtype=np.bool_),
            )
        return dataclasses.replace(tick, drained=SampleBatch(signals, tick.drained.sent))
