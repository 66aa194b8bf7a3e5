"""Reaches the learner on another machine, for a session that knows it as one beside it.

    session   build -> take_in -> update -> hand_over -> ... -> finish
                         |                     |                  |
              the store's new lines      the new version     the whole run, into OUT

Called by the thread that learns, never by the loop: while the connection is lost the arm goes on
with the version that it has, episodes go into the store as ever, and what the other machine lacks
is sent once it can be reached again.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from robolearn.data.store.chunks import read_checked
from robolearn.data.store.manifest import (
    EPISODES,
    STORE_FILE,
    LogEntry,
    is_episode,
    parse_manifest,
)
from robolearn.data.store.storage import Place, fetch, read_plain
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.mirror import record_of, require_whole
from robolearn.errors import ConfigError, DataError, InferenceError, PracticeError, StoreError
from robolearn.files import replacing
from robolearn.inference.channel_client import Channel
from robolearn.inference.codec import Message
from robolearn.operations.practice.beside import Hurry, Learning, new_hurry
from robolearn.operations.practice.elsewhere.messages import (
    FILE_BYTES,
    PART_BYTES,
    Digests,
    RunFile,
    bytes_of,
    checked,
    confined_run_file,
    milliseconds,
    raised,
    run_files,
    said,
    value_of,
    written_last,
)
from robolearn.operations.practice.frame import LearnerBuilder, SecondStore
from robolearn.operations.practice.session import nothing
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.learner import Taken
from robolearn.training.run_directory import (
    CONFIG_FILE,
    DIGESTS,
    Run,
    hold_parent,
    holding,
    say_held,
    seal_run,
    unseal_run,
)
from robolearn.training.versions import load_version, remove_versions, versions

log = logging.getLogger(__name__)
WHAT = "machine that learns"
ANSWER_S = 30.0
"""An answer is there sooner, also where a copy has to be made durable."""
AGAIN_S = 1.0
"""Between two tries to reach it."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LearnerAddress:
    """Where it learns (``robolearn serve RUN --learn OUT``)."""

    url: str
    token: str
    # So long a connection may be lost before practice ends [s].
    patience_s: float = 300.0

    def look(self, parent: str) -> SecondStore | None:
        """Whether it is there, for the policy of hash ``parent``; the second store that it has.

        Errors: :class:`ConfigError` for another policy or no address, :class:`InferenceError`
        where it cannot be reached or the token is wrong.
        """
        channel = Channel(self.url, self.token, ANSWER_S, WHAT)
        try:
            hello = known(channel.hello, self.url)
        finally:
            channel.close()
        if value_of(hello, "parent", str) != parent:
            raise ConfigError(
                f"{self.url} learns over another policy ({hello.meta['parent']}) than the one that"
                f" practises ({parent}); both machines need the same run"
            )
        second = value_of(hello, "second", str)
        practised = value_of(hello, "practised", bool)
        return SecondStore(Path(second), practised) if second else None


def known(hello: Message, url: str) -> Message:
    """The first message of a learner; :class:`ConfigError` for anybody else's."""
    if hello.meta.get("kind") != "learner":
        raise ConfigError(
            f"{url} is a server, but does not learn; name an 'out' to learn in where it is served"
        )
    return hello


@dataclass(slots=True)
class LearnerElsewhere:
    """Starts the learner there once there is something to learn from; what a session calls
    ``build``. ``here``: what would build it on this machine; ``parent``: its policy's hash;
    ``practice``: the number of the practice.
    """

    address: LearnerAddress
    here: LearnerBuilder
    parent: str
    practice: str
    hurry: Hurry = field(default_factory=new_hurry)
    started: RemoteLearner | None = None

    def __call__(self) -> RemoteLearner:
        """Errors of data and configuration are raised here."""
        self.started = RemoteLearner(self)
        return self.started

    @property
    def cpu_seconds(self) -> float:
        """What it has computed [s]."""
        return 0.0 if self.started is None else self.started.cpu_seconds


def learner_of(
    address: LearnerAddress | None, here: LearnerBuilder, parent: Run, practice: str
) -> tuple[Callable[[], Learning], Callable[[], float]]:
    """What builds the learner, on the machine of ``address`` or on this one, and what it has
    computed elsewhere [s].
    """
    if address is None:
        return here, nothing
    away = LearnerElsewhere(address, here, parent.policy_hash, practice)
    return away, lambda: away.cpu_seconds


def second_of(
    address: LearnerAddress | None, parent: Run, second: SecondStore | None
) -> SecondStore | None:
    """The store that a share of every batch comes from: ``second``, or what the machine that learns
    has. Errors as :meth:`LearnerAddress.look`.
    """
    if address is None:
        return second
    if second is not None:
        raise ConfigError(
            f"demonstrations are read by the machine that learns: name '{second.path}' to"
            " 'robolearn serve' there"
        )
    return address.look(parent.policy_hash)


