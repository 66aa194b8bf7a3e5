"""Reads a filter of episodes in the words of the command line that copies them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from robolearn.data.upkeep.edit import Selection
from robolearn.errors import ConfigError, did_you_mean
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.episodes.shelf import open_store
from robolearn.shapes import OwnIndex

# The options of 'robolearn data filter' by the field of a selection; several words where it has
# several values.
_MANY = {
    "episodes": "ids",
    "kind": "kinds",
    "task": "tasks",
    "label": "labels",
    "without-label": "without_labels",
}
_FLOATS = {"min-score": "min_score", "max-score": "max_score"}
_DASHES = "--"
OPTIONS = tuple(f"{_DASHES}{n}" for n in (*_MANY, *_FLOATS, "min-steps", "outcome", "split"))


@dataclass(frozen=True, slots=True)
class Selected:
    """The ``numbers`` of the episodes that a filter takes; ``problem``: what is not understood of
    it, as it is while somebody types.
    """

    filter: str
    numbers: OwnIndex
    problem: str = ""


def select(ask: Ask) -> Selected:
    """``?filter=``: words as the command line's."""
    words = ask.query("filter").strip()
    opened = open_store(ask)
    try:
        selection = parse_selection(words)
    except ConfigError as error:
        return Selected(words, np.zeros(0, dtype=np.int64), str(error))
    infos = opened.shown().infos
    ids = [info.id for info in infos if info is not None and selection.takes(info)]
    numbers = np.array([int(i[3:]) for i in ids], dtype=np.int64)
    return Selected(words, numbers)


def parse_selection(text: str) -> Selection:
    """What the words ask for; :class:`ConfigError` says what is not understood, and what is."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"a quotation mark is open in '{text}'") from error
    given: dict[str, Any] = {}
    for name, values in _options(words):
        if name in _MANY:
            if not values:
                raise ConfigError(f"{_DASHES}{name} needs at least one word")
            given[_MANY[name]] = tuple(values)
            continue
        if len(values) != 1:
            raise ConfigError(f"{_DASHES}{name} takes one value, got {len(values)}")
        given |= _single(name, values[0])
    return Selection(**given)


def _options(words: list[str]) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith(_DASHES):
            option, equals, value = word.partition("=")
            if option not in OPTIONS:
                near = did_you_mean(option, OPTIONS)
                raise ConfigError(f"no option '{option}'.{near} Options are {', '.join(OPTIONS)}")
            found.append((option.removeprefix(_DASHES), [value] if equals else []))
        elif not found:
            raise ConfigError(f"'{word}' belongs to no option; options are {', '.join(OPTIONS)}")
        else:
            found[-1][1].append(word)
    return found


def _single(name: str, value: str) -> dict[str, Any]:
    if name == "outcome":
        if value not in ("success", "failure"):
            raise ConfigError(f"{_DASHES}outcome is success or failure, got '{value}'")
        return {"success": value == "success"}
    if name == "split":
        return {"split": value}
    try:
        if name == "min-steps":
            return {"min_steps": int(value)}
        number = float(value)
    except ValueError:
        raise ConfigError(f"{_DASHES}{name} needs a number, got '{value}'") from None
    return {_FLOATS[name]: number}
