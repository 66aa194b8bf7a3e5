"""Says what a session needs of whoever records its episodes, and of who looks at them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from robolearn.contracts import Subscriber


@runtime_checkable
class Recorder(Subscriber, Protocol):
    """A recorder that asks before it saves."""

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