class RemoteLearner:
    """A :class:`~robolearn.operations.practice.session.Learning` on another machine; used by one
    thread at a time.
    """

    def __init__(self, where: LearnerElsewhere) -> None:
        self._where = where
        self._channel: Channel | None = None
        self._learner = ""
        self._caller, self._number = uuid.uuid4().hex, 0
        self._lines = 0
        self._digests = Digests()
        self.step, self.cpu_seconds = 0, 0.0
        try:
            self._reached(self._send_lines)
            self._do("build")
        except BaseException:
            self.close()
            raise

    def take_in(self) -> Taken:
        """Send what is new in the store, and let it be taken in."""
        self._reached(self._send_lines)
        found = self._do("take_in")
        return checked(lambda: Taken(**{k: int(v) for k, v in found.items()}))

    def update(self, count: int, left: TimeLeft = UNLIMITED) -> Mapping[str, float]:
        """So many updates, or fewer in a hurry or by the time that is left; their figures."""
        found = cast("Mapping[str, Any]", self._do("update", count, *milliseconds(left)))
        return checked(lambda: {str(k): float("nan" if v is None else v) for k, v in found.items()})

    def drift(self) -> float | None:
        """How far its answers are from the parent's; None: that cannot be said."""
        found = self._do("drift")
        return checked(lambda: None if found is None else float(found))

    def hand_over(self) -> int:
        """A new version, whose weights are here when this returns.

        Errors: :class:`PracticeError` for a number that was used before.
        """
        before = max(versions(self._where.here.out), default=0)
        version = self._do("hand_over")
        if type(version) is not int or version <= before:
            raise PracticeError(
                f"{self._url} handed over version {str(version)[:20]}, and {before} is here"
                " already: its run is older than this one. Bring the folder that it learns in back,"
                " or choose another out"
            )
        self._reached(self._fetch_run)
        # Weights of another run or version are refused here, not in the middle of a round.
        load_version(self._where.here.out, version)
        return version

    def keep(self, version: int) -> None:
        """Do not delete a version."""
        self._do("keep", version)

    def checkpoint(self) -> None:
        """Keep what going on needs, there."""
        self._do("checkpoint")

    def finish(self, version: int | None = None, *, as_parent: bool = False) -> None:
        """The run is complete, there and here; what it holds is said here."""
        if as_parent:
            hold_parent(self._where.here.out)
        self._do("finish", version)
        self._reached(lambda channel: self._fetch_run(channel, done=not as_parent))

    def close(self) -> None:
        """Leave; safe to call twice."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    @property
    def _url(self) -> str:
        return self._where.address.url

    # -- the connection ----------------------------------------------------------------------------

    def _reached(self, work: Callable[[Channel], T]) -> T:
        """``work``, again from its beginning after the connection was lost, until patience ends."""
        address, lost_s = self._where.address, 0.0
        while True:
            try:
                return work(self._channel or self._opened())
            except InferenceError as error:
                self.close()
                now = time.monotonic()
                if not lost_s:
                    lost_s = now
                    log.warning("%s; whoever drives goes on with the version that is here", error)
                if now - lost_s > address.patience_s or self._where.hurry.is_set():
                    raise PracticeError(
                        f"the {WHAT} could not be reached for {now - lost_s:.0f} s ({error});"
                        " episodes are kept, go on with resume once it can be"
                    ) from error
                time.sleep(AGAIN_S)

    def _opened(self) -> Channel:
        where = self._where
        channel = Channel(self._url, where.address.token, ANSWER_S, WHAT)
        try:
            hello = known(channel.hello, self._url)
            learner = value_of(hello, "learner", str)
            if self._learner and learner != self._learner:
                raise PracticeError(
                    f"the {WHAT} was started anew: what it had learned since its last checkpoint is"
                    " lost; episodes are kept, go on with resume"
                )
            meta = {
                "practice": where.practice,
                "experiment": where.here.experiment.plain(),
                "corrected": where.here.corrected,
                "parent": where.parent,
            }
            store = read_plain(EpisodeStore.open(where.here.store).path / STORE_FILE)
            answer = raised(channel.ask(said("begin", meta, {"store": store})))
            self._lines = value_of(answer, "lines", int)
        except BaseException:
            channel.close()
            raise
        self._learner, self._channel = learner, channel
        return channel

    def _ask(
        self,
        channel: Channel,
        kind: str,
        meta: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> Message:
        told = {"practice": self._where.practice, **(meta or {})}
        return raised(channel.ask(said(kind, told, files)))

    def _do(self, name: str, *given: int | None) -> Any:
        """Tell the learner, and wait for what comes of it."""
        self._number += 1
        number = self._number

        def told(channel: Channel) -> Message:
            while True:
                meta = {
                    "caller": self._caller,
                    "number": number,
                    "name": name,
                    "given": list(given),
                    "hurry": self._where.hurry.is_set(),
                }
                answer = self._ask(channel, "do", meta)
                if answer.meta.get("kind") == "done":
                    return answer

        answer = self._reached(told)
        self.step = value_of(answer, "step", int)
        self.cpu_seconds = value_of(answer, "cpu_seconds", float)
        return answer.meta.get("value")

    # -- episodes there ----------------------------------------------------------------------------

    def _send_lines(self, channel: Channel) -> None:
        """What the store's log has that the copy does not."""
        store = EpisodeStore.open(self._where.here.store)
        lines = store.log()
        if self._lines > len(lines):
            raise StoreError(
                f"the copy on the {WHAT} has {self._lines} lines and '{store.path}' {len(lines)}:"
                " it lost some; bring them back, or begin with other stores"
            )
        fresh = lines[self._lines :]
        require_whole(store, lines, fresh)
        for entry in fresh:
            data, base = record_of(store, entry)
            if is_episode(entry.id):
                self._send_episode(channel, data, base, entry)
            self._ask(channel, "line", files={"line": entry.line(), "record": data})
            self._lines += 1

    def _send_episode(self, channel: Channel, data: bytes, base: Place, entry: LogEntry) -> None:
        manifest = parse_manifest(data, entry.id)
        files = manifest.by_path()
        root = fetch(base / EPISODES / (manifest.folder or entry.id), files)
        begun = self._ask(channel, "manifest", files={"manifest": data})
        named = {"draft": value_of(begun, "draft", str)}
        part: dict[str, bytes] = {}
        for path, listed in files.items():
            if listed.size > FILE_BYTES:
                raise StoreError(
                    f"{entry.id}: '{path}' has {listed.size} bytes; files of at most {FILE_BYTES}"
                    " can be sent. Store the camera as jpeg (docs/data_format.md)"
                )
            if sum(map(len, part.values())) + listed.size > PART_BYTES:
                self._ask(channel, "files", named, part)
                part = {}
            part[path] = read_checked(root, path, files)
        self._ask(channel, "files", named, part)

    # -- the run here ------------------------------------------------------------------------------

    def _fetch_run(self, channel: Channel, *, done: bool = False) -> None:
        """Make the files of the run here those there."""
        out = self._where.here.out
        listing = self._ask(channel, "listing")
        rows = cast("list[tuple[Any, Any, Any]]", value_of(listing, "files", list))
        files = checked(
            lambda: [RunFile(confined_run_file(n, out), int(s), str(d)) for n, s, d in rows]
        )
        here, held = run_files(out), not done and bool(holding(out))
        wanted = {f.path: (f.size, f.sha256) for f in files}
        if DIGESTS in here and wanted.get(DIGESTS) != self._digests(here[DIGESTS]):
            # They go before a file changes.
            unseal_run(out)
            del here[DIGESTS]
        for file in sorted(files, key=lambda f: written_last(f.path)):
            path = here.get(file.path)
            if held and file.path == DIGESTS:
                continue
            if path is None or self._digests(path) != wanted[file.path]:
                # What came out before stays until something else does, at every moment.
                kept = say_held if held and file.path == CONFIG_FILE else None
                self._fetch_file(channel, file, out / file.path, kept)
        if held:
            seal_run(out)
        remove_versions(out, frozenset(_numbers([f.path for f in files])))

    def _fetch_file(
        self,
        channel: Channel,
        file: RunFile,
        target: Path,
        amend: Callable[[Path], None] | None = None,
    ) -> None:
        """To the disk as it comes: what a file's size is said to be costs no memory; ``amend``:
        before it takes its place.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if file.size > free:
            raise DataError(
                f"{self._url}: '{file.path}' is said to have {file.size} bytes, and {free} are free"
                f" in {target.parent}; free some, and resume"
            )
        found, length = hashlib.sha256(), 0
        with replacing(target) as fresh:
            with fresh.open("wb") as written:
                while length < file.size:
                    part = bytes_of(
                        self._ask(channel, "fetch", {"path": file.path, "at": length}), "data"
                    )
                    length += len(part)
                    if not part or length > file.size:
                        raise DataError(
                            f"{self._url}: '{file.path}' is not as long as it was said to be"
                        )
                    written.write(part)
                    found.update(part)
            if found.hexdigest() != file.sha256:
                raise DataError(f"{self._url}: '{file.path}' is not what it was said to be")
            if amend is not None:
                amend(fresh)


def _numbers(paths: list[str]) -> list[int]:
    """Of the versions among the files of a run."""
    stems = [Path(p).stem for p in paths if p.startswith("versions/")]
    return [int(stem) for stem in stems if stem.isascii() and stem.isdecimal()]
