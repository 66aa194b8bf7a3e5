"""Explains the words of a page: its policies, its worlds, and the statistics that it uses."""

from __future__ import annotations

from eval.evaluation import Evaluation
from eval.report.data import EvaluationData, ReportData

ALWAYS = {
    "95 % interval": "a range made so that 95 of 100 such ranges contain the true value, over"
    " repetitions of the whole experiment with other starts",
    "n": "number of trials (or pairs of trials) behind a figure",
}
COMPARED = {
    "planned": "the comparison, its rule and its number of starts were written down before the"
    " first trial, and nothing was left out",
    "exploratory": "it was not: who looks first and then chooses what to say is wrong more often"
    " than the level says",
    "paired": "both policies started from the same conditions; their difference start by start is"
    " less noisy than the difference of two separate averages",
    "p": "how often equal policies would show a difference at least as large by chance",
    "letters": "policies that share one are not separated by these trials",
}
HOLM = {"Holm": "a correction of p values for the number of pairs that are looked at"}
MCNEMAR = {
    "McNemar's exact test": "counts only starts that one policy solved and the other did not, and"
    " asks whether they divide as by tossing a coin"
}
AGREED = {
    "Pearson": "correlation of two figures from -1 to 1; 1: they lie on a line",
    "phi": "the same of success in two worlds; not defined where one always or never succeeds",
    "ceiling": "agreement of a world with itself when starts are moved a little",
}
VARIED = {
    "nominal": "a world as it is, without a perturbation",
    "variant": "the same world with one thing (or several) changed",
}
BOUNDED = {
    "bounded mean": "an interval (and test) of a mean score that assumes nothing but that scores"
    " lie between 0 and 1"
}
STUDENT = {
    "Student's t": "an interval of a mean that assumes that the mean is nearly normal; it is too"
    " narrow where trials are few or failures rare"
}
FAMILY = {
    "family": "comparisons that are decided together: the chance of any false statement among them"
    " is at most alpha"
}
BETTING = {
    "betting": "a sequential test: capital that a fair game would not let grow; valid at any stop"
}
WILSON = {"Wilson": "the interval of a success rate (Wilson 1927)"}
REPLAYED = {"open loop": "the recorded actions are played without looking at what happens"}
CHUNK = {"chunk": "a run of future actions that a policy decides at once"}


def glossary(data: ReportData) -> dict[str, str]:
    """What the page uses, in the order: task, policies and worlds, statistics."""
    words = dict(data.words.glossary)
    evaluation = data.evaluation
    if evaluation is not None:
        words |= _names(evaluation.asked) | ALWAYS | _statistics(evaluation)
    else:
        words |= ALWAYS
    if data.replays:
        words |= REPLAYED
    if evaluation is not None or data.deploy is not None:
        words |= CHUNK
    return words


def _names(asked: Evaluation) -> dict[str, str]:
    policies = {
        f"{p.name} (policy)": _joined(p.words, f"run directory {p.run}" if p.run else "")
        for p in asked.policies
    }
    worlds = {f"{w.name} (world)": _joined(w.words, w.engine) for w in asked.worlds}
    return policies | worlds


def _joined(*parts: str) -> str:
    return "; ".join(p.rstrip(".") for p in parts if p) or "not described in the results"


def _statistics(evaluation: EvaluationData) -> dict[str, str]:
    words = WILSON | BOUNDED
    if any(r.score.method == "Student t" for r in evaluation.results):
        words |= STUDENT
    comparison = evaluation.comparison
    if comparison is not None and any(w.effects for w in comparison.worlds):
        words |= COMPARED | FAMILY
        rule = comparison.rule.words()
        words |= {k: v for terms in (HOLM, MCNEMAR, BETTING) for k, v in terms.items() if k in rule}
    if evaluation.variants:
        words |= VARIED | HOLM | MCNEMAR
    if evaluation.agreement:
        words |= AGREED
    return words
