"""Clones behaviour by average velocities over whole chunks: one call from noise to a chunk."""

from __future__ import annotations

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import Transition, mlp
from policies.nets.average_velocity import mean_flow_target
from policies.nets.shapes import ChunkFeatures, Context, Rows, Scalar


class AverageFlow(nn.Module):
    """Average velocity ``u(s, x, t, r)`` of flat chunks ``[b, g]``; times are two more numbers.

    Time goes from 0, noise, to 1, data.
    """

    def __init__(self, context: int, chunk: int, width: int, depth: int) -> None:
        super().__init__()
        self.net = mlp(context + chunk + 2, chunk, width, depth)

    def average(self, x: ChunkFeatures, t: Rows, r: Rows, context: Context) -> ChunkFeatures:
        """From ``t [b]`` to ``r [b]``."""
        return self.net(torch.cat([context, x, t[:, None], (r - t)[:, None]], dim=-1))

    def loss(
        self,
        batch: Transition,
        rng: torch.Generator,
        context: Context,
        still: float,
        times: tuple[float, float],
    ) -> Scalar:
        """``|u(s, x_t, t, r) - sg[ v + (r - t) du/dt ]|^2`` over the actions that were done.

        ``still``: share of rows with r = t, which learn the velocity itself; ``times``: mean and
        deviation of the normal whose sigmoid gives both.
        """
        noise = randn(batch.chunk, rng)
        drawn = torch.sigmoid(times[0] + times[1] * torch.randn(2, len(noise), generator=rng))
        drawn = drawn.to(noise.device)
        same = (torch.rand(len(noise), generator=rng) < still).to(noise.device)
        t = torch.where(same, drawn[0], drawn.amin(dim=0))
        r = torch.where(same, drawn[0], drawn.amax(dim=0))
        x = (1 - t)[:, None] * noise + t[:, None] * batch.chunk
        seen = context.detach()
        target = mean_flow_target(
            lambda at, start: self.average(at, start, r, seen), x, batch.chunk - noise, t, r
        )
        return batch.mean((self.average(x, t, r, context) - target) ** 2)

    def sample(self, noise: ChunkFeatures, context: Context) -> ChunkFeatures:
        """All of the way from ``noise [b, g]`` at once."""
        start = torch.zeros_like(noise[:, 0])
        return noise + self.average(noise, start, start + 1, context)
