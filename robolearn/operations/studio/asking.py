"""Fixes what a handler of the studio is asked, and what it may answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from robolearn.errors import DataError, RobolearnError
from robolearn.operations.studio.found import Thing
from robolearn.operations.studio.library import Library


class NotHere(RobolearnError, LookupError):  # noqa: N818
    """Nothing is under this address."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Bytes as they are, of a ``media_type``; a browser may keep them for ``keep_s``. ``partial``:
    there will be more of it when it is asked for again.
    """

    data: bytes
    media_type: str
    keep_s: int = 0
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the thing that it is about, the integers of its path, its query, its body."""

    library: Library
    found: Thing | None = None
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    words: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def thing(self) -> Thing:
        """What the request is about."""
        if self.found is None:
            raise NotHere("this address is about no thing")
        return self.found

    def number(self, name: str) -> int:
        """An integer of the path."""
        return self.numbers[name]

    def query(self, name: str, default: str = "") -> str:
        """A word of the query."""
        return self.words.get(name, default)

    def whole(self, name: str, default: int = 0) -> int:
        """A whole number of the query, at least 0; :class:`DataError` for anything else."""
        text = self.words.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise DataError(f"{name}: expected a whole number, got '{text[:40]}'")
        return int(text)

    def document(self) -> dict[str, Any]:
        """The body as a JSON object; :class:`DataError` for anything else."""
        try:
            raw: object = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise DataError(f"expected a JSON document, got {self.body[:60]!r}") from error
        if not isinstance(raw, dict):
            raise DataError(f"expected a JSON object, got {self.body[:60]!r}")
        return raw  # pyright: ignore[reportUnknownVariableType]
