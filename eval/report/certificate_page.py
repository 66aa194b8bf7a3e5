"""Renders a certificate as one self-contained page."""

from __future__ import annotations

from eval.report.page import Section, Tile, details, note, page, paragraph, table
from eval.report.text import sentence
from eval.trust.certificate import Certificate, Counted, Issued, assured_words
from eval.words import count_of, size


def certificate_page(issued: Issued) -> str:
    """The whole document."""
    c = issued.certificate
    verdict = (
        "This policy is certified." if c.passes else "This policy is not certified: not enough."
    )
    summary = [verdict, sentence(assured_words(c)), *(sentence(s) for s in c.lacking)]
    summary.append(f"Issued {c.issued}, valid until {c.expires}.")
    return page(
        f"Certificate of {c.policy.name}",
        f"In the scene {c.scene.world.name}, for the cell {c.trust.real.name}, over {c.suite}.",
        summary,
        _tiles(c),
        [
            Section("shown", "What was shown", _shown(c)),
            *([Section("remarks", "What else to know", _remarks(c))] if c.remarks else []),
            Section("limits", "Where it holds", _limits(c)),
            Section("bound", "What it is bound to", _bound(issued)),
        ],
    )


def _tiles(c: Certificate) -> list[Tile]:
    tiles = [
        Tile(f"{max(0.0, c.assured):.2f}", f"wanted {c.rule.least_success:g}", "at least, real"),
        Tile(f"{c.simulated.rate:.2f}", _interval(c.simulated), "simulated success"),
        Tile(c.trust.verdict, _policies(c), "the simulator"),
    ]
    if c.real is not None:
        tiles.insert(1, Tile(f"{c.real.rate:.2f}", _interval(c.real), "real success"))
    return tiles


def _policies(c: Certificate) -> str:
    return count_of(c.trust.policies, "policy", "policies")


def _interval(counts: Counted) -> str:
    tried = f"{counts.successes} of {counts.trials}{counts.from_starts}"
    return f"[{counts.low:.2f}, {counts.high:.2f}], {tried}"


def _shown(c: Certificate) -> str:
    rows = [["simulated", c.scene.world.name, _interval(c.simulated)]]
    rows.append(["real", c.trust.real.name, "not tried" if c.real is None else _interval(c.real)])
    t = c.trust
    order = "not defined" if t.spearman is None else f"{t.spearman:.3f}"
    return (
        table(
            ("trials", "world", "success"),
            rows,
            "Intervals: Wilson, 95 %; a start counts once.",
            None,
        )
        + paragraph(sentence(f"{t.verdict}: {t.why}"))
        + paragraph(
            f"Over {_policies(c)} with at least {t.real_trials} real and",
            f"{count_of(t.sim_trials, 'simulated trial')} each; Spearman's correlation {order}.",
        )
        + paragraph(
            f"The simulator flatters '{t.most_overrated}' most, by {size(t.overrated)}."
            if t.overrated > 0
            else "It flatters no policy."
        )
    )


def _remarks(c: Certificate) -> str:
    return "".join(note(sentence(words)) for words in c.remarks)


def _limits(c: Certificate) -> str:
    rows = [
        [signal, ", ".join(f"{v:.4g}" for v in r.low), ", ".join(f"{v:.4g}" for v in r.high)]
        for signal, r in c.limits.starts.items()
    ]
    drift = c.limits.drift + (f" ({c.limits.drift_measured})" if c.limits.drift_measured else "")
    return (
        paragraph(f"Tried: {count_of(len(c.limits.conditions), 'start')} of {c.suite}.")
        + (table(("signal", "from", "to"), rows, "Starts in SI units.", None) if rows else "")
        + paragraph(f"Whether the real table is still as its scene says: {drift}.")
        + note(
            "It holds for this policy as it was executed, on this cell as it is configured, with"
            " this scene, suite and code, until it expires; whoever deploys computes these again."
        )
    )


def _bound(issued: Issued) -> str:
    c = issued.certificate
    signature = issued.signature
    rows = [
        ["digest", issued.digest],
        ["signed by", "nobody" if signature is None else signature.key],
        ["policy", c.policy.hash],
        ["scene", f"{c.scene.world.hash} ({c.scene.world.engine})"],
        ["cell", c.trust.real.hash],
        ["suite", c.suite],
        ["code that decides simulated trials", f"{c.code} ({c.commit})"],
        ["code that drives the arm", c.driving],
        ["libraries", c.libraries],
        ["simulated trials", c.simulated_rows],
        ["real trials", c.real_rows],
    ]
    files = [[name, digest] for name, digest in c.policy.files.items()]
    body = table(("what", "hash"), rows, "", None)
    if signature is None:
        body += note(
            "Not signed: the digest shows what was edited by accident, not who wrote this."
        )
    return body + details("Files of the policy", table(("file", "SHA-256"), files, "", None))
