"""Mixes the actions of a chunk by MLPs (Tolstikhin et al. 2021), conditioned by adaLN-Zero.

The network of the real-time-chunking experiments (Black, Galliker, Levine 2025) has this form.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.modulation import Modulation, modulated


class ChunkMixer(nn.Module):
    """Chunks ``[b, h, i]`` to ``[b, h, a]``; blocks mix along time, then along channels.

    Gates and the output start at zero, so that the network starts as the zero function.
    """

    def __init__(
        self,
        horizon: int,
        inputs: int,
        actions: int,
        condition: int,
        width: int,
        blocks: int,
        expansion: float,
    ) -> None:
        super().__init__()
        self.width = width
        hidden, along = round(width * expansion), round(horizon * expansion)
        self.inner = nn.Linear(inputs, width)
        self.modulate = Modulation(condition, width, gated=2 * blocks)
        self.time_up = nn.ModuleList(nn.Linear(horizon, along) for _ in range(blocks))
        self.time_down = nn.ModuleList(nn.Linear(along, horizon) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, hidden) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(blocks))
        self.outer = nn.Linear(width, actions)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def modulation(self, c: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:
        """Shifts, scales and gates of all layers; independent of the chunk."""
        return self.modulate(c)

    def trunk(
        self,
        x: Float[Tensor, "b h i"],
        flat: Float[Tensor, "b f"],
        modulation: Float[Tensor, "b m"],
    ) -> Float[Tensor, "b h a"]:
        """The rest of the network; ``flat`` is seen through the modulation alone."""
        del flat
        parts = modulation[:, None].split(self.width, dim=-1)
        y = self.inner(x)
        for i in range(len(self.up)):
            shift, scale, gate, shift2, scale2, gate2 = parts[6 * i : 6 * i + 6]
            h = functional.gelu(
                self.time_up[i](modulated(y, shift, scale, self.width).transpose(1, 2))
            )
            y = torch.addcmul(y, gate, self.time_down[i](h).transpose(1, 2))
            h = functional.gelu(self.up[i](modulated(y, shift2, scale2, self.width)))
            y = torch.addcmul(y, gate2, self.down[i](h))
        return self.outer(modulated(y, parts[-2], parts[-1], self.width))
