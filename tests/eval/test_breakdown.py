"""Effects of variants and the taxonomy of failures, against counts by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from eval.breakdown import failures, variant_effects
from eval.statistics.exact_tests import mcnemar_exact
from robolearn.errors import DataError
from tests.eval.test_compare import trials


def in_world(world, won, policy="a"):
    return trials(policy, won, world=world)


def test_variants_are_paired_with_their_own_nominal_world():
    rng = np.random.default_rng(0)
    base = rng.random(30) < 0.9
    hurt = base & (rng.random(30) < 0.3)
    records = [
        *in_world("w", base),
        *in_world("w~friction=1", hurt[:25]),
        *in_world("w~mass=1~seed=3", base),
        *in_world("other", base),
        *in_world("other~mass=1", hurt),
        *in_world("nowhere~mass=1", hurt),
    ]
    found = {(e.world, e.variant): e for e in variant_effects(records)}
    assert list(found) == [("w", "friction=1"), ("w", "mass=1, seed=3"), ("other", "mass=1")]
    friction = found["w", "friction=1"]
    assert (friction.n, friction.successes) == (25, int(hurt[:25].sum()))
    assert friction.success_difference.value == pytest.approx(
        (hurt[:25].sum() - base[:25].sum()) / 25
    )
    assert friction.p == pytest.approx(min(1, 2 * mcnemar_exact(base[:25], hurt[:25])))
    assert "costs success" in friction.words
    same = found["w", "mass=1, seed=3"]
    assert same.p == 1.0
    assert "no change can be concluded" in same.words
    assert same.score_difference.high > 0.05  # All equal is not certainty.


def test_failures_are_counted_with_examples():
    won = np.array([True] * 6 + [False] * 4)
    records = in_world("w", won)
    reasons = ["success"] * 6 + ["dropped", "time_limit", "dropped", "dropped"]
    records = [
        dataclasses.replace(r, reason=s, score=0.25 * (i % 4))
        for i, (r, s) in enumerate(zip(records, reasons, strict=True))
    ]
    first, second = failures(records)
    assert (first.reason, first.count, first.n, first.examples) == (
        "dropped",
        3,
        10,
        ("c6", "c8"),
    )
    assert first.share.value == 0.3
    assert first.score == pytest.approx((0.5 + 0.0 + 0.25) / 3)
    assert (second.reason, second.count) == ("time_limit", 1)
    assert failures(in_world("w", [True])) == ()


def test_mixed_suites_are_refused():
    other = [dataclasses.replace(r, suite="t@2") for r in in_world("w~mass=1", [True])]
    with pytest.raises(DataError, match="different suites"):
        variant_effects(in_world("w", [True]) + other)
