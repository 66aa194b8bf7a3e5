"""Says why a board is in none of a camera's pictures: mirrored, another print, or two of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np

from robolearn.calibration.boards import Board, BoardFinder
from robolearn.calibration.fiducials import DICTIONARIES, dictionary
from robolearn.shapes import Picture

# Pictures that are looked at, evenly.
_PICTURES = 8
# Tags that must be found for a picture to show those of a dictionary.
_LEAST_TAGS = 4


def why_unseen(board: Board, pictures: Sequence[Picture]) -> str:
    """The likeliest cause as a sentence that goes on from "is in none of the pictures"; "" where
    nothing else is found in them.
    """
    every = max(1, len(pictures) // _PICTURES)
    some = [_Seen(p) for p in pictures[::every][:_PICTURES]]
    if board.kind != "tags" and any(BoardFinder(board).find(s.mirrored()) for s in some):
        return (
            "it is in their mirror images: the camera's pictures have left and right exchanged, as"
            " a preview may; switch that off (a mirrored picture is no view of any camera)"
        )
    if board.kind != "tags" and board.squares[0] != board.squares[1]:
        turned = replace(board, squares=(board.squares[1], board.squares[0]))
        if any(BoardFinder(turned).find(s.picture) for s in some):
            return f"one of {turned.squares[0]} x {turned.squares[1]} squares is: exchange both"
    return "" if board.kind == "chessboard" else _by_tags(board, some)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A picture that is looked at again."""

    picture: Picture

    def mirrored(self) -> Picture:
        return np.ascontiguousarray(self.picture[:, ::-1])

    def tags(self, name: str) -> Counter[int]:
        """Numbers of the tags of a dictionary, and how often each is there."""
        grey = cv2.cvtColor(self.picture, cv2.COLOR_RGB2GRAY)
        _, seen, _ = cv2.aruco.ArucoDetector(dictionary(name)).detectMarkers(grey)
        ids: Any = seen  # None without a tag, whatever the stubs say
        return Counter() if ids is None else Counter(int(i) for i in ids.ravel())


def _by_tags(board: Board, some: Sequence[_Seen]) -> str:
    own = [s.tags(board.dictionary) for s in some]
    twice = [tags for tags in own if sum(n > 1 for n in tags.values()) >= _LEAST_TAGS]
    if 2 * len(twice) >= len(own) and twice:
        return (
            f"tags are twice in {len(twice)} of {len(own)} pictures: two boards of one print are in"
            " view; take one away"
        )
    if max((len(tags) for tags in own), default=0) >= _LEAST_TAGS:
        return "tags of its dictionary are: squares, or the order of the tags, are another print's"
    for name in DICTIONARIES:
        if name != board.dictionary and any(len(s.tags(name)) >= _LEAST_TAGS for s in some):
            return f"tags of the dictionary {name} are: it is no {board.dictionary}"
    return ""
