"""A person at a device who presses what the screen calls for."""

from __future__ import annotations

from collections import deque
from typing import Any

from hardware.teleop.device import Key, View


class Answering:
    """Of every phase the next of its ``answers`` at every look; "": nothing is pressed."""

    lease_s = 5.0

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {phase: deque(keys) for phase, keys in answers.items()}
        self.views: list[View] = []
        self.due: tuple[Any, ...] = ()
        self.closed = False

    def pressed(self) -> tuple[Key, ...]:
        due, self.due = self.due, ()
        return due

    def show(self, view: View) -> None:
        self.views.append(view)
        waiting = self.answers.get(view.phase)
        if waiting:
            self.do(waiting.popleft())

    def do(self, key: str) -> None:
        """Press it."""
        self.due = (key,) if key else ()

    def close(self) -> None:
        self.closed = True
