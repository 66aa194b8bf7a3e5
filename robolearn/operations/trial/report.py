"""Says where blinded trials stand, voids one, and unblinds them when they are complete."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.blinded.interim import interim
from eval.blinded.key import SealedKey, open_key
from eval.blinded.plan import BLIND, LockedPlan, read_locked
from eval.blinded.queue import Standing, standing, void_note, voided_at
from eval.blinded.unblinded import (
    UNBLINDED,
    named,
    registered_hash,
    require_as_closed,
    require_still_blinded,
    told_policies,
)
from eval.blinded.votes import TIE, Vote, current, planned_votes
from eval.plain import read_mapping, write_mapping, write_text
from eval.preregistration import FOLDER as PLANS
from eval.trials.closing import read_closing
from eval.trials.export import to_csv
from eval.trials.rollouts import utc_now
from eval.trials.table import TrialStore, has_trials, read_trials
from robolearn.config import config_hash
from robolearn.errors import ConfigError, DataError, StoreCorruptError
from robolearn.operations.trial.episodes import require_episodes
from robolearn.operations.trial.planned import trials_lock
from robolearn.operations.trial.session import done_pairs
from robolearn.operations.trial.successor import recover
from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Where trials stand, without what they came to."""

    plan: str
    policies: int
    slots: int
    done: int
    # Pairs that are there, and how many of them were compared; of trials in pairs.
    pairs: int
    votes: int
    # Attempts that do not count, by reason.
    voided: Mapping[str, int]
    aborted: int
    operators: tuple[str, ...]
    # Began and ended so far: UTC; "": nothing yet.
    first: str
    last: str
    # Decisions so far, of a sequential plan, by aliases.
    interim: tuple[str, ...]
    complete: bool

    @property
    def left(self) -> str:
        """What is still to be done."""
        trials, pairs = self.slots - self.done, self.pairs - self.votes
        parts = [f"{trials} of {self.slots} trials are left"] if trials else []
        parts += [f"{pairs} of {self.pairs} pairs are not compared"] if pairs else []
        return " and ".join(parts)

    @property
    def lines(self) -> tuple[str, ...]:
        """For a terminal."""
        whole = ", that is all" if self.complete else ""
        count = f"{self.done} of {self.slots} trials of {self.policies} policies"
        found = [f"plan {self.plan}: {count} are done{whole}"]
        if self.pairs:
            found.append(f"{self.votes} of {self.pairs} pairs are compared")
        found += [f"{n} do not count: {why}" for why, n in self.voided.items()]
        if self.aborted:
            found.append(f"{self.aborted} were cut short while the policy acted: failures")
        if self.first:
            found.append(f"from {self.first} to {self.last}, by {', '.join(self.operators)}")
        return (*found, *self.interim)


