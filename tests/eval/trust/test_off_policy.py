"""Recordings' order is set beside the real one by the runs' hashes, and never into a verdict."""

from __future__ import annotations

import dataclasses
import math

import pytest

from eval.report.trust.lines import off_policy_rows, off_policy_words
from eval.trust.off_policy import Recorded, off_policy_row
from eval.trust.outcomes import Outcomes
from eval.trust.report import trust_in
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.errors import DataError

REAL = {"a": 0.1, "b": 0.3, "c": 0.5, "d": 0.7, "e": 0.9}
TABLE = TaskTable(
    "t", tuple(PolicyPair(n, (Outcomes(r),), (Outcomes(1 - r),)) for n, r in REAL.items())
)
HASHES = {name: f"h{name}" for name in REAL}


def test_an_order_is_compared_not_a_scale() -> None:
    values = {f"h{name}": -100.0 + rate for name, rate in REAL.items()}
    row = off_policy_row(Recorded("FQE", "fqe", {**values, "other": 5.0}), TABLE, HASHES)
    assert row.policies == tuple(REAL)
    assert row.agreement.spearman.value == 1.0
    assert row.p == pytest.approx(1 / math.factorial(5))
    assert row.simulator.value == -1.0
    assert (row.agreement.chosen, row.agreement.regret) == ("e", 0.0)
    judged = trust_in(TABLE)
    told = dataclasses.replace(judged, off_policy=(row,))
    assert told.judgement == judged.judgement
    assert off_policy_rows(told)[0][:2] == ["FQE, fqe", "5"]
    assert "weaker, in no verdict" in off_policy_words(row)


def test_values_of_other_runs_are_refused() -> None:
    recorded = Recorded("FLE", "results/fle", {"ha": 1.0, "hz": 2.0})
    with pytest.raises(DataError, match=r"has values of 1 of the policies of 't'.*rank these"):
        off_policy_row(recorded, TABLE, HASHES)


def test_two_policies_have_an_order_but_no_chance() -> None:
    row = off_policy_row(Recorded("FLE", "f", {"ha": 1.0, "hb": 0.0}), TABLE, HASHES)
    assert row.p is None
    assert row.agreement.regret == pytest.approx(0.2)
