"""Guided sampling of a flow policy towards a prefix: the network's part of real-time chunking.

    a_hat(x) = x + (1 - t) v(x, t)          e = W (prefix - a_hat)
    x       += dt (v + k J^T e),            J = d a_hat / d x
    k        = min(k_max, (1 - t)/t * (t^2 + (1 - t)^2) / (1 - t)^2)

(Black, Galliker, Levine 2025, after Pokle et al. 2023 and Song et al. 2023); t from 0 (noise) to 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.types import PolicyInput


@dataclass(frozen=True, slots=True)
class GuidanceConfig:
    """How strongly a chunk continues the one before it."""

    max_weight: float = 5.0
    """Largest k (the paper's beta)."""
    jacobian: bool = True
    """False: J is taken for the identity, which needs no backward pass."""
    hard: bool = False
    """True: actions of weight 1 are put on the path to the prefix before every step, others are
    free; no pull, no backward pass."""

    least_steps: int = 4
    """Steps along the field that a policy takes at least: in a single one a pull has no effect
    (J is about 0 where all is noise), or overshoots."""

    def __post_init__(self) -> None:
        if self.least_steps < 1:
            raise ConfigError(f"least_steps must be at least 1, got {self.least_steps}")
        if not 0.0 < self.max_weight < float("inf"):
            raise ConfigError(f"max_weight must be positive and finite, got {self.max_weight}")


@runtime_checkable
class Field(Protocol):
    """The velocity of a :class:`robolearn.learning.FieldPolicy`."""

    def __call__(self, x_t: Tensor, t: Tensor, context: Tensor) -> Tensor:
        """``[b, horizon, action]`` at ``x_t``, ``t [b]``."""
        ...


@dataclass(frozen=True, slots=True)
class Prefix:
    """Normalised actions to continue ``[b, horizon, action]`` and weights ``[b, horizon, 1]``."""

    actions: Tensor
    weight: Tensor


def guided(
    field: Field,
    noise: Tensor,
    times: Tensor,
    context: Tensor,
    prefix: Prefix,
    config: GuidanceConfig,
) -> Tensor:
    """Integrate ``noise [b, horizon, action]`` along ``times`` (0 to 1), pulled to a prefix."""
    if config.hard:
        return held(field, noise, times, context, prefix)
    x = noise
    for t, t_next in itertools.pairwise(times.tolist()):
        at = torch.full((len(x),), t)
        with torch.set_grad_enabled(config.jacobian):
            leaf = x.detach().requires_grad_(config.jacobian)
            velocity = field(leaf, at, context)
            estimate = leaf + (1.0 - t) * velocity
            error = (prefix.weight * (prefix.actions - estimate)).detach()
            pull = error
            if config.jacobian:
                (pull,) = torch.autograd.grad(estimate, leaf, error)
        x = x + (t_next - t) * (velocity.detach() + guidance_weight(t, config.max_weight) * pull)
    return x


def held(field: Field, noise: Tensor, times: Tensor, context: Tensor, prefix: Prefix) -> Tensor:
    """As :func:`guided` with a hard mask: actions of weight 1 follow ``(1 - t) noise + t prefix``
    (Lugmayr et al. 2022, "RePaint", without its repetitions).
    """
    fixed = prefix.weight >= 1.0
    x = noise
    for t, t_next in itertools.pairwise(times.tolist()):
        x = x + (t_next - t) * field(x, torch.full((len(x),), t, device=x.device), context)
        x = torch.where(fixed, (1.0 - t_next) * noise + t_next * prefix.actions, x)
    return x


def guidance_weight(t: float, largest: float) -> float:
    """Weight k of the pull at time ``t`` in [0, 1)."""
    if t <= 0.0:
        return largest
    return min(largest, (t * t + (1.0 - t) ** 2) / (t * (1.0 - t)))


def request_prefix(request: PolicyInput, spec: PolicySpec) -> tuple[Tensor, Tensor] | None:
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
