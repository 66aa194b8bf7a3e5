"""Takes the ticks of one episode in: on a thread that never lets the loop wait, or in the loop.

LiveTake      queue (never waits) -> thread: frames to disk, samples in memory; once a second all
is flushed, so that a killed recording is recoverable (``robolearn data repair``)
PlainTake     in the loop; nothing is flushed: a kill costs the episode in progress
"""

from __future__ import annotations

import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from robolearn.data.episode import EpisodeMeta
from robolearn.data.recording.assemble import EpisodeAssembler
from robolearn.data.store.drafts import EpisodeDraft, is_frames
from robolearn.errors import RobolearnError, StoreError
from robolearn.spec import EmbodimentSpec
from robolearn.types import SampleBatch, SampleBlock, Tick

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


@runtime_checkable
class Take(Protocol):
    """One episode in progress."""

    @property
    def meta(self) -> EpisodeMeta:
        """As far as it is known at the start."""
        ...

    @property
    def draft(self) -> EpisodeDraft:
        """Where its files grow."""
        ...

    @property
    def assembler(self) -> EpisodeAssembler:
        """What came in so far."""
        ...

    @property
    def load(self) -> RecorderLoad:
        """The back-pressure so far."""
        ...

    def put(self, tick: Tick) -> None:
        """One more tick."""
        ...

    def settle(self) -> None:
        """Make all that came in survive a kill."""
        ...

    def finish(self, *, flush: bool) -> RecorderLoad:
        """Take everything in; survives a kill from here on with ``flush``."""
        ...

    def cancel(self) -> None:
        """Take nothing more in."""
        ...


class PlainTake:
    """One episode in progress whose ticks are taken in by the loop itself, for simulations: what a
    kill would cost can be simulated again.
    """

    def __init__(self, meta: EpisodeMeta, spec: EmbodimentSpec, draft: EpisodeDraft) -> None:
        self.meta, self.draft = meta, draft
        self.assembler = EpisodeAssembler(spec, draft)

    @property
    def load(self) -> RecorderLoad:
        """Nothing waits, and nothing is lost."""
        return RecorderLoad(0, 0)

    def put(self, tick: Tick) -> None:
        """Take a tick in."""
        self.assembler.add(tick)

    def settle(self) -> None:
        """Nothing of it survives a kill before it is prepared."""

    def finish(self, *, flush: bool) -> RecorderLoad:
        """Everything is there already, and nothing was lost."""
        del flush
        return self.load

    def cancel(self) -> None:
        """Nothing runs that could be stopped."""


class LiveTake:
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

    @property
    def load(self) -> RecorderLoad:
        """Most ticks that waited at once so far, and frames that were dropped."""
        return RecorderLoad(self._max_waiting, self._lost)

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
        return self.load

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
