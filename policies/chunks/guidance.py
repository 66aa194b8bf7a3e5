"""Guides a flow policy's samples towards a prefix: the network's part of real-time chunking.

    a_hat(x) = x + (1 - t) v(x, t)          e = W (prefix - a_hat)
    x       += dt (v + k J^T e),            J = d a_hat / d x
    k        = min(k_max, (1 - t)/t * 1/r^2),   r^2 = s^2 (1 - t)^2 / (t^2 s^2 + (1 - t)^2)

(Black, Galliker, Levine 2025, after Pokle et al. 2023 and Song et al. 2023); t from 0 (noise) to 1.
r is how far a_hat may be off where actions deviate by s. The paper has s = 1: an earlier plan then
says next to nothing about which of two ways was taken as long as they are near each other, and the
chunk changes its mind (``tests/policies/chunks/test_guidance.py`` has a field for which this is
known).

Of several candidates the one that agrees best with the prefix is taken (Liu et al. 2024,
"Bidirectional decoding"): which way to go is decided early, where a pull changes little.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch

from policies.nets.shapes import AnyContext, Chunks, ChunkWeights, Rows, StepTimes, Variants
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.types import PolicyInput


@dataclass(frozen=True, slots=True)
class GuidanceConfig:
    """How strongly a chunk continues the one before it."""

    # Largest k (the paper's beta).
    max_weight: float = 5.0
    # The s above, in normalised actions (the paper: 1).
    deviation: float = 1.0
    # Chunks of which the best is taken (the paper: 1).
    candidates: int = 1
    # False: J is taken for the identity, which needs no backward pass.
    jacobian: bool = True
    # True: actions of weight 1 are put on the path to the prefix before every step, others are
    # free; no pull, no backward pass.
    hard: bool = False

    # Whether a policy that was trained to continue a prefix does it in its own way instead.
    trained: bool = True

    # Steps along the field that a policy takes at least: in a single one a pull has no effect (J is
    # about 0 where all is noise), or overshoots.
    least_steps: int = 4

    def __post_init__(self) -> None:
        if self.least_steps < 1:
            raise ConfigError(f"least_steps must be at least 1, got {self.least_steps}")
        if self.candidates < 1:
            raise ConfigError(f"candidates must be at least 1, got {self.candidates}")
        for name in ("max_weight", "deviation"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} must be positive and finite, got {getattr(self, name)}")


GuidanceKind = Literal["auto", "jacobian", "identity", "hard", "trained"]
AUTO = GuidanceConfig()
GUIDANCE: dict[GuidanceKind, GuidanceConfig] = {
    "auto": AUTO,
    "jacobian": GuidanceConfig(trained=False),
    "identity": GuidanceConfig(jacobian=False, trained=False),
    "hard": GuidanceConfig(hard=True, trained=False),
    "trained": AUTO,
}
"""The ways to continue a plan, by what a command line calls them."""


def ways(max_prefix: int) -> tuple[str, ...]:
    """Those of a field that was given up to ``max_prefix`` first actions in training."""
    every = tuple(GUIDANCE)
    return every if max_prefix else every[:-1]


@runtime_checkable
class Guided(Protocol):
    """A policy that continues what is left of a plan."""

    guidance: GuidanceConfig
    continues: tuple[str, ...]


@runtime_checkable
class Field(Protocol):
    """The velocity of a :class:`robolearn.learning.FieldPolicy`."""

    def __call__(self, x_t: Chunks, t: Rows, context: AnyContext) -> Chunks:
        """``[b, horizon, action]`` at ``x_t``, ``t [b]``."""
        ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """Normalised actions to continue ``[b, horizon, action]`` and weights ``[b, horizon, 1]``."""

    actions: Chunks
    weight: ChunkWeights


def guided(
    field: Field,
    noise: Chunks,
    times: StepTimes,
    context: AnyContext,
    prefix: Prefix,
    config: GuidanceConfig,
) -> Chunks:
    """Integrate ``noise [b, horizon, action]`` along ``times`` (0 to 1), pulled to a prefix."""
    count, batch = config.candidates, len(noise)
    several = variants(noise, count).flatten(0, 1)
    contexts = context.repeat(count, *[1] * (context.ndim - 1))
    wanted = Prefix(prefix.actions.repeat(count, 1, 1), prefix.weight.repeat(count, 1, 1))
    sample = held if config.hard else functools.partial(pulled, config=config)
    x = sample(field, several, times, contexts, wanted)
    apart = (wanted.weight * (x - wanted.actions) ** 2).sum(dim=(1, 2))
    best = apart.view(count, batch).argmin(dim=0)
    return x.view(count, *noise.shape)[best, torch.arange(batch, device=x.device)]


def variants(noise: Chunks, count: int) -> Variants:
    """``count`` arrays ``[count, b, horizon, action]`` that are as normal as ``noise``, which is
    the first: its negative, and both turned along the horizon.
    """
    turn = noise.shape[1] // -(-count // 2)
    return torch.stack([(-1) ** i * noise.roll(i // 2 * turn, dims=1) for i in range(count)])


def pulled(
    field: Field,
    noise: Chunks,
    times: StepTimes,
    context: AnyContext,
    prefix: Prefix,
    config: GuidanceConfig,
) -> Chunks:
    """As :func:`guided`, one chunk for each array of noise."""
    x = noise
    for t, t_next in itertools.pairwise(times.tolist()):
        at = torch.full((len(x),), t, device=x.device)
        with torch.set_grad_enabled(config.jacobian):
            leaf = x.detach().requires_grad_(config.jacobian)
            velocity = field(leaf, at, context)
            estimate = leaf + (1.0 - t) * velocity
            error = (prefix.weight * (prefix.actions - estimate)).detach()
            pull = error
            if config.jacobian:
                (pull,) = torch.autograd.grad(estimate, leaf, error)
        weight = guidance_weight(t, config.max_weight, config.deviation)
        x = x + (t_next - t) * (velocity.detach() + weight * pull)
    return x


def held(
    field: Field, noise: Chunks, times: StepTimes, context: AnyContext, prefix: Prefix
) -> Chunks:
    """As :func:`guided` with a hard mask: actions of weight 1 follow ``(1 - t) noise + t prefix``
    (Lugmayr et al. 2022, "RePaint", without its repetitions).
    """
    fixed = prefix.weight >= 1.0
    x = noise
    for t, t_next in itertools.pairwise(times.tolist()):
        x = x + (t_next - t) * field(x, torch.full((len(x),), t, device=x.device), context)
        x = torch.where(fixed, (1.0 - t_next) * noise + t_next * prefix.actions, x)
    return x


def guidance_weight(t: float, largest: float, deviation: float = 1.0) -> float:
    """Weight k of the pull at time ``t`` in [0, 1) for actions that deviate by ``deviation``."""
    if t <= 0.0:
        return largest
    spread = deviation * deviation
    return min(largest, (t * t * spread + (1.0 - t) ** 2) / (spread * t * (1.0 - t)))


def request_prefix(request: PolicyInput, spec: PolicySpec) -> tuple[Chunks, ChunkWeights] | None:
    """Prefix ``[b, horizon, action]`` in SI units and weights ``[b, horizon, 1]``, both padded to
    the horizon; None without one. :class:`SpecMismatchError` for another shape or values that are
    not finite.
    """
    if request.prefix is None:
        return None
    prefix, batch = request.prefix, len(request.seed)
    known = prefix.shape[1] if prefix.ndim == 3 else -1
    size = spec.task_space.action_size
    weight = np.ones((batch, max(known, 0))) if (w := request.prefix_weight) is None else w
    if prefix.shape != (batch, known, size) or not 0 < known <= spec.horizon:
        raise SpecMismatchError(
            f"prefix: expected ({batch}, 1..{spec.horizon}, {size}), got {prefix.shape}"
        )
    if weight.shape != (batch, known):
        raise SpecMismatchError(f"prefix_weight: expected {(batch, known)}, got {weight.shape}")
    if not (np.isfinite(prefix).all() and np.all((weight >= 0.0) & (weight <= 1.0))):
        raise SpecMismatchError("prefix must be finite and its weights within [0, 1]")
    rest = spec.horizon - known
    padded = np.pad(prefix, ((0, 0), (0, rest), (0, 0))).astype(np.float32)
    weights = np.pad(weight, ((0, 0), (0, rest))).astype(np.float32)
    return torch.from_numpy(padded), torch.from_numpy(weights)[..., None]
