"""Writes a trust report as JSON values, as plain lines for a terminal, and as Markdown."""

from __future__ import annotations

from typing import Any

from eval.plain import plain_values
from eval.report.text import estimate_text, markdown_table, markdown_text, number
from eval.report.trust.beside import panel_lines, panels
from eval.report.trust.causes import causes_document, causes_lines, causes_markdown
from eval.trust.estimates import RealEstimate
from eval.trust.measures import MEASURES
from eval.trust.off_policy import OffPolicyRow
from eval.trust.report import Measured, TaskTrust, TrustReport, wrong_words
from eval.trust.resampling import Span
from eval.words import count_of, size

HEADER = (
    "measure",
    "value",
    "Fisher z",
    "other trials",
    "other policies",
    "one left out",
    "perfect simulator",
    "by chance",
)


def trust_document(report: TrustReport) -> list[dict[str, Any]]:
    """One object per task, and a last one over all of several; null for what is not defined."""
    every = [*report.tasks, *([report.pooled] if report.pooled is not None else [])]
    return plain_values([_object(t, report) for t in every])


def _object(t: TaskTrust, report: TrustReport) -> dict[str, Any]:
    known = {name: m for name, m in t.measures.items() if m.value is not None}
    chance = {name: m.chance for name, m in known.items() if m.chance is not None}
    return {
        "task": t.task,
        "pooled": t.table.pooled,
        "k": t.table.k,
        **{name: m.value for name, m in t.measures.items()},
        "undefined": {name: m.why for name, m in t.measures.items() if m.value is None},
        "level": report.level,
        "intervals": {
            name: {
                "fisher_z": m.fisher_z,
                "over_trials": m.over_trials,
                "over_policies": m.over_policies,
            }
            for name, m in known.items()
        },
        "drop_one": {name: m.drop_one for name, m in known.items()},
        "floors": {
            "noise": {name: m.noise for name, m in known.items() if m.noise is not None},
            "order": t.order_noise,
            "starts": t.table.repeats,
            "permutation": {
                "least_p": t.least_p,
                "p": {name: c.p for name, c in chance.items()},
                "reached_by_one_in_twenty": {name: c.reached for name, c in chance.items()},
            },
        },
        "per_condition": [
            {"policy": a.policy or None, "conditions": a.conditions, "correlation": a.correlation}
            | {"ceiling": a.ceiling, "reachable": a.reachable, "judged": a.judged}
            for a in t.agreement
        ],
        "real_estimates": t.estimates,
        "off_policy": t.off_policy,
        "causes": None if t.causes is None else causes_document(t.causes),
        "variants": t.variants,
        "trajectories": t.trajectories,
        "closer": t.closer,
        "endings": t.endings,
        "top1": t.choice,
        "worst_pair": t.worst,
        "convention": report.convention,
        "real_trials": t.table.real_trials,
        "sim_trials": t.table.sim_trials,
        "verdict": t.judgement.verdict,
        "why": t.judgement.why,
        "more": t.judgement.more,
        "calibration": t.calibration,
        "rule": report.rule,
        "policies": [
            {"policy": p.policy, "real": float(r), "sim": float(s)}
            for p, r, s in zip(t.table.pairs, t.table.real, t.table.sim, strict=True)
        ],
        "notes": report.notes_of(t.task),
    }


def trust_lines(report: TrustReport) -> list[str]:
    """The report as plain lines, for a terminal."""
    lines: list[str] = []
    for t in _every(report):
        lines += ["", *_head(t)]
        lines += [f"  {line}" for line in _aligned([list(HEADER), *measure_rows(t)])]
        lines += [f"  {sentence}" for sentence in remarks(t)]
        for panel in panels(t):
            lines += ["", *panel_lines(panel)]
        lines += [] if t.causes is None else ["", *causes_lines(t.causes)]
    lines += ["", f"rule: {report.rule}", f"convention: {report.convention}"]
    return [*lines[1:], *mean_lines(report), *(f"note: {n}" for n in report.notes)]


