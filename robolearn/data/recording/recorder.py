"""Records the loop into a store without ever blocking it.

    EpisodeRecorder   holds the store's lock: records one env, commits every episode itself
    DraftRecorder     holds no lock: what it finished is prepared (durable, aside) and committed by
                      whoever holds it; many of them, in many processes, can record for one store

    loop thread     on_tick -> queue (never waits) ............ on_end -> waits, commits
    writer thread        queue -> frames to disk, samples in memory (``recording/take.py``)

When the disk cannot keep up, waiting frames are bounded: a frame over the limit is replaced by a
missing one (``valid`` false at its time) and counted; low-dimensional samples are always kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

from robolearn.data.episode import Episode, EpisodeKind, EpisodeMeta
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.recording.take import FLUSH_S, LiveTake, PlainTake, RecorderLoad, Take
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.drafts import Drafts, PreparedEpisode
from robolearn.data.store.picture_codec import FRAME_CODECS, FrameCodec, camera_codecs
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobolearnError, SafetyStopError, StoreError
from robolearn.machine.interrupt import held, hung_up
from robolearn.spec import EmbodimentSpec
from robolearn.types import SAFETY_STOP, EpisodeHeader, Outcome, Tick

_log = logging.getLogger(__name__)

MAX_WAITING_BYTES = 256 * 2**20


@dataclass(slots=True)
class FinishedEpisode:
    """A whole episode that is not on disk yet. :meth:`prepare` may run in another thread."""

    drafts: Drafts
    take: Take
    meta: EpisodeMeta
    _whole: Episode | None = field(default=None, init=False)
    _ahead: Future[PreparedEpisode] | None = field(default=None, init=False)

    def episode(self) -> Episode:
        """What would be saved; of pictures that are on disk the times alone."""
        if self._whole is None:
            self._whole = self.take.assembler.finish(self.meta)
        return self._whole

    def prepare_ahead(self) -> None:
        """Do it on a thread from now on, while somebody decides what becomes of the episode:
        :meth:`prepare` has only to wait for what is left of it.
        """
        self.episode()
        pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        self._ahead = pool.submit(self._prepare)
        pool.shutdown(wait=False)

    def prepare(self, seen: Callable[[Episode], None] | None = None) -> PreparedEpisode:
        """Write what is missing and make it durable; after an error nothing is left of it, or what
        can be recovered. ``seen`` is shown the episode before.
        """
        return self._prepare(seen) if self._ahead is None else self._ahead.result()

    def _prepare(self, seen: Callable[[Episode], None] | None = None) -> PreparedEpisode:
        try:
            episode = self.episode()
            if seen is not None:
                seen(episode)
            return self.drafts.prepare(self.take.draft, episode)
        except BaseException:
            self.take.draft.abandon()
            raise

    def settle(self) -> None:
        """Wait until nothing writes on it any more."""
        if self._ahead is not None:
            wait([self._ahead])

    def discard(self) -> None:
        """Remove everything."""
        self.settle()
        self.take.draft.discard()


class DraftRecorder:
    """A subscriber of the loop that writes episodes aside; :class:`EpisodeRecorder` is one that
    commits them, too.

    A finished episode waits for :meth:`finished` or :meth:`discard`. ``live``: record on a thread,
    and so that a killed recording is recoverable (as far as it was flushed, every ``flush_s``),
    which robots and people need; else in the loop, which costs a simulation less. ``codecs``: how
    cameras are stored, by name
    (``{"top/image": "jpeg:90"}``); the others as :func:`default_codec` says.
    """

    def __init__(
        self,
        drafts: Drafts,
        *,
        spec: EmbodimentSpec,
        kind: EpisodeKind,
        task_text: str = "",
        operator: str = "",
        codecs: Mapping[str, str] | None = None,
        live: bool = True,
        max_waiting_bytes: int = MAX_WAITING_BYTES,
        flush_s: float = FLUSH_S,
        keep_interrupted: bool = False,
    ) -> None:
        self.codecs = camera_codecs(spec, codecs or {})
        self._load = RecorderLoad(0, 0)
        self._drafts, self._spec, self._live = drafts, spec, live
        self._task_text, self._operator = task_text, operator
        self._kind: EpisodeKind = kind
        self._limit, self._flush_s = max_waiting_bytes, flush_s
        self._keep_interrupted, self._spared = keep_interrupted, False
        self._git, self._versions = git_revision(), library_versions()
        self._take: Take | None = None
        self._finished: FinishedEpisode | None = None
        # How the task stood last, and why an episode that a stop ended could not be finished.
        self._last: Outcome | None = None
        self._unfinished: RobolearnError | None = None

    @property
    def load(self) -> RecorderLoad:
        """The back-pressure of the episode that runs, else of the last one that ended."""
        return self._load if self._take is None else self._take.load

    @property
    def undecided(self) -> bool:
        """Whether an episode runs, or waits."""
        return self._take is not None or self._finished is not None

    def on_start(self, episode: EpisodeHeader) -> None:
        """Begin a draft; an undecided finished episode is discarded."""
        self.discard()
        self._last, self._unfinished, self._spared = None, None, False
        meta = self._meta(episode, Outcome(False, 0.0, 0.0, truncated=True))
        draft = self._drafts.begin(self.codecs)
        if self._live:
            self._take = LiveTake(meta, self._spec, draft, self._limit, self._flush_s)
        else:
            self._take = PlainTake(meta, self._spec, draft)

    def spare(self) -> None:
        """Whoever decides has decided to keep the episode: an interruption, too, leaves it."""
        self._spared = True

    def on_tick(self, tick: Tick) -> None:
        """Take the tick in; ``live`` returns at once and raises what the thread ran into."""
        self._running().put(tick)
        self._last = tick.outcome

    def flush(self) -> None:
        """Wait until all ticks of the running episode would survive a kill, if it is ``live``;
        frames do so by whole chunks. Raises what the writer thread ran into.
        """
        self._running().settle()

    def on_end(self, outcome: Outcome) -> None:
        """Finish writing; the episode waits for :meth:`finished` or :meth:`discard`."""
        self.end(outcome, flush=True)

    def end(self, outcome: Outcome, *, flush: bool) -> None:
        """:meth:`on_end`; ``flush``: what waits survives a kill (``live``)."""
        take = self._running()
        # An interruption in the middle would cost what is on its way to the disk.
        with held():
            self._load = take.finish(flush=flush)
            notes = dataclasses.asdict(self.load) | take.assembler.notes()
            provenance = dict(take.meta.provenance) | {"recorder": notes}
            meta = dataclasses.replace(take.meta, outcome=outcome, provenance=provenance)
            self._take, self._finished = None, FinishedEpisode(self._drafts, take, meta)

    def prepare_ahead(self) -> None:
        """Of what waits, as :meth:`FinishedEpisode.prepare_ahead`."""
        if self._finished is not None:
            self._finished.prepare_ahead()

    def on_abort(self, error: BaseException) -> None:
        """Leave the episode in progress, or that waits, to ``data repair``; forget one that was
        interrupted, unless it was spared or the terminal is gone. With ``keep_interrupted`` a stop
        of the supervisor is how an episode ended, which then waits as any other, and one that was
        interrupted is left, too.
        """
        # A second interruption (a terminal's end is told twice) must not undo this.
        with held():
            self._abort(error)

    def _abort(self, error: BaseException) -> None:
        left = self._keep_interrupted or self._spared or hung_up() or isinstance(error, Exception)
        if self._keep_interrupted and isinstance(error, SafetyStopError) and self._last is not None:
            try:
                self.end(self._last.cut_short(SAFETY_STOP), flush=True)
            except RobolearnError as failed:
                # Why it could not be written must not hide why it ended; :meth:`finished` tells.
                self._unfinished = failed
            else:
                return
        take = self._take
        if self._finished is not None:
            self._finished.settle()
            take = self._finished.take
        if take is not None and left:
            running = self._take is not None
            self._take, self._finished = None, None
            if running and (self._keep_interrupted or not isinstance(error, Exception)):
                # What failed to be written must not hide why the episode ended.
                with contextlib.suppress(RobolearnError):
                    take.finish(flush=True)
            take.cancel()
            take.draft.abandon()
            if take.draft.journal.flushed:
                why = str(error) or "interrupted"
                _log.warning("episode not saved: %s; 'robolearn data repair' recovers it", why)
                return
        _log.info("episode not saved: %s", error)
        self.discard()

    def waiting(self) -> Episode:
        """The finished episode that nobody has decided on yet, as :meth:`FinishedEpisode.episode`:
        to look at while the person still stands there.
        """
        if self._finished is None:
            raise StoreError("there is no finished episode to look at")
        return self._finished.episode()

    def finished(self) -> FinishedEpisode:
        """Hand the finished episode over; it is the caller's from now on."""
        finished, self._finished = self._finished, None
        if finished is None:
            raise self._unfinished or StoreError("there is no finished episode to keep")
        return finished

    def discard(self) -> None:
        """Forget the episode in progress or waiting, if any."""
        take, finished = self._take, self._finished
        self._take = self._finished = None
        if take is not None:
            take.cancel()
            take.draft.discard()
        if finished is not None:
            finished.discard()

    def close(self) -> None:
        """Nobody decides any more: what is undecided is discarded, unless it was spared or the
        terminal is gone; safe to call twice.
        """
        if self.undecided and (self._spared or hung_up()):
            self.on_abort(KeyboardInterrupt())
        self.discard()

    def _running(self) -> Take:
        if self._take is None:
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


