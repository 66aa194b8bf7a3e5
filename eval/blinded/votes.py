"""Keeps what operators prefer: one line per pair, each with the digest of all before it.

The file only grows. A line that a process died over is no line; it is written anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.statistics.preferences import Preference
from robolearn.config import from_dict
from robolearn.errors import DataError, StoreCorruptError, StoreError

FILE_NAME = "votes.jsonl"
TIE = ""


@dataclass(frozen=True, slots=True)
class Vote:
    """What somebody preferred of two trials (rows of the table, in the order they were run)."""

    plan: str
    block: int
    first: str
    second: str
    rows: tuple[int, int]
    # Alias of the better one; "": a tie.
    better: str
    comment: str
    operator: str
    # UTC, ISO 8601.
    at: str

    def __post_init__(self) -> None:
        if self.better not in (self.first, self.second, TIE):
            raise DataError(f"a vote is for one of its two trials or a tie, got '{self.better}'")

    @property
    def preference(self) -> Preference:
        """As :func:`bradley_terry` takes it."""
        score = {self.first: 1.0, self.second: 0.0, TIE: 0.5}[self.better]
        return Preference(self.first, self.second, score)


def read_votes(folder: Path) -> tuple[Vote, ...]:
    """All votes; :class:`StoreCorruptError` where lines were edited or taken out."""
    return _read(folder / FILE_NAME)[0]


def add_vote(folder: Path, vote: Vote) -> None:
    """Add one; whoever calls it holds the lock of the trials."""
    path = folder / FILE_NAME
    votes, digest, size = _read(path)
    if any(v.rows == vote.rows for v in votes):
        raise DataError(f"the trials {vote.rows} were compared already")
    values = dataclasses.asdict(vote)
    line = json.dumps({**values, "digest": _digest(digest, values)}) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.ftruncate(fd, size)
            os.lseek(fd, size, os.SEEK_SET)
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreError(f"cannot write '{path}': {error.strerror}") from error


def current(votes: Sequence[Vote], rows: Sequence[int]) -> Vote | None:
    """The vote about these two trials."""
    return next((v for v in votes if list(v.rows) == list(rows)), None)


def _read(path: Path) -> tuple[tuple[Vote, ...], str, int]:
    """Votes, the digest of all, and how many bytes they take."""
    if not path.is_file():
        return (), "", 0
    data = path.read_bytes()
    # What follows the last end of a line was being written when its process died.
    whole = data[: data.rfind(b"\n") + 1]
    votes: list[Vote] = []
    digest = ""
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            values = json.loads(line)
            said = values.pop("digest")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise StoreCorruptError(f"'{path}', line {number}: not a vote ({error})") from error
        digest = _digest(digest, values)
        if said != digest:
            raise StoreCorruptError(
                f"'{path}', line {number} is not as it was written, or one before it is missing;"
                " restore the file from a copy"
            )
        votes.append(from_dict(Vote, values, where=f"{path}, line {number}", error=DataError))
    return tuple(votes), digest, len(whole)


def _digest(before: str, values: object) -> str:
    text = before + json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
