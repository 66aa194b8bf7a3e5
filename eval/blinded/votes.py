"""Keeps what operators prefer: one line per pair, each with the digest of all before it.

The file only grows, and the lines are counted beside the trials (``tally.py``). A line that a
process died over is no line; it is written anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.blinded.plan import LockedPlan
from eval.blinded.tally import count_votes, require_counted
from eval.statistics.preferences import Preference
from robolearn.config import from_dict
from robolearn.errors import DataError, StoreCorruptError, StoreError
from robolearn.types import TrialRecord

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
    return _read(folder)[0]


def planned_votes(
    folder: Path, locked: LockedPlan, rows: Sequence[TrialRecord]
) -> tuple[Vote, ...]:
    """All votes of ``folder``, each held against the plan and the ``rows`` of its table (from 1).

    :class:`StoreCorruptError` for lines that were edited or taken out, for votes of another plan,
    about other trials than their pair's, or about the same two trials again.
    """
    votes, digests, _ = _read_lines(folder / FILE_NAME)
    seen: set[tuple[int, int]] = set()
    for number, vote in enumerate(votes, 1):
        wrong = _not_as_planned(vote, locked, rows)
        if not wrong and vote.rows in seen:
            wrong = f"the trials {_both(vote.rows)} were compared before"
        if wrong:
            raise StoreCorruptError(
                f"'{folder / FILE_NAME}', line {number} is no vote of this plan: {wrong}; the file"
                " was exchanged or edited, restore it from a copy of this folder"
            )
        seen.add(vote.rows)
    require_counted(folder, folder / FILE_NAME, digests)
    return votes


def _not_as_planned(vote: Vote, locked: LockedPlan, rows: Sequence[TrialRecord]) -> str:
    """What is wrong with a vote; "": nothing."""
    if vote.plan != locked.hash:
        return f"it was cast under plan {vote.plan or '(none)'}, expected {locked.hash}"
    pair = [s for s in locked.plan.slots if s.block == vote.block] if locked.plan.pairs else []
    if len(pair) != 2:
        return f"the plan has no pair {vote.block}"
    if [vote.first, vote.second] != [s.alias for s in pair]:
        return (
            f"pair {vote.block} is planned as {pair[0].alias} and {pair[1].alias}, the vote is"
            f" about {vote.first} and {vote.second}"
        )
    if not all(1 <= n <= len(rows) for n in vote.rows):
        return f"it is about the trials {_both(vote.rows)}, the table has {len(rows)}"
    of = [rows[n - 1].slot for n in vote.rows]
    if of != [s.number for s in pair]:
        return (
            f"the slots of pair {vote.block} are {_both([s.number for s in pair])}, its trials"
            f" {_both(vote.rows)} are of {_both(of)}"
        )
    return ""


def _both(values: Sequence[object]) -> str:
    return " and ".join(map(str, values))


def add_vote(folder: Path, vote: Vote) -> None:
    """Add one; whoever calls it holds the lock of the trials."""
    path = folder / FILE_NAME
    votes, digests, size = _read(folder)
    if any(v.rows == vote.rows for v in votes):
        raise DataError(f"the trials {vote.rows} were compared already")
    values = dataclasses.asdict(vote)
    digests.append(_digest(digests[-1] if digests else "", values))
    line = json.dumps({**values, "digest": digests[-1]}) + "\n"
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
    count_votes(folder, digests)


def current(votes: Sequence[Vote], rows: Sequence[int]) -> Vote | None:
    """The vote about these two trials."""
    return next((v for v in votes if list(v.rows) == list(rows)), None)


def _read(folder: Path) -> tuple[tuple[Vote, ...], list[str], int]:
    """Votes, their digests, and how many bytes they take; they are those that were counted."""
    found = _read_lines(folder / FILE_NAME)
    require_counted(folder, folder / FILE_NAME, found[1])
    return found


def _read_lines(path: Path) -> tuple[tuple[Vote, ...], list[str], int]:
    if not path.is_file():
        return (), [], 0
    data = path.read_bytes()
    # What follows the last end of a line was being written when its process died.
    whole = data[: data.rfind(b"\n") + 1]
    votes: list[Vote] = []
    digests: list[str] = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            values = json.loads(line)
            said = values.pop("digest")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise StoreCorruptError(f"'{path}', line {number}: not a vote ({error})") from error
        digests.append(_digest(digests[-1] if digests else "", values))
        if said != digests[-1]:
            raise StoreCorruptError(
                f"'{path}', line {number} is not as it was written, or one before it is missing;"
                " restore the file from a copy"
            )
        votes.append(from_dict(Vote, values, where=f"{path}, line {number}", error=DataError))
    return tuple(votes), digests, len(whole)


def _digest(before: str, values: object) -> str:
    text = before + json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
