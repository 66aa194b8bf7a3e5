"""Reads what is known of policies from a table: a line per policy and task."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.spreadsheet import number, read_lines
from eval.trust.outcomes import Outcomes
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.data.names import plain_name
from robolearn.errors import DataError

NAMES = ("task", "policy")
SIDES = ("real", "sim")
COLUMNS = (
    *NAMES,
    *(f"{side}_{what}" for side in SIDES for what in ("successes", "trials", "score")),
)
WANTED = (
    "task, policy, real_successes, real_trials, sim_successes, sim_trials"
    " (or real_score and sim_score, shares between 0 and 1, where only rates are known)"
)
# Whole numbers up to here are floats.
_MOST = 2**53
# A whole number with separators, or one with three decimals: 1,000 or 1.000.
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}([.,' \u00a0\u202f\u2019]\d{3})+", re.ASCII)
# All pairs of so many policies take a few hundred megabytes.
_MOST_POLICIES = 5_000
# Rates are printed with three digits; a score that is further from its counts is another number.
_ROUNDED = 0.0051


@dataclass(frozen=True, slots=True)
class _Cells:
    """One line by its columns, and where it stands."""

    where: str
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """None where the cell is empty."""
        text = self.text(column)
        if not text:
            return None
        value = number(text)
        if value is None or not math.isfinite(value):
            raise DataError(
                f"{self.where}: {column} is '{text}'; expected a number{_hint(text, column)}"
            )
        return value

    def count(self, column: str) -> float | None:
        """As :meth:`number`, where 1,000 may be meant as a thousand."""
        text = self.text(column)
        if _GROUPED.fullmatch(text):
            raise DataError(
                f"{self.where}: {column} is '{text}', which some programs write for"
                f" {re.sub('[^0-9]', '', text)} and others for {re.split('[^0-9]', text)[0]}; write"
                " whole numbers without separators"
            )
        return self.number(column)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The tables of a file and what it holds that is not read."""

    tables: tuple[TaskTable, ...]
    notes: tuple[str, ...]


def read_sheet(path: Path) -> Sheet:
    """The tables of a CSV file, tasks and policies in the order of their first lines.

    :class:`DataError` names file, line and column of what cannot be.
    """
    lines = read_lines(path)
    if not lines:
        raise DataError(f"{path} is empty; expected a first line with the columns {WANTED}")
    (_, head), *rest = lines
    columns = [_column(name) for name in head]
    _check_columns(path, columns, head)
    if not rest:
        raise DataError(f"{path} has columns but no line below them; expected one per policy")
    by_task: dict[str, dict[str, tuple[str, PolicyPair]]] = {}
    for number_, row in rest:
        where = f"{path}:{number_}"
        if any(cell.strip() for cell in row[len(columns) :]):
            raise DataError(
                f"{where} has {len(row)} cells, the first line {len(columns)}: names with"
                " separators in them, and numbers with decimal commas, stand in quotes"
            )
        cells = _Cells(where, dict(zip(columns, row, strict=False)))
        task, policy = (_name(cells, column) for column in NAMES)
        found = by_task.setdefault(task, {})
        if policy in found:
            raise DataError(
                f"{where}: policy '{policy}' is there twice in task '{task}' (first in"
                f" {found[policy][0]}); add up its trials, or name them apart"
            )
        real, sim = (_outcomes(cells, side) for side in SIDES)
        found[policy] = (f"line {number_}", PolicyPair(policy, (real,), (sim,)))
    for task, found in by_task.items():
        if len(found) > _MOST_POLICIES:
            raise DataError(
                f"{path}: task '{task}' has {len(found)} policies; expected {_MOST_POLICIES} or"
                " fewer, as every pair of them is compared. Leave out what nobody chooses between,"
                " or give groups of policies a task each"
            )
    tables = tuple(
        TaskTable(task, tuple(pair for _, pair in found.values()))
        for task, found in by_task.items()
    )
    extra = [name.strip() for name, c in zip(head, columns, strict=True) if c not in COLUMNS]
    named = [name for name in extra if name]
    notes = [f"columns that are not read: {', '.join(named)}"] if named else []
    return Sheet(tables, (*notes, *_alike(tables), *_rates_only(tables)))


def _hint(text: str, column: str) -> str:
    share = number(text.rstrip("% "))
    if text.endswith("%") and share is not None and column.endswith("_score"):
        return f" between 0 and 1: {share / 100:g}"
    if re.fullmatch(r"\s*\d+\s*/\s*\d+\s*", text):
        return "; successes and trials have a column each"
    return ""


