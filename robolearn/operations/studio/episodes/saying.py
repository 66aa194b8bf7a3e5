"""Writes what a person says about episodes into the store's annotation log, once.

Every request carries a ``key`` of the client's. It is kept with the record, so that a request that
is sent again, because the answer was lost or the server killed, is answered by the record that is
there. Taking something back is a record, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from robolearn.data.store.annotations import Annotation, default_author
from robolearn.data.store.manifest import episode_name
from robolearn.errors import DataError
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.episodes.episode import words
from robolearn.operations.studio.episodes.shelf import OpenStore, open_store

MOST = 20_000
"""Episodes that are spoken of at once."""
LONGEST = 2_000
"""Characters of a note."""
_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
_FIELDS = ("key", "episodes", "outcome", "reason", "add", "remove", "note", "split", "markers",
           "undo", "author")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """The record, its episodes by number, and whether it was there before (a repeated request)."""

    record: str
    episodes: tuple[int, ...]
    words: str
    again: bool


def say(ask: Ask) -> Written:
    """``{"key", "episodes": [3, 4], "outcome": "success", "reason", "add": ["good"], "remove",
    "note", "split", "markers": [1.5], "undo": "an_000012", "author"}``: what is left out says
    nothing.
    """
    annotation = parse(ask.document())
    return write(open_store(ask), annotation)


def write(opened: OpenStore, annotation: Annotation) -> Written:
    """Append a record unless one with its key is there."""
    store = opened.store
    with store.writer() as writer:
        # Under the lock: two requests with one key may come at once.
        there = [r for r in store.annotations() if r.key == annotation.key]
        record = there[0].id if there else writer.annotate(annotation)
    written = next(r for r in store.annotations() if r.id == record)
    return Written(
        record=record,
        episodes=tuple(int(e[3:]) for e in written.episodes),
        words=f"took back {written.undoes}" if written.undoes else words(written),
        again=bool(there),
    )


def parse(raw: dict[str, Any]) -> Annotation:
    """A request as a record; :class:`DataError` says what it lacks."""
    odd = sorted(set(raw) - set(_FIELDS))
    if odd:
        raise DataError(f"unknown: {', '.join(map(str, odd))[:200]}; known: {', '.join(_FIELDS)}")
    key = _text(raw, "key")
    if not _KEY.fullmatch(key):
        raise DataError("key: expected 8 to 64 letters and digits that name this request")
    outcome = _text(raw, "outcome")
    if outcome not in ("", "success", "failure"):
        raise DataError(f"outcome: expected success or failure, got '{outcome[:40]}'")
    split = _text(raw, "split") if "split" in raw else None
    return Annotation(
        episodes=_episodes(raw.get("episodes", [])),
        author=_text(raw, "author").strip() or default_author(),
        success=None if not outcome else outcome == "success",
        reason=_text(raw, "reason"),
        add_labels=_words(raw, "add"),
        remove_labels=_words(raw, "remove"),
        note=_text(raw, "note"),
        split=split,
        undoes=_text(raw, "undo"),
        markers=_times(raw.get("markers", [])),
        key=key,
    )


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw.get(name, "")
    if not isinstance(value, str) or len(value) > LONGEST:
        raise DataError(f"{name}: expected a text of at most {LONGEST} characters")
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise DataError(f"{name}: this is no valid text")
    return value


def _list(value: object, name: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:  # pyright: ignore[reportUnknownArgumentType]
        raise DataError(f"{name}: expected a list of at most {most}")
    return value  # pyright: ignore[reportUnknownVariableType]


def _episodes(value: object) -> tuple[str, ...]:
    numbers = _list(value, "episodes", MOST)
    if any(type(n) is not int or not 0 <= n < 10**9 for n in numbers):
        raise DataError("episodes: expected numbers of episodes, as in ep_000012: 12")
    return tuple(episode_name(n) for n in numbers)


def _words(raw: dict[str, Any], name: str) -> tuple[str, ...]:
    found = _list(raw.get(name, []), name, 100)
    if any(not isinstance(w, str) or len(w) > 100 for w in found):
        raise DataError(f"{name}: expected words")
    return tuple(found)


def _times(value: object) -> tuple[float, ...]:
    found = _list(value, "markers", 10_000)
    if any(type(t) not in (int, float) for t in found):
        raise DataError("markers: expected times in seconds since the start of the episode")
    return tuple(float(t) for t in found)
