"""Says what a session is told, and what it needs of whoever records and whoever looks on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from hardware.teleop.axes import Eye
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import View
from hardware.teleop.session.seen import Wanted
from robolearn.agents.take_over import TakeOverConfig
from robolearn.contracts import Agent, Inference, Subscriber
from robolearn.types import Condition


@runtime_checkable
class Recorder(Subscriber, Protocol):
    """A recorder that asks before it saves."""

    def spare(self) -> None:
        """The episode that runs or waits is to be kept: whatever ends the program leaves it."""
        ...

    def keep(self) -> str:
        """Commit the finished episode; its id."""
        ...

    def discard(self) -> None:
        """Forget the finished episode."""
        ...


@runtime_checkable
class Reviewer(Protocol):
    """Looks at the finished episode before it is kept."""

    def judge(self) -> tuple[str, ...]:
        """What is wrong with it, and what to do."""
        ...

    def kept(self, episode: str, solved: bool | None) -> None:
        """It was kept under this id; ``solved``: what the person says of it instead of the task."""
        ...

    @property
    def lost_frames(self) -> int:
        """Pictures that did not reach the disk in this session."""
        ...


def _no_view(view: View) -> None:
    """Where nobody looks."""


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What to record. ``condition`` makes the start of an attempt from its seed; ``max_steps`` 0:
    until a key ends it.
    """

    episodes: int
    max_steps: int
    seed: int
    task: str
    env_name: str
    condition: Callable[[int], Condition]
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    poll_s: float = 0.02
    mapping: MappingConfig = field(default_factory=MappingConfig)
    # What counts as a touch, where a policy is corrected.
    takeover: TakeOverConfig = field(default_factory=TakeOverConfig)
    # Of the camera that the mapping names.
    eye: Eye | None = None
    # Shows where things belong while they are placed.
    wanted: Wanted | None = None
    # Whatever the device shows is told here, too.
    on_view: Callable[[View], None] = _no_view
    # What is left of the disk that is recorded to [bytes].
    disk_free: Callable[[], int] | None = None


@dataclass(frozen=True, slots=True)
class Corrected:
    """A policy that drives until the person touches the device, and what computes it."""

    policy: Agent
    inference: Inference