def _column(name: str) -> str:
    return "_".join(name.strip().lower().replace("-", " ").replace("_", " ").split())


def _check_columns(path: Path, columns: Sequence[str], head: Sequence[str]) -> None:
    missing = [name for name in NAMES if name not in columns]
    for side in SIDES:
        counts = [f"{side}_successes", f"{side}_trials"]
        lacking = [name for name in counts if name not in columns]
        if lacking and f"{side}_score" not in columns:
            missing += lacking
    if missing:
        raise DataError(
            f"{path} lacks the columns {', '.join(missing)}; expected {WANTED}; got"
            f" {', '.join(repr(name.strip()) for name in head)}"
        )
    twice = sorted({c for c in columns if c in COLUMNS and columns.count(c) > 1})
    if twice:
        raise DataError(f"{path} has the columns {', '.join(twice)} twice")


def _name(cells: _Cells, column: str) -> str:
    try:
        return plain_name(cells.text(column))
    except ValueError as error:
        raise DataError(f"{cells.where}: {column} {error}") from error


def _outcomes(cells: _Cells, side: str) -> Outcomes:
    names = [f"{side}_{what}" for what in ("successes", "trials", "score")]
    successes, trials = (cells.count(name) for name in names[:2])
    score = cells.number(names[2])
    if score is not None and not 0 <= score <= 1:
        hint = "; shares, not percent" if 1 < score <= 100 else ""
        raise DataError(f"{cells.where}: {names[2]} is {score:g}; expected 0 to 1{hint}")
    if successes is None and trials is None:
        if score is None:
            raise DataError(
                f"{cells.where}: nothing is known of '{cells.text('policy')}' in {side}: expected"
                f" {names[0]} and {names[1]}, or {names[2]}; a policy is paired or left out"
            )
        return Outcomes(score)
    if successes is None or trials is None:
        lacking = names[0] if successes is None else names[1]
        raise DataError(f"{cells.where}: {lacking} is empty; successes and trials belong together")
    for name, value in ((names[0], successes), (names[1], trials)):
        if value != int(value) or not 0 <= value <= _MOST:
            raise DataError(
                f"{cells.where}: {name} is '{cells.text(name)}'; expected a whole number from 0 to"
                f" {_MOST}"
            )
    if trials == 0:
        raise DataError(f"{cells.where}: {names[1]} is 0; a policy without trials is left out")
    if successes > trials:
        raise DataError(
            f"{cells.where}: {names[0]} is {successes:g} of {trials:g} trials; expected at most as"
            " many successes as trials"
        )
    if score is not None and abs(score - successes / trials) > _ROUNDED:
        raise DataError(
            f"{cells.where}: {names[2]} is {score:g}, but {successes:g} of {trials:g} are"
            f" {successes / trials:.3f}; leave one of them empty"
        )
    return Outcomes.of_counts(int(successes), int(trials))


def _alike(tables: Sequence[TaskTable]) -> list[str]:
    """What is said of names that count as two and may be one."""
    notes: list[str] = []
    policies = dict.fromkeys(pair.policy for table in tables for pair in table.pairs)
    for kind, names in (("tasks", [t.task for t in tables]), ("policies", policies)):
        by_letters: dict[str, list[str]] = {}
        for name in names:
            # Full-width and other forms of letters are read as these.
            plain = unicodedata.normalize("NFKC", name)
            seen = "".join(c for c in plain if unicodedata.category(c) != "Cf")
            by_letters.setdefault(seen.casefold(), []).append(name)
        notes += [
            f"{kind} {' and '.join(repr(n) for n in same)} differ only in"
            f" {_difference(same)} and count as {len(same)}"
            for same in by_letters.values()
            if len(same) > 1
        ]
    return notes


def _difference(same: Sequence[str]) -> str:
    if not all(n.isprintable() for n in same):
        return "what cannot be seen"
    return "capitals" if len({n.casefold() for n in same}) == 1 else "the form of letters"


def _rates_only(tables: Sequence[TaskTable]) -> list[str]:
    """What is said of tasks in which trial numbers are not known of all policies on both sides."""
    notes: list[str] = []
    for table in tables:
        lacking = [
            words
            for words, known in (("real", table.real_trials), ("simulated", table.sim_trials))
            if known is None
        ]
        if lacking:
            notes.append(
                f"{table.task}: of {' and '.join(lacking)} rates the trial numbers are not known of"
                " every policy; what is not known counts as free of noise"
            )
    return notes
