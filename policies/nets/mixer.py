"""MLP-mixer over the actions of a chunk (Tolstikhin et al. 2021), conditioned by adaLN-Zero.

The network of the real-time-chunking experiments (Black, Galliker, Levine 2025) has this form.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


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
        # One product for the shifts, scales and gates of all blocks and of the last norm.
        self.modulate = nn.Linear(condition, width * (6 * blocks + 2))
        self.time_up = nn.ModuleList(nn.Linear(horizon, along) for _ in range(blocks))
        self.time_down = nn.ModuleList(nn.Linear(along, horizon) for _ in range(blocks))
        self.up = nn.ModuleList(nn.Linear(width, hidden) for _ in range(blocks))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(blocks))
        self.outer = nn.Linear(width, actions)
        for layer in (self.modulate, self.outer):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def modulation(self, c: Float[Tensor, "*b c"]) -> Float[Tensor, "*b m"]:
        """Shifts, scales and gates of all layers; independent of the chunk."""
        return self.modulate(functional.silu(c))

    def trunk(
        self, x: Float[Tensor, "b h i"], flat: Tensor, modulation: Float[Tensor, "b m"]
    ) -> Float[Tensor, "b h a"]:
        """The rest of the network; ``flat`` is seen through the modulation alone."""
        del flat
        parts = modulation[:, None].split(self.width, dim=-1)
        y = self.inner(x)
        for i in range(len(self.up)):
            shift, scale, gate, shift2, scale2, gate2 = parts[6 * i : 6 * i + 6]
            h = (self._norm(y) * (1 + scale) + shift).transpose(1, 2)
            h = self.time_down[i](functional.gelu(self.time_up[i](h))).transpose(1, 2)
            y = y + gate * h
            h = self._norm(y) * (1 + scale2) + shift2
            y = y + gate2 * self.down[i](functional.gelu(self.up[i](h)))
        shift, scale = parts[-2:]
        return self.outer(self._norm(y) * (1 + scale) + shift)

    def _norm(self, y: Tensor) -> Tensor:
        return functional.layer_norm(y, (self.width,))
