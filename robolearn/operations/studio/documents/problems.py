"""Collects what could not be read, so that the rest of a document is shown all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml

from robolearn.errors import RobolearnError

T = TypeVar("T")

UNREADABLE = (
    *(RobolearnError, OSError, ValueError, KeyError, TypeError, IndexError, AttributeError),
    *(RecursionError, yaml.YAMLError),
)
"""What reading a file of any content may raise: it is damaged, half written, or gone."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read: which part of the document, and why."""

    where: str
    words: str


class Problems:
    """What could not be read of one document so far."""

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def attempt(self, where: str, read: Callable[[], T], instead: T) -> T:
        """What ``read`` returns, or ``instead`` where that fails; why is kept."""
        try:
            return read()
        except UNREADABLE as error:
            self.say(where, words_of(error))
            return instead

    def say(self, where: str, words: str) -> None:
        """Keep a sentence about ``where``."""
        self._found.append(Problem(where, words))

    @property
    def found(self) -> tuple[Problem, ...]:
        """All of them, in the order in which they were found."""
        return tuple(self._found)


def words_of(error: BaseException) -> str:
    """An error as a sentence: with its kind where its text alone says little."""
    text = " ".join(str(error).split())
    own = isinstance(error, RobolearnError | OSError)
    return text if own and text else f"{type(error).__name__}: {text}".rstrip(": ")


def gone(path: Path) -> str:
    """Why a folder that was found is not there any more, as a sentence; "" where it is there."""
    return "" if path.exists() else f"'{path}' is not there any more: it was moved or deleted"
