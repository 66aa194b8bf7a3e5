"""Builds a self-contained HTML page: everything inline, readable on paper and on a phone."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.names import shown

_MIME = {".mp4": "video/mp4", ".jpg": "image/jpeg", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Section:
    """A numbered part of the page; ``body`` is HTML."""

    id: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Tile:
    """One headline figure: a number, its interval and n, and what it is."""

    value: str
    detail: str
    label: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawn figure: its data URI and its width [in]."""

    uri: str
    width: float


def text(value: object) -> str:
    """Escaped text; ``n = 12`` and ``95 %`` are kept on one line, and characters that would turn
    the direction of writing are written out.
    """
    plain = shown(str(value)).replace(" = ", "\u00a0=\u00a0").replace(" %", "\u00a0%")
    return html.escape(plain, quote=True)


def paragraph(*sentences: str) -> str:
    """A paragraph of plain sentences."""
    return f"<p>{text(' '.join(s for s in sentences if s))}</p>"


def note(sentence: str) -> str:
    """A remark set apart: a limit, a surprise, something that is missing."""
    return f'<p class="note">{text(sentence)}</p>'


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    numeric_from: int | None = 1,
) -> str:
    """A table; columns from ``numeric_from`` on are set as figures (None: no column)."""

    def cells(row: Sequence[str], tag: str) -> str:
        first, kind = len(row) if numeric_from is None else numeric_from, ' class="num"'
        return "".join(
            f"<{tag}{kind if i >= first else ''}>{text(c)}</{tag}>" for i, c in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    foot = f"<figcaption>{text(caption)}</figcaption>" if caption else ""
    return (
        '<figure class="wide"><div class="scroll" tabindex="0"><table>'
        f"<thead><tr>{cells(header, 'th')}</tr></thead><tbody>{body}</tbody></table></div>{foot}"
        "</figure>"
    )


def picture(plot: Plot, alt: str, caption: str) -> str:
    """A plot with its caption, never larger than 110 CSS px to the inch; a small one fits on a
    telephone as it is.
    """
    limit = f"max-width:{110 * plot.width:.0f}px{';min-width:0' if plot.width < 5 else ''}"
    return (
        f'<figure><div class="scroll"><img src="{plot.uri}" alt="{text(alt)}" style="{limit}">'
        f"</div><figcaption>{text(caption)}</figcaption></figure>"
    )


def video(path: Path, caption: str) -> str:
    """An mp4 file, embedded; its last picture stands for it until it is played, and in print."""
    return (
        f'<figure class="video"><video controls muted loop playsinline preload="metadata"'
        f'{_poster(path)} src="{data_uri(path.read_bytes(), ".mp4")}"></video>'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def clip(path: Path, mark: str, caption: str, *, good: bool) -> str:
    """A small embedded mp4 of one episode; ``mark`` says in words how it ended."""
    kind = "good" if good else "bad"
    return (
        f'<figure class="clip {kind}"><video controls muted loop playsinline preload="metadata"'
        f'{_poster(path)} src="{data_uri(path.read_bytes(), ".mp4")}"></video>'
        f"<figcaption><strong>{text(mark)}</strong> {text(caption)}</figcaption></figure>"
    )


def tiles(parts: Sequence[str]) -> str:
    """Small figures in a grid."""
    return f'<div class="clips">{"".join(parts)}</div>'


def _poster(path: Path) -> str:
    import cv2

    reader = cv2.VideoCapture(str(path))
    last = None
    while True:
        complete, frame = reader.read()
        if not complete:
            break
        last = frame
    reader.release()
    if last is None:
        return ""
    _, encoded = cv2.imencode(".jpg", last, [cv2.IMWRITE_JPEG_QUALITY, 80])
    return f' poster="{data_uri(encoded.tobytes(), ".jpg")}"'


def columns(parts: Sequence[str]) -> str:
    """Figures beside each other where there is room."""
    return f'<div class="columns">{"".join(parts)}</div>'


def details(summary: str, body: str) -> str:
    """Something that opens on a click (and in print)."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def code(lines: Sequence[str]) -> str:
    """Preformatted text."""
    return f"<pre>{text(chr(10).join(lines))}</pre>"


def data_uri(content: bytes, suffix: str) -> str:
    """File content as a ``data:`` URI."""
    return f"data:{_MIME[suffix]};base64,{base64.b64encode(content).decode('ascii')}"


def page(
    title: str,
    subtitle: str,
    summary: Sequence[str],
    tiles: Sequence[Tile],
    sections: Sequence[Section],
) -> str:
    """The whole document."""
    links = "".join(f'<li><a href="#{s.id}">{text(s.title)}</a></li>' for s in sections)
    boxes = "".join(
        f'<div class="tile"><div class="label">{text(t.label)}</div><div class="value">'
        f'{text(t.value)}</div><div class="detail">{text(t.detail)}</div></div>'
        for t in tiles
    )
    verdict = f'<p class="verdict">{text(summary[0])}</p>' if summary else ""
    points = "".join(f"<li>{text(s)}</li>" for s in summary[1:])
    body = "".join(
        f'<section id="{s.id}"><h2><span class="number">{i}</span>{text(s.title)}</h2>{s.body}'
        "</section>"
        for i, s in enumerate(sections, 1)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{text(title)}</title><style>{STYLE}</style></head>'
        f"<body><header><h1>{text(title)}</h1><p class='subtitle'>{text(subtitle)}</p></header>"
        f'<main><div class="summary" id="summary"><h2>In short</h2>{verdict}'
        f'<div class="tiles">{boxes}</div><ul>{points}</ul></div>'
        f"<nav aria-label='Contents'><ol>{links}</ol></nav>{body}</main>"
        "</body></html>\n"
    )


STYLE = """
:root{color-scheme:light;--ink:#1b2330;--soft:#566173;--line:#d9dee6;--paper:#fff;--wash:#f4f6f9;
--accent:#1f5c99}
*{box-sizing:border-box}
html{font-size:17px;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans","DejaVu Sans",
Arial,sans-serif;line-height:1.55}
header,main{max-width:62rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:2.6rem}
h1{font-size:2.1rem;line-height:1.15;margin:0 0 .4rem;letter-spacing:-.015em;text-wrap:balance}
.subtitle{color:var(--soft);margin:0 0 1.6rem;max-width:46rem}
h2{font-size:1.4rem;line-height:1.25;margin:0 0 .8rem;letter-spacing:-.01em}
h3{font-size:1.05rem;margin:1.6rem 0 .4rem}
p,li{max-width:46rem}
p{margin:.6rem 0}
a{color:var(--accent)}
.number{display:inline-block;min-width:1.3em;margin-right:.35em;color:var(--accent);font-variant-numeric:tabular-nums}
.summary{background:var(--wash);border:1px solid var(--line);border-left:5px solid var(--accent);
border-radius:6px;padding:1.3rem 1.5rem 1rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(13rem,1fr));gap:.8rem;
margin:0 0 1rem}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem}
.label{font-size:.8rem;color:var(--soft);line-height:1.3;min-height:2.1em}
.value{font-size:1.75rem;font-weight:650;letter-spacing:-.02em;line-height:1.2;
font-variant-numeric:tabular-nums}
.detail{font-size:.8rem;color:var(--soft);font-variant-numeric:tabular-nums}
.summary ul{padding-left:1.15rem;margin:.4rem 0}
.summary li{margin:.35rem 0;max-width:none}
nav ol{columns:2;column-gap:2rem;padding-left:1.3rem;margin:1.4rem 0 .4rem;font-size:.92rem}
nav li{break-inside:avoid;margin:.15rem 0}
section{border-top:1px solid var(--line);margin-top:2.4rem;padding-top:1.7rem}
figure{margin:1.1rem 0;break-inside:avoid}
figure img{display:block;width:100%;height:auto;background:#fff}
figcaption{font-size:.86rem;color:var(--soft);margin-top:.45rem;max-width:46rem}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(17rem,1fr));gap:0 1.6rem;
align-items:start}
/* Shadows at the edges of what scrolls, hidden by covers that move along where it ends. */
.scroll{overflow-x:auto;
background:linear-gradient(to right,var(--paper) 40%,transparent) 0 0/3rem 100%,
linear-gradient(to left,var(--paper) 40%,transparent) 100% 0/3rem 100%,
linear-gradient(to right,#1b233055,#1b233000) 0 0/.9rem 100%,
linear-gradient(to left,#1b233055,#1b233000) 100% 0/.9rem 100%;background-repeat:no-repeat;
background-attachment:local,local,scroll,scroll}
.scroll img{mix-blend-mode:multiply}
.verdict{font-size:1.06rem;font-weight:600;line-height:1.45;max-width:none;margin:0 0 1rem}
table{border-collapse:collapse;font-size:.88rem;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;border-bottom:2px solid var(--ink);padding:.35rem .7rem .35rem 0;
vertical-align:bottom}
td{border-bottom:1px solid var(--line);padding:.4rem .7rem .4rem 0;vertical-align:top}
th.num,td.num{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
.note{border-left:3px solid #c27a1a;padding-left:.8rem;color:#5f4310}
video{display:block;width:100%;border:1px solid var(--line);border-radius:4px;background:#e9ecf1}
.clips{display:grid;grid-template-columns:repeat(auto-fill,minmax(11.5rem,1fr));gap:1rem;
margin:.6rem 0}
.clip{margin:0;border-top:5px solid #2d8f55;padding-top:.35rem}.clip.bad{border-color:#b3402f}
.clip figcaption{line-height:1.35}.clip strong{display:block;color:#1e6b3e}
.clip.bad strong{color:#99321f}
details{margin:.8rem 0}
summary{cursor:pointer;color:var(--accent)}
pre{background:var(--wash);border:1px solid var(--line);border-radius:4px;padding:.7rem .9rem;
font-size:.78rem;line-height:1.45;white-space:pre-wrap;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:minmax(8rem,max-content) 1fr;gap:.35rem 1.2rem;
font-size:.92rem}
dt{font-weight:600}dd{margin:0;max-width:40rem}
footer{color:var(--soft);font-size:.85rem;margin:3rem 0 2rem}
@media(max-width:40rem){html{font-size:16px}header,main{padding-left:1rem;padding-right:1rem}
header{padding-top:1rem}h1{font-size:1.4rem}.subtitle{margin-bottom:.8rem;font-size:.92rem}
nav ol{columns:1}dl{grid-template-columns:1fr}.summary{padding:.8rem 1rem 1rem}
.summary h2{font-size:1.1rem;margin-bottom:.4rem}.verdict{font-size:1rem}
table{width:max-content;min-width:100%}td{max-width:15rem}
th.num,td.num{white-space:normal}figure img{min-width:38rem}}
/* Plots keep their white paper: they are drawn once, for both. */
@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--ink:#e4e9f0;--soft:#a4aebc;
--line:#39434f;--paper:#12161c;--wash:#1a2029;--accent:#86b7ea}
.scroll img{mix-blend-mode:normal;border-radius:4px}.note{color:#e5bd85}video{background:#0b0e12}
.clip strong{color:#7fd0a0}.clip.bad strong{color:#ee9a8a}}
@media print{html{font-size:11pt}nav{display:none}header{padding-top:0}
section,.summary{break-inside:auto}h2,h3{break-after:avoid}a{color:inherit}
.tile,.summary{background:none}video{max-height:6cm;width:auto}}
"""
