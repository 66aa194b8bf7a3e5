"""Writes the sections that rest on trials as they are: results and agreement of worlds."""

from __future__ import annotations

from collections.abc import Sequence

from eval.generalisation import Generalisation
from eval.report.data import EvaluationData, JudgedResult, ReportData
from eval.report.page import details, note, paragraph, picture, table, text
from eval.report.plots import ResultBar, agreement_plot, results_plot
from eval.report.text import (
    AGREEMENT_WORDS,
    estimate_text,
    interval,
    number,
    percent,
    rate,
    reason_words,
    sentence,
)
from eval.summary import Agreement, Result

GENERALISATION_HEADER = (
    *("policy", "world", "over", "measure", "seen [95 %]", "unseen [95 %]", "gap [95 %]"),
    "n seen + unseen",
)
T_METHOD = "Student t"
T_WORDS = (
    "Intervals of mean scores are Student's t, as asked for: they assume that the mean of the"
    " scores is nearly normal. With few trials, or failures that are rare, they are too narrow; the"
    " bounded mean (the default) assumes nothing but that scores lie between 0 and 1."
)


def results_section(data: ReportData) -> str:
    """Scores and success rates in every world, failures, what a critic changed."""
    if data.evaluation is None:
        return ""
    rows = data.evaluation.results
    most = max(r.n for r in rows)
    body = paragraph(
        "Every policy started from the same conditions, with the same seeds, in every world.",
        "The first world is the one that the recordings come from." if data.stores else "",
        "The others were given fewer of the starts." if any(r.n < most for r in rows) else "",
    )
    body += _limits(data.evaluation)
    body += note(T_WORDS) if score_method(rows) == T_METHOD else ""
    body += table(
        [
            "policy",
            "world",
            f"mean score [95 %, {score_method(rows)}]",
            "success [95 %, Wilson]",
            "n",
        ],
        [[r.policy, r.world, score_text(r), rate(r), str(r.n)] for r in rows],
        data.words.results,
        numeric_from=2,
    )
    body += _judged(data.evaluation.judged)
    body += picture(
        results_plot([ResultBar(r.policy, r.world, r.score, r.success) for r in rows]),
        "Mean score and success rate per policy and world with intervals",
        "The same figures. Intervals cover the choice of starts, not the luck of training.",
    )
    return body + _failures(rows) + _changed(rows) + _itself(data.evaluation.agreement)


def generalisation_section(data: ReportData) -> str:
    """Success and score on starts and variants that were trained on, on others, and the gap."""
    evaluation = data.evaluation
    if evaluation is None or not (evaluation.generalisation or evaluation.not_generalised):
        return ""
    body = "".join(note(sentence(words)) for words in evaluation.not_generalised)
    if not evaluation.generalisation:
        return body
    return (
        paragraph(
            "Starts, or variants of a world, that a policy was trained on, and others. The gap is"
            " seen less unseen: what is lost where training has not been. An interval that holds 0"
            " leaves open whether anything is lost."
        )
        + table(
            list(GENERALISATION_HEADER),
            generalisation_rows(evaluation.generalisation),
            "Every start or variant counts once (n). Bounded means; their gap by square-and-add."
            " Every interval stands for itself, apart"
            " from the family of comparisons.",
            numeric_from=4,
        )
        + body
    )


def generalisation_rows(gaps: Sequence[Generalisation]) -> list[list[str]]:
    """A row per policy, world and measure."""
    return [
        [g.policy, g.world, g.over, measure, estimate_text(gap.seen), estimate_text(gap.unseen),
         estimate_text(gap.gap, sign=True), f"{gap.seen.n} + {gap.unseen.n}"]
        for g in gaps
        for measure, gap in (("success", g.success), ("score", g.score))
    ]  # fmt: skip


def _itself(rows: Sequence[Agreement]) -> str:
    """How far one world agrees with itself; beside other worlds it has a section of its own."""
    measure = next((r.measure for r in rows), "")
    if not measure or any(r.kind == "world" for r in rows):
        return ""
    return table(
        ["policy", "compared", f"Pearson of {measure} [95 %]", "phi of success [95 %]",
         "n"],
        _agreement_rows(rows),
        "The same starts once more: how far single outcomes repeat themselves.",
        numeric_from=2,
    )  # fmt: skip


def score_method(rows: Sequence[Result]) -> str:
    """How the intervals of mean scores were made."""
    methods = {r.score.method for r in rows}
    return T_METHOD if T_METHOD in methods else "bounded mean"


def score_text(result: Result) -> str:
    """The mean score with its interval."""
    return f"{number(result.score.value)} {interval(result.score)}"


