"""The sections of the report that rest on trials: results and agreement of worlds."""

from __future__ import annotations

from collections.abc import Sequence

from eval.report.data import Json, ReportData
from eval.report.page import details, note, paragraph, picture, table, text
from eval.report.plots import agreement_plot, difference_plot, results_plot
from eval.report.text import (
    AGREEMENT_WORDS,
    REASON_WORDS,
    interval,
    mean,
    number,
    p_text,
    percent,
    rate,
    signed,
)


def results_section(data: ReportData) -> str:
    """Scores and success rates in every world, the paired difference, failures."""
    if data.evaluation is None:
        return ""
    rows = list(data.evaluation["results"])
    most = max(r["n"] for r in rows)
    body = paragraph(
        "Every policy started from the same conditions, with the same seeds, in every world.",
        "The first world is the one that the recordings come from." if data.stores else "",
        "The others were given fewer of the starts." if any(r["n"] < most for r in rows) else "",
    )
    body += table(
        ["policy", "world", "mean score [95 %]", "success [95 %, Wilson]", "n"],
        [
            [
                r["policy"],
                r["world"],
                f"{number(r['score']['value'])} {interval(r['score'])}",
                rate(r),
                str(r["n"]),
            ]
            for r in rows
        ],
        (
            "Score: best share of 95 % coverage during the episode, at most 1; interval of the mean"
            " by Student's t. Success: more than 95 % covered at any time."
            if data.planar
            else "Score: highest progress during the episode; interval of the mean by Student's t."
        ),
        numeric_from=2,
    )
    if any("judged_success" in r for r in rows):
        body += note(
            "Success was not measured but judged from pictures by a classifier that errs; the"
            " protocol above says how often it did on held-out episodes."
        )
        body += table(
            ["policy", "world", "judged successful", "true success [95 %]"],
            [
                [r["policy"], r["world"], f"{r['successes']}/{r['n']}",
                 f"{number(r['judged_success']['value'], 2)} {interval(r['judged_success'], 2)}"]
                for r in rows if "judged_success" in r
            ],
            "Corrected for the classifier's errors (Rogan and Gladen), their uncertainty included."
            " It is assumed to err on these policies as it did on the held-out episodes.",
            numeric_from=2,
        )  # fmt: skip
    body += picture(
        results_plot(rows),
        "Mean score and success rate per policy and world with intervals",
        "The same figures. Intervals cover the choice of starts, not the luck of training.",
    )
    body += _failures(rows) + _paired(data.evaluation)
    return body


def _failures(rows: Sequence[Json]) -> str:
    reasons = list(dict.fromkeys(k for r in rows for k in r["reasons"]))
    body = table(
        ["policy", "world", *(REASON_WORDS.get(k, k.replace("_", " ")) for k in reasons)],
        [[r["policy"], r["world"], *(str(r["reasons"].get(k, 0)) for k in reasons)] for r in rows],
        "How the episodes ended (counts).",
        numeric_from=2,
    )
    lost = sum(r["technical"] for r in rows)
    if lost:
        body += note(
            f"{lost} trials were lost for technical reasons. They count as not solved above, with"
            " the score that they had reached."
        )
    return body


def _paired(evaluation: Json) -> str:
    comparisons = list(evaluation.get("paired", ()))
    if not comparisons:
        return ""
    body = "<h3>One policy against the other</h3>"
    changed = [r for r in evaluation["results"] if r["changed"] is not None]
    if changed:
        total = sum(r["chunks"] for r in changed)
        took = sum(r["changed"] for r in changed)
        body += paragraph(
            "The second policy was trained by offline reinforcement learning: a critic looks at"
            " several proposals of the first policy and takes the one that it expects most of."
            f" It took another than the first proposal in {took} of {total} chunks of actions"
            f" ({percent(took / max(1, total))}).",
            "What that was worth is the difference over the same starts, below, whether it is"
            " positive, zero or negative.",
        )
    body += table(
        ["difference", "world", "score [95 %]", "success [95 %]", "McNemar p", "n"],
        [
            [
                f"{c['b']} − {c['a']}",
                c["world"],
                signed(c["score_difference"]).rsplit(",", 1)[0],
                signed(c["success_difference"]).rsplit(",", 1)[0],
                p_text(c["mcnemar_p"]).removeprefix("= "),
                str(c["n"]),
            ]
            for c in comparisons
        ],
        "Paired by start and seed. Score: bootstrap over pairs. Success: Newcombe's interval for"
        " paired rates; exact McNemar test.",
        numeric_from=2,
    )
    body += picture(
        difference_plot(comparisons),
        "Paired differences with intervals",
        "Differences with their intervals; an interval that crosses the dashed line leaves open"
        " which policy is better.",
    )
    items = "".join(f"<li>{text(c['world'])}: {text(c['words'])}.</li>" for c in comparisons)
    return body + f"<ul>{items}</ul>"


def agreement_section(data: ReportData) -> str:
    """Per-condition agreement of worlds, beside the ceiling."""
    rows = list((data.evaluation or {}).get("agreement", ()))
    if not rows:
        return ""
    body = paragraph(
        "A simulator is useful for evaluation if its verdict under a start is the verdict of the"
        " world it stands for. Pushing amplifies the smallest difference: the source world does"
        " not fully agree even with itself when every start is moved by 0.3 mm, which is how"
        " exactly a careful person puts things back. That is the ceiling beside which each"
        " simulator stands (one that is closer than 0.3 mm may pass it)."
        " The third kind of line shows what the policy's own noise does; all"
        " other comparisons use the same noise on both sides."
    )
    body += table(
        ["policy", "compared", "Pearson of coverage [95 %]", "phi of success [95 %]", "n"],
        [
            [
                r["policy"],
                f"{r['source']} {AGREEMENT_WORDS[r['kind']]}"
                if r["kind"] in AGREEMENT_WORDS
                else r["world"],
                mean(r["pearson"], 2).rsplit(",", 1)[0],
                mean(r["phi"], 2).rsplit(",", 1)[0] if r["phi"]["value"] is not None else
                "not defined",
                str(r["n"]),
            ]
            for r in rows
        ],
        "Agreement with the source world, start by start, from one rollout each. Phi is not"
        " defined where one side always or never succeeds. A few dozen starts give wide"
        " intervals.",
        numeric_from=2,
    )  # fmt: skip
    body += picture(
        agreement_plot(rows),
        "Maximum coverage per start in the source world and in the others",
        "Each point is one start: maximum coverage in the source world (across) and in the other"
        " (up). Dotted: 95 %.",
    )
    items = "".join(f"<li>{text(r['policy'])}: {text(r['words'])}.</li>" for r in rows)
    return body + details("In words", f"<ul>{items}</ul>")
