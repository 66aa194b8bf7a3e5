"""Answers what pages ask about scenes and captures."""

from __future__ import annotations

import json

from robolearn.errors import DataError
from robolearn.operations.studio.answers.shared import made, named, now
from robolearn.operations.studio.apart import COMPUTING
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.documents.pictures import capture_picture


def scene(ask: Ask) -> Picture:
    """A scene package."""
    return made(ask, "scene:scene_document", ask.thing.path, stamp=ask.thing.changed_ns)


def verified(ask: Ask) -> Picture:
    """A reconstructed scene rendered where the pictures of ``capture`` were taken."""
    capture = named(ask, "capture", ("capture",))
    stamp = (ask.thing.changed_ns, capture.changed_ns)
    return made(
        *(ask, "verified:verified_document", ask.thing.path, capture.path),
        stamp=stamp,
        apart=COMPUTING,
    )


def placed(ask: Ask) -> Picture:
    """A picture of ``capture`` with the scene's objects moved by ``moves``; nothing is written."""
    capture = named(ask, "capture", ("capture",))
    try:
        moves: object = json.loads(ask.query("moves", "{}"))
    except (ValueError, RecursionError):
        moves = None
    if not isinstance(moves, dict):
        text = ask.query("moves")[:60]
        raise DataError(f"moves: expected a JSON object, six numbers by object, got '{text}'")
    picture = ask.whole("picture")
    place = "placed:placed_document"
    return now(COMPUTING, place, ask.thing.path, capture.path, picture, moves)


def capture(ask: Ask) -> Picture:
    """A capture."""
    return made(ask, "capture:capture_document", ask.thing.path, stamp=ask.thing.changed_ns)


def checked(ask: Ask) -> Picture:
    """What the checks of a capture's pictures find."""
    return now(COMPUTING, "capture:checked_document", ask.thing.path)


def picture(ask: Ask) -> Picture:
    """A picture of a capture, small."""
    number = ask.number("number")
    try:
        return Picture(capture_picture(ask.thing.path, number), "image/jpeg")
    except IndexError as error:
        raise NotHere(str(error)) from error
