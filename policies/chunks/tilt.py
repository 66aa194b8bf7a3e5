"""Tilts what a policy with a field samples towards what is worth more, while it is being sampled.

    p*(A) ~ p(A) exp( worth(A) / temperature )

The field tells which chunk a noisy one stands for, a(x, t) = x + (1 - t) v(x, t), and with it the
reverse diffusion on the path x = t A + (1 - t) eps, t from 0 to 1 (ancestral sampling, Ho et al.
2020):

    q(x' | x) = N( r u x + t' (1 - r^2 u) a(x, t),  (1 - t')^2 (1 - r^2 u) ),
    r = t / t',  u = (1 - t')^2 / (1 - t)^2

Doob's h-transform of it draws from the tilted distribution (Zhu et al. 2026, "DOIT"):

    q*(x' | x) = q(x' | x) h(x') / h(x),    h(x) = E[ exp( worth(A) / temperature ) | x ]

by Monte Carlo: of ``particles`` draws of q one is taken with the probability exp(worth(A_m) /
temperature), A_m being a chunk that draw m may become. ``rollout``: what the rest of the reverse
diffusion makes of it, which is exact with many particles. ``estimate``: what it stands
for, one call of the network, as in the authors' code; between ways to go that is none of them.
(Theirs moves the mean of q by the weighted draws instead of taking one.) The worth need not be
differentiable: -inf forbids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from policies.chunks.guidance import Field, Prefix
from policies.nets.shapes import AnyContext, Chunks, Noise, Particles, ParticleWorth, Rows
from robolearn.errors import ConfigError

# What chunks ``[b, m, h, a]``, normalised, are worth ``[b, m]``.
Worth = Callable[[Particles], ParticleWorth]


@dataclass(frozen=True, slots=True)
class TiltConfig:
    """How samples are tilted."""

    # Draws per step, of which one is taken; 1: the parent's own reverse diffusion.
    particles: int = 8
    # Steps of the reverse diffusion.
    steps: int = 10
    # In units of worth: small trusts it, large stays with the parent.
    temperature: float = 0.05
    # What a draw is judged by.
    judged: Literal["estimate", "rollout"] = "estimate"

    def __post_init__(self) -> None:
        if self.particles < 1 or self.steps < 1:
            raise ConfigError("tilt: particles and steps must be at least 1")
        if not self.temperature > 0:
            raise ConfigError(f"tilt: temperature must be positive, got {self.temperature}")

    @property
    def draws(self) -> int:
        """Arrays of noise that one chunk takes."""
        inner = self.steps - 1
        rollouts = inner * (inner - 1) // 2 if self.judged == "rollout" else 0
        return 1 + inner * (1 + self.particles) + rollouts * self.particles


def tilted(
    field: Field,
    noise: Noise,
    context: AnyContext,
    worth: Worth,
    config: TiltConfig,
    prefix: Prefix | None = None,
) -> Chunks:
    """Chunks from standard normal ``noise [b, config.draws, h, a]``; actions of weight 1 in
    ``prefix`` are held.
    """
    arrays, count = iter(noise.unbind(1)), config.particles
    times = torch.linspace(0.0, 1.0, config.steps + 1).tolist()
    x = next(arrays)
    several = context.repeat_interleave(count, dim=0)
    held = None if prefix is None else _Held(prefix, x, 1)
    held_all = None if prefix is None else _Held(prefix, x, count)
    rows = torch.arange(len(x), device=x.device)
    kept: list[Tensor] = []

    def reversed_diffusion(at: Chunks, k: int, seen: AnyContext) -> Tensor:
        """Draws for time k + 1, from one chunk or several at time k."""
        mean, deviation = _reverse(field, at, times[k], times[k + 1], seen)
        drawn = torch.stack([next(arrays) for _ in range(count)], dim=1)
        found = mean.unflatten(0, (len(x), -1)) + deviation * drawn
        if held_all is None:
            return found
        return held_all.at(found.flatten(0, 1), times[k + 1]).unflatten(0, (-1, count))

    for k in range(config.steps - 1):
        path = [reversed_diffusion(x, k, context)]
        if config.judged == "rollout":
            for later in range(k + 1, config.steps - 1):
                path.append(reversed_diffusion(path[-1].flatten(0, 1), later, several))
            # What was taken before competes with what is drawn anew: nothing is lost, and every
            # step leaves the tilted distribution as it is (Andrieu, Lee, Vihola 2018).
            for particles, before in zip(path, kept, strict=True) if kept else ():
                particles[:, 0] = before
        at = times[k + len(path)]
        ends = _stands_for(field, path[-1].flatten(0, 1), at, several)
        worth_of = worth(ends.unflatten(0, (-1, count)))
        chosen = _drawn(worth_of / config.temperature, next(arrays)[:, 0, 0])
        taken = [particles[rows, chosen] for particles in path]
        x, kept = taken[0], taken[1:]
    x = _stands_for(field, x, times[-2], context)
    return x if held is None else held.at(x, 1.0)


def _stands_for(field: Field, x: Chunks, t: float, context: AnyContext) -> Chunks:
    """The chunk that ``x`` at time ``t`` stands for."""
    at = torch.full((len(x),), t, device=x.device)
    return x + (1.0 - t) * field(x, at, context)


def _reverse(
    field: Field, x: Chunks, t: float, t_next: float, context: AnyContext
) -> tuple[Chunks, float]:
    """Mean and deviation of q(x' | x)."""
    ratio, less = t / t_next, (1.0 - t_next) ** 2 / (1.0 - t) ** 2
    fresh = 1.0 - ratio**2 * less
    mean = ratio * less * x + t_next * fresh * _stands_for(field, x, t, context)
    return mean, (1.0 - t_next) * fresh**0.5


def _drawn(weights: ParticleWorth, normal: Rows) -> Tensor:
    """One index per row, with the probabilities softmax(weights), by a standard normal number."""
    hopeless = torch.isneginf(weights).all(dim=1, keepdim=True)
    shares = torch.softmax(torch.where(hopeless, torch.zeros_like(weights), weights), dim=1)
    below = shares.cumsum(dim=1) < torch.special.ndtr(normal)[:, None]
    return below.sum(dim=1).clamp(max=weights.shape[1] - 1)


class _Held:
    """Actions of weight 1 on the path from their noise to the prefix (as ``guidance.held``)."""

    def __init__(self, prefix: Prefix, noise: Chunks, count: int) -> None:
        self._fixed = (prefix.weight >= 1.0).repeat_interleave(count, dim=0)
        self._wanted = prefix.actions.repeat_interleave(count, dim=0)
        self._noise = noise.repeat_interleave(count, dim=0)

    def at(self, x: Chunks, t: float) -> Chunks:
        """``x`` at time ``t``, with what is held."""
        return torch.where(self._fixed, (1.0 - t) * self._noise + t * self._wanted, x)
