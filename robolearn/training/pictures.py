"""Varies pictures in training: moved by a few pixels, brighter or darker, paler or stronger."""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from robolearn.data.reading.pictures import PictureConfig
from robolearn.learning import Batch
from robolearn.seeding import child_seed
from robolearn.training.batch_loader import Batches


class Augmented:
    """Batches with varied pictures; what batch ``k`` gets depends on seed and ``k`` alone."""

    def __init__(self, batches: Batches, config: PictureConfig, seed: int) -> None:
        self._batches, self._config, self._seed = batches, config, seed

    def batch(self, step: int) -> Batch:
        """One batch."""
        batch = self._batches.batch(step)
        rng = torch.Generator().manual_seed(child_seed(self._seed, "pictures", step))
        follow, goals, way = batch.next_observations, batch.actor_goals, batch.waypoints
        return dataclasses.replace(
            batch,
            observations=self._varied(batch.observations, rng),
            next_observations=None if follow is None else self._varied(follow, rng),
            actor_goals=None if goals is None else self._varied_alone(goals, rng),
            waypoints=None if way is None else self._varied(way, rng),
        )

    def _varied(self, signals: Mapping[str, Tensor], rng: torch.Generator) -> dict[str, Tensor]:
        return {
            name: vary(value, self._config, rng) if value.dtype == torch.uint8 else value
            for name, value in signals.items()
        }

    def _varied_alone(
        self, signals: Mapping[str, Tensor], rng: torch.Generator
    ) -> dict[str, Tensor]:
        """Of one time each."""
        windows = self._varied({name: value[:, None] for name, value in signals.items()}, rng)
        return {name: value[:, 0] for name, value in windows.items()}


def vary(
    pictures: UInt8[Tensor, "b n h w 3"], config: PictureConfig, rng: torch.Generator
) -> UInt8[Tensor, "b n h w 3"]:
    """``pictures`` varied within the limits, alike for the ``n`` of a window."""
    if config.plain:
        return pictures
    x = pictures.permute(0, 1, 4, 2, 3).float()
    if config.shift_px:
        x = _shifted(x, config.shift_px, rng)
    x = x * _factors(len(x), config.brightness, rng)
    mean = x.mean(dim=(1, 2, 3, 4), keepdim=True)
    x = mean + (x - mean) * _factors(len(x), config.contrast, rng)
    grey = x.mean(dim=2, keepdim=True)
    x = grey + (x - grey) * _factors(len(x), config.saturation, rng)
    return x.round().clamp(0, 255).to(torch.uint8).permute(0, 1, 3, 4, 2).contiguous()


def _factors(count: int, limit: float, rng: torch.Generator) -> Tensor:
    return 1 + limit * (2 * torch.rand(count, 1, 1, 1, 1, generator=rng) - 1)


def _shifted(
    x: Float[Tensor, "b n 3 h w"], limit: int, rng: torch.Generator
) -> Float[Tensor, "b n 3 h w"]:
    b, n, _, height, width = x.shape
    padded = functional.pad(x.flatten(0, 1), (limit,) * 4, mode="replicate").unflatten(0, (b, n))
    down, right = torch.randint(0, 2 * limit + 1, (2, b), generator=rng).tolist()
    rows = [
        padded[i, :, :, down[i] : down[i] + height, right[i] : right[i] + width] for i in range(b)
    ]
    return torch.stack(rows)