def trust_markdown(report: TrustReport, title: str) -> str:
    """The report as a Markdown page."""
    lines = [f"# {markdown_text(title)}", ""]
    lines += [f"* **{markdown_text(t.task)}**: {t.judgement.verdict}" for t in _every(report)]
    for t in _every(report):
        first, why, *more = (markdown_text(line.strip()) for line in _head(t))
        lines += ["", f"## {markdown_text(t.task)}", "", f"{first}.", "", f"{why}.", ""]
        lines += [f"{line}.\n" for line in more]
        lines += markdown_table(HEADER, measure_rows(t))
        lines += markdown_table(POLICY_HEADER, policy_rows(t))
        if t.agreement:
            lines += markdown_table(AGREEMENT_HEADER, agreement_rows(t))
        if t.estimates:
            lines += markdown_table(ESTIMATE_HEADER, estimate_rows(t))
        if t.off_policy:
            lines += markdown_table(OFF_POLICY_HEADER, off_policy_rows(t))
        for panel in panels(t):
            lines += [
                f"**{markdown_text(panel.title)}**",
                "",
                *markdown_table(panel.header, panel.rows),
            ]
            lines += [*(f"* {markdown_text(said)}" for said in panel.said), ""]
        lines += [f"* {markdown_text(sentence)}" for sentence in remarks(t, short=True)]
        lines += [] if t.causes is None else causes_markdown(t.causes)
    lines += [
        "",
        "## How to read this",
        "",
        markdown_text(report.rule),
        "",
        f"{markdown_text(report.convention)}.",
        "",
    ]
    lines += [f"* {markdown_text(n)}" for n in (*mean_lines(report), *report.notes)]
    return "\n".join(lines).rstrip() + "\n"


POLICY_HEADER = ("policy", "real", "real trials", "simulated", "simulated trials")


def policy_rows(t: TaskTrust) -> list[list[str]]:
    """Every policy, the best real one first."""
    rows = zip(t.table.pairs, t.table.real, t.table.sim, strict=True)
    return [
        [p.policy, f"{r:.3f}", _trials(p.real), f"{s:.3f}", _trials(p.sim)]
        for p, r, s in sorted(rows, key=lambda row: -row[1])
    ]


def measure_rows(t: TaskTrust) -> list[list[str]]:
    """A row per measure under :data:`HEADER`."""
    return [_row(name, m) for name, m in t.measures.items()]


def remarks(t: TaskTrust, *, short: bool = False) -> list[str]:
    """What the figures say, in sentences; ``short``: without what stands in a table per policy."""
    said = [t.calibration]
    if t.choice is not None:
        chosen, best = (", ".join(names) for names in (t.choice.chosen, t.choice.best))
        said.append(f"the simulator prefers {chosen}; best in reality: {best}")
    if t.worst is not None:
        said.append(wrong_words(t.worst))
    said += agreement_words(t)
    said += [] if short else [off_policy_words(row) for row in t.off_policy]
    said += [] if short else [estimate_words(e) for e in t.estimates]
    said += starts_words(t)
    if t.table.k > 1:
        said.append(f"a perfect order of {t.table.k} policies has p = {t.least_p:.2g} by chance")
    return said


def starts_words(t: TaskTrust) -> list[str]:
    """What floors and intervals over trials take of starts; nothing where these are not known."""
    if t.table.pooled or not t.table.repeats:
        return []
    (r,) = t.table.repeats
    words = "noise is drawn start by start: of what varies in a single trial its start explains"
    explained = f"{r.real:.2f} in reality, {r.sim:.2f} in simulation, {r.joint:.2f} alike in both"
    return [f"{words} {explained}; {r.policies:.2f} of it is the same for all policies"]


