"""Layer norms that a condition scales and shifts, and gates (adaLN-Zero, Peebles and Xie 2023)."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Modulation(nn.Linear):
    """Condition ``[*b, c]`` to the shifts, scales and gates of all layers ``[*b, rows * width]``:
    one product for the whole network.

    Rows are shift, scale, gate for each of ``gated`` layers, then shift and scale of a last norm.
    The product starts at zero, so that norms start plain and gates closed.
    """

    def __init__(self, condition: int, width: int, gated: int) -> None:
        rows = 3 * gated + 2
        super().__init__(condition, rows * width)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
        # What is learned is how far a scale is from 1: added here once, instead of at every norm.
        unit = torch.zeros(rows, width)
        unit[1::3] = 1.0
        self.register_buffer("unit", unit.flatten(), persistent=False)
        self.unit: Tensor

    def forward(self, input: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:  # noqa: A002
        """See the class."""
        return functional.linear(functional.silu(input), self.weight, self.bias + self.unit)


def modulated(x: Tensor, shift: Tensor, scale: Tensor, width: int) -> Tensor:
    """``norm(x) * scale + shift`` over the last dimension, of ``width`` numbers (told, because a
    graph needs it as a constant).
    """
    return torch.addcmul(shift, functional.layer_norm(x, (width,)), scale)
