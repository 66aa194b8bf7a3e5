"""Stacks residual layers whose norms are conditioned (adaLN-Zero, Peebles and Xie 2023)."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.modulation import Modulation, modulated


class ResidualMLP(nn.Module):
    """``x [b, inputs]`` and condition ``c [b, condition]`` to ``[b, outputs]``.

    Each block: x + gate(c) * W2 silu(W1 (norm(x) * scale(c) + shift(c))). Gates and the
    output layer start at zero, so that the network starts as the zero function.
    """

    def __init__(
        self,
        inputs: int,
        condition: int,
        outputs: int,
        width: int,
        blocks: int,
        expansion: float,
        rank: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.blocks = width, blocks
        hidden = round(width * expansion)
        self.inner = nn.Linear(inputs, width)
        self.modulate = Modulation(condition, width, blocks, rank)
        self.up = nn.ModuleList(nn.Linear(width, hidden) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(blocks))
        self.outer = nn.Linear(width, outputs)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, x: Float[Tensor, "b i"], c: Float[Tensor, "b c"]) -> Float[Tensor, "b o"]:
        """See the class."""
        return self.layers(x, self.modulation(c))

    def modulation(self, c: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:
        """Shifts, scales and gates of all layers; half of the weights, and independent of ``x``."""
        return self.modulate(c)

    def layers(
        self, x: Float[Tensor, "b i"], modulation: Float[Tensor, "b m"]
    ) -> Float[Tensor, "b o"]:
        """The rest of the network."""
        parts = modulation.split(self.width, dim=-1)
        x = self.inner(x)
        for i, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            shift, scale, gate = parts[3 * i : 3 * i + 3]
            h = functional.silu(up(modulated(x, shift, scale, self.width)))
            x = torch.addcmul(x, gate, down(h))
        return self.outer(modulated(x, parts[-2], parts[-1], self.width))


class ChunkMLP(ResidualMLP):
    """A residual MLP over flattened chunks, beside everything that is observed."""

    def trunk(
        self,
        x: Float[Tensor, "b h i"],
        flat: Float[Tensor, "b f"],
        modulation: Float[Tensor, "b m"],
    ) -> Float[Tensor, "b h a"]:
        """Chunks ``x`` and observations ``flat``."""
        # Whole numbers, which a graph does not work out at every call.
        horizon = int(x.shape[1])
        out = self.layers(torch.cat([x.flatten(1), flat], dim=-1), modulation)
        return out.view(-1, horizon, self.outer.out_features // horizon)


def time_features(
    t: Float[Tensor, " b"], size: int, fastest: float = 200.0
) -> Float[Tensor, "b s"]:
    """Sinusoidal features of times in [0, 1], periods from 4 down to ``4 / fastest``."""
    rates = torch.exp(torch.linspace(0.0, math.log(fastest), size // 2)) * (math.pi / 2)
    angles = t[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)
