"""Finds real trials that cannot have been: two at a time on one arm."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta

from eval.words import count_of
from robolearn.errors import DataError
from robolearn.types import TrialRecord

# Clocks are corrected a little while trials run [s].
_SLACK_S = 1.0


def check_clocks(real: Sequence[TrialRecord]) -> tuple[str, ...]:
    """What is said of trials on one cell that began before the one before them was over.

    An arm does one trial at a time: on a robot that is refused (:class:`DataError`, with both
    trials); a lab's cell may stand on several computers, so there it is only said. Trials that do
    not say when they began are left out.
    """
    notes: list[str] = []
    for env in dict.fromkeys(r.env for r in real):
        timed = sorted(
            ((_moment(r), r) for r in real if r.env == env and r.kind != "sim" and r.started),
            key=lambda row: row[0],
        )
        together = 0
        for (begin, first), (then, second) in itertools.pairwise(timed):
            over = (begin + timedelta(seconds=first.duration_s) - then).total_seconds()
            if over <= _SLACK_S:
                continue
            if first.kind == "robot":
                raise DataError(
                    f"two trials ran at once on '{env}': {_called(first)} began at {first.started}"
                    f" and took {first.duration_s:.1f} s, {_called(second)} began at"
                    f" {second.started}. One arm does one at a time: a clock was set back, or"
                    " the tables of several computers or cells were put together under one name"
                )
            together += 1
        if together:
            notes.append(
                f"{count_of(together, 'trial')} on '{env}' began before the one before was over;"
                " one lab does one at a time, so these are of several, or a clock was set back"
            )
    return tuple(notes)


def _moment(record: TrialRecord) -> datetime:
    try:
        found = datetime.fromisoformat(record.started)
    except ValueError as error:
        raise DataError(
            f"{_called(record)} began at '{record.started}'; expected a time of ISO 8601 with its"
            " offset from UTC"
        ) from error
    if found.tzinfo is None:
        raise DataError(
            f"{_called(record)} began at '{record.started}', which does not say of which time zone;"
            " expected ISO 8601 with the offset from UTC"
        )
    return found


def _called(record: TrialRecord) -> str:
    return f"the trial of {record.condition} by '{record.policy}'"
