"""The section of the report that shows episodes: failures beside successes, chosen by rule."""

from __future__ import annotations

from eval.report.breakdown import reason_words
from eval.report.data import ClipFacts, ReportData
from eval.report.page import clip, note, paragraph, text, tiles
from eval.report.text import number

# A page that can still be mailed: what is beyond is left beside the page. Base64 adds a third.
BUDGET_BYTES = 9_000_000


def clips_section(data: ReportData) -> str:
    """A grid of clips per policy and world, failures first."""
    if not data.clips:
        return ""
    body = paragraph(
        "The episodes were chosen by a rule that knows outcomes and no pictures: per policy and"
        " world a failure of each kind (the first in the order of the starts), the success of"
        " median length, then the worst failure, the longest success, the nearest miss and the"
        " shortest success, as far as there is room. They show how things go, not how often: for"
        " that, read the tables.",
        "Policies start from the same conditions, so clips of one start may be compared.",
    )
    shown, left, used = 0, 0, 0
    for policy, world in dict.fromkeys((c.policy, c.world) for c in data.clips):
        parts: list[str] = []
        mine = [c for c in data.clips if (c.policy, c.world) == (policy, world)]
        for one in sorted(mine, key=lambda c: c.success):
            size = one.path.stat().st_size
            if used + size > BUDGET_BYTES:
                left += 1
                continue
            used, shown = used + size, shown + 1
            parts.append(_clip(one))
        if parts:
            body += f"<h3>{text(f'{policy} in {world}')}</h3>" + tiles(parts)
    if left:
        body += note(
            f"{left} of {shown + left} clips would make this page too large; they are in the"
            " results folder (videos/)."
        )
    return body


def _clip(one: ClipFacts) -> str:
    mark = "Solved" if one.success else f"Failed: {reason_words(one.reason or 'not said')}"
    return clip(
        one.path,
        mark,
        f"{one.why}; start {one.condition}, best score {number(one.score, 2)},"
        f" {one.duration_s:.1f} s",
        good=one.success,
    )