class EpisodeRecorder:
    """A subscriber of ``run_episode`` that appends to ``store``.

    Holds the store's lock from construction to :meth:`close` (or use ``with``). With
    ``autosave`` an episode is committed when it ends; without, the finished episode waits for
    :meth:`keep` or :meth:`discard`. ``saved`` lists committed ids, ``load`` is the back-pressure of
    the last episode and ``total`` that of all saved ones; ``on_saved(id)`` is called after each
    commit. An episode that ends by an error stays recoverable as far as it was flushed (every
    ``flush_s``); one that the operator interrupts leaves nothing, unless it was to be kept
    (:meth:`spare`), or with ``keep_interrupted`` all that was recorded, as one that failed then
    does, and one that the supervisor stopped waits as one that ended (:meth:`keep_stopped`).
    ``codecs``: as :class:`DraftRecorder`.
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
        self.saved: list[str] = []
        self.total = RecorderLoad(0, 0)
        self._autosave, self._on_saved = autosave, on_saved
        with ExitStack() as opened:
            self._writer = opened.enter_context(store.writer())
            self._recorder = DraftRecorder(
                self._writer.drafts,
                spec=spec,
                kind=kind,
                task_text=task_text,
                operator=operator,
                codecs=codecs,
                max_waiting_bytes=max_waiting_bytes,
                flush_s=flush_s,
                keep_interrupted=keep_interrupted,
            )
            # A codec that does not exist must not leave the store locked.
            self._stack = opened.pop_all()

    def __enter__(self) -> EpisodeRecorder:  # noqa: PYI034 - beartype cannot check Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is not None and self._recorder.undecided:
                self._recorder.on_abort(error)
        finally:
            self.close()

    @property
    def codecs(self) -> Mapping[str, FrameCodec]:
        """How cameras are stored."""
        return self._recorder.codecs

    @property
    def load(self) -> RecorderLoad:
        """The back-pressure of the episode that runs, else of the last one that ended."""
        return self._recorder.load

    @property
    def lost_frames(self) -> int:
        """Of the committed episodes, and of the one that runs or waits."""
        return self.total.lost_frames + (self.load.lost_frames if self._recorder.undecided else 0)

    def on_start(self, episode: EpisodeHeader) -> None:
        """Begin a draft; an undecided finished episode is discarded."""
        self._recorder.on_start(episode)

    def spare(self) -> None:
        """As :meth:`DraftRecorder.spare`."""
        self._recorder.spare()

    def on_tick(self, tick: Tick) -> None:
        """Hand the tick over; returns at once. Raises what the writer thread ran into."""
        self._recorder.on_tick(tick)

    def flush(self) -> None:
        """As :meth:`DraftRecorder.flush`."""
        self._recorder.flush()

    def on_end(self, outcome: Outcome) -> None:
        """Finish writing; commit, or wait for :meth:`keep` or :meth:`discard`."""
        self._recorder.end(outcome, flush=not self._autosave)
        if self._autosave:
            self.keep()
        else:
            self._recorder.prepare_ahead()

    def on_abort(self, error: BaseException) -> None:
        """As :meth:`DraftRecorder.on_abort`."""
        self._recorder.on_abort(error)

    def waiting(self) -> Episode:
        """As :meth:`DraftRecorder.waiting`."""
        return self._recorder.waiting()

    def keep(self) -> str:
        """Commit the finished episode; returns its id."""
        finished = self._recorder.finished()
        try:
            episode_id = self._writer.commit(finished.prepare())
        except BaseException:
            finished.take.draft.abandon()
            raise
        self.saved.append(episode_id)
        self.total = self.total.join(self.load)
        if self._on_saved is not None:
            self._on_saved(episode_id)
        return episode_id

    def keep_stopped(self) -> str:
        """Commit the episode that an error ended, where it waits; its id, else "". What cannot be
        written is logged: it is left to ``data repair``, and must not hide the error.
        """
        if not self._recorder.undecided:
            return ""
        try:
            return self.keep()
        except (RobolearnError, OSError) as error:
            _log.error("episode not saved: %s; 'robolearn data repair' recovers it", error)
            return ""

    def annotate(self, annotation: Annotation) -> None:
        """Say something about committed episodes."""
        self._writer.annotate(annotation)

    def discard(self) -> None:
        """Forget the episode in progress or waiting, if any."""
        self._recorder.discard()

    def close(self) -> None:
        """As :meth:`DraftRecorder.close`, and release the store; safe to call twice."""
        try:
            self._recorder.close()
        finally:
            self._stack.close()