def agreement_words(t: TaskTrust) -> list[str]:
    """Condition by condition, all policies together; nothing where trials do not pair up."""
    if not t.agreement:
        return []
    a = t.agreement[-1]
    who = f"of '{a.policy}'" if a.policy else "of all policies, each less its mean,"
    found = estimate_text(a.correlation, 2)
    words = f"condition by condition, outcomes {who} correlate by {found}"
    if a.ceiling is None or a.reachable is None:
        unknown = "no condition was repeated in reality"
        return [f"{words}; {unknown}, so what a perfect simulator reaches is not known"]
    ceiling = f"agrees with its own repetition to {estimate_text(a.ceiling, 2)}"
    reached = f"a perfect simulator reaches {estimate_text(a.reachable, 2)} with as many trials"
    words += f"; a real trial {ceiling} ({a.ceiling.n} repeated), the ceiling, so {reached}"
    return [f"{words}: {_JUDGED[a.judged]}"]


_JUDGED = {
    "below": "this one is clearly below it",
    "within": "this one is not told from it",
    "above": "this one is above it; does it share more with a real trial than its repetition does,"
    " such as the policy's own noise?",
    "not known": "where this one stands is not known",
}
ESTIMATE_HEADER = (
    *("policy", "real trials", "simulated conditions", "with simulation", "real trials alone"),
    *("correlation", "coverage here", "trials saved", "a perfect simulator"),
)


def estimate_rows(t: TaskTrust) -> list[list[str]]:
    """A row per policy under :data:`ESTIMATE_HEADER`."""
    return [
        [
            e.policy,
            str(e.estimate.n),
            str(e.simulated),
            estimate_text(e.estimate),
            estimate_text(e.alone),
            number(e.correlation, 2),
            number(e.coverage),
            str(e.saved),
            "–" if e.possible is None else str(e.possible),
        ]
        for e in t.estimates
    ]


def estimate_words(e: RealEstimate) -> str:
    """What simulation adds to the real trials of a policy, in a sentence."""
    found = (
        f"real outcome of '{e.policy}' with simulation {estimate_text(e.estimate)}"
        f" ({count_of(e.estimate.n, 'real trial')},"
        f" {count_of(e.simulated, 'simulated condition')}), from the real trials"
        f" alone {estimate_text(e.alone)}"
    )
    if e.coverage is None:
        return f"{found}; no saving is claimed"
    covers = f"in repetitions of this case it covers {100 * e.coverage:.1f} %"
    more = count_of(e.saved, "more real trial")
    saves = f"as exact as {more}" if e.saved else "no real trial is saved"
    if e.possible is not None:
        saves += f" (a perfect simulator: about {e.possible}, by the ceiling)"
    return f"{found}; {saves}; {covers}"


OFF_POLICY_HEADER = (
    *("from recordings alone", "policies", "Spearman with reality", "by chance"),
    *("it prefers", "regret", "the simulator, of the same"),
)
OFF_POLICY_CAPTION = (
    "Weaker evidence, in no verdict: values fitted to recordings, or how far actions are from"
    " recorded ones, without running the policies."
)


def off_policy_rows(t: TaskTrust) -> list[list[str]]:
    """A row per method under :data:`OFF_POLICY_HEADER`."""
    return [
        [
            f"{row.method}, {row.source}",
            str(len(row.policies)),
            estimate_text(row.agreement.spearman, 2),
            "" if row.p is None else f"p = {row.p:.2g}",
            row.agreement.chosen,
            f"{row.agreement.regret:.3f}",
            estimate_text(row.simulator, 2),
        ]
        for row in t.off_policy
    ]


def off_policy_words(row: OffPolicyRow) -> str:
    """What recordings alone say, in a sentence."""
    return (
        f"weaker, in no verdict: {row.method} on recordings ({row.source}) orders"
        f" {count_of(len(row.policies), 'policy', 'policies')} with Spearman"
        f" {estimate_text(row.agreement.spearman, 2)} (the simulator the same:"
        f" {estimate_text(row.simulator, 2)}) and prefers {row.agreement.chosen}, regret"
        f" {size(row.agreement.regret)}"
    )


