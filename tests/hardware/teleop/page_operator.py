"""A scripted person in front of the page: sees what it shows, presses what it asks for, drives.

Everything goes through the page's own socket, so it may sit in another process, or room.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from hardware.teleop.operator import Habits, Operator
from hardware.teleop.shapes import Deflection
from robolearn.arms.tool_commands import TOOL_COMMANDS, values_from_pose
from robolearn.contracts import Agent
from robolearn.geometry import pose, rot_z
from robolearn.types import Observation, Sample
from tests.hardware.teleop.pages import OpenPage, open_page

# What the person presses when the page asks.
_ANSWERS = {"ready": "start", "placing": "start", "stopped": "start"}
# A person who was kept from looking does not make up for more ticks than these.
_MOST_TICKS = 3


class PageOperator:
    """``expert`` makes what knows the task for one episode, from the number of the attempt."""

    def __init__(
        self, expert: Callable[[int], Agent], rate_hz: float, habits: Habits | None = None
    ) -> None:
        self._expert, self._rate_hz, self._habits = expert, rate_hz, habits or Habits()
        self._page: OpenPage | None = None
        self._operator: Operator | None = None
        self._phase, self._step, self._attempts, self._answered = "", 0, 0, False
        # When each phase was first seen, and when something was pressed [s].
        self.phases: list[tuple[float, str]] = []
        self.pressed: list[tuple[float, str]] = []
        # When each episode that was kept was on the disk, by whoever can tell [s].
        self.saved: list[float] = []
        self.last: dict[str, Any] = {}
        self.views = 0
        self.done = threading.Event()

    @contextlib.contextmanager
    def at(self, url: str, **options: Any) -> Generator[OpenPage]:
        """Sit down in front of the page."""
        with open_page(url, self.look, **options) as self._page:
            yield self._page

    def deflect(self, twist: Deflection) -> None:
        """Hold the pads so."""
        if self._page is not None:
            self._page.deflect(twist)

    def grip(self, closed: bool) -> None:
        """Press the gripper's button."""
        if self._page is not None:
            self._page.say("gripper", opening=float(not closed))

    def look(self, view: dict[str, Any]) -> None:
        """What the page shows now."""
        self.last, phase = view, view["phase"]
        self.views += 1
        if phase != self._phase:
            self._enter(phase)
        if phase == "running":
            self._drive(view)
        elif phase == "done":
            self.done.set()
        else:
            self._answer(view)

    def _enter(self, phase: str) -> None:
        self._phase, self._answered = phase, False
        self.phases.append((time.monotonic(), phase))
        if phase != "running":
            self.deflect(np.zeros(6))
            return
        self._attempts += 1
        expert = self._expert(self._attempts)
        rng = np.random.default_rng(self._attempts)
        self._operator = Operator(expert, self, self._rate_hz, rng, self._habits)
        self._step = 0

    def _drive(self, view: dict[str, Any]) -> None:
        if "let go" in view["note"]:
            # A machine that was too busy took the page for lost.
            self.deflect(np.zeros(6))
            return
        seen = observation_of(view, self._rate_hz)
        for _ in range(min(_MOST_TICKS, view["step"] - self._step)):
            assert self._operator is not None
            self._operator.look(seen)
        self._step = view["step"]

    def _answer(self, view: dict[str, Any]) -> None:
        # Whatever failed is not kept, as a person would not.
        solved = "keep" if view["best"] >= 1.0 else "discard"
        key = _ANSWERS.get(view["phase"], solved if view["phase"] == "review" else "")
        if key in view["keys"] and not self._answered and self._page is not None:
            self._answered = True
            self.pressed.append((time.monotonic(), key))
            self._page.say("key", key=key)


def observation_of(view: dict[str, Any], rate_hz: float) -> Observation:
    """What a person knows who sees this view: of things how they stand upright, of the tool how it
    points down.
    """
    t_ns = round(1e9 * view["step"] / rate_hz)
    tool = view["tool"]
    down = TOOL_COMMANDS["xyz_yaw"].target(np.array([*tool["at"], tool["yaw"]]), np.eye(4))
    values = {"tool/pose": values_from_pose(down)}
    for thing in view["things"]:
        at = np.array(thing["at"], dtype=np.float64)
        values[f"{thing['name']}/pose"] = values_from_pose(pose(rot_z(thing["yaw"]), at))
    if view["fingers_m"] is not None:
        values["gripper/width"] = np.array([view["fingers_m"]])
    return Observation(t_ns, {name: Sample(t_ns, value) for name, value in values.items()})
