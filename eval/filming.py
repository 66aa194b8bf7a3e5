"""Clips of an evaluation: which episodes are worth looking at, chosen by rule after the trials.

The chosen episodes are run again, bit for bit, with a camera, by what they commanded the first time
(:mod:`eval.trials.clips`): what is filmed is the trial that counted, and trials that nobody will
look at cost nothing. Where their commands are not known any more the chunk is run again as a whole,
which depends on nothing but itself.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.summary import own_trials
from eval.trials.rollouts import Chunk, Plan, chunk_keys, every_chunk, run_chunks, wanted_keys
from eval.trials.table import TrialKey, TrialStore, key_of
from robolearn.types import Condition, TrialRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """An episode to look at, and why it was chosen (a phrase)."""

    trial: TrialRecord
    why: str


def choose(records: Sequence[TrialRecord], most: int) -> tuple[Choice, ...]:
    """At most ``most`` episodes of one policy in one world; the rule knows outcomes, not pictures.

    In this order, each condition once: the first failure (in the suite's order) for the most
    frequent reason, the success of median length, the first failure for every other reason, the
    failure that got least far, the longest success, the failure that got furthest, the shortest
    success.
    """
    trials = own_trials(records)[0]
    lost = [r for r in trials if not r.success]
    won = sorted((r for r in trials if r.success), key=lambda r: r.steps)
    far = sorted(lost, key=lambda r: r.score)
    reasons = [reason for reason, _ in Counter(r.reason for r in lost).most_common()]
    first = [(next(r for r in lost if r.reason == reason), "first of its kind")
             for reason in reasons]  # fmt: skip
    found = [
        *first[:1],
        *((r, "median success") for r in won[(len(won) - 1) // 2 :][:1]),
        *first[1:],
        *((r, "got least far") for r in far[:1]),
        *((r, "longest success") for r in won[-1:]),
        *((r, "got furthest") for r in far[-1:]),
        *((r, "shortest success") for r in won[:1]),
    ]
    chosen: dict[tuple[str, int], Choice] = {}
    for trial, why in found:
        chosen.setdefault((trial.condition, trial.seed), Choice(trial, why))
    return tuple(chosen.values())[:most]


def film(
    plan: Plan,
    conditions: Mapping[str, Sequence[Condition]],
    store: TrialStore,
) -> tuple[Choice, ...]:
    """Film what :func:`choose` says for every policy and world, unless the clip is there; returns
    what there is a clip of (``trial.video``).

    A trial that does not come out as recorded (physics that follow the clock) gets no clip.
    """
    video = plan.options.video
    if video is None:
        return ()
    chosen = _chosen(plan, conditions, store.all(), video.clips)
    paths = {key: video.folder / video.name(c.trial) for key, c in chosen.items()}
    missing = {key: c.trial for key, c in chosen.items() if not paths[key].is_file()}
    for done in run_chunks(plan, _chunks(plan, conditions, set(missing))):
        again = {key_of(r): r for r in done.result or ()}
        for key, new in again.items():
            old = missing.get(key)
            if old is None:
                continue
            if (new.success, new.score, new.steps) != (old.success, old.score, old.steps):
                log.warning("%s did not repeat itself; it gets no clip", old.condition)
                paths[key].unlink(missing_ok=True)
        if done.lost:
            log.warning("episodes could not be filmed: %s", done.lost)
    if video.flown is not None:
        shutil.rmtree(video.flown, ignore_errors=True)
    shown = {key: paths[key].name for key in chosen if paths[key].is_file()}
    store.set_videos(shown)
    return tuple(
        Choice(dataclasses.replace(chosen[key].trial, video=name), chosen[key].why)
        for key, name in shown.items()
    )


def _chosen(
    plan: Plan,
    conditions: Mapping[str, Sequence[Condition]],
    records: Sequence[TrialRecord],
    most: int,
) -> dict[TrialKey, Choice]:
    known = {key_of(r): r for r in records if r.kind == "sim"}
    groups: dict[tuple[str, str], list[TrialRecord]] = {}
    for key in wanted_keys(plan, conditions):
        if key in known:
            groups.setdefault((key.policy_hash, key.env_hash), []).append(known[key])
    # Of a variant one episode is enough to see what went wrong.
    return {
        key_of(c.trial): c
        for group in groups.values()
        for c in choose(group, 1 if "~" in group[0].env else most)
    }


def _chunks(
    plan: Plan, conditions: Mapping[str, Sequence[Condition]], missing: set[TrialKey]
) -> list[Chunk]:
    """The chunks in which the trials ran, each with the lanes to film."""
    found: list[Chunk] = []
    for chunk in every_chunk(plan, conditions):
        keys = chunk_keys(plan, chunk)
        lanes = tuple(i for i, key in enumerate(keys) if key in missing)
        if lanes:
            found.append(dataclasses.replace(chunk, film=lanes))
    return found