@dataclass(frozen=True, slots=True)
class Unblinded:
    """What the names were, and where results stand that ``compare`` and ``trust`` read."""

    folder: Path
    policies: Mapping[str, str]
    trials: tuple[TrialRecord, ...]
    votes: tuple[Vote, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Read:
    locked: LockedPlan
    rows: tuple[TrialRecord, ...]
    now: Standing
    votes: tuple[Vote, ...]
    report: TrialReport


def trial_report(folder: Path) -> TrialReport:
    """Where the trials stand; nothing about what they came to, but what the plan shows.

    :class:`DataError` for rows that are not as planned, :class:`StoreCorruptError` for such votes.
    """
    return _read(folder).report


def void_trial(folder: Path, slot: int, reason: str) -> int:
    """Take the trial of a slot out, for a reason that is not its outcome; the slot is tried again
    where the plan says. Returns how many trials went (in pairs both).
    """
    if not reason.strip():
        raise ConfigError("reason: a trial is voided for a reason; say which")
    locked = read_locked(folder)
    with trials_lock(folder):
        # A trial that was saved before its process died counts, and is nothing that waits.
        recover(folder, locked)
        found = _read(folder)
        require_still_blinded(folder, found.rows, "take one out any more")
        plan = found.locked.plan
        if slot not in plan.by_number:
            raise ConfigError(f"slot: the plan has the slots 1 to {len(plan.slots)}, got {slot}")
        members = plan.unit(plan.by_number[slot])
        rows = [found.now.done[s.number] for s in members if s.number in found.now.done]
        if slot not in found.now.done:
            raise ConfigError(f"slot {slot} has no trial that counts; nothing was voided")
        at = utc_now()
        # What was voided, by somebody or as its process died, tells no time that must be kept.
        others = [r for n, r in enumerate(found.rows, 1) if n not in rows and r.status != "voided"]
        last = max((r.started for r in others), default="")
        if at < last:
            raise ConfigError(
                f"this computer's clock says {at}, before the last trial ({last}): set it, or void"
                " that trial first if the clock was ahead then"
            )
        with TrialStore(folder / BLIND) as table:
            for row in rows:
                table.void(row, void_note(at, reason.strip()))
    return len(rows)


def unblind(folder: Path, *, reason: str = "") -> Unblinded:
    """Write the trials with the policies' names into ``folder``: the table, the plan as
    ``compare`` knows it, votes. ``reason``: why before they are complete; it is kept, and nothing
    can be tried under the plan any more. Safe to call again.
    """
    locked = read_locked(folder)
    with trials_lock(folder):
        # A trial that was saved before its process died counts, and is nothing that waits.
        recover(folder, locked)
        found = _read(folder)
        key = open_key(folder, found.locked.plan.key)
        trials = named(found.rows, key)
        # Before anything is told: what is refused leaves the trials blinded.
        _require_own_table(folder, trials)
        closed = read_closing(folder / BLIND, found.rows) or _close(folder, found, reason.strip())
        _require_votes(folder, found.votes, closed.get("votes"))
        policies = told_policies(found.rows, found.now, key)
        if (folder / UNBLINDED).is_file():
            require_as_closed(folder, closed, policies)
        else:
            write_mapping(folder / UNBLINDED, {**closed, "policies": policies})
        _write_table(folder, trials)
        write_text(folder / PLANS / f"{registered_hash(key)}.yaml", key.registered)
        write_text(folder / "trials.csv", to_csv(trials))
        names = {p.alias: p.name for p in key.policies}
    return Unblinded(folder, names, trials, _votes(found, key), found.report.complete)


def _read(folder: Path) -> _Read:
    locked = read_locked(folder)
    rows = read_trials(folder / BLIND) if has_trials(folder / BLIND) else ()
    now = standing(locked, rows)
    plan = locked.plan
    pairs = done_pairs(plan, now) if plan.pairs else []
    every = planned_votes(folder, locked, rows) if plan.pairs else ()
    votes = tuple(
        v
        for a, b in pairs
        if (v := current(every, (now.done[a.number], now.done[b.number]))) is not None
    )
    shown = interim(plan, now, rows)
    complete = (not now.left and len(votes) == len(pairs)) or (shown is not None and shown.decided)
    ended = [rows[n - 1] for n in now.done.values()]
    report = TrialReport(
        plan=locked.hash,
        policies=len(plan.aliases),
        slots=len(plan.slots),
        done=len(now.done),
        pairs=len(pairs),
        votes=len(votes),
        voided=_voided(rows, now),
        aborted=sum(r.status == "aborted" for r in ended),
        operators=tuple(sorted({r.operator for r in rows})),
        first=rows[0].started if rows else "",
        last=rows[-1].started if rows else "",
        interim=() if shown is None else shown.lines,
        complete=complete,
    )
    return _Read(locked, rows, now, votes, report)


def _voided(rows: Sequence[TrialRecord], now: Standing) -> Mapping[str, int]:
    kept = set(now.done.values())
    return dict(
        Counter(
            r.note.partition(": ")[2] if voided_at(r) else r.reason
            for n, r in enumerate(rows, 1)
            if n not in kept and r.status != "started"
        )
    )


def _close(folder: Path, found: _Read, reason: str) -> Mapping[str, Any]:
    """Close the blinded table, so that no trial can follow, whatever is deleted beside it; returns
    what it and ``unblinded.json`` say of that: when, why, and which votes counted.
    """
    if (folder / UNBLINDED).is_file():
        # By a release that did not close the table.
        before = read_mapping(folder / UNBLINDED)
        said = {k: before[k] for k in ("at", "plan", "complete", "reason", "votes") if k in before}
    elif not found.report.complete and not reason:
        raise ConfigError(
            f"{found.report.left}; go on with them, or give the reason why the names must be known"
            " now (no trial can follow then)"
        )
    else:
        said = {
            "at": utc_now(),
            "plan": found.locked.hash,
            "complete": found.report.complete,
            "reason": reason,
            "votes": _kept_votes(found.votes),
        }
    # A row names what it came to by its episode, which another store has, too.
    require_episodes(folder, found.rows)
    with TrialStore(folder / BLIND) as table:
        table.finish(said)
    return said


def _require_own_table(folder: Path, trials: tuple[TrialRecord, ...]) -> None:
    """:class:`DataError` where ``folder`` has a table by names that is not of these trials."""
    there = read_trials(folder) if has_trials(folder) else ()
    if there and there != trials:
        raise DataError(
            f"'{folder}' has an unblinded table that is not that of the blinded trials; move"
            " trials.sqlite away and unblind again"
        )


def _write_table(folder: Path, trials: tuple[TrialRecord, ...]) -> None:
    with TrialStore(folder) as table:
        if not table.all():
            table.add(trials)


def unblinded_votes(folder: Path) -> tuple[Vote, ...]:
    """Votes by the policies' names; :class:`DataError` while they are blinded."""
    if not (folder / UNBLINDED).is_file():
        raise DataError(f"the trials in '{folder}' are blinded; unblind them when all are done")
    found = _read(folder)
    closed = read_closing(folder / BLIND, found.rows)
    _require_votes(folder, found.votes, (closed or read_mapping(folder / UNBLINDED)).get("votes"))
    key = open_key(folder, found.locked.plan.key)
    require_as_closed(folder, closed, told_policies(found.rows, found.now, key))
    return _votes(found, key)


def _kept_votes(votes: Sequence[Vote]) -> dict[str, Any]:
    """What ``unblinded.json`` keeps of the votes that count: each line says what was before it, but
    not how many come after it.
    """
    return {"count": len(votes), "digest": config_hash(*votes)}


def _require_votes(folder: Path, votes: Sequence[Vote], said: Any) -> None:
    """:class:`StoreCorruptError` where votes are not what was ``said`` of them (as
    :func:`_kept_votes`) when they were unblinded.
    """
    now = _kept_votes(votes)
    # Earlier releases did not keep it.
    if said is not None and said != now:
        raise StoreCorruptError(
            f"'{folder}' has {now['count']} preferences that count, which are not those that were"
            f" unblinded ({said}): lines of votes.jsonl or trials were taken away or changed;"
            " restore the folder from a copy"
        )


def _votes(found: _Read, key: SealedKey) -> tuple[Vote, ...]:
    names = {p.alias: p.name for p in key.policies} | {TIE: TIE}
    return tuple(
        dataclasses.replace(v, first=names[v.first], second=names[v.second], better=names[v.better])
        for v in found.votes
    )
