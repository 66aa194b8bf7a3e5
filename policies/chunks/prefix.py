"""Trains a network to continue clean first actions: training-time real-time chunking
(arXiv 2512.05964).

    training: the first k actions are clean and marked, k drawn anew; the loss is that of the rest
    sampling: actions that will be executed whatever the answer is are held and marked

It takes no backward pass, and holds them exactly.
"""

from __future__ import annotations

import functools
from abc import abstractmethod

import torch

from policies.chunks.base import FieldModel
from policies.chunks.guidance import GuidanceConfig, Prefix
from policies.nets.shapes import ChunkMask, Chunks, Context, MarkedChunks, Noise
from robolearn.errors import ConfigError


def check_max_prefix(max_prefix: int, horizon: int) -> None:
    """:class:`ConfigError` unless something is left to be learned."""
    if not 0 <= max_prefix < horizon:
        raise ConfigError(f"max_prefix must be in 0..horizon-1={horizon - 1}, got {max_prefix}")


def draw_prefix(actions: Chunks, max_prefix: int, rng: torch.Generator) -> ChunkMask:
    """Which of ``actions [b, h, a]`` are given in training ``[b, h, 1]`` (bool): in a little more
    than half of the chunks none (those of a plain request, and of every start), else the first 1
    to ``max_prefix``.
    """
    count = torch.randint(-max_prefix, max_prefix + 1, (len(actions), 1, 1), generator=rng)
    return (torch.arange(actions.shape[1])[None, :, None] < count).to(actions.device)


def marked(x: Chunks, mask: ChunkMask | None) -> MarkedChunks:
    """``x [b, h, i]`` with one more number that says are given (None: none of them)."""
    mark = torch.zeros_like(x[..., :1]) if mask is None else mask.to(x.dtype)
    return torch.cat([x, mark], dim=-1)


class PrefixModel(FieldModel):
    """A field that may have been given up to ``max_prefix`` first actions in training."""

    def continued(
        self, noise: Noise, context: Context, prefix: Prefix, guidance: GuidanceConfig
    ) -> Chunks:
        """Chunks that continue a prefix: guided, or, if trained so, with the actions of weight 1
        held at the prefix; rows in which more of them are than training has shown are guided.
        """
        otherwise = functools.partial(super().continued, noise, context, prefix, guidance)
        if not (self.max_prefix and guidance.trained):
            return otherwise()
        fixed = prefix.weight >= 1.0
        beyond = fixed.sum(dim=1, keepdim=True) > self.max_prefix
        if bool(beyond.all()):
            return otherwise()
        answer = self.inpaint(noise, context, fixed, prefix.actions)
        return torch.where(beyond, otherwise(), answer) if bool(beyond.any()) else answer

    @abstractmethod
    def inpaint(self, noise: Noise, context: Context, mask: ChunkMask, prefix: Chunks) -> Chunks:
        """As :meth:`generate`, but actions marked in ``mask [b, h, 1]`` stay as in ``prefix``
        ``[b, h, a]``.
        """
