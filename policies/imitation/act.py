"""Learns a conditional variational auto-encoder of chunks by transformers (ACT, Zhao et al. 2023).

    q(z | o, a) = N(m, s),   a_hat = decoder(o, z),   loss = |a_hat - a| + beta KL(q || N(0, 1))

Chunks are decoded from z = 0. As published, one layer of the decoder is all that is used, so it has
one; observations are one token per tick, and pictures are seen as points (spatial softmax).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import (
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    EncodedBatch,
)
from policies.nets.shapes import ChunkMask, Chunks, Context, Latents, Noise, Rows, Tokens
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses


@dataclass(frozen=True, slots=True)
class ActConfig(ChunkConfig):
    """Action chunking; as published: width 512, blocks 4, heads 8, expansion 6.25, horizon 100."""

    # Width of the tokens.
    width: int = 128
    # Layers of both encoders.
    blocks: int = 2
    # Attention heads.
    heads: int = 4
    # Numbers in z.
    latent: int = 32
    # Weight of the divergence from N(0, 1).
    beta: float = 10.0
    # Standard deviation of z when sampling; 0 as published: one chunk per observation.
    spread: float = 0.0

    def __post_init__(self) -> None:
        ChunkConfig.__post_init__(self)
        if min(self.heads, self.latent) < 1 or self.width % self.heads:
            raise ConfigError(f"width={self.width} must be a multiple of heads={self.heads} >= 1")
        if not self.beta >= 0 or not self.spread >= 0:
            raise ConfigError("beta and spread must be at least 0")

    def algorithm(self) -> type[ActAlgorithm]:
        """What trains it."""
        return ActAlgorithm


class ActModel(ChunkModel):
    """Posterior of z, and decoder."""

    def __init__(self, config: ActConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        width, self.latent, self.spread = config.width, config.latent, config.spread
        size = self.horizon * self.action_size
        # z takes its noise from as many arrays as it needs.
        self.draws = -(-self.latent // size)
        token = self.flat_size // spec.n_obs
        self.see, self.do = nn.Linear(token, width), nn.Linear(self.action_size, width)
        self.style, self.unstyle = nn.Linear(width, 2 * self.latent), nn.Linear(self.latent, width)
        self.summary = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.seen_place = nn.Parameter(0.02 * torch.randn(spec.n_obs, width))
        self.done_place = nn.Parameter(0.02 * torch.randn(self.horizon, width))
        self.query = nn.Parameter(0.02 * torch.randn(1, self.horizon, width))
        # No dropout: its draws would not be part of what a resumed run restores.
        layer = {
            "d_model": width,
            "nhead": config.heads,
            "dim_feedforward": round(width * config.expansion),
            "dropout": 0.0,
            "batch_first": True,
            "norm_first": True,
        }
        self.judge = nn.ModuleList(
            nn.TransformerEncoderLayer(**layer) for _ in range(config.blocks)
        )
        self.read = nn.ModuleList(nn.TransformerEncoderLayer(**layer) for _ in range(config.blocks))
        self.write = nn.TransformerDecoderLayer(**layer)
        self.norm = nn.LayerNorm(width)
        self.outer = nn.Linear(width, self.action_size)

    def tokens(self, context: Context) -> Tokens:
        """One token per observation, and one for all of them ``[b, n_obs + 1, width]``."""
        flat, hidden = self.split_context(context)
        return torch.cat([self.see(self.sequence(flat)) + self.seen_place, hidden[:, None]], dim=1)

    def posterior(
        self, actions: Chunks, context: Context, weight: ChunkMask
    ) -> tuple[Latents, Latents]:
        """Mean and log variance of z ``[b, latent]`` from chunks ``[b, h, a]``."""
        # Actions past the end of an episode are shown as nothing.
        done = self.do(actions) * weight + self.done_place
        tokens = self.tokens(context)
        x = torch.cat([self.summary.expand(done.shape[0], -1, -1), tokens, done], dim=1)
        for layer in self.judge:
            x = layer(x)
        mean, log_variance = self.style(x[:, 0]).chunk(2, dim=-1)
        return mean, log_variance

    def decode(self, z: Latents, context: Context) -> Chunks:
        """Normalised chunks ``[b, h, a]``."""
        memory = torch.cat([self.tokens(context), self.unstyle(z)[:, None]], dim=1)
        for layer in self.read:
            memory = layer(memory)
        out = self.write(self.query.expand(z.shape[0], -1, -1), memory)
        return self.outer(self.norm(out))

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Decode z = 0, or a small draw."""
        return self.decode(self.spread * noise.flatten(1)[:, : self.latent], context)


class ActAlgorithm(ChunkAlgorithm[ActConfig, ActModel]):
    """Trains the auto-encoder."""

    name = "act"
    model_class = ActModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Absolute error and divergence."""
        mean, log_variance = self.model.posterior(encoded.actions, encoded.context, encoded.weight)
        noise = torch.randn(mean.shape, generator=rng).to(mean.device)
        z = mean + (0.5 * log_variance).exp() * noise
        error = encoded.mean((self.model.decode(z, encoded.context) - encoded.actions).abs())
        divergence = normal_divergence(mean, log_variance).mean()
        metrics = {"l1": error.item(), "kl": divergence.item()}
        return Losses({"act": error + self.config.beta * divergence}, metrics)


def normal_divergence(mean: Latents, log_variance: Latents) -> Rows:
    """KL(N(mean, exp(log_variance)) || N(0, 1)) summed over the last dimension ``[b]``."""
    return 0.5 * (mean**2 + log_variance.exp() - 1 - log_variance).sum(dim=-1)
