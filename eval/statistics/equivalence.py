"""Tells whether a difference is small enough not to matter: equivalence and non-inferiority.

The margin, the largest difference that does not matter, is declared before the trials. Both
questions are answered by the interval of the difference at level ``1 - 2 alpha``: it lies inside of
the margin exactly when two one-sided tests at ``alpha`` reject (Schuirmann 1987, "A comparison of
the two one-sided tests procedure and the power approach", J. Pharmacokinet. Biopharm. 15:657). So
the interval passes on what it promises: a :func:`~eval.statistics.intervals.bounded_difference`
holds for scores of any shape, the one of :func:`~eval.statistics.betting.paired_sequence` for any
stop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from eval.statistics.intervals import Estimate
from robolearn.errors import DataError

Question = Literal["equivalence", "non-inferiority"]
Answer = Literal["shown", "refuted", "not shown"]


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Whether ``b - a`` stays within the declared ``margin``; a decision and its words."""

    question: Question
    # ``refuted``: the difference is shown to be outside of the margin.
    answer: Answer
    # Of ``b - a``, at level ``1 - 2 alpha``.
    difference: Estimate
    margin: float
    # Error of either one-sided test.
    alpha: float
    words: str


def equivalence(
    difference: Estimate, margin: float, names: tuple[str, str] = ("a", "b")
) -> Equivalence:
    """Do ``a`` and ``b`` differ by less than ``margin``, in either direction?

    ``difference``: of ``b - a`` at level .90 for the usual ``alpha`` of .05.
    """
    _check(difference, margin)
    low, high = difference.low, difference.high
    if -margin < low and high < margin:
        answer = "shown"
        words = f"{names[0]} and {names[1]} are equivalent within {margin:g}"
    elif low >= margin or high <= -margin:
        answer = "refuted"
        words = f"{names[0]} and {names[1]} differ by more than {margin:g}"
    else:
        answer = "not shown"
        words = f"that {names[0]} and {names[1]} are equivalent within {margin:g} is not shown"
    return _result("equivalence", answer, difference, margin, words)


def non_inferiority(
    difference: Estimate, margin: float, names: tuple[str, str] = ("a", "b")
) -> Equivalence:
    """Is ``b`` worse than ``a`` by less than ``margin`` (or better)?"""
    _check(difference, margin)
    if difference.low > -margin:
        answer = "shown"
        words = f"{names[1]} is not worse than {names[0]} by {margin:g} or more"
    elif difference.high <= -margin:
        answer = "refuted"
        words = f"{names[1]} is worse than {names[0]} by {margin:g} or more"
    else:
        answer = "not shown"
        words = f"that {names[1]} is not worse than {names[0]} by {margin:g} is not shown"
    return _result("non-inferiority", answer, difference, margin, words)


def _result(
    question: Question, answer: Answer, difference: Estimate, margin: float, words: str
) -> Equivalence:
    alpha = (1.0 - difference.level) / 2.0
    fits = (
        f"{words}: with n = {difference.n} a difference between {difference.low:+.3f} and"
        f" {difference.high:+.3f} fits (level {difference.level:g})"
    )
    return Equivalence(question, answer, difference, margin, alpha, fits)


def _check(difference: Estimate, margin: float) -> None:
    if not (math.isfinite(margin) and margin > 0):
        raise DataError(f"a margin is a positive difference that does not matter, got {margin}")
    if math.isnan(difference.low) or math.isnan(difference.high):
        raise DataError("a margin needs an interval of the difference; there were no trials")
