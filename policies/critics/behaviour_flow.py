"""Clones behaviour by a flow over whole chunks, small enough to be sampled in every update."""

from __future__ import annotations

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import Transition, mlp
from policies.nets.shapes import ChunkFeatures, Context, RowsOne, Scalar


class BehaviourFlow(nn.Module):
    """Velocity ``v(s, x, t)`` of flat chunks ``[b, g]``; time is one more number (Park, Li, Levine
    2025: no embedding of it is needed).
    """

    def __init__(self, context: int, chunk: int, width: int, depth: int) -> None:
        super().__init__()
        self.net = mlp(context + chunk + 1, chunk, width, depth)

    def velocity(self, x: ChunkFeatures, time: RowsOne, context: Context) -> ChunkFeatures:
        """At ``x [b, g]``, ``time [b, 1]`` in [0, 1]."""
        return self.net(torch.cat([context, x, time], dim=-1))

    def loss(self, t: Transition, rng: torch.Generator, context: Context) -> Scalar:
        """``|v(s, (1 - t) x0 + t A, t) - (A - x0)|^2`` over the actions that were done."""
        noise = randn(t.chunk, rng)
        time = torch.rand(len(noise), 1, generator=rng).to(noise.device)
        x = (1 - time) * noise + time * t.chunk
        return t.mean((self.velocity(x, time, context) - (t.chunk - noise)) ** 2)

    def sample(self, noise: ChunkFeatures, context: Context, steps: int) -> ChunkFeatures:
        """Euler's method from ``noise [b, g]``."""
        x = noise
        for k in range(steps):
            time = torch.full_like(x[:, :1], k / steps)
            x = x + self.velocity(x, time, context) / steps
        return x
