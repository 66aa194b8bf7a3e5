"""Draws one page about a verified scene: photographs against renderings, measures, verdict."""

from __future__ import annotations

import cv2
import numpy as np

from eval.report.page import Section, Tile, data_uri, note, page, paragraph, table, text
from robolearn.shapes import Picture
from sim.reconstruction.verify import Limit, Measure, Verified
from sim.reconstruction.views import Compared

# Pictures that are shown with a slider: the worst and the best among them.
_SHOWN = 4
_ADVICE = {
    "use": "The scene matches what was photographed within the limits below.",
    "use with care": "Some measures are beyond what is good, none beyond what can be borne.",
    "refuse": "The scene does not match the table; do not evaluate in it.",
}


def verified_page(found: Verified) -> str:
    """The whole document, self-contained."""
    tiles = [
        Tile(figure(m), f"good: {limit(m.limit, m.limit.good)}", m.limit.name)
        for m in _worst(found)
    ]
    summary = [
        f"Verdict: {found.verdict}. {_ADVICE[found.verdict]}",
        *(found.advice or ("Every measure is good: nothing to do.",)),
    ]
    sections = [
        Section("views", "Photograph and scene", _views(found)),
        Section("measures", "Measures", _measures(found)),
        Section("objects", "Objects", _objects(found)),
        Section("assumed", "What nobody measured", _assumed(found)),
    ]
    kind = "kept back when it was made" if found.held_out else "not kept back: not independent"
    subtitle = (
        f"Scene {found.scene} ({found.scene_hash}) against {len(found.views)} pictures of capture"
        f" {found.capture}, {kind}."
    )
    return page(f"Scene {found.scene}: {found.verdict}", subtitle, summary, tiles, sections)


def _worst(found: Verified) -> list[Measure]:
    """Three measures for the top of the page: the worst verdicts, else the first."""
    order = ("refuse", "use with care", "use")
    return sorted(found.measures, key=lambda m: order.index(m.verdict))[:3]


def figure(m: Measure) -> str:
    """A measure's value with its unit."""
    if not np.isfinite(m.value):
        return "not seen"
    if m.limit.good == m.limit.bearable:
        return "yes" if m.value >= m.limit.good else "no"
    digits = 3 if not m.limit.unit else 1
    return f"{m.value:.{digits}f} {m.limit.unit}".strip()


def limit(of: Limit, value: float) -> str:
    """A limit's value as people read it."""
    if of.good == of.bearable:
        return "yes"
    return f"{'at least' if of.more else 'at most'} {value:g} {of.unit}".strip()


def _views(found: Verified) -> str:
    # What shows no object well enough to be judged by it says nothing of what is good or bad.
    judged = [v for v in found.views if np.isfinite(_iou(v))]
    order = sorted(judged, key=_iou) or list(found.views)
    count = min(_SHOWN, len(order))
    picks = [round(k * (len(order) - 1) / max(1, count - 1)) for k in range(count)]
    shown = [order[i] for i in picks]
    seen = sorted((v for v in found.robots if np.isfinite(v.robot)), key=lambda v: v.robot)
    parts = [_slider(v) for v in (*shown, *seen[:1], *seen[1:][-1:])]
    return (
        paragraph(
            "Drag the slider: the photograph is on the left of the line, the scene as the same"
            " camera sees it on the right. Below each, the scene's outlines in the photograph.",
            "The first is the worst of all pictures, the last the best; then, where cameras beside"
            " the arm show the robot, the worst and the best of these.",
        )
        + f'<div class="columns">{"".join(parts)}</div>'
    )


def _iou(view: Compared) -> float:
    known = [v for v in view.iou.values() if np.isfinite(v)]
    return float(np.mean(known)) if known else np.nan


def _slider(view: Compared) -> str:
    image = "display:block;width:100%;min-width:0"
    over = f"{image};position:absolute;inset:0;clip-path:inset(0 0 0 var(--At))"
    move = "this.previousElementSibling.style.setProperty('--At',this.value+'%')"
    figures = (
        ("silhouettes {:.3f}", _iou(view)),
        ("outlines {:.1f} px", view.edge_px),
        ("depth {:.1f} mm", view.depth_mm),
        ("robot {:.3f}", view.robot),
    )
    told = [words.format(value) for words, value in figures if np.isfinite(value)]
    caption = f"{view.name}: {', '.join(told) or 'nothing in it is judged'}"
    return (
        '<figure><div style="position:relative;--At:50%">'
        f'<img style="{image}" src="{_jpeg(view.photo)}" alt="{text(view.name)}, photograph">'
        f'<img style="{over}" src="{_jpeg(view.drawn)}" alt="{text(view.name)}, scene"></div>'
        '<input type="range" min="0" max="100" value="50" style="width:100%;height:2rem"'
        f' aria-label="photograph or scene, {text(view.name)}" oninput="{move}">'
        f'<img style="{image}" src="{_jpeg(view.outlined)}"'
        f' alt="{text(view.name)}, outlines of the scene in the photograph">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _measures(found: Verified) -> str:
    rows = [
        [
            f"{m.limit.name} ({m.worst})" if m.worst else m.limit.name,
            figure(m),
            # Before the limits: what is farther right lies out of sight on a phone.
            m.verdict,
            limit(m.limit, m.limit.good),
            limit(m.limit, m.limit.bearable),
        ]
        for m in found.measures
    ]
    said = "".join(note(sentence) for sentence in found.said)
    return (
        table(["measure", "value", "verdict", "use", "use with care"], rows, numeric_from=None)
        + said
    )


def _objects(found: Verified) -> str:
    iou = found.iou
    rows = [
        [r.name, f"{iou[r.name]:.3f}", f"{r.moved_mm:.2f} mm", f"{r.turned_deg:.2f}"]
        for r in found.rested
    ]
    rows += [[f"{name}: not in the scene", "", "", ""] for name in found.missing]
    why = "".join(note(f"{name} is missing: {text}") for name, text in found.missing.items())
    return why + table(
        ["object", "silhouette, IoU", "moved when let go", "turned [degrees]"],
        rows,
        "Silhouettes: median over the pictures that show the object. Moved: within a second, from"
        " where it was found.",
    )


def _assumed(found: Verified) -> str:
    rows = [[str(a["what"]), str(a["value"]), str(a["why"])] for a in found.assumed]
    if not rows:
        return paragraph("Everything was measured.")
    return table(["what", "assumed", "why"], rows, numeric_from=None)


def _jpeg(image: Picture) -> str:
    bgr = np.ascontiguousarray(image[..., ::-1])
    _, encoded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 85])
    return data_uri(encoded.tobytes(), ".jpg")
