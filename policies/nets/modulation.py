"""Scales, shifts and gates layer norms by a condition (adaLN-Zero, Peebles and Xie 2023)."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.shapes import LayerInput


class Modulation(nn.Linear):
    """Condition ``[*b, c]`` to the shifts, scales and gates of all layers ``[*b, rows * width]``:
    one product for the whole network.

    Rows are shift, scale, gate for each of ``gated`` layers, then shift and scale of a last norm.
    The product starts at zero, so that norms start plain and gates closed. With a ``rank``, the
    condition passes through so few numbers, and the product needs as many columns only.
    """

    def __init__(self, condition: int, width: int, gated: int, rank: int = 0) -> None:
        rows = 3 * gated + 2
        super().__init__(rank or condition, rows * width)
        self.narrow = nn.Linear(condition, rank, bias=False) if rank else None
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        # What is learned is how far a scale is from 1: added here once, instead of at every norm.
        unit = torch.zeros(rows, width)
        unit[1::3] = 1.0
        self.register_buffer("unit", unit.flatten(), persistent=False)
        self.unit: Tensor

    def forward(self, input: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:  # noqa: A002
        """See the class."""
        condition = functional.silu(input)
        if self.narrow is not None:
            condition = self.narrow(condition)
        return functional.linear(condition, self.weight, self.bias + self.unit)

    @torch.no_grad()
    def start_from(self, other: Modulation) -> None:
        """As close to ``other``, which has no rank, as the own rank allows."""
        self.bias.copy_(other.bias)
        if self.narrow is None:
            self.weight.copy_(other.weight)
            return
        u, s, v = torch.linalg.svd(other.weight, full_matrices=False)
        rank = self.in_features
        self.weight.copy_(u[:, :rank] * s[:rank].sqrt())
        self.narrow.weight.copy_(s[:rank, None].sqrt() * v[:rank])


def modulated(x: LayerInput, shift: LayerInput, scale: LayerInput, width: int) -> LayerInput:
    """``norm(x) * scale + shift`` over the last dimension, of ``width`` numbers (told, because a
    graph needs it as a constant).
    """
    return torch.addcmul(shift, functional.layer_norm(x, (width,)), scale)
