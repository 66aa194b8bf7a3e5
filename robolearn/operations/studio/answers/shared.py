"""Asks for documents beside the server and keeps them while nothing that they rest on changes."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

from robolearn.errors import DataError
from robolearn.operations.studio.apart import DOCUMENTS, Apart
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.found import Thing

JSON = "application/json"
_AT = "robolearn.operations.studio.documents."
MOST_THINGS = 8


def made(
    ask: Ask, place: str, *args: Any, stamp: Hashable = None, apart: Apart = DOCUMENTS
) -> Picture:
    """The document that ``place`` (a module of ``documents`` and its function) makes of ``args``,
    as JSON; kept until ``stamp`` is another one.
    """

    def build() -> bytes:
        return apart.make(_AT + place, *args)

    return Picture(ask.library.keep((place, *args), build, stamp), JSON)


def now(apart: Apart, place: str, *args: Any, media_type: str = JSON) -> Picture:
    """What ``place`` makes of ``args`` now; it is not kept."""
    return Picture(apart.make(_AT + place, *args), media_type)


def named(ask: Ask, name: str, kinds: tuple[str, ...]) -> Thing:
    """The thing whose id the query's ``name`` gives."""
    found = ask.library.thing(ask.query(name))
    if found is None or found.kind not in kinds:
        raise NotHere(
            f"{name}: there is no {' or '.join(kinds)} with the id {ask.query(name)[:40]}"
        )
    return found


def several(ask: Ask, name: str, kinds: tuple[str, ...]) -> tuple[Thing, ...]:
    """The things whose ids the query's ``name`` gives, apart by commas; each once."""
    ids = tuple(dict.fromkeys(filter(None, ask.query(name).split(","))))
    if not 1 <= len(ids) <= MOST_THINGS:
        raise DataError(f"{name}: expected 1 to {MOST_THINGS} ids, got {len(ids)}")
    things = [ask.library.thing(i) for i in ids]
    found = tuple(t for t in things if t is not None and t.kind in kinds)
    if len(found) < len(ids):
        raise NotHere(f"{name}: not all of these are a {' or '.join(kinds)} that is here")
    return found


def paths(things: tuple[Thing, ...]) -> tuple[Path, ...]:
    """Where they are."""
    return tuple(t.path for t in things)