AGREEMENT_HEADER = (
    *("policy", "conditions", "correlation", "method", "ceiling", "perfect simulator", "this one"),
)


def agreement_rows(t: TaskTrust) -> list[list[str]]:
    """A row per policy under :data:`AGREEMENT_HEADER`, and a last one of all."""
    return [
        [
            a.policy or "all, each less its mean",
            str(a.conditions),
            estimate_text(a.correlation, 2),
            a.correlation.method,
            "–" if a.ceiling is None else estimate_text(a.ceiling, 2),
            "–" if a.reachable is None else estimate_text(a.reachable, 2),
            a.judged,
        ]
        for a in t.agreement
    ]


def mean_lines(report: TrustReport) -> list[str]:
    """Means over tasks as papers print them; nothing of one task."""
    if report.pooled is None or not report.mean_over_tasks:
        return []
    words = {"pearson": "Pearson", "mmrv": "MMRV"}
    figures = ", ".join(f"{words[n]} {v:.3f}" for n, v in report.mean_over_tasks.items())
    return [f"mean over tasks, as papers print it: {figures}"]


def _every(report: TrustReport) -> list[TaskTrust]:
    return [*report.tasks, *([report.pooled] if report.pooled is not None else [])]


def _head(t: TaskTrust) -> list[str]:
    known = [
        f"{low if low == high else f'{low} to {high}'} {side}"
        for side, spread in (("real", t.table.real_trials), ("simulated", t.table.sim_trials))
        if spread is not None
        for low, high in (spread,)
    ]
    trials = "trial numbers not known"
    if known:
        noun = "trial" if known[-1].startswith("1 ") else "trials"
        trials = f"{' and '.join(known)} {noun} each"
    name = "pooled (mean over tasks)" if t.table.pooled else t.task
    policies = count_of(t.table.k, "policy", "policies")
    head = [f"{name}: {t.judgement.verdict}; {policies}, {trials}"]
    head.append(f"  why: {t.judgement.why}")
    return head + ([f"  what would settle it: {t.judgement.more}"] if t.judgement.more else [])


def _row(name: str, m: Measured) -> list[str]:
    words = MEASURES[name].words
    if m.value is None:
        return [words, "not defined", m.why, *[""] * (len(HEADER) - 3)]
    noise = ""
    if m.noise is not None:
        good = MEASURES[name].good
        noise = {
            "high": f"{m.noise.p5:z.3f} or more",
            "low": f"{m.noise.p95:z.3f} or less",
            "near": f"{m.noise.p5:z.3f} to {m.noise.p95:z.3f}",
        }[good]
    spans = (m.fisher_z, m.over_trials, m.over_policies, m.drop_one)
    chance = "" if m.chance is None else f"p = {m.chance.p:.2g}"
    return [words, f"{m.value:z.3f}", *(_span(s) for s in spans), noise, chance]


def _span(span: Span | None) -> str:
    return "" if span is None else f"[{span[0]:z.3f}, {span[1]:z.3f}]"


def _trials(parts: Any) -> str:
    known = [o.trials for o in parts]
    return "not known" if None in known else str(sum(known))


def _aligned(rows: list[list[str]]) -> list[str]:
    full = [row for row in rows if row[1] != "not defined"]
    widths = [max(len(row[i]) for row in full) for i in range(len(HEADER))]
    widths[0] = max(len(row[0]) for row in rows)
    widths[1] = max(widths[1], 5)
    shown: list[str] = []
    for row in rows:
        if row[1] == "not defined":
            shown.append(f"{row[0]:<{widths[0]}}  not defined: {row[2]}")
            continue
        cells = (f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))
        shown.append("  ".join(cells).rstrip())
    return shown
