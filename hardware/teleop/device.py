"""Defines what a teleoperation device is, and what it shows to the person who holds it.

A device knows no robot: it is polled for a target and for the keys that were pressed, and it is
told what to show. :class:`hardware.teleop.agent.TeleopAgent` makes an agent of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from robolearn.geometry import XY

Key = Literal["start", "keep", "discard", "quit"]
Phase = Literal["ready", "running", "review", "done"]


@dataclass(frozen=True, slots=True)
class Reading:
    """``target [2]`` in the table frame [m], None while nobody holds the device (dead-man);
    ``t_ns`` is the monotonic time of the newest input.
    """

    t_ns: int
    target: XY | None


@dataclass(frozen=True, slots=True)
class View:
    """What the person sees: the workcell from above and how it goes.

    ``tool`` (x, y) and ``block`` (x, y, yaw) in the table frame [m, rad]; ``engaged`` while the
    person has hold of the tool; ``rate_hz`` as measured;
    ``progress`` now and ``best`` so far, in [0, 1].
    """

    phase: Phase
    tool: tuple[float, float]
    block: tuple[float, float, float]
    engaged: bool = False
    progress: float = 0.0
    best: float = 0.0
    step: int = 0
    max_steps: int = 0
    rate_hz: float = 0.0
    saved: int = 0
    wanted: int = 0
    message: str = ""


@runtime_checkable
class TeleopDevice(Protocol):
    """A person's hand: mouse, keys, a leader arm."""

    @property
    def name(self) -> str:
        """``browser``, ``keyboard``, ...: commands carry ``human:<name>``."""
        ...

    def begin(self, tool: XY) -> None:
        """An episode starts with the tool at ``tool`` [2] in the table frame [m]."""
        ...

    def poll(self) -> Reading:
        """The newest target; never blocks."""
        ...

    def pressed(self) -> tuple[Key, ...]:
        """Keys pressed since the last call, oldest first; never blocks."""
        ...

    def show(self, view: View) -> None:
        """Show the workcell; never blocks."""
        ...

    def close(self) -> None:
        """Release the device; safe to call twice."""
        ...
