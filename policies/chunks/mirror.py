"""Augments by a symmetry of the task; applied to raw SI batches in training only."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Shaped
from torch import Tensor

from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.instructions import TEXT
from robolearn.learning import Batch
from robolearn.planar import PlanarMove
from robolearn.spec import TaskSpace


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """Reflection of a planar task at a line, where task, workspace and objects are symmetric.

    A task whose goal, walls and object shapes map onto themselves under the reflection gives twice
    the data for free (Push-T: the goal's own axis of symmetry).
    """

    # A point of the mirror line [m], in the frame of the signals; "goal": the goal of the
    # recordings, put in by training.
    point: tuple[float, float] | Literal["goal"]
    # Direction of the mirror line [deg], counter-clockwise from x; "goal": of the object's own axis
    # at the goal.
    axis_deg: float | Literal["goal"]
    # Direction of the objects' own axis of symmetry in their body frame [deg].
    body_axis_deg: float
    # Signals that are planar positions (x, y) [m]; observations and actions.
    positions: tuple[str, ...]
    # Signals that are planar poses (x, y, yaw).
    poses: tuple[str, ...] = ()
    # Pictures of the plane from straight above, x to the right and y up, square, with ``point`` in
    # the middle; only for lines that map pixels to pixels (axis_deg a multiple of 45).
    pictures: tuple[str, ...] = ()
    # Share of the rows that are mirrored.
    probability: float = 0.5


class Mirror:
    """Reflects rows of a batch; reflecting twice is the identity."""

    def __init__(self, config: MirrorConfig, space: TaskSpace) -> None:
        if config.point == "goal" or config.axis_deg == "goal":
            raise ConfigError(
                "mirror: 'goal' stands for the goal of the recordings, which training puts in;"
                " outside of it give numbers"
            )
        self._axis_deg = config.axis_deg
        shapes: dict[str, tuple[int, ...]] = {s.name: s.shape for s in space.observations}
        shapes |= {a.name: a.shape for a in space.actions}
        known = {*config.positions, *config.poses, *config.pictures}
        for name, shape in shapes.items():
            want = (2,) if name in config.positions else (3,)
            if name in config.pictures:
                want = (shape[0], shape[0], 3)
            if name not in known or shape != want:
                raise SpecMismatchError(
                    f"mirror: '{name}' {shape} must be named as a position (x, y), a pose"
                    " (x, y, yaw) or a square picture: every signal has to be reflected, or none"
                )
        if config.pictures and self._axis_deg % 45:
            raise ConfigError(
                f"mirror: pictures need axis_deg to be a multiple of 45, got {self._axis_deg:g}"
            )
        self.config, self.space = config, space
        move = PlanarMove.reflection(config.point, self._axis_deg, config.body_axis_deg)
        self._matrix, self._turn = torch.tensor(move.matrix), move.turn
        self._point = torch.tensor(config.point)

    def __call__(self, batch: Batch, rows: Tensor) -> Batch:
        """The batch with ``rows [b]`` (bool) reflected."""
        follow, then, future = batch.next_observations, batch.next_actions, batch.future
        steps = batch.step_observations
        proposed, proposed_next = batch.candidates, batch.next_candidates
        goals, way = batch.actor_goals, batch.waypoints
        return dataclasses.replace(
            batch,
            observations=self._signals(batch.observations, rows),
            actions=self._actions(batch.actions, rows),
            next_observations=None if follow is None else self._signals(follow, rows),
            step_observations=None if steps is None else self._signals(steps, rows),
            next_actions=None if then is None else self._actions(then, rows),
            candidates=None if proposed is None else self._candidates(proposed, rows),
            next_candidates=(
                None if proposed_next is None else self._candidates(proposed_next, rows)
            ),
            future=None if future is None else self._signals(future, rows),
            actor_goals=None if goals is None else self._signals(goals, rows),
            waypoints=None if way is None else self._signals(way, rows),
        )

    def draw(self, batch: Batch, rng: torch.Generator) -> Batch:
        """Reflect a random share of the rows."""
        rows = torch.rand(len(batch.actions), generator=rng) < self.config.probability
        return self(batch, rows.to(batch.actions.device))

    def _actions(self, actions: Tensor, rows: Tensor) -> Tensor:
        parts = actions.split([a.size for a in self.space.actions], dim=-1)
        named = zip(self.space.actions, parts, strict=True)
        reflected = torch.cat([self.reflect(a.name, part) for a, part in named], dim=-1)
        return torch.where(rows[:, None, None], reflected, actions)

    def _candidates(self, chunks: Tensor, rows: Tensor) -> Tensor:
        count = chunks.shape[1]
        flat = self._actions(chunks.flatten(0, 1), rows.repeat_interleave(count))
        return flat.unflatten(0, (-1, count))

    def _signals(self, signals: Mapping[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
        return {
            # Words stay as they are.
            name: value
            if name == TEXT
            else torch.where(
                rows.view(-1, *(1,) * (value.ndim - 1)), self.reflect(name, value), value
            )
            for name, value in signals.items()
        }

    def reflect(self, name: str, value: Shaped[Tensor, "... n"]) -> Shaped[Tensor, "... n"]:
        """A signal ``[..., 2]``, ``[..., 3]`` or picture ``[..., h, w, 3]``, reflected."""
        if name in self.config.pictures:
            return _reflected(value, round(self._axis_deg / 45) % 4)
        point, matrix = self._point.to(value), self._matrix.to(value)
        xy = (value[..., :2] - point) @ matrix + point
        if name in self.config.positions:
            return xy
        yaw = self._turn - value[..., 2:]
        return torch.cat([xy, torch.remainder(yaw + math.pi, 2 * math.pi) - math.pi], dim=-1)


def _reflected(pictures: Tensor, eighths: int) -> Tensor:
    """Pictures ``[..., h, w, 3]`` reflected at a line through their middle, ``eighths`` of a turn
    counter-clockwise from x; rows count downwards.
    """
    if eighths == 0:
        return pictures.flip(-3)
    if eighths == 2:
        return pictures.flip(-2)
    turned = pictures.transpose(-3, -2)
    return turned if eighths == 3 else turned.flip(-3, -2)
