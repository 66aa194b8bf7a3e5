"""Transforms the actions of a chunk by attention, conditioned by adaLN-Zero (Peebles and Xie 2023).

Attention is written as plain products, because forward-mode derivatives (mean-flow) do not pass
through the fused kernels.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from policies.nets.modulation import Modulation, modulated
from robolearn.errors import ConfigError


class ChunkTransformer(nn.Module):
    """Chunks ``[b, h, i]`` to ``[b, h, a]``; one token per action, full attention.

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
        heads: int,
        expansion: float,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ConfigError(f"dit: width={width} must be a multiple of heads={heads}")
        self.width, self.heads = width, heads
        hidden = round(width * expansion)
        self.inner = nn.Linear(inputs, width)
        self.place = nn.Parameter(0.02 * torch.randn(horizon, width))
        self.modulate = Modulation(condition, width, gated=2 * blocks)
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(blocks))
        self.mix = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
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
        y = self.inner(x) + self.place
        for i in range(len(self.qkv)):
            shift, scale, gate, shift2, scale2, gate2 = parts[6 * i : 6 * i + 6]
            y = torch.addcmul(y, gate, self._attend(i, modulated(y, shift, scale, self.width)))
            h = functional.gelu(self.up[i](modulated(y, shift2, scale2, self.width)))
            y = torch.addcmul(y, gate2, self.down[i](h))
        return self.outer(modulated(y, parts[-2], parts[-1], self.width))

    def _attend(self, i: int, y: Tensor) -> Tensor:
        q, k, v = self.qkv[i](y).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weight = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(dim=-1)
        return self.mix[i]((weight @ v).transpose(1, 2).flatten(2))
