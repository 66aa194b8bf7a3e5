"""Holds trials against the plan under which they were run: one that was changed explains none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.blinded.plan import FILE_NAME
from eval.preregistration import kept_plans
from eval.words import count_of
from robolearn.errors import DataError
from robolearn.types import TrialRecord


def require_planned(by_folder: Mapping[Path, Sequence[TrialRecord]]) -> tuple[str, ...]:
    """Refuse trials of a plan that is not what it was when they were run: :class:`DataError`.
    Returned in words: plans that folders do not keep.
    """
    notes: list[str] = []
    for folder, trials in by_folder.items():
        blinded = sum(r.slot is not None for r in trials)
        if blinded and not (folder / FILE_NAME).is_file():
            notes.append(
                f"'{folder}' has {count_of(blinded, 'trial')} of blinded ones without their"
                f" {FILE_NAME}: whether these are all, and of those policies, is not known"
            )
        plans = kept_plans([folder])
        for digest, count in Counter(r.plan for r in trials if r.plan).items():
            plan = plans.get(digest)
            if isinstance(plan, str):
                raise DataError(
                    f"'{folder}': plan {digest}, under which {count_of(count, 'trial')} ran, is not"
                    f" what it was: {plan}; restore it from a copy"
                )
            if plan is None:
                notes.append(
                    f"plan {digest}, under which {count_of(count, 'trial')} of '{folder}' ran, is"
                    " not kept there: whether it was followed is not known"
                )
    return tuple(notes)
