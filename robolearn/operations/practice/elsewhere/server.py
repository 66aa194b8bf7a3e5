"""Learns from what another machine drives: ``robolearn serve RUN --learn OUT --store COPY``.

    COPY   the other machine's store, line by line of its log (:mod:`robolearn.data.upkeep.mirror`)
    OUT    the run that is learned: checkpoints, versions; the other machine gets what it needs

The learner is the one of a practice on an arm, in a process of its own. What it is told has a
number: a message that comes again, after a connection broke, is answered and not obeyed twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import shutil
import threading
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from robolearn.data.store.drafts import EpisodeDraft
from robolearn.data.store.manifest import (
    STORE_FILE,
    LogEntry,
    Manifest,
    is_episode,
    parse_entry,
    parse_manifest,
)
from robolearn.data.store.storage import read_plain
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import ConfigError, DataError, PracticeError, RobolearnError, StoreError
from robolearn.inference.channel_server import ChannelServer, ServeConfig
from robolearn.inference.codec import Message, decode
from robolearn.operations.practice.beside import Hurry, LearnerProcess, new_hurry
from robolearn.operations.practice.elsewhere.messages import (
    DONE,
    EPISODE_BYTES,
    PART_BYTES,
    WAIT_S,
    Digests,
    bytes_of,
    checked,
    experiment_from,
    integers_of,
    refusal,
    run_files,
    said,
    time_left,
    value_of,
)
from robolearn.operations.practice.experiment import SECTION
from robolearn.operations.practice.frame import (
    LIMITS,
    LearnerBuilder,
    SecondStore,
    require_share,
)
from robolearn.operations.practice.session import GIB
from robolearn.training.learner import Taken
from robolearn.training.run_directory import load_run

log = logging.getLogger(__name__)
LOCAL = ServeConfig()


@dataclass(frozen=True, slots=True)
class Teaching:
    """What is learned from: over the policy ``run``, into ``out``, from a copy of the other
    machine's store in ``store``; ``second``: where a share of every batch comes from.
    """

    run: Path
    out: Path
    store: Path
    second: SecondStore | None = None
    # Torch threads of the learner.
    threads: int = 1


@contextlib.contextmanager
def serve_learner(teaching: Teaching, config: ServeConfig = LOCAL) -> Generator[LearnerServer]:
    """Learn while the block runs; the machine that drives needs the server's ``url`` and ``token``.

    Errors: :class:`CheckpointError`, :class:`ConfigError`, OSError for an address that is taken.
    """
    with contextlib.closing(LearnerServer(teaching, config)) as server:
        yield server


class LearnerServer:
    """One learner at a time, of one practice; runs until :meth:`close`."""

    def __init__(self, teaching: Teaching, config: ServeConfig) -> None:
        parent, second = load_run(teaching.run), teaching.second
        self.parent = parent.policy_hash
        self._teaching, self._lock = teaching, threading.Lock()
        self._pupil: _Pupil | None = None
        self.answered = self.refused = 0
        hello = {
            "parent": self.parent,
            "name": teaching.run.resolve().name,
            # Another one after every start.
            "learner": uuid.uuid4().hex,
            "second": "" if second is None else str(second.path),
            "practised": second is not None and second.practised,
        }
        self._channel = ChannelServer(said("learner", hello), self._answer, config)
        self.token, self.url = self._channel.token, self._channel.url

    def close(self) -> None:
        """Let everybody go, end the learner; what it learned since its last checkpoint is lost."""
        self._channel.close()
        with self._lock:
            if self._pupil is not None:
                self._pupil.close()
                self._pupil = None

    def _answer(self, data: bytes) -> tuple[bytes, bool]:
        try:
            message = decode(data)
            answer = checked(lambda: self._heard(message))
        except RobolearnError as error:
            self.refused += 1
            log.warning("refused: %s", str(error)[:200])
            return refusal(error), False
        except OSError as error:
            self.refused += 1
            log.warning("refused: %s", error)
            return refusal(StoreError(f"{error}")), False
        self.answered += 1
        return answer, True

    def _heard(self, message: Message) -> bytes:
        kind = message.meta.get("kind")
        with self._lock:
            if kind == "begin":
                return self._begin(message)
            pupil = self._pupil
            if pupil is None or pupil.practice != value_of(message, "practice", str):
                raise DataError(f"'{str(kind)[:20]}' of a practice that did not begin here")
            if kind != "do":
                return pupil.heard(message)
        # Not under the lock: it may take long, and its answer may be asked for again meanwhile.
        return pupil.do(message)

    def _begin(self, message: Message) -> bytes:
        """Of a practice; the one that is learned from already, or a first one."""
        asked = _Begun(
            value_of(message, "practice", str),
            cast("dict[str, Any]", value_of(message, "experiment", dict)),
            value_of(message, "corrected", bool),
            bytes_of(message, "store"),
            value_of(message, "parent", str),
        )
        if asked.parent != self.parent:
            raise ConfigError(
                f"the machine that learns has another policy ('{self._teaching.run}',"
                f" {self.parent}) than the one that drives; both need the same run"
            )
        if self._pupil is None:
            self._pupil = _Pupil.opened(self._teaching, asked)
        elif not self._pupil.goes_on(asked):
            raise ConfigError(
                "the machine that learns is at another practice; end that first (Ctrl-C), and serve"
                " a new one with an out and a store of its own"
            )
        return said("lines", {"lines": self._pupil.lines})


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a practice is, as it was asked to begin."""

    practice: str
    experiment: Mapping[str, Any]
    corrected: bool
    store: bytes
    # Hash of the policy that practises.
    parent: str

    @property
    def lasting(self) -> tuple[Any, ...]:
        """What stays the same when it goes on."""
        practice = self.experiment.get(SECTION, {})
        kept = {k: v for k, v in practice.items() if k not in LIMITS}
        return self.practice, {**self.experiment, SECTION: kept}, self.corrected, self.store


