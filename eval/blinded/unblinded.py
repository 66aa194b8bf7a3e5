"""Names the policies of blinded trials once they are unblinded, and holds what stands there by
names against what was tried.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.blinded.key import SealedKey, open_key
from eval.blinded.plan import BLIND, FILE_NAME, read_locked, require_unblinded
from eval.blinded.queue import Standing, standing
from eval.plain import read_mapping
from eval.trials.closing import read_closing
from eval.trials.table import SCORED, has_trials, read_trials
from robolearn.config import parse_yaml
from robolearn.errors import ConfigError, DataError, StoreCorruptError
from robolearn.types import TrialRecord

UNBLINDED = "unblinded.json"


def named(rows: Sequence[TrialRecord], key: SealedKey) -> tuple[TrialRecord, ...]:
    """The rows as the plan's preregistration calls policies; started ones are no results."""
    plan = registered_hash(key)
    return tuple(
        dataclasses.replace(
            r, policy=key.of(r.alias).name, policy_hash=key.of(r.alias).hash, plan=plan
        )
        for r in rows
        if r.status in (*SCORED, "voided")
    )


def registered_hash(key: SealedKey) -> str:
    """The hash of the preregistration in a key."""
    return str(parse_yaml(key.registered)["hash"])


def require_as_tried(folder: Path, trials: Sequence[TrialRecord]) -> None:
    """Hold ``trials``, what stands unblinded in ``folder``, against the plan and the table of what
    was tried under it; folders without blinded trials pass.

    :class:`DataError` for rows that the plan does not explain, that are not those that were tried
    or that nothing is left to hold against; :class:`ConfigError` for an edited plan or key.
    """
    planned, blinded = (folder / FILE_NAME).is_file(), has_trials(folder / BLIND)
    if not planned and not (folder / UNBLINDED).is_file():
        return
    if not planned or (trials and not blinded):
        gone = BLIND if planned else FILE_NAME
        raise DataError(
            f"'{folder}' has trials that were unblinded, but not '{gone}', against which they are"
            " held: restore the folder from a copy"
        )
    locked = read_locked(folder)
    rows = read_trials(folder / BLIND) if blinded else ()
    now, key = standing(locked, rows), open_key(folder, locked.plan.key)
    require_as_closed(folder, read_closing(folder / BLIND, rows), told_policies(rows, now, key))
    tried = named(rows, key)
    if tuple(trials) != tried:
        raise DataError(
            f"'{folder}' has {len(trials)} unblinded trials that are not those that were tried"
            f" ({len(tried)} in '{BLIND}'): the table was edited or exchanged; move trials.sqlite"
            " away and unblind again"
        )


def require_open(folder: Path, some: Sequence[TrialRecord]) -> None:
    """:class:`DataError` for blinded trials, and for unblinded ones that are not those that were
    tried (:func:`require_as_tried`). ``some``: of the trials of ``folder``, if there are any.
    """
    require_unblinded(folder, some)
    if (folder / FILE_NAME).is_file() or (folder / UNBLINDED).is_file():
        require_as_tried(folder, read_trials(folder))


def told_policies(
    rows: Sequence[TrialRecord], now: Standing, key: SealedKey
) -> dict[str, dict[str, Any]]:
    """What ``unblinded.json`` says of policies: their names by alias, and how often each was tried
    in vain.
    """
    kept = set(now.done.values())
    attempts = Counter(r.alias for n, r in enumerate(rows, 1) if n not in kept)
    return {
        p.alias: {
            "policy": p.name,
            "policy_hash": p.hash,
            "source": p.source,
            "did_not_count": attempts[p.alias],
        }
        for p in key.policies
    }


def require_still_blinded(folder: Path, rows: Sequence[TrialRecord], doing: str) -> None:
    """:class:`ConfigError` where the names of blinded trials were told: by what closed the table of
    ``rows``, which stays whatever is deleted beside it, and by what unblinding wrote.

    ``doing``: what whoever knows the names cannot do any more, in words.
    """
    closed = read_closing(folder / BLIND, rows)
    if closed is not None or (folder / UNBLINDED).is_file():
        at = f" at {closed['at']}" if closed else ""
        raise ConfigError(f"the trials in '{folder}' were unblinded{at}: whoever knows the"
                          f" policies' names cannot {doing}")  # fmt: skip
    if has_trials(folder):
        raise ConfigError(
            f"'{folder}' has a table of trials with the policies' names (trials.sqlite), but its"
            " trials are blinded: whoever knows the names cannot"
            f" {doing}; if it is of something else, move it away"
        )


def require_as_closed(
    folder: Path, closed: Mapping[str, Any] | None, policies: Mapping[str, Mapping[str, Any]]
) -> None:
    """Hold ``unblinded.json`` against what was said when the blinded table was ``closed`` (None:
    by a release that did not close it), and against what it has to say of ``policies``.

    :class:`StoreCorruptError` where it says something else, :class:`DataError` where it is gone.
    """
    if not (folder / UNBLINDED).is_file():
        if closed is None:
            return
        raise DataError(
            f"the trials in '{folder}' were unblinded at {closed['at']}, but '{UNBLINDED}' is"
            " gone: 'robolearn trial report --unblind' writes it again"
        )
    said = read_mapping(folder / UNBLINDED)
    expected = {**(closed or {}), "policies": policies}
    wrong = [name for name in expected if said.get(name) != expected[name]]
    if wrong:
        words = "; ".join(f"{n}: {said.get(n)!r}, was {expected[n]!r}" for n in wrong)
        raise StoreCorruptError(
            f"'{folder / UNBLINDED}' is not as it was written when the trials were unblinded"
            f" ({words}): it was edited; delete it, and 'robolearn trial report --unblind' writes"
            " it again"
        )
