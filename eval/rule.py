"""Declares how policies are compared: measure, test, error, margin; as one sentence, too."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from eval.statistics.equivalence import Question
from robolearn.errors import ConfigError

Measure = Literal["success", "score"]
RuleKind = Literal["fixed", "sequential"]
# How the interval of a mean score is made: assuming nothing but its bounds, or by Student's t.
ScoreInterval = Literal["bounded_mean", "t"]
MEASURES: tuple[Measure, Measure] = ("success", "score")


@dataclass(frozen=True, slots=True)
class Rule:
    """How pairs are decided."""

    # The declared measure: what letters, plans and margins are about; the other is decided, too.
    by: Measure = "success"
    # fixed: the number of trials was chosen before the first; sequential: one looked while trying.
    kind: RuleKind = "fixed"
    # Probability of any false statement about equal policies, over all pairs, worlds and measures.
    alpha: float = 0.05
    # Most conditions that were planned; more are refused.
    n_max: int | None = None
    power: float = 0.8
    # The largest difference in the declared measure that does not matter, and what is asked of it.
    margin: float | None = None
    question: Question = "equivalence"

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or not self.alpha < self.power < 1:
            raise ConfigError(
                f"expected 0 < alpha < power < 1, got alpha {self.alpha}, power {self.power}"
            )
        if self.margin is not None and not 0 < self.margin < 1:
            raise ConfigError(f"a margin lies between 0 and 1, got {self.margin:g}")
        if self.n_max is not None and self.n_max < 1:
            raise ConfigError(f"the largest number of conditions is at least 1, got {self.n_max}")

    def limited(self, n_max: int | None) -> Rule:
        """The same with another largest number of conditions."""
        return replace(self, n_max=n_max)

    def words(self) -> str:
        """The rule as a sentence."""
        most = f", at most {self.n_max} conditions" if self.n_max is not None else ""
        if self.kind == "sequential":
            test = f"paired betting on {self.by}, any stopping rule{most}, Bonferroni"
        elif self.by == "success":
            test = f"McNemar's exact test of success{most}, Holm"
        else:
            test = f"the bounded-mean test of score{most}, Holm"
        asked = "" if self.margin is None else f"; {self.question} within {self.margin:g}"
        return f"{test} over all pairs, worlds and measures, alpha {self.alpha:g}{asked}"
