"""Is every file of a store what was committed? Nothing is changed on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robolearn.data.annotations import parse_annotation
from robolearn.data.chunks import FileEntry
from robolearn.data.identity import EPISODES_META
from robolearn.data.journal import recoverable
from robolearn.data.layout import read_episode
from robolearn.data.lock import StoreLock
from robolearn.data.manifest import (
    ANNOTATIONS,
    EPISODES,
    LOG_FILE,
    MANIFESTS,
    PENDING_FILE,
    STORE_FILE,
    TEMPORARY,
    TRASH,
    LogEntry,
    Manifest,
    Pending,
    is_episode,
    parse_entry,
    parse_log,
    parse_manifest,
    read_pending,
    record_name,
    trashed,
)
from robolearn.data.store import EpisodeStore
from robolearn.data.validate import validate_episode
from robolearn.errors import RobolearnError, StoreCorruptError, StoreError, StoreLockedError

Severity = Literal["error", "note"]
Kind = Literal[
    "missing", "altered", "size", "extra", "log", "unreadable", "content", "leftover", "foreign"
]
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation. An ``error`` is damage; a ``note`` is harmless."""

    severity: Severity
    kind: Kind
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What :func:`check_store` looked at and found."""

    store: str
    episodes: int
    files: int
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """No damage (notes do not count)."""
        return all(f.severity != "error" for f in self.findings)


def check_store(path: str | Path, *, deep: bool = False) -> CheckReport:
    """Verify the store's metadata, the chain of commits, and every file of every episode.

    ``deep`` decodes every array too and checks what an episode must satisfy.
    A folder that is no store, or of a newer format, raises :class:`StoreError`.
    """
    where = Path(path).expanduser().resolve()
    check = _Check(where, deep=deep)
    try:
        EpisodeStore.open(where)
    except StoreCorruptError as error:
        check.error("altered", STORE_FILE, str(error))
    except StoreError as error:
        # A flipped bit can make another format or a newer version of it: the log knows.
        if not _identity_altered(where):
            raise
        check.error("altered", STORE_FILE, str(error))
    lock = None
    try:
        lock = StoreLock(where)
    except StoreLockedError:
        check.live = True
    try:
        return check.run()
    finally:
        if lock is not None:
            lock.release()


def _identity_altered(store: Path) -> bool:
    try:
        first = (store / LOG_FILE).read_bytes().split(b"\n", 1)[0]
        expected = parse_entry(first, LOG_FILE).files.get(STORE_FILE)
        return hashlib.sha256((store / STORE_FILE).read_bytes()).hexdigest() != expected
    except (OSError, StoreCorruptError):
        return False


class _Check:
    """Collects findings; ``live`` means that a writer is at work beside us."""

    def __init__(self, store: Path, *, deep: bool) -> None:
        self.store, self.deep = store, deep
        self.live = False
        self.findings: list[Finding] = []
        self.files = 0
        self.gone: frozenset[str] = frozenset()
        self.moving: frozenset[str] = frozenset()

    def error(self, kind: Kind, path: str, message: str) -> None:
        self.findings.append(Finding("error", kind, path, message))

    def note(self, kind: Kind, path: str, message: str) -> None:
        self.findings.append(Finding("note", kind, path, message))

    def run(self) -> CheckReport:
        pending = self._pending()
        entries = self._log(pending)
        if entries:
            self._own_files(entries[0])
        known = {e.id: e.files.get(record_name(e.id), "") for e in (entries or ())[1:]}
        written = pending is not None and (self.store / record_name(pending.id)).exists()
        everything = entries or ()
        if pending is not None and written:
            known.setdefault(pending.id, pending.sha256)
            everything = (*everything, self._entry(pending))
        self._annotations({i: h for i, h in known.items() if not is_episode(i)}, entries is None)
        self.gone = trashed(everything)
        self.moving = (
            frozenset(self._entry(pending).episodes) if pending is not None else self.moving
        )
        manifests = self._manifests(MANIFESTS) | self._manifests(f"{TRASH}/{MANIFESTS}")
        episodes = {i: h for i, h in known.items() if is_episode(i)}
        if entries is not None:
            for episode_id in sorted(manifests - set(episodes)):
                self._unlogged(episode_id, pending)
        checked = sorted(set(episodes) | manifests)
        for episode_id in checked:
            self._episode(episode_id, episodes.get(episode_id))
        self._rest(set(checked), pending)
        return CheckReport(str(self.store), len(checked), self.files, tuple(self.findings))

    def _entry(self, pending: Pending) -> LogEntry:
        return parse_entry(pending.line.encode(), PENDING_FILE)

    def _manifests(self, folder: str) -> set[str]:
        """Ids of the manifests in ``folder``."""
        names = _names(self.store / folder)
        found = {n for n in names if n.endswith(".json")}
        for name in sorted(names - found):
            self.note("foreign", f"{folder}/{name}", "not a manifest")
        return {n.removesuffix(".json") for n in found}

    def _annotations(self, known: dict[str, str], unknown_log: bool) -> None:
        """Every annotation that the log names, and none that it does not name."""
        for record_id, digest in known.items():
            name = record_name(record_id)
            if self._digest(self.store / name, name, digest):
                try:
                    parse_annotation((self.store / name).read_bytes(), self.store / name)
                except (StoreCorruptError, OSError) as error:
                    self.error("altered", name, str(error))
        for name in sorted(_names(self.store / ANNOTATIONS) - {f"{i}.json" for i in known}):
            path = f"{ANNOTATIONS}/{name}"
            if self.live:
                self.note("leftover", path, "being committed")
            elif not unknown_log:
                self.error("log", path, "the commit log does not name this annotation")

    def _place(self, episode_id: str, part: str, name: str) -> str:
        """Where a manifest or folder should be; either place while its removal is pending."""
        there, aside = f"{part}/{name}", f"{TRASH}/{part}/{name}"
        wanted, other = (aside, there) if episode_id in self.gone else (there, aside)
        movable = self.live or episode_id in self.moving
        if movable and not (self.store / wanted).exists() and (self.store / other).exists():
            return other
        return wanted

    def _pending(self) -> Pending | None:
        try:
            pending = read_pending(self.store)
        except StoreCorruptError as error:
            self.error("altered", PENDING_FILE, str(error))
            return None
        if pending is not None and not self.live:
            self.note(
                "leftover",
                PENDING_FILE,
                f"the commit of {pending.id} was interrupted; the next write resolves it",
            )
        return pending

    def _log(self, pending: Pending | None) -> tuple[LogEntry, ...] | None:
        """The lines of the log; None when it cannot be trusted."""
        try:
            data = (self.store / LOG_FILE).read_bytes()
        except OSError as error:
            self.error("missing", LOG_FILE, f"the commit log cannot be read: {error.strerror}")
            return None
        if pending is not None:
            line = pending.line.encode()
            tail = data[pending.log_size :]
            if len(data) < pending.log_size or not line.startswith(tail):
                self.error("log", LOG_FILE, "differs from what the interrupted commit expects")
                return None
            if tail != line:
                data = data[: pending.log_size]
        try:
            return parse_log(data, self.store / LOG_FILE)
        except StoreCorruptError as error:
            self.error("log", LOG_FILE, str(error))
            return None

    def _own_files(self, first: LogEntry) -> None:
        for name in (STORE_FILE, EPISODES_META):
            if name not in first.files:
                self.error("log", LOG_FILE, f"the first line does not name {name}")
        for name, digest in first.files.items():
            self._digest(self.store / name, name, digest)

    def _unlogged(self, episode_id: str, pending: Pending | None) -> None:
        name = f"{MANIFESTS}/{episode_id}.json"
        if pending is not None and pending.id == episode_id:
            return
        if self.live:
            self.note("leftover", name, "being committed")
        else:
            self.error("log", name, "the commit log does not name this manifest")

    def _episode(self, episode_id: str, digest: str | None) -> None:
        name = self._place(episode_id, MANIFESTS, f"{episode_id}.json")
        where = self.store / name
        if not where.exists():
            self.error("missing", name, "the manifest of a committed episode was lost")
            return
        if digest is not None and not self._digest(where, name, digest):
            return
        try:
            manifest = parse_manifest(where.read_bytes(), where)
        except (StoreCorruptError, OSError) as error:
            self.error("altered", name, str(error))
            return
        base = self._place(episode_id, EPISODES, episode_id)
        there = _files(self.store / base)
        listed = manifest.by_path()
        for path in sorted(there - set(listed)):
            self.error("extra", f"{base}/{path}", "not part of the episode as committed")
        before = len(self.findings)
        for entry in manifest.files:
            self._file(base, entry)
        if self.deep and len(self.findings) == before:
            self._decode(base, episode_id, manifest)

    def _decode(self, base: str, episode_id: str, manifest: Manifest) -> None:
        """Files that are what was committed, but is that an episode?"""
        files = manifest.by_path()
        try:
            episode = read_episode(self.store / base, files, None, episode_id)
            validate_episode(episode)
        except RobolearnError as error:
            self.error("content", base, str(error))
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            self.error("content", base, f"cannot be decoded ({type(error).__name__}: {error})")

    def _file(self, base: str, entry: FileEntry) -> None:
        name = f"{base}/{entry.path}"
        try:
            size = (self.store / name).stat().st_size
        except OSError:
            self.error("missing", name, "the file is gone")
            return
        if size != entry.size:
            self.error("size", name, f"expected {entry.size} bytes, got {size}")
            return
        self._digest(self.store / name, name, entry.sha256)

    def _digest(self, path: Path, name: str, expected: str) -> bool:
        self.files += 1
        try:
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
        except FileNotFoundError:
            self.error("missing", name, "the file is gone")
            return False
        except OSError as error:
            self.error("unreadable", name, error.strerror or str(error))
            return False
        if digest.hexdigest() != expected:
            self.error("altered", name, "the contents differ from what was committed")
            return False
        return True

    def _rest(self, episodes: set[str], pending: Pending | None) -> None:
        """Everything in the store's folders that is not part of it."""
        for part, own in (
            (EPISODES, {"zarr.json"} | {e for e in episodes if e not in self.gone}),
            (f"{TRASH}/{EPISODES}", {e for e in episodes if e in self.gone}),
        ):
            for name in sorted(_names(self.store / part) - own - self.moving):
                path = f"{part}/{name}"
                if self.live or (pending is not None and name == pending.id):
                    self.note("leftover", path, "never committed; the next write removes it")
                else:
                    self.error("extra", path, "neither a manifest nor the commit log names it")
        for part, misplaced in (
            (MANIFESTS, self.gone),
            (f"{TRASH}/{MANIFESTS}", episodes - self.gone),
        ):
            names = {f"{e}.json" for e in misplaced - self.moving}
            for name in sorted(_names(self.store / part) & names):
                if not self.live:
                    self.error("extra", f"{part}/{name}", "the commit log says that it was moved")
        if not self.live:
            folder = self.store / TEMPORARY
            kept = {p for j in recoverable(folder) for p in (j.folder.name, j.draft.name)}
            for name in sorted(_names(folder)):
                message = (
                    "a recording that was killed: 'robolearn data repair' recovers or discards it"
                    if name in kept
                    else "never committed; the next write removes it"
                )
                self.note("leftover", f"{TEMPORARY}/{name}", message)
        own = {STORE_FILE, LOG_FILE, PENDING_FILE, MANIFESTS, EPISODES, TEMPORARY}
        own |= {ANNOTATIONS, TRASH}
        for name in sorted(_names(self.store) - own):
            self.note("foreign", name, "not part of the store")


def _names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir()} if folder.is_dir() else set()


def _files(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
