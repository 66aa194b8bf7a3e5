"""Holds the files of the page: exactly those that came with the package, by their addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """``body`` with its ``media_type`` and what a browser compares (``tag``)."""

    body: bytes
    media_type: str
    tag: str


@lru_cache(maxsize=1)
def page_files() -> Mapping[str, PageFile]:
    """All of them by address: ``/`` and ``/page/...``."""
    found: dict[str, PageFile] = {}
    _add(resources.files("robolearn.operations.studio").joinpath("page"), "/page", found)
    found["/"] = found["/page/index.html"]
    return found


def _add(folder: Traversable, at: str, found: dict[str, PageFile]) -> None:
    for entry in folder.iterdir():
        name = f"{at}/{entry.name}"
        if entry.is_dir():
            _add(entry, name, found)
            continue
        ending = entry.name[entry.name.rfind(".") :]
        if ending in TYPES:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found[name] = PageFile(body, TYPES[ending], tag)
