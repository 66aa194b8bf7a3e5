"""Convolves over the time of a chunk, conditioned by FiLM (Chi et al. 2023, Perez et al. 2018)."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from robolearn.errors import ConfigError


class FilmBlock(nn.Module):
    """Two convolutions with group norm; scale and bias per channel after the first."""

    def __init__(self, inputs: int, outputs: int, kernel: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(groups, outputs)
        self.second = nn.Conv1d(outputs, outputs, kernel, padding=kernel // 2)
        self.after = nn.GroupNorm(groups, outputs)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(
        self, x: Float[Tensor, "b i h"], scale: Float[Tensor, "b o"], bias: Float[Tensor, "b o"]
    ) -> Float[Tensor, "b o h"]:
        """``x [b, c, h]``; ``scale`` and ``bias`` ``[b, outputs]``."""
        y = functional.mish(self.norm(self.first(x)))
        y = y * (1 + scale[..., None]) + bias[..., None]
        return functional.mish(self.after(self.second(y))) + self.skip(x)


class UNet1D(nn.Module):
    """Chunks ``[b, h, i]`` to ``[b, h, a]``; every level halves the length.

    Channels (256, 512, 1024) with kernel 5 and 8 groups are the published low-dimensional network
    of Diffusion Policy.
    """

    def __init__(
        self,
        horizon: int,
        inputs: int,
        actions: int,
        condition: int,
        channels: tuple[int, ...],
        kernel: int = 5,
        groups: int = 8,
    ) -> None:
        super().__init__()
        if not channels or any(c % groups for c in channels) or kernel % 2 == 0:
            raise ConfigError(
                f"unet: channels {channels} must be multiples of groups={groups}, kernel odd"
                f" (got {kernel})"
            )
        factor = 2 ** (len(channels) - 1)
        if horizon % factor:
            raise ConfigError(
                f"unet: {len(channels)} levels need a horizon divisible by {factor}, got {horizon}"
            )
        pairs = list(itertools.pairwise((inputs, *channels)))
        down: list[FilmBlock] = []
        for a, b in pairs:
            down += [FilmBlock(a, b, kernel, groups), FilmBlock(b, b, kernel, groups)]
        middle = [FilmBlock(channels[-1], channels[-1], kernel, groups) for _ in range(2)]
        up: list[FilmBlock] = []
        back = list(reversed(pairs[1:]))
        for a, b in back:
            up += [FilmBlock(2 * b, a, kernel, groups), FilmBlock(a, a, kernel, groups)]
        self.down, self.middle, self.up = (nn.ModuleList(part) for part in (down, middle, up))
        self.shrink = nn.ModuleList(nn.Conv1d(c, c, 3, 2, 1) for c in channels[:-1])
        self.grow = nn.ModuleList(nn.ConvTranspose1d(a, a, 4, 2, 1) for a, _ in back)
        self.last = nn.Conv1d(channels[0], channels[0], kernel, padding=kernel // 2)
        self.norm = nn.GroupNorm(groups, channels[0])
        self.outer = nn.Conv1d(channels[0], actions, 1)
        self.sizes = [block.first.out_channels for block in (*down, *middle, *up)]
        # One product for the scales and biases of all blocks.
        self.modulate = nn.Linear(condition, 2 * sum(self.sizes))

    def modulation(self, c: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:
        """Scales and biases of all blocks; independent of the chunk."""
        return self.modulate(functional.mish(c))

    def trunk(
        self,
        x: Float[Tensor, "b h i"],
        flat: Float[Tensor, "b f"],
        modulation: Float[Tensor, "b m"],
    ) -> Float[Tensor, "b h a"]:
        """The rest of the network; ``flat`` is seen through the modulation alone."""
        del flat
        sizes = [size for size in self.sizes for _ in range(2)]
        films = iter(modulation.split(sizes, dim=-1))
        y = x.transpose(1, 2)
        kept: list[Tensor] = []
        for i, (first, second) in enumerate(_pairs(self.down)):
            y = second(first(y, next(films), next(films)), next(films), next(films))
            kept.append(y)
            if i < len(self.shrink):
                y = self.shrink[i](y)
        for block in self.middle:
            y = block(y, next(films), next(films))
        # As published, what the first level kept is not used.
        for i, (first, second) in enumerate(_pairs(self.up)):
            y = torch.cat([y, kept.pop()], dim=1)
            y = second(first(y, next(films), next(films)), next(films), next(films))
            y = self.grow[i](y)
        y = functional.mish(self.norm(self.last(y)))
        return self.outer(y).transpose(1, 2)


def _pairs(blocks: nn.ModuleList) -> Iterator[tuple[nn.Module, nn.Module]]:
    return zip(blocks[::2], blocks[1::2], strict=True)
