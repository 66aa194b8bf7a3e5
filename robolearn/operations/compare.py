"""Compares the policies of results folders: paired, by a rule declared beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.blinded.plan import require_unblinded
from eval.blinded.unblinded import require_as_tried
from eval.compare import Comparison, compare_policies
from eval.evaluation import FILE_NAME as EVALUATION_FILE
from eval.evaluation import read_evaluation
from eval.preregistration import declared, kept_plans
from eval.rule import Rule
from eval.standing import standings
from eval.summary import starts
from eval.trials.identity import Made, made, newest
from eval.trials.table import SCORED, has_trials, read_trials
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord


@dataclass(frozen=True, slots=True)
class Pooled:
    """All trials of some folders, those that count together, and in words which do not."""

    by_folder: Mapping[Path, Sequence[TrialRecord]]
    kept: tuple[TrialRecord, ...]
    apart: tuple[str, ...]


def compare(
    results: Sequence[Path],
    rule: Rule | Callable[[Rule], Rule] | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    common: bool = False,
    mixed: bool = False,
) -> Comparison:
    """Compare all policies of some results folders in every world that has at least two.

    ``rule``: what decides, or how that differs from the declared rule: that of the plan under which
    all trials were run, else by success, a number of trials fixed beforehand; ``groups``:
    method -> the policies that are its training runs; ``common``: compare on the conditions that
    all have, instead of refusing different ones; ``mixed``: accept trials of different code,
    libraries or batch sizes. Of a folder that holds several kinds of trials count those of its last
    evaluation; the others are named. Raises :class:`DataError` for folders without trials and for
    trials that cannot be compared.
    """
    pool = pooled(results, mixed=mixed)
    kept, apart = pool.kept, pool.apart
    plans = kept_plans(list(pool.by_folder))
    if not isinstance(rule, Rule):
        usual = declared(plans, frozenset(r.plan for r in kept), _most(kept))
        rule = usual if rule is None else rule(usual)
    try:
        compared = compare_policies(kept, rule, groups=groups, common=common, mixed=mixed)
    except DataError as error:
        # What was kept apart may be just what is missing.
        raise DataError("; ".join((str(error), *apart))) from error
    every = [r for found in pool.by_folder.values() for r in found]
    found = standings(compared, kept, every, plans)
    return dataclasses.replace(compared, apart=apart, standings=found)


def pooled(results: Sequence[Path], *, mixed: bool = False) -> Pooled:
    """The trials of results folders: of a folder that holds several kinds of trials those of its
    last evaluation, unless ``mixed``. Errors: :class:`DataError` for folders without trials.
    """
    if not results:
        raise ConfigError("expected one or more results folders")
    by_folder: dict[Path, tuple[TrialRecord, ...]] = {}
    for folder in dict.fromkeys(results):
        if not has_trials(folder):
            require_unblinded(folder, ())
        by_folder[folder] = read_trials(folder)
        require_unblinded(folder, by_folder[folder])
        require_as_tried(folder, by_folder[folder])
    for folder, found in by_folder.items():
        if not found:
            raise DataError(f"'{folder}' has no trials yet; finish its 'robolearn evaluate' first")
    _require_once(by_folder)
    kept: list[TrialRecord] = []
    apart: list[str] = []
    for folder, found in by_folder.items():
        pool = newest(found, _how(folder, found))
        kept += found if mixed else [r for r in found if pool.holds(r)]
        left_out = () if mixed else pool.kept_apart(found, every=True)
        apart += [f"{folder}: {words}" for words in left_out]
    return Pooled(by_folder, tuple(kept), tuple(apart))


def _require_once(by_folder: Mapping[Path, Sequence[TrialRecord]]) -> None:
    """:class:`DataError` for a real trial that several folders have: one is a link to the other, a
    copy of it, or both went on with one plan. It would pass for its own repetition.
    """
    first: dict[tuple[object, ...], Path] = {}
    for folder, found in by_folder.items():
        for r in found:
            if r.kind == "sim" or r.status not in SCORED or not (r.slot or r.started):
                continue
            way = ("slot", r.plan, r.slot) if r.slot else ("at", r.started, r.episode)
            other = first.setdefault((*way, r.env, r.policy_hash, r.suite, r.condition), folder)
            if other != folder:
                what = f"slot {r.slot} of plan {r.plan}" if r.slot else f"the trial of {r.started}"
                raise DataError(
                    f"{what} ({r.condition}) is in '{other}' and in '{folder}': a link, a copy, or"
                    " a plan that was gone on with in two places; give one of the two folders"
                )


def _most(records: Sequence[TrialRecord]) -> int:
    """The most starts under which one policy was tried in one world."""
    cells: dict[tuple[str, str], list[TrialRecord]] = {}
    for r in records:
        if not r.variant:
            cells.setdefault((r.policy, r.env), []).append(r)
    return max(map(starts, cells.values()), default=0)


def _how(folder: Path, found: Sequence[TrialRecord]) -> Made | None:
    """How the trials of the folder's last evaluation were made; None: as its last trial was."""
    if not (folder / EVALUATION_FILE).is_file():
        return None
    asked = read_evaluation(folder, found).pool.made
    return asked if any(made(r) == asked for r in found) else None
