"""Says which code and libraries decide a simulated trial: trials of others are not the same.

What decides is found by walking the imports from where a trial is run and built; names that are
resolved lazily (``"module:Name"``) and imports inside functions count. Reports and statistics are
not reached, so they may change without it. Neither are the parts of a virtual lab, of which worlds
like ``reality/pusht`` are made: the hash of such a world says which code made it. Installed
packages that bring tasks, experts, scenes, worlds or policies (``docs/plugins.md``) count with all
their files, used by a trial or not. What moves an arm has a digest of its own (``driving_hash``).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")
ENTRIES = (
    "robolearn.operations.builders",
    "robolearn.operations.suites",
    "eval.trials.rollouts",
    "eval.trials.judge",
    "eval.trials.instruments",
    "sim.worlds",
)
# What a reality in process is made of; this counts for its trials alone.
REALITY = "robolearn.operations.reality.worlds"
_TOP = "|".join(PACKAGES)
_FROM = re.compile(rf"^[ \t]*from ((?:{_TOP})(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_IMPORT = re.compile(rf"^[ \t]*import ((?:{_TOP})(?:\.\w+)*)", re.MULTILINE)
_LAZY = re.compile(rf"[\"']((?:{_TOP})(?:\.\w+)+)(?::[\w.]+)?[\"']")
# Physics, drawing and arithmetic; another version of one of them may give other trials.
LIBRARIES = (
    *("mujoco", "pymunk", "gym-pusht", "pybullet", "robosuite", "ogbench", "gymnasium"),
    *("numpy", "scipy", "shapely", "opencv-python", "torch", "onnxruntime"),
)
# Groups of entry points whose plug-ins decide trials; devices and formats of data do not.
PLUGIN_GROUPS = tuple(
    f"robolearn.{name}"
    for name in ("tasks", "derived_signals", "experts", "players", "scenes", "worlds", "policies")
)


def code_hash(root: Path = ROOT) -> str:
    """SHA-256 (16 digits) over the sources that decide a simulated trial."""
    named = [(path.relative_to(root).as_posix(), path) for path in deciding_files(root)]
    return digest_of_files([*named, *plugin_files()])


@functools.cache
def reality_hash() -> str:
    """The same over the sources that decide trials in a reality in process and no others."""
    return digest_of_files([(path.relative_to(ROOT).as_posix(), path) for path in reality_files()])


def reality_files() -> tuple[Path, ...]:
    """The sources of :func:`reality_hash`, sorted."""
    return tuple(sorted(set(reached(ROOT, (REALITY,), ())) - set(deciding_files())))


def digest_of_files(files: Iterable[tuple[str, Path]]) -> str:
    """SHA-256 (16 digits) over files with their names."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def source_hash(root: Path = ROOT) -> str:
    """SHA-256 (16 digits) over all sources of the packages, also those that decide no trial."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".xml", ".yaml", ".html", ".js") and path.is_file():
                digest.update(str(path.relative_to(root)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def deciding_libraries() -> str:
    """Versions of what is installed of :data:`LIBRARIES`: ``gymnasium 1.4.0, mujoco 3.8.1, ...``,
    as trials record them.
    """
    found: list[str] = []
    for name in sorted(LIBRARIES):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def plugin_files(groups: Sequence[str] = PLUGIN_GROUPS) -> list[tuple[str, Path]]:
    """The files of installed packages that bring something to one of the ``groups``, with a name
    that does not depend on where they are installed.
    """
    # Asked for once: each question reads what every installed package announces.
    announced = entry_points()
    points = [point for group in groups for point in announced.select(group=group)]
    modules = {point.module.partition(".")[0] for point in points}
    found: dict[str, Path] = {}
    for module in sorted(modules - set(PACKAGES)):
        # Finding a top-level package does not run its code.
        spec = importlib.util.find_spec(module)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in Path(folder).rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    found[f"{module}/{path.relative_to(folder).as_posix()}"] = path
        if spec and not spec.submodule_search_locations and spec.origin:
            found[module] = Path(spec.origin)
    return sorted(found.items())


def deciding_files(root: Path = ROOT) -> tuple[Path, ...]:
    """The sources that :data:`ENTRIES` reach by importing, sorted; ``root`` holds the packages."""
    return reached(root.resolve(), ENTRIES, (REALITY,))


@functools.cache
def reached(
    root: Path, entries: Sequence[str], unread: Sequence[str], left_out: Sequence[str] = ()
) -> tuple[Path, ...]:
    """The sources that ``entries`` reach by importing, sorted. ``unread``: modules that count, and
    what they import does not; ``left_out``: modules and packages that do not count, either.
    """
    outside = tuple(f"{name}." for name in left_out)
    modules = {
        name: files for name, files in _modules(root).items() if not f"{name}.".startswith(outside)
    }
    seen: set[Path] = set()
    waiting = [file for name in entries for file in _files(modules, name)]
    ends = {file for name in unread for file in _files(modules, name) if file.stem != "__init__"}
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path in ends:
            continue
        waiting += [
            file for name in _imports(path.read_text("utf-8")) for file in _files(modules, name)
        ]
    return tuple(sorted(seen))


def _modules(root: Path) -> dict[str, list[Path]]:
    """Dotted name -> its file, or that of the package; both where a folder and a file have one
    name. The disk is asked once, not for every imported name.
    """
    found: dict[str, list[Path]] = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if path.is_file():
                found.setdefault(name, []).append(path)
    return found


def _imports(source: str) -> set[str]:
    names = set(_IMPORT.findall(source)) | set(_LAZY.findall(source))
    for module, imported in _FROM.findall(source):
        names.add(module)
        names |= {f"{module}.{name}" for name in re.findall(r"\w+", imported)}
    return names


def _files(modules: Mapping[str, list[Path]], name: str) -> list[Path]:
    """The module's file and those of the packages around it; nothing for a name inside one."""
    parts = name.split(".")
    found = [
        path
        for i in range(1, len(parts))
        for path in modules.get(".".join(parts[:i]), ())
        if path.stem == "__init__"
    ]
    return [*found, *modules.get(name, ())]