@dataclass(slots=True)
class _Job:
    """What the learner was told last, by whom, and what came of it."""

    caller: str
    number: int
    done: threading.Event = field(default_factory=threading.Event)
    answer: bytes = b""


@dataclass(frozen=True, slots=True)
class _Draft:
    """An episode on its way: its files so far, what it will be, and its ``name`` until then."""

    draft: EpisodeDraft
    manifest: Manifest
    data: bytes
    name: str


@dataclass(slots=True)
class _Pupil:
    """The learner of one practice, and the copy of the store that it learns from."""

    teaching: Teaching
    begun: _Begun
    store: EpisodeStore
    writer: StoreWriter
    builder: LearnerBuilder
    stack: contextlib.ExitStack
    learner: LearnerProcess | None = None
    hurry: Hurry = field(default_factory=new_hurry)
    _draft: _Draft | None = None
    _job: _Job | None = None
    # Who told the learner before whoever does now: what they ask for, late, is not done.
    _followed: set[str] = field(default_factory=set[str])
    _digests: Digests = field(default_factory=Digests)
    _jobs: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def opened(teaching: Teaching, begun: _Begun) -> _Pupil:
        """Errors: :class:`ConfigError` for an experiment that cannot be learned here,
        :class:`StoreError` for another store than the one that is copied.
        """
        builder = _builder(teaching, begun)
        with contextlib.ExitStack() as stack:
            store = _copied(teaching.store, begun.store)
            writer = stack.enter_context(store.writer())
            return _Pupil(teaching, begun, store, writer, builder, stack.pop_all())

    def goes_on(self, asked: _Begun) -> bool:
        """Whether ``asked`` is this practice; with its limits from now on."""
        if asked.lasting != self.begun.lasting:
            return False
        self.begun, self.builder = asked, _builder(self.teaching, asked)
        return True

    @property
    def practice(self) -> str:
        """Its number."""
        return self.begun.practice

    @property
    def free_gib(self) -> float:
        """What stays free of the disk [GiB]."""
        return self.builder.experiment.practice.disk_gib

    @property
    def lines(self) -> int:
        """Of the store's log that are here."""
        return len(self.store.log())

    def close(self) -> None:
        """End the learner, let go of the store."""
        if self.learner is not None:
            self.learner.close()
        self._drop()
        self.stack.close()

    # -- the store ---------------------------------------------------------------------------------

    def heard(self, message: Message) -> bytes:
        """All but ``do``."""
        kind = str(message.meta.get("kind"))
        known: Mapping[str, Callable[[Message], bytes]] = {
            "manifest": self._manifest,
            "files": self._files,
            "line": self._line,
            "listing": self._listing,
            "fetch": self._fetch,
        }
        if kind not in known:
            raise DataError(f"nothing is known of '{kind[:20]}'; expected one of {sorted(known)}")
        return known[kind](message)

    def _manifest(self, message: Message) -> bytes:
        """A draft; one that was left half sent begins anew."""
        data = bytes_of(message, "manifest")
        manifest = parse_manifest(data, "a manifest that was sent")
        size = sum(f.size for f in manifest.files)
        if size > EPISODE_BYTES:
            raise DataError(f"an episode of {size} bytes; at most {EPISODE_BYTES} are taken")
        free = shutil.disk_usage(self.teaching.store).free - size
        if free < self.free_gib * GIB:
            raise StoreError(
                f"the disk of the machine that learns has {free / GIB:.2f} GiB left beside this"
                f" episode (practice.disk_gib: {self.free_gib:g}); free some there"
            )
        self._drop()
        self._draft = _Draft(self.writer.drafts.begin(), manifest, data, uuid.uuid4().hex)
        return said("ok", {"draft": self._draft.name})

    def _files(self, message: Message) -> bytes:
        coming = self._draft
        if coming is None or value_of(message, "draft", str) != coming.name:
            raise DataError("files of an episode whose manifest did not come")
        draft, listed = coming.draft, coming.manifest.by_path()
        there = {e.path for e in draft.sink.entries}
        for path in message.arrays:
            data = bytes_of(message, path)
            if path not in listed or path in there or len(data) != listed[path].size:
                raise DataError(f"'{path[:80]}' of {len(data)} bytes is no file that is to come")
            draft.sink.write(path, data)
            if draft.sink.entries[-1] != listed[path]:
                self._drop()
                raise DataError(f"'{path[:80]}' is not what the manifest says of it")
        return said("ok")

    def _line(self, message: Message) -> bytes:
        entry = parse_entry(bytes_of(message, "line"), "a line that was sent")
        have = self.store.log()
        if entry.number < len(have):
            if have[entry.number] != entry:
                raise StoreError("the copy of the store has another history than the store")
            return said("ok")
        if not is_episode(entry.id):
            self.writer.commit_copy(entry, bytes_of(message, "record"), None)
            return said("ok")
        self._commit(entry)
        return said("ok")

    def _commit(self, entry: LogEntry) -> None:
        coming = self._draft
        if coming is None:
            raise DataError(f"{entry.id}: its manifest did not come")
        sink, manifest = coming.draft.sink, coming.manifest
        if set(sink.entries) != set(manifest.files) or manifest.info.id != entry.id:
            raise DataError(f"{entry.id}: not all of its files came, or they are another episode's")
        sink.sync()
        self.writer.commit_copy(entry, coming.data, sink.root)
        self._drop()

    def _drop(self) -> None:
        if self._draft is not None:
            self._draft.draft.discard()
            self._draft = None

    # -- the run -----------------------------------------------------------------------------------

    def _listing(self, _: Message) -> bytes:
        files = run_files(self.teaching.out)
        found = [[name, *self._digests(path)] for name, path in files.items()]
        return said("listing", {"files": found})

    def _fetch(self, message: Message) -> bytes:
        name, at = value_of(message, "path", str), value_of(message, "at", int)
        files = run_files(self.teaching.out)
        if name not in files or at < 0:
            raise DataError(f"'{name[:80]}' is no file of the run, or is not there any more")
        with files[name].open("rb") as file:
            file.seek(at)
            return said("data", files={"data": file.read(PART_BYTES)})

    # -- the learner -------------------------------------------------------------------------------

    def do(self, message: Message) -> bytes:
        """Tell the learner, or ask again for what came of it."""
        caller, number = value_of(message, "caller", str), value_of(message, "number", int)
        name, given = value_of(message, "name", str), integers_of(message, "given")
        if name not in DONE:
            raise DataError(f"nobody can be told to '{name[:20]}' {str(given)[:40]}")
        with self._jobs:
            if caller in self._followed:
                raise PracticeError(
                    "somebody else goes on with this practice by now: a learner is told by one. End"
                    " the other one, and go on with resume"
                )
            job = self._job
            if job is not None and job.caller != caller:
                self._followed.add(job.caller)
                if not job.done.is_set():
                    # Nobody waits for it any more: what was begun ends soon.
                    self.hurry.set()
                    return said("working")
            if job is None or (job.caller, job.number) != (caller, number):
                if job is not None and not job.done.is_set():
                    raise DataError("the learner was not done with what it was told before")
                job = self._job = _Job(caller, number)
                work = (job, name, given)
                threading.Thread(target=self._work, args=work, name="learner", daemon=True).start()
            elif value_of(message, "hurry", bool):
                self.hurry.set()
        if not job.done.wait(WAIT_S):
            return said("working")
        return job.answer

    def _work(self, job: _Job, name: str, given: tuple[Any, ...]) -> None:
        try:
            value = self._build() if name == "build" else self._told(name, given)
            learner = self.learner
            step, cpu = (0, 0.0) if learner is None else (learner.step, learner.cpu_seconds)
            job.answer = said("done", {"value": value, "step": step, "cpu_seconds": cpu})
        except RobolearnError as error:
            job.answer = refusal(error)
        except Exception as error:
            log.exception("the learner failed")
            job.answer = refusal(PracticeError(f"{type(error).__name__}: {error}"))
        finally:
            job.done.set()

    def _build(self) -> None:
        """From the last checkpoint, or anew: whoever drives has no learner yet."""
        if self.learner is not None:
            self.learner.close()
        self.hurry = new_hurry()
        self.learner = LearnerProcess(self.builder, self.hurry)

    def _told(self, name: str, given: tuple[Any, ...]) -> Any:
        if self.learner is None:
            raise PracticeError("there is no learner yet; begin with 'build'")
        if name == "update":
            count, *left = given
            given = count, time_left(*left)
        value = getattr(self.learner, name)(*given)
        return dataclasses.asdict(value) if isinstance(value, Taken) else _plain(value)


def _plain(value: Any) -> Any:
    """Figures as JSON holds them, which knows no NaN."""
    if isinstance(value, Mapping):
        named = cast("Mapping[str, float]", value)
        return {name: float(v) if math.isfinite(v) else None for name, v in named.items()}
    return value


def _builder(teaching: Teaching, begun: _Begun) -> LearnerBuilder:
    experiment, second = experiment_from(begun.experiment), teaching.second
    require_share(experiment, second, "somebody" if begun.corrected else "")
    where = teaching.run, teaching.store, teaching.out
    return LearnerBuilder(
        *(experiment, *where, second, teaching.threads),
        corrected=begun.corrected,
        parent_hash=begun.parent,
    )


def _copied(folder: Path, identity: bytes) -> EpisodeStore:
    """The copy of the store of this identity, so far; a new one where there is none."""
    absent = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if absent:
        return EpisodeStore.create(folder, identity=identity)
    store = EpisodeStore.open(folder)
    if read_plain(store.path / STORE_FILE) != identity:
        raise StoreError(
            f"'{folder}' on the machine that learns is another store, or a copy of another one than"
            " that of the machine that drives; name another store there"
        )
    return store
