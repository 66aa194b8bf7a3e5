"""Ranks policies without running them, checks the order against trials, plans the next trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eval.plain import read_mapping, write_mapping
from eval.statistics.halving import HalvingPlan, halving_plan
from eval.statistics.intervals import Estimate, bounded_mean, wilson
from eval.statistics.ranking import RankAgreement, rank_agreement
from eval.trials.table import SCORED
from robolearn.errors import ConfigError, DataError
from robolearn.operations.builders import run_hash_of
from robolearn.operations.compare import pooled
from robolearn.operations.ranking.policy_values import RANKING, RankConfig, names_of
from robolearn.operations.ranking.question import Judging, PolicyValue, Question
from robolearn.training.loop import Hooks
from robolearn.types import TrialRecord

Measure = Literal["success", "score"]
ORDER = "order.json"


@dataclass(frozen=True, slots=True)
class Race:
    """How many trials may be spent on finding the best; see ``eval/statistics/halving.py``."""

    # Trials of all policies together.
    budget: int
    # So many of the ranking take part; 0: its better half.
    first: int = 0


@dataclass(frozen=True, slots=True)
class Trials:
    """Where trials are, and what of them counts."""

    results: tuple[Path, ...] = ()
    # World; "": the only one there is.
    world: str = ""
    by: Measure = "success"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Policies by what they are said to be worth, best first."""

    values: tuple[PolicyValue, ...]
    # What trials say, by policy, for those that have some.
    tried: Mapping[str, Estimate]
    # How well the order agrees with trials; None where fewer than two policies have some.
    agreement: RankAgreement | None
    # What to try next; None unless asked for.
    plan: HalvingPlan | None


def rank(
    runs: Sequence[Path],
    store: Path,
    out: Path,
    config: Judging | None = None,
    *,
    trials: Trials = Trials(),
    race: Race | None = None,
    threads: int = 1,
    on_value: Callable[[PolicyValue], None] = lambda _: None,
    hooks: Callable[[str], Hooks] = lambda _: Hooks(),
) -> Ranking:
    """Rank the policies of ``runs`` by the recordings of ``store``: by an evaluation that is fitted
    to them (:class:`RankConfig`), or by how far actions are from theirs (:class:`ErrorConfig`).

    Written to ``out`` (``order.json``), where a call that was stopped goes on. ``trials``: results
    folders of ``robolearn evaluate`` or of deployments that the order is checked against; ``race``:
    which trials to run next. Errors: those of :func:`policy_values` or
    :func:`~robolearn.operations.ranking.action_error.action_errors`; :class:`DataError` for results
    without trials of these policies.
    """
    named = names_of(runs)
    records = _records(trials)
    outcomes = {digest: _outcome(found, trials.by) for digest, found in records.items()}
    judging: Judging = config or RankConfig()
    values = judging.values(Question(named, store, out, threads, on_value, hooks))
    ordered = tuple(sorted(values, key=lambda v: -v.value.value))
    tried = {v.name: outcomes[v.policy_hash] for v in ordered if v.policy_hash in outcomes}
    if outcomes and not tried:
        raise DataError(
            f"none of these policies was tried in {[str(r) for r in trials.results]}: trials are"
            " found by the hash of the run; evaluate these run directories"
        )
    agreement = None
    if len(tried) > 1:
        said = {v.name: v.value.value for v in ordered}
        agreement = rank_agreement(said, {n: e.value for n, e in tried.items()})
    plan = None
    if race is not None:
        so_far = {
            v.name: [_worth(r, trials.by) for r in records.get(v.policy_hash, ())] for v in ordered
        }
        plan = halving_plan([v.name for v in ordered], so_far, race.budget, race.first)
    ranking = Ranking(ordered, tried, agreement, plan)
    write_mapping(out / ORDER, ranking)
    return ranking


def ranked_values(folder: Path) -> tuple[str, dict[str, float]]:
    """Which method a folder of :func:`rank` stands on, and its values by the policy's hash;
    :class:`DataError` for any other folder.
    """
    if not (folder / ORDER).is_file():
        raise DataError(f"'{folder}' holds no ranking: expected {ORDER} there ('robolearn rank')")
    settings = read_mapping(folder / RANKING)["settings"]
    method = str(settings["evaluation"]["method"])
    listed = read_mapping(folder / ORDER)["values"]
    return method, {str(v["policy_hash"]): float(v["value"]["value"]) for v in listed}


def _records(trials: Trials) -> dict[str, list[TrialRecord]]:
    """Trials by the policy's hash, in the order of the conditions; repeated starts count once."""
    if not trials.results:
        return {}
    scored = [r for r in pooled(trials.results).kept if r.status in SCORED and not r.variant]
    worlds = sorted({r.env for r in scored})
    world = trials.world or (worlds[0] if len(worlds) == 1 else "")
    if world not in worlds:
        raise ConfigError(f"world: one of {worlds}, got '{trials.world}'")
    found: dict[str, list[TrialRecord]] = {}
    for record in sorted(scored, key=lambda r: (r.condition, r.seed)):
        if record.env == world:
            found.setdefault(record.policy_hash, []).append(record)
    return _by_run(found)


def _by_run(by_policy: Mapping[str, list[TrialRecord]]) -> dict[str, list[TrialRecord]]:
    """By the hash of the run alone: trials that were executed otherwise than the run says (those of
    a cell are, ``+lead_ticks=1``) are this policy's where there are no others.
    """
    found = {
        digest: records for digest, records in by_policy.items() if run_hash_of(digest) == digest
    }
    otherwise: dict[str, list[str]] = {}
    for digest in by_policy:
        if run_hash_of(digest) not in found:
            otherwise.setdefault(run_hash_of(digest), []).append(digest)
    for run, digests in otherwise.items():
        if len(digests) > 1:
            names = sorted({by_policy[d][0].policy for d in digests})
            raise DataError(
                f"results: {', '.join(names)} are one policy, executed in {len(digests)} ways; give"
                " results of one of them"
            )
        found[run] = by_policy[digests[0]]
    return found


def _outcome(records: Sequence[TrialRecord], by: Measure) -> Estimate:
    if by == "success":
        return wilson(sum(r.success for r in records), len(records))
    return bounded_mean([r.score for r in records])


def _worth(record: TrialRecord, by: Measure) -> float:
    return float(record.success) if by == "success" else record.score
