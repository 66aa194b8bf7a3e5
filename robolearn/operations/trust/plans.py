"""Holds trials against the plan under which they were run: one that was changed explains none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.blinded.plan import BLIND, FILE_NAME, read_locked
from eval.blinded.queue import standing
from eval.preregistration import kept_plans
from eval.trials.table import has_trials, read_trials
from robolearn.errors import DataError
from robolearn.types import TrialRecord


def require_planned(by_folder: Mapping[Path, Sequence[TrialRecord]]) -> tuple[str, ...]:
    """Refuse trials of a plan that is not what it was when they were run: :class:`DataError`, or
    :class:`ConfigError` with the edited file. Returned in words: plans that folders do not keep.
    """
    notes: list[str] = []
    for folder, trials in by_folder.items():
        if (folder / FILE_NAME).is_file():
            blinded = folder / BLIND
            standing(read_locked(folder), read_trials(blinded) if has_trials(blinded) else ())
        plans = kept_plans([folder])
        for digest, count in Counter(r.plan for r in trials if r.plan).items():
            plan = plans.get(digest)
            if isinstance(plan, str):
                raise DataError(
                    f"'{folder}': {count} trials were run under plan {digest}, which is not what it"
                    f" was: {plan}; restore it from a copy"
                )
            if plan is None:
                notes.append(
                    f"plan {digest}, which {count} trials of '{folder}' name, is not kept there:"
                    " whether it was followed is not known"
                )
    return tuple(notes)
