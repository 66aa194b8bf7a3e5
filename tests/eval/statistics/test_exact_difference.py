"""The exact interval of a difference of rates: every table added up, at the edges too."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, stats

from eval.statistics.exact_difference import exact_difference, score
from eval.statistics.intervals import newcombe
from robolearn.errors import DataError

EDGES = [0.002, 0.02, 0.1, 0.4, 0.7, 0.95, 0.995]


@pytest.mark.parametrize(("n1", "n2"), [(5, 5), (3, 6)])
def test_it_covers_where_newcombes_interval_does_not(n1, n2):
    exact, other = (
        [[f(i, n1, j, n2) for j in range(n2 + 1)] for i in range(n1 + 1)]
        for f in (exact_difference, newcombe)
    )
    least = {"exact": 1.0, "newcombe": 1.0}
    for p in EDGES:
        for q in EDGES:
            mass = np.outer(
                stats.binom.pmf(range(n1 + 1), n1, p), stats.binom.pmf(range(n2 + 1), n2, q)
            )
            for name, table in (("exact", exact), ("newcombe", other)):
                inside = [[e.low - 1e-9 <= p - q <= e.high + 1e-9 for e in row] for row in table]
                least[name] = min(least[name], float(mass[inside].sum()))
    assert least["exact"] >= 0.95
    assert least["newcombe"] < 0.92


def test_the_variance_is_that_of_the_most_likely_rates():
    k1, n1, k2, n2, d = 7, 12, 3, 20, 0.15

    def unlikely(p):
        return -stats.binom.logpmf(k1, n1, p) - stats.binom.logpmf(k2, n2, p - d)

    p = optimize.minimize_scalar(unlikely, bounds=(d, 1.0), method="bounded").x
    z = (k1 / n1 - k2 / n2 - d) / np.sqrt(p * (1 - p) / n1 + (p - d) * (1 - p + d) / n2)
    found = score(np.array([[float(k1)]]), n1, np.array([[float(k2)]]), n2, d)
    assert found[0, 0] == pytest.approx(z, abs=1e-4)


def test_it_mirrors_contains_the_difference_and_knows_its_limits():
    e, m = exact_difference(8, 10, 3, 10), exact_difference(3, 10, 8, 10)
    assert (e.low, e.high) == pytest.approx((-m.high, -m.low), abs=1e-4)
    assert e.low < e.value < e.high
    assert exact_difference(10, 10, 0, 10).high == pytest.approx(1.0)
    assert exact_difference(10, 10, 0, 10).low > 0.5
    with pytest.raises(DataError, match="use newcombe"):
        exact_difference(1, 400, 1, 400)
