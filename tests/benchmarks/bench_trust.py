"""How often 'robolearn trust' gives which verdict, over simulators of known kinds.

``python -m tests.benchmarks.bench_trust [tables]`` prints the table of ``docs/results.md`` (200
tables per row by default): true real rates are spread over .05 to .95, trials are drawn anew.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from eval.trust.report import verdict_of
from eval.trust.tables import Outcomes, PolicyPair, TaskTable

KINDS = {
    "perfect": "the real rates",
    "biased": "a third of the real rates, and .05",
    "noisy": "each rate off by .15 (standard deviation)",
    "shuffled": "the real rates of other policies",
    "constant": "the same rate for all",
}
NUMBERS = ((6, 50, 200), (8, 50, 200), (12, 20, 100), (12, 50, 200), (20, 50, 200))
VERDICTS = ("ranks reliably", "screens only", "not shown")


def simulator(kind: str, real: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """True simulated rates of policies with these true real ones."""
    return {
        "perfect": lambda: real,
        "biased": lambda: real / 3 + 0.05,
        "noisy": lambda: np.clip(real + rng.normal(0, 0.15, real.size), 0, 1),
        "shuffled": lambda: rng.permutation(real),
        "constant": lambda: np.full(real.size, 0.5),
    }[kind]()


def drawn(
    real: np.ndarray, sim: np.ndarray, trials: tuple[int, int], rng: np.random.Generator
) -> TaskTable:
    """A table of (real, simulated) ``trials`` per policy with these true rates."""
    pairs: list[PolicyPair] = []
    for i, rates in enumerate(zip(real, sim, strict=True)):
        sides = [
            (Outcomes.of_counts(int(rng.binomial(n, rate)), n),)
            for rate, n in zip(rates, trials, strict=True)
        ]
        pairs.append(PolicyPair(f"p{i}", *sides))
    return TaskTable("t", tuple(pairs))


def main(tables: int) -> None:
    """Print the table as Markdown."""
    head = ("simulator", "policies", "trials, real / simulated", *VERDICTS)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for kind, words in KINDS.items():
        for k, n, m in NUMBERS:
            found: Counter[str] = Counter()
            for seed in range(tables):
                rng = np.random.default_rng(seed)
                real = np.linspace(0.05, 0.95, k)
                sim = simulator(kind, real, rng)
                found[verdict_of(drawn(real, sim, (n, m), rng), seed=seed)] += 1
            shares = " | ".join(f"{found[v] / tables:.3f}" for v in VERDICTS)
            print(f"| {kind}: {words} | {k} | {n} / {m} | {shares} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