def _limits(evaluation: EvaluationData) -> str:
    """What this page cannot know, or not yet."""
    body = ""
    if evaluation.missing:
        wanted = sum(evaluation.asked.conditions.values()) * len(evaluation.asked.policies)
        body += note(
            f"The evaluation is not finished: {evaluation.missing} of {wanted} trials are missing;"
            " 'robolearn evaluate' with the same words goes on."
        )
    body += "".join(note(sentence(words)) for words in (*evaluation.apart, *evaluation.not_agreed))
    if evaluation.asked.inferred:
        body += note(
            "The trials come from an earlier release, which did not write down beside them what"
            " was asked: protocol, command and versions are not known here."
        )
    return body


def _judged(rows: Sequence[JudgedResult]) -> str:
    if not rows:
        return ""
    return note(
        "Success was not measured but judged from pictures by a classifier that errs; the"
        " protocol above says how often it did on held-out episodes."
    ) + table(
        ["policy", "world", "judged successful", "true success [95 %]"],
        [
            [r.policy, r.world, f"{r.successes}/{r.n}",
             f"{number(r.success.value, 2)} {interval(r.success, 2)}"]
            for r in rows
        ],
        "Corrected for the classifier's errors (Rogan and Gladen), their uncertainty included."
        " It is assumed to err on these policies as it did on the held-out episodes.",
        numeric_from=2,
    )  # fmt: skip


def _failures(rows: Sequence[Result]) -> str:
    reasons = list(dict.fromkeys(k for r in rows for k in r.reasons))
    body = table(
        ["policy", "world", *(reason_words(k) for k in reasons)],
        [[r.policy, r.world, *(str(r.reasons.get(k, 0)) for k in reasons)] for r in rows],
        "How the episodes ended (counts).",
        numeric_from=2,
    )
    lost = sum(r.technical for r in rows)
    if lost:
        body += note(
            f"{lost} trials were lost for technical reasons. They count as not solved above, with"
            " the score that they had reached."
        )
    return body


def _changed(rows: Sequence[Result]) -> str:
    """How often a critic took another than the policy's first proposal."""
    body = ""
    for policy in dict.fromkeys(r.policy for r in rows if r.changed is not None):
        mine = [r for r in rows if r.policy == policy]
        total, took = sum(r.chunks for r in mine), sum(r.changed or 0 for r in mine)
        body += paragraph(
            f"In “{policy}” a critic looks at several proposals and takes the one that it expects"
            f" most of. It took another than the first proposal in {took} of {total} chunks of"
            f" actions ({percent(took / max(1, total))})."
            " What that is worth is its difference from the policy that proposes, start by start,"
            " whether it is positive, zero or negative."
        )
    return body


def agreement_section(data: ReportData) -> str:
    """Per-condition agreement of worlds, beside the ceiling."""
    rows = data.evaluation.agreement if data.evaluation is not None else ()
    measure = next((r.measure for r in rows if r.kind == "world"), "")
    if not measure:
        return ""
    body = paragraph(
        "A simulator is useful for evaluation if its verdict under a start is the verdict of the"
        " world it stands for.",
        data.words.agreement
        or "The source world need not fully agree even with itself when every start is moved by 0.3"
        " mm, which is how exactly a careful person puts things back.",
        "That is the ceiling beside which each simulator stands (one that is closer than 0.3 mm may"
        " pass it). The third kind of line shows what the policy's own noise does; all other"
        " comparisons use the same noise on both sides.",
    )
    body += table(
        ["policy", "compared", f"Pearson of {measure} [95 %]", "phi of success [95 %]", "n"],
        _agreement_rows(rows),
        "Agreement with the source world, start by start, from one rollout each. Phi is not"
        " defined where one side always or never succeeds. A few dozen starts give wide"
        " intervals.",
        numeric_from=2,
    )
    body += _scatter(rows, measure, data.words.threshold)
    items = "".join(f"<li>{text(r.policy)}: {text(r.words)}.</li>" for r in rows)
    return body + details("In words", f"<ul>{items}</ul>")


def _agreement_rows(rows: Sequence[Agreement]) -> list[list[str]]:
    return [
        [
            r.policy,
            f"{r.source} {AGREEMENT_WORDS[r.kind]}" if r.kind in AGREEMENT_WORDS else r.world,
            estimate_text(r.pearson, 2),
            estimate_text(r.phi, 2),
            str(r.n),
        ]
        for r in rows
    ]


def _scatter(rows: Sequence[Agreement], measure: str, threshold: float | None) -> str:
    dotted = "" if threshold is None else f" Dotted: {percent(threshold)}."
    return picture(
        agreement_plot(rows, threshold),
        f"{measure.capitalize()} per start in the source world and in the others",
        f"Each point is one start: {measure} in the source world (across) and in the other"
        f" (up).{dotted}",
    )
