"""Fixes what the machine that drives and the machine that learns say to one another.

    drives (robolearn finetune --learner)        learns (robolearn serve RUN --learn OUT)
    GET / (Authorization: Bearer TOKEN)     ->   101, or 401 without the token
                                            <-   learner   parent's hash, second store, run number
    begin    practice, experiment, store    ->   lines     how much of the store is there
    manifest one episode, its files listed  ->   ok        a draft
    files    some of them                   ->   ok        size and hash are those of the manifest
    line     of the store's log             ->   ok        committed as it is there
    do       build, take_in, update, ...    ->   done, or working: ask again, with the same number
    listing                                 ->   listing   files of the run, with their hashes
    fetch    one of them, from a byte on    ->   data

The frames are those of a policy's server (:mod:`robolearn.inference.codec`), at most
:data:`~robolearn.inference.protocol.MAX_BYTES` each, nothing executable. What either side is told
is checked before it is used: names of files, sizes, hashes, types.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from policies.registry import policy_config
from robolearn import errors
from robolearn.config import differences, from_dict
from robolearn.data.store.confine import confined
from robolearn.errors import ConfigError, DataError, PracticeError, RobolearnError
from robolearn.inference.codec import Message, encode
from robolearn.inference.protocol import error_message
from robolearn.operations.practice.experiment import SECTION, PracticeExperiment
from robolearn.operations.practice.options import PracticeConfig
from robolearn.shapes import Bytes
from robolearn.training.budget import TimeLeft
from robolearn.training.experiment import experiment_of
from robolearn.training.run_directory import (
    DIGESTS,
    PARENT,
    PARTS,
    PROVENANCE,
    REQUIRED,
    WEIGHTS,
    nested_runs,
)
from robolearn.training.versions import VERSIONS, version_file, versions

PART_BYTES = 8 * 2**20
"""Of files in one message, unless one alone is larger."""
FILE_BYTES = 24 * 2**20
"""The largest file of an episode that can be sent."""
EPISODE_BYTES = 8 * 2**30
"""The most that one episode may have."""
WAIT_S = 2.0
"""So long an answer to ``do`` is waited for before ``working`` is said."""
DONE = ("build", "take_in", "update", "drift", "hand_over", "keep", "checkpoint", "finish")
"""What the learner can be told to do."""
MOST_GIVEN = 4
_ERRORS = (
    "CheckpointError",
    "ConfigError",
    "DataError",
    "PracticeError",
    "SpecMismatchError",
    "StoreCorruptError",
    "StoreError",
    "TrainingError",
    "UnsafePathError",
)
"""Errors that are the same on both machines."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFile:
    """A file of the run that is learned, by its path inside of it."""

    path: str
    size: int
    sha256: str


def said(
    kind: str, meta: Mapping[str, Any] | None = None, files: Mapping[str, bytes] | None = None
) -> bytes:
    """A message with ``files`` by name."""
    named = {name: np.frombuffer(data, dtype=np.uint8) for name, data in (files or {}).items()}
    return encode(Message({"kind": kind, **(meta or {})}, named))


def refusal(error: RobolearnError) -> bytes:
    """An error for the other side, by its kind where that is known there."""
    kind = type(error).__name__
    return error_message(f"{kind if kind in _ERRORS else ''}|{error}", 0)


def raised(message: Message) -> Message:
    """``message``, unless it is a refusal, which is raised."""
    if message.meta.get("kind") != "error":
        return message
    kind, _, text = str(message.meta.get("text", "")).partition("|")
    made: type[RobolearnError] = getattr(errors, kind) if kind in _ERRORS else PracticeError
    raise made(f"the learner's machine: {text}")


def value_of(message: Message, name: str, kind: type[T]) -> T:
    """One value of a message's header; :class:`DataError` for another type."""
    found = message.meta.get(name)
    if type(found) is not kind:
        raise DataError(
            f"{message.meta.get('kind')!s:.20}: '{name}' should be of type {kind.__name__}, got"
            f" {str(found)[:60]!r}"
        )
    return found


def integers_of(message: Message, name: str) -> tuple[int | None, ...]:
    """Some integers of a message's header, or nulls; :class:`DataError` for anything else."""
    found = cast("list[object]", value_of(message, name, list))
    if len(found) > MOST_GIVEN or not all(v is None or type(v) is int for v in found):
        raise DataError(f"{message.meta.get('kind')!s:.20}: '{name}' should be integers")
    return tuple(cast("int | None", v) for v in found)


