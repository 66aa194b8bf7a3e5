"""Finds what a lab keeps under some folders: stores, runs, evaluations, scenes and so on.

    lab/                      walked, links are not followed
      data/pusht/store.json   a store: named, and not walked any further
      runs/flow/config.yaml   a run

A thing is known by the file that its own reader demands. What a reader would refuse is found all
the same, with the sentence that says why.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.errors import ConfigError, RobolearnError
from robolearn.operations.studio.opened import OpenStores

DEEPEST = 8
"""Folders below a root that are looked into."""
CERTIFIED = "certificate.json"
MOST = 20_000
"""Things that are listed."""
_LEFT_OUT = ("node_modules", "site-packages", "__pycache__")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing: one of ``all_of`` groups of files is complete in its folder; ``watched``:
    files whose changes change the thing; ``check``: says what is wrong with it, or nothing.
    """

    name: str
    all_of: tuple[tuple[str, ...], ...]
    watched: tuple[str, ...] = ()
    check: Callable[[Path, OpenStores], str] | None = None


@dataclass(frozen=True, slots=True)
class Thing:
    """Something found: ``path`` relative to its root is ``where``; ``changed_ns``: Unix time;
    ``problem``: why it cannot be read as it is, or empty.
    """

    id: str
    kind: str
    name: str
    where: str
    path: Path
    changed_ns: int
    problem: str = ""


def _store_problem(path: Path, stores: OpenStores) -> str:
    return stores.damage(path)


def _scene_problem(path: Path, _: OpenStores) -> str:
    missing = [n for n in ("scene.yaml", "scene.xml") if not (path / n).is_file()]
    return f"{', '.join(missing)} is missing: a scene package needs both" if missing else ""


# In this order: a folder is the first that fits.
KINDS: tuple[Kind, ...] = (
    Kind(
        "store",
        (("store.json",), ("commits.jsonl", "manifests")),
        ("store.json", "commits.jsonl"),
        _store_problem,
    ),
    Kind("trial_session", (("plan.yaml", "kept"),), ("plan.yaml", "trials.sqlite", "votes.jsonl")),
    Kind("deployment", (("deploy.json",),), ("deploy.json", "trials.sqlite")),
    Kind(
        "evaluation",
        (("evaluation.json",), ("trials.sqlite",)),
        ("evaluation.json", "trials.sqlite", "trials.sqlite-wal"),
    ),
    Kind(
        "run",
        (("config.yaml", "spec.json"), ("config.yaml", "metrics.jsonl"), ("practice.jsonl",)),
        ("config.yaml", "metrics.jsonl", "weights.safetensors", "practice.jsonl", "practice.json"),
    ),
    Kind("scene", (("scene.yaml",),), ("scene.yaml", "scene.xml", "drift.json"), _scene_problem),
    Kind("capture", (("capture.yaml",),), ("capture.yaml",)),
    # A file, mostly in a run: found beside whatever its folder is.
    CERTIFICATE := Kind("certificate", ((CERTIFIED,),), (CERTIFIED,)),
)
# What is tried on a cell is recorded into a store of its own, inside.
_RECORDING = ("trial_session", "deployment", "evaluation")


def require_folders(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders as they are really called, each once; :class:`ConfigError` for anything else."""
    found: list[Path] = []
    for folder in folders:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise ConfigError(f"studio looks into folders, and '{folder}' {what}")
        real = folder.resolve()
        if real not in found:
            found.append(real)
    if not found:
        raise ConfigError("name at least one folder to look into")
    return tuple(found)


class Finder:
    """Walks ``roots`` again and again; folders that did not change are not read a second time."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self.stores = OpenStores()
        self._folders: dict[Path, tuple[int, tuple[str, ...], frozenset[str]]] = {}
        self._problems: dict[tuple[Path, str, int], str] = {}
        self.left_out = 0

    def find(self) -> tuple[Thing, ...]:
        """Everything there is now, by root and path."""
        seen: dict[Path, tuple[int, tuple[str, ...], frozenset[str]]] = {}
        checked: dict[tuple[Path, str, int], str] = {}
        found: list[Thing] = []
        self.left_out = 0
        for number, root in enumerate(self.roots):
            for folder, kind in self._walk(root, seen):
                if len(found) >= MOST:
                    self.left_out += 1
                    continue
                found.append(self._thing(number, root, folder, kind, checked))
        self._folders, self._problems = seen, checked
        return tuple(found)

    def _walk(
        self, root: Path, seen: dict[Path, tuple[int, tuple[str, ...], frozenset[str]]]
    ) -> Iterator[tuple[Path, Kind]]:
        waiting = [(root, 0)]
        while waiting:
            folder, depth = waiting.pop()
            # A folder may be in two roots: it is shown in the first.
            if folder in seen:
                continue
            try:
                stamp = folder.stat().st_mtime_ns
                known = self._folders.get(folder)
                if known is None or known[0] != stamp:
                    known = (stamp, *_entries(folder))
            except OSError:
                # Gone meanwhile, or not ours to read; whoever asks for it is told so.
                continue
            seen[folder] = known
            kind = kind_of(known[2])
            if kind is not None and kind is not CERTIFICATE:
                yield folder, kind
            if CERTIFIED in known[2]:
                yield folder, CERTIFICATE
            if kind is not None and kind.name in _RECORDING and "store" in known[1]:
                waiting.append((folder / "store", depth + 1))
            elif kind is None and depth < DEEPEST:
                waiting += [(folder / name, depth + 1) for name in reversed(known[1])]

    def _thing(
        self,
        number: int,
        root: Path,
        folder: Path,
        kind: Kind,
        checked: dict[tuple[Path, str, int], str],
    ) -> Thing:
        changed = changed_ns(folder, kind)
        key = (folder, kind.name, changed)
        problem = self._problems.get(key)
        if problem is None:
            problem = _problem(kind, folder, self.stores)
        checked[key] = problem
        path = folder / CERTIFIED if kind is CERTIFICATE else folder
        where = path.relative_to(root).as_posix()
        return Thing(
            id=thing_id(number, where),
            kind=kind.name,
            name=folder.name or str(folder),
            where=where,
            path=path,
            changed_ns=changed,
            problem=problem,
        )


def kind_of(names: frozenset[str]) -> Kind | None:
    """What a folder with these entries is, if anything."""
    for kind in KINDS:
        if any(names.issuperset(group) for group in kind.all_of):
            return kind
    return None


def thing_id(root: int, where: str) -> str:
    """The same for the same place below the same roots, so that a link keeps its meaning."""
    return hashlib.sha256(f"{root}/{where}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def changed_ns(folder: Path, kind: Kind) -> int:
    """When one of the files that matter was written last (Unix time); 0 where none is left."""
    newest = 0
    for name in kind.watched:
        try:
            newest = max(newest, (folder / name).stat().st_mtime_ns)
        except OSError:
            continue
    return newest


def counts(things: Sequence[Thing]) -> Mapping[str, int]:
    """How many there are of each kind."""
    return {k.name: sum(t.kind == k.name for t in things) for k in KINDS}


def _entries(folder: Path) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of folders to look into, and of everything."""
    folders: list[str] = []
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            hidden = entry.name.startswith(".") or entry.name in _LEFT_OUT
            if not hidden and entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    return tuple(sorted(folders)), frozenset(names)


def _problem(kind: Kind, folder: Path, stores: OpenStores) -> str:
    if kind.check is None:
        return ""
    try:
        return kind.check(folder, stores)
    except (RobolearnError, OSError, ValueError) as error:
        return str(error)
