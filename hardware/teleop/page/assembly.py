"""Joins the page's files to one document that needs nothing else, and says so in its policy.

Scripts and styles stand in the document; the policy names their digests, so that nothing that finds
its way into the page by other means is executed.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

STYLES = ("page.css",)
# In the order in which they need one another: each defines one name.
SCRIPTS = (
    "link.js",
    "keys.js",
    "pads.js",
    "drawing.js",
    "pictures.js",
    "look.js",
    "tilt.js",
    "gamepad.js",
    "panel.js",
    "main.js",
)
_STYLES_HERE, _SCRIPTS_HERE = "<!-- styles -->", "<!-- scripts -->"


@dataclass(frozen=True, slots=True)
class Document:
    """``body``, and the digests of what it executes and looks like."""

    body: bytes
    scripts: tuple[str, ...]
    styles: tuple[str, ...]

    def policy(self, socket: str) -> str:
        """Its Content-Security-Policy; ``socket``: scheme, host and port that it may talk to."""
        return (
            f"default-src 'none'; script-src {' '.join(self.scripts)};"
            f" style-src {' '.join(self.styles)}; connect-src {socket}; img-src data:;"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


@lru_cache(maxsize=1)
def document() -> Document:
    """The page."""
    styles, scripts = [_file(n) for n in STYLES], [_file(n) for n in SCRIPTS]
    html = _file("index.html")
    html = html.replace(_STYLES_HERE, "".join(f"<style>{text}</style>\n" for text in styles))
    html = html.replace(_SCRIPTS_HERE, "".join(f"<script>{text}</script>\n" for text in scripts))
    return Document(html.encode(), tuple(map(_digest, scripts)), tuple(map(_digest, styles)))


def _file(name: str) -> str:
    folder = resources.files("hardware.teleop.page").joinpath("files")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
