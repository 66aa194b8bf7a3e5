"""Compares policies of results folders under the rule that was declared, for a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.compare import Comparison
from eval.standing import standing_lines
from eval.trials.pages import trial_count
from robolearn.operations.compare import compare
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.evaluation import MOST_TRIALS
from robolearn.operations.studio.documents.problems import Problem, Problems


@dataclass(frozen=True, slots=True)
class ComparisonDocument:
    """All policies of some folders, pair by pair; None where they cannot be compared."""

    folders: tuple[str, ...]
    comparison: Comparison | None
    rule: str
    standings: tuple[str, ...]
    # The same for a terminal.
    command: str
    problems: tuple[Problem, ...]


def comparison_document(paths: Sequence[Path]) -> ComparisonDocument:
    """Compare every pair of policies over the starts that all of them have."""
    problems = Problems()
    found = problems.attempt("comparison", lambda: _compared(paths), None)
    return ComparisonDocument(
        folders=tuple(str(p) for p in paths),
        comparison=found,
        rule="" if found is None else found.rule.words(),
        standings=() if found is None else tuple(standing_lines(found)),
        command=command_line("compare", *paths, common=True),
        problems=problems.found,
    )


def _compared(paths: Sequence[Path]) -> Comparison:
    count = sum(map(trial_count, paths))
    if count > MOST_TRIALS:
        raise ValueError(
            f"{count:,} trials are too many for a page (at most {MOST_TRIALS:,}); use 'robolearn"
            " compare'"
        )
    return compare(paths, common=True)