def milliseconds(left: TimeLeft) -> tuple[int | None, int | None]:
    """``left`` as a message's header holds it: rounded up, and null for no limit."""

    def rounded(seconds: float) -> int | None:
        return None if math.isinf(seconds) else math.ceil(1e3 * max(0.0, seconds))

    return rounded(left.seconds), rounded(left.cpu_seconds)


def time_left(seconds_ms: int | None = None, cpu_seconds_ms: int | None = None) -> TimeLeft:
    """Of :func:`milliseconds`; of somebody who says nothing of it, no limit."""
    values = (math.inf if ms is None else ms / 1e3 for ms in (seconds_ms, cpu_seconds_ms))
    return TimeLeft(*values)


def bytes_of(message: Message, name: str) -> bytes:
    """One file of a message; :class:`DataError` for anything else."""
    found = message.arrays.get(name)
    if found is None or found.dtype != np.uint8 or found.ndim != 1:
        raise DataError(f"{message.meta.get('kind')!s:.20}: '{name[:60]}' should be bytes")
    return cast("Bytes", found).tobytes()


def experiment_from(plain: Mapping[str, Any]) -> PracticeExperiment:
    """Of :meth:`PracticeExperiment.plain`; :class:`ConfigError` for what is none."""
    raw = dict(plain)
    practice = from_dict(PracticeConfig, raw.pop(SECTION, {}), SECTION)
    found = PracticeExperiment(experiment_of(raw, policy_config, "learner"), practice)
    lines = differences(dict(plain), found.plain(), "")
    if lines:
        raise ConfigError(
            "the experiment reads otherwise on the machine that learns; both need the same version"
            f" of robolearn. Differences: {'; '.join(lines[:4])}"
        )
    return found


def run_files(run_dir: Path) -> dict[str, Path]:
    """The files that make up the run and its versions as far as they are there, by their paths."""
    found = {name: run_dir / name for name in _names(run_dir, "")}
    for version in versions(run_dir):
        file = version_file(run_dir, version)
        found[f"{VERSIONS}/{file.name}"] = file
    return {name: path for name, path in found.items() if path.is_file()}


def _names(run_dir: Path, prefix: str) -> list[str]:
    names = [f"{prefix}{name}" for name in (*REQUIRED, DIGESTS)]
    for run in nested_runs(run_dir / prefix):
        names += _names(run_dir, f"{prefix}{run}/")
    return names


def confined_run_file(path: object, run_dir: Path) -> str:
    """``path`` as a server tells it, if it may be a file of a run; else :class:`UnsafePathError` or
    :class:`DataError`.
    """
    text = confined(path, "the learner's machine", below=run_dir)
    folder, _, name = text.rpartition("/")
    if folder == VERSIONS:
        number = name.removesuffix(".safetensors")
        if number != name and number.isascii() and number.isdecimal():
            return text
    elif name in (*REQUIRED, DIGESTS) and all(_nesting(folder)):
        return text
    raise DataError(f"the learner's machine: '{text[:80]}' is no file of a run")


def _nesting(folder: str) -> list[bool]:
    """Of every part of ``folder`` whether it may lead to a run inside of another."""
    parts = folder.split("/") if folder else []
    return [
        part in (PARENT, PARTS) or (i > 0 and parts[i - 1] == PARTS) for i, part in enumerate(parts)
    ]


def written_last(path: str) -> int:
    """In which order the files of a run are written: digests say that all others are there."""
    return 2 if path == DIGESTS else int(path in (WEIGHTS, PROVENANCE))


class Digests:
    """SHA-256 of files, computed once for as long as they are not written again."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}

    def __call__(self, path: Path) -> tuple[int, str]:
        """Size and digest."""
        stat = path.stat()
        mark = stat.st_size, stat.st_mtime_ns
        known = self._known.get(path)
        if known is None or known[0] != mark:
            known = mark, hashlib.sha256(path.read_bytes()).hexdigest()
            self._known[path] = known
        return mark[0], known[1]


def checked(call: Callable[[], T]) -> T:
    """``call()``; what is not as it should be in a message is a :class:`DataError`."""
    try:
        return call()
    except RobolearnError:
        # Some are of these kinds, too.
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(f"a message without sense ({type(error).__name__}: {error})") from error
