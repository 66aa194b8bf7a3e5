"""Stays near the better of what was done and what could have been: A2PR (Liu et al. 2024).

    Q:    E[ (Q_i(s, A) - y)^2 ],   y = R + g^h m min_i Qbar_i(s', A'),   A': TD3's, smoothed
    V:    E[ (V(s) - min(y, y'))^2 ],   y': y by the critics as they are, not by their slow copies
    vae:  E[ w 1(Q_1(s, A) > V(s)) |dec(s, z) - A|^2 ] + E[ KL(enc(s, A) || N(0, 1)) ] / 2
    pi:   -l E[ Q_1(s, pi(s)) ] + E[ k |pi(s) - A*|^2 ],   l = alpha / mean |Q_1|
          A+ = dec(s, enc(s, pi(s)))                     what good behaviour does in place of pi
          A* = A+ where Q_1(s, A+) >= Q_1(s, A), else A
          k = mask where A+ or A is better than V(s), else 0

TD3+BC clones whatever was recorded, bad actions of mixed data too. Here an auto-encoder of actions
given observations learns from actions of positive advantage alone, and what it makes of the
policy's own action, near it and within what good behaviour does, is cloned in place of the recorded
one where it is worth more; where neither is worth anything, nothing is cloned. Checked against the
authors' code; there no gradient is stopped at A+, here the target of the cloning is fixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import GroupLosses, Transition, mlp
from policies.critics.delayed import DelayedActorCritic, DelayedConfig
from policies.nets.shapes import (
    ChunkFeatures,
    Features,
    Latents,
    RowFlags,
    Rows,
    Scalar,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError

LOG_DEVIATION = (-4.0, 15.0)
"""Within which the logarithm of a latent's deviation is held, as in the authors' code."""


@dataclass(frozen=True, slots=True)
class A2prConfig(DelayedConfig):
    """Adaptive advantage-guided policy regularisation."""

    # Weight of the critic's term, which is divided by the mean of |Q|. Published: 2.5 (40 for
    # halfcheetah).
    alpha: float = 2.5
    # Weight of the cloning where something is worth it. Published: .4 to 1.5.
    mask: float = 1.0
    # Weight of an action in the auto-encoder. Published: 1 to 1.5.
    vae_weight: float = 1.0

    def __post_init__(self) -> None:
        DelayedConfig.__post_init__(self)
        if min(self.alpha, self.mask, self.vae_weight) < 0:
            raise ConfigError("alpha, mask and vae_weight must be at least 0")

    def algorithm(self) -> type[A2pr]:
        """What trains it."""
        return A2pr


class ChunkVae(nn.Module):
    """An auto-encoder of flat chunks ``[b, g]`` given features, with twice as many latents."""

    def __init__(self, features: int, chunk: int, config: A2prConfig) -> None:
        super().__init__()
        width, depth = config.width, config.depth
        self.clip, latents = config.clip, 2 * chunk
        self.encoder = mlp(features + chunk, 2 * latents, width, depth)
        self.decoder = mlp(features + latents, chunk, width, depth)

    def encoded(self, features: Features, chunk: ChunkFeatures) -> tuple[Latents, Latents]:
        """Mean and logarithm of the deviation of the latents ``[b, 2 g]``."""
        mean, log_deviation = self.encoder(torch.cat([features, chunk], dim=-1)).chunk(2, dim=-1)
        return mean, log_deviation.clamp(*LOG_DEVIATION)

    def decoded(self, features: Features, latents: Latents) -> ChunkFeatures:
        """Within the range that actions are held in."""
        flat = self.decoder(torch.cat([features, latents], dim=-1))
        return self.clip * torch.tanh(flat / self.clip)

    def rebuilt(
        self, features: Features, chunk: ChunkFeatures, rng: torch.Generator
    ) -> tuple[ChunkFeatures, Rows]:
        """A chunk like ``chunk`` of those that it learned ``[b, g]``; and the divergence of its
        latents from a standard normal, a mean over their numbers ``[b]``.
        """
        mean, log_deviation = self.encoded(features, chunk)
        latents = mean + log_deviation.exp() * randn(mean, rng)
        apart = mean**2 + (2.0 * log_deviation).exp() - 1.0 - 2.0 * log_deviation
        return self.decoded(features, latents), 0.5 * apart.mean(dim=-1)


class A2pr(DelayedActorCritic[A2prConfig]):
    """Trains critic, values, auto-encoder and, less often, the actor."""

    name = "a2pr"
    values = True

    def __init__(self, config: A2prConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        if self.critic.v is None:
            raise ConfigError("a2pr learns values of observations")
        self._v = [self.critic.v]  # In a list: it is registered as the critic's part already.
        self.vae = ChunkVae(self.critic.observed.size, self.actor.chunk_size, config)

    def value(self, features: Features) -> Rows:
        """``V`` of features ``[b, f]``: ``[b]``."""
        return self._v[0](features).squeeze(0)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error of clipped double Q-learning; V of what the actor will do."""
        follow = t.batch.next_observations
        if follow is None:
            raise ConfigError("a2pr is fed with chunked transitions")
        with torch.no_grad():
            chunk = self.smoothed(follow, rng)
            x = torch.cat([t.follow, chunk], dim=-1)
            target = self.td_target(t, self.target(x).amin(dim=0))
            lower = torch.minimum(target, self.td_target(t, self.critic.q(x).amin(dim=0)))
        q = self.critic.q_values(t.now, t.chunk)
        value = self.value(t.now.detach())
        return {
            "critic": ((q - target) ** 2).mean(),
            "value": ((value - lower) ** 2).mean(),
            "vae": self.vae_loss(t, q[0].detach() > value.detach(), rng),
        }

    def vae_loss(self, t: Transition, better: RowFlags, rng: torch.Generator) -> Scalar:
        """Rebuilding of the chunks that are ``better [b]`` than V."""
        rebuilt, divergence = self.vae.rebuilt(t.now.detach(), t.chunk, rng)
        weight = self.config.vae_weight * better.float()
        return t.mean(weight[:, None] * (rebuilt - t.chunk) ** 2) + 0.5 * divergence.mean()

    def guide(
        self, t: Transition, chunk: ChunkFeatures, rng: torch.Generator
    ) -> tuple[ChunkFeatures, Rows]:
        """``A*`` ``[b, g]`` and ``k`` ``[b]`` for the policy's ``chunk [b, g]``."""
        now = t.now.detach()
        with torch.no_grad():
            proposed, _ = self.vae.rebuilt(now, chunk, rng)
            recorded = self.critic.q_values(now, t.chunk)[0]
            could = self.critic.q_values(now, proposed)[0]
            best = torch.where((could >= recorded)[:, None], proposed, t.chunk)
            worth = torch.maximum(could, recorded) > self.value(now)
        return best, self.config.mask * worth.float()

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """The critic's gradient, and the distance to the better action; every other update."""
        if not self.acts(t):
            return {}
        chunk = self.actor.chunk(t.seen)
        best, weight = self.guide(t, chunk, rng)
        q = self.critic.steering(t.now.detach(), chunk)[0]
        scale = self.config.alpha / q.detach().abs().mean().clamp(min=1e-6)
        return {"policy": t.mean(weight[:, None] * (chunk - best) ** 2) - scale * q.mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The actor, and the auto-encoder."""
        return {**super().actor_groups(), "vae": tuple(self.vae.parameters())}
