"""How often 'robolearn explain' finds what is wrong: ``python -m tests.benchmarks.causes_found N``.

Synthetic worlds (``tests/eval/trust/causes``): five policies, three parameters of which one moves
nothing, five rollouts of every start. N scenes in which nothing is wrong, and N with friction off
by half a shift and by a whole one; prints a table of ``docs/results.md``.
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.eval.trust.causes.test_causes import judged, parameter


def main(scenes: int = 200) -> None:
    """Print the rows."""
    print("| friction is off by | starts | friction found | with others | another one"
          " | gap, unexplained | nothing shown | interval of the level covers |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for off in (0.0, 0.5, 1.0):
        for starts in (12, 30):
            found: Counter[str] = Counter()
            covered: list[bool] = []
            for seed in range(scenes):
                report = judged(1_000 + seed, {"friction": off}, starts=starts)
                found[_kind(report.suspects, report.verdict)] += 1
                level = parameter(report, "friction").best.level
                if level is not None:
                    covered.append(level.low <= off <= level.high)
            shares = " | ".join(
                f"{found[kind] / scenes:.3f}"
                for kind in ("friction", "several", "other", "unexplained", "nothing shown")
            )
            covers = f"{sum(covered) / len(covered):.3f}"
            print(f"| {off:g} | {starts} | {shares} | {covers} |", flush=True)


def _kind(suspects: tuple[str, ...], verdict: str) -> str:
    if not suspects:
        return verdict
    if suspects == ("friction",):
        return "friction"
    return "several" if "friction" in suspects else "other"


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
