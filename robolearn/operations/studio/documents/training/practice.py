"""Describes a practice: how often each version of the weights succeeded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.report.text import switch_words
from robolearn.operations.practice.records import (
    KEPT,
    LINES,
    VersionTest,
    read_flights,
    read_standing,
)
from robolearn.operations.practice.versions import VersionSuccess, by_version
from robolearn.operations.studio.documents.loose import whole
from robolearn.operations.studio.documents.problems import Problem, Problems, gone

MOST_BYTES = 32 << 20
"""Of a longer list of episodes nothing is counted."""


@dataclass(frozen=True, slots=True)
class PracticeDocument:
    """``versions``: while they practised, the parent first; ``tests``: on held-out starts, as they
    would be deployed, each beside the parent.
    """

    name: str
    path: str
    worlds: tuple[str, ...]
    versions: tuple[VersionSuccess, ...]
    tests: tuple[VersionTest, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class PracticeOutcome:
    """Why a practice was over and what came out, in sentences; ``sound``: nothing went wrong."""

    sentences: tuple[str, ...]
    sound: bool


def practice_outcome(path: Path) -> PracticeOutcome | None:
    """As far as the practice in ``path`` says it, those of earlier versions said less; None while
    it goes on. Errors: :class:`CheckpointError` for a damaged file.
    """
    standing = read_standing(path)
    result = None if standing is None else standing.result
    if result is None:
        return None
    found = [f"Over: {result['ended']}."] if result.get("ended") else []
    if result.get("kept") in KEPT:
        found.append(f"The run {KEPT[result['kept']]}.")
    regret, dip = whole(result.get("regret")), whole(result.get("dip"))
    if regret is not None and dip is not None:
        words = switch_words(regret, dip)
        found.append(f"{words[:1].upper()}{words[1:]}.")
    return PracticeOutcome(tuple(found), result.get("sound") is not False)


def practice_document(path: Path) -> PracticeDocument:
    """What the episodes of a practice's run directory came to so far. Raises nothing for what the
    folder holds.
    """
    problems = Problems()
    if missing := gone(path):
        problems.say("practice", missing)
    file = path / LINES
    size = file.stat().st_size if file.is_file() else 0
    flights = ()
    if size > MOST_BYTES:
        problems.say(
            LINES, f"its episodes take {size >> 20} MiB, too much to be counted for a page"
        )
    else:
        flights = problems.attempt(LINES, lambda: read_flights(path), ())
    standing = problems.attempt("tests", lambda: read_standing(path), None)
    return PracticeDocument(
        name=path.name,
        path=str(path),
        worlds=tuple(dict.fromkeys(f.world for f in flights)),
        versions=by_version(flights),
        tests=() if standing is None else standing.tests,
        problems=problems.found,
    )
