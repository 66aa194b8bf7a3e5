"""Published results of SIMPLER: ``REAL_PERF`` and ``SIMPLER_PERF`` (visual matching) of
``simpler_env/utils/metrics.py``, simpler-env/SimplerEnv at 4ab7178 (MIT); Li et al. 2024, arXiv
2405.05941. Real trials per policy from the paper; four times as many simulated.
"""

from __future__ import annotations

from eval.trust.outcomes import Outcomes
from eval.trust.tables import PolicyPair, TaskTable

POLICIES = ("rt-2-x", "rt-1-converged", "rt-1-15pct", "rt-1-x", "rt-1-begin", "octo-base")
# Task: real trials, real rates, simulated rates.
RATES = {
    "coke": (
        75,
        (0.907, 0.853, 0.920, 0.760, 0.133, 0.293),
        (0.787, 0.857, 0.710, 0.567, 0.027, 0.170),
    ),
    "move near": (
        60,
        (0.733, 0.633, 0.583, 0.450, 0.017, 0.350),
        (0.779, 0.442, 0.354, 0.317, 0.050, 0.042),
    ),
    "open drawer": (
        27,
        (0.333, 0.815, 0.704, 0.519, 0.000, 0.148),
        (0.157, 0.601, 0.463, 0.296, 0.000, 0.009),
    ),
    "close drawer": (
        27,
        (0.630, 0.926, 0.889, 0.741, 0.000, 0.519),
        (0.343, 0.861, 0.667, 0.891, 0.278, 0.444),
    ),
    "apple": (
        27,
        (0.074, 0.185, 0.185, 0.407, 0.000, 0.000),
        (0.037, 0.065, 0.130, 0.213, 0.000, 0.000),
    ),
}


def table(task: str) -> TaskTable:
    """A task with its trial numbers."""
    n, real, sim = RATES[task]
    return TaskTable(
        task,
        tuple(
            PolicyPair(name, (Outcomes(r, n),), (Outcomes(s, 4 * n),))
            for name, r, s in zip(POLICIES, real, sim, strict=True)
        ),
    )
