"""Finds the pieces of a long recording: at markers, after the gripper let go, or between pauses.

ticks      |----~~~~-------|--------~~~~~~-----------|----|      ~ nothing moves, | marker
markers    [----~~~~-------)[-------~~~~~~-----------)[---)
idle       [---]    [---------------]     [---------------]      pauses are left out
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from robolearn.data.episode import Episode, EpisodeKind
from robolearn.data.markers import marked_s
from robolearn.data.standing import standing, stretches
from robolearn.data.store.annotations import Annotated
from robolearn.errors import ConfigError, DataError
from robolearn.shapes import Floats, Index

Stretch = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CutConfig:
    """Where recordings are cut, and which pieces are kept."""

    # At markers; after the gripper has let go; or at pauses, which are left out.
    by: Literal["markers", "gripper", "idle"] = "markers"
    # Kind of the pieces; left out: that of the recording. Imitation takes demonstrations.
    kind: EpisodeKind | None = None
    # A pause is at least so long [s].
    pause_s: float = 1.0
    # So much of a pause stays at either end of a piece [s], also where pieces begin or end by
    # standing still.
    margin_s: float = 0.2
    # A commanded number that changes at most so fast stands, in its own unit per second.
    idle_speed: float = 0.005
    # Action of the gripper, first number; left out: the one that is called after a gripper.
    gripper: str = ""
    # The cut comes so long after the gripper began to let go [s].
    after_s: float = 0.5
    # Shorter pieces are left out [s].
    least_s: float = 1.0

    def __post_init__(self) -> None:
        for name in ("pause_s", "margin_s", "idle_speed", "after_s", "least_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"cut: {name} must be at least 0, got {value}")
        if self.pause_s < 2 * self.margin_s:
            raise ConfigError(
                f"cut: a pause must be longer than its two margins, got pause_s {self.pause_s} and"
                f" margin_s {self.margin_s}"
            )


@dataclass(frozen=True, slots=True)
class Piece:
    """Ticks ``[begin, end)`` of a recording; ``last``: it ends as the recording did."""

    begin: int
    end: int
    last: bool

    @property
    def steps(self) -> int:
        """Number of ticks."""
        return self.end - self.begin


def find_pieces(episode: Episode, annotated: Annotated, config: CutConfig) -> list[Piece]:
    """Every piece, however short, in order. DataError where nothing says where to cut."""
    pauses = _pauses(episode, config)
    if config.by == "idle":
        found = _between(pauses, episode.steps)
        return [Piece(begin, end, last=k == len(found) - 1) for k, (begin, end) in enumerate(found)]
    if config.by == "markers":
        at = _ticks(episode, marked_s(episode, annotated))
        if not len(at):
            raise DataError(
                f"{episode.id} has no markers: say them (robolearn data note STORE {episode.id}"
                " --marker 12.5 31), or cut by gripper or idle"
            )
    else:
        at = _ticks(episode, _released_s(episode, config) + config.after_s)
    edges = [0, *(int(k) for k in np.unique(at) if 0 < k < episode.steps), episode.steps]
    trimmed = [_trim(part, pauses) for part in itertools.pairwise(edges)]
    # A piece in which nothing moves at all is a pause.
    return [
        Piece(begin, end, last=k == len(trimmed) - 1)
        for k, (begin, end) in enumerate(trimmed)
        if end > begin
    ]


def _ticks(episode: Episode, times_s: Floats) -> Index:
    """The tick at which each time [s since the first tick] is reached."""
    since = (episode.tick_t_ns - episode.tick_t_ns[0]) * 1e-9
    # A marker on a tick's own time must not fall behind it by rounding.
    return np.searchsorted(since, times_s - 1e-6).astype(np.int64)


def _pauses(episode: Episode, config: CutConfig) -> list[Stretch]:
    """Ticks of every pause, without its margins."""
    rate_hz, steps = episode.meta.embodiment.rate_hz, episode.steps
    stands = standing(episode, config.idle_speed)
    # The first command follows nothing: it stands if the next one does.
    stands[:1] = stands[1:2]
    margin = round(config.margin_s * rate_hz)
    found: list[Stretch] = []
    for begin, end in stretches(stands, max(1, round(config.pause_s * rate_hz))):
        # At the ends of a recording there is nothing beyond the pause that a margin belongs to.
        first = begin if begin == 0 else begin + margin
        last = end if end == steps else end - margin
        if last > first:
            found.append((first, last))
    return found


def _between(pauses: Sequence[Stretch], steps: int) -> list[Stretch]:
    edges = [0, *(edge for pause in pauses for edge in pause), steps]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return [(begin, end) for begin, end in pairs if end > begin]


def _trim(piece: Stretch, pauses: Sequence[Stretch]) -> Stretch:
    """Without the pauses that it begins and ends with."""
    begin, end = piece
    for first, last in pauses:
        if first <= begin < last:
            begin = min(last, end)
        if first < end <= last:
            end = max(first, begin)
    return begin, end


def _released_s(episode: Episode, config: CutConfig) -> Floats:
    """When the gripper was told to open after it had been told to close [s]."""
    names = [a.name for a in episode.meta.embodiment.actions]
    name = config.gripper or next((n for n in names if "gripper" in n), "")
    if name not in names:
        raise DataError(
            f"{episode.id} has no action '{name or 'of a gripper'}' (it has {names}): name it"
            " (gripper), or cut by markers or idle"
        )
    width = episode.action[name].reshape(episode.steps, -1)[:, 0]
    low, high = float(width.min()), float(width.max())
    if high <= low:
        raise DataError(f"{episode.id}: '{name}' never changes; cut by markers or idle")
    # Between both it keeps what it was: a width that wavers in the middle is no release.
    share = (width - low) / (high - low)
    opened, found = True, list[int]()
    for k, value in enumerate(share.tolist()):
        if value < 0.4:
            opened = False
        elif value > 0.6 and not opened:
            opened = True
            found.append(k)
    return (episode.tick_t_ns[found] - episode.tick_t_ns[0]) * 1e-9
