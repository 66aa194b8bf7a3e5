"""Sets what recordings alone say of policies beside what reality does: weaker evidence than trials.

Fitted evaluators (``robolearn rank``) order policies without running them anywhere. They share no
scale with rates, know nothing of what recordings do not show, and their own intervals leave out
what fitting errs by; so only their order is compared, and no verdict stands on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eval.statistics.intervals import Estimate
from eval.statistics.ranking import RankAgreement, rank_agreement
from eval.trust.outcomes import Outcomes
from eval.trust.resampling import chance
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.errors import DataError


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one method says of policies, from recordings."""

    # In words, such as "FQE (fitted Q evaluation)".
    method: str
    # Where it stands.
    source: str
    # Hash of the policy -> value; more is better.
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class OffPolicyRow:
    """How well one method's order agrees with the real one."""

    method: str
    source: str
    # Policies of the task that it has a value of.
    policies: tuple[str, ...]
    agreement: RankAgreement
    # How often random orders agree as well (Spearman's correlation); None under three policies.
    p: float | None
    # Spearman's correlation of the simulator's rates over the same policies.
    simulator: Estimate


def off_policy_row(
    recorded: Recorded, table: TaskTable, hashes: Mapping[str, str], seed: int = 0
) -> OffPolicyRow:
    """``hashes``: policy of the table -> hash of its run; :class:`DataError` where fewer than two
    of them have values.
    """
    values = {
        pair.policy: recorded.values[digest]
        for pair in table.pairs
        if (digest := hashes.get(pair.policy, "")) in recorded.values
    }
    if len(values) < 2:
        raise DataError(
            f"'{recorded.source}' has values of {len(values)} of the policies of '{table.task}',"
            " expected two or more: values are found by the hash of the run; rank these runs"
        )
    rates = {p.policy: (r, s) for p, r, s in zip(table.pairs, table.real, table.sim, strict=True)}
    real = {name: float(rates[name][0]) for name in values}
    sim = {name: float(rates[name][1]) for name in values}
    return OffPolicyRow(
        recorded.method,
        recorded.source,
        tuple(values),
        rank_agreement(values, real),
        _by_chance(values, real, seed),
        rank_agreement(sim, real).spearman,
    )


def _by_chance(values: Mapping[str, float], real: Mapping[str, float], seed: int) -> float | None:
    if len(values) < 3:
        return None
    pairs = tuple(
        PolicyPair(name, (Outcomes(rate),), (Outcomes(values[name]),))
        for name, rate in real.items()
    )
    found = chance(TaskTable("", pairs), seed).get("spearman")
    return None if found is None else found.p
