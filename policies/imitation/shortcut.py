"""Learns flow matching that also takes large steps: shortcut models (Frans et al. 2024).

    s(x_t, t, 0) = v,    s(x_t, t, 2 d) = ( s(x_t, t, d) + s(x_t + d s(x_t, t, d), t + d, d) ) / 2

with t from 0 (noise) to 1 (data): a step of 2 d is what two of d would have given.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from policies.chunks.base import (
    EncodedBatch,
    FieldAlgorithm,
    FieldConfig,
    FieldModel,
    randn,
    uniform,
)
from policies.chunks.sampler_steps import Step, equal_times, euler_steps
from policies.imitation.flow import flow_target, preconditioning
from policies.nets.shapes import Chunks, Context, Noise, Rows, StepTimes
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses


@dataclass(frozen=True, slots=True)
class ShortcutConfig(FieldConfig):
    """Shortcut policy."""

    # Share of a batch that learns steps larger than the smallest.
    share: float = 0.25
    # Steps are 2^-k for k below this; those of 2^-doublings are taken for the velocity.
    doublings: int = 5
    # Standard deviation of normalised actions that the preconditioning assumes.
    action_std: float = 0.5
    # Network calls per chunk, a power of 2 of at most 2^doublings.
    sampler_steps: int = 1

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if not 0 < self.share < 1 or self.doublings < 1 or self.action_std <= 0:
            raise ConfigError("share must be in (0, 1), doublings >= 1, action_std positive")
        allowed = [2**k for k in range(self.doublings + 1)]
        if self.sampler_steps not in allowed:
            raise ConfigError(f"sampler_steps must be one of {allowed}, got {self.sampler_steps}")

    def algorithm(self) -> type[ShortcutAlgorithm]:
        """What trains it."""
        return ShortcutAlgorithm


class ShortcutModel(FieldModel):
    """A network for steps of any length."""

    def __init__(self, config: ShortcutConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats, clocks=2)
        self.std, self.sampler_steps, self.smallest = (
            config.action_std,
            config.sampler_steps,
            0.5**config.doublings,
        )

    def step(self, x_t: Chunks, t: Rows, d: Rows, context: Context) -> Chunks:
        """Velocity of a step of length ``d [b]`` from ``t [b]``; the smallest is told as 0."""
        clock = torch.where(d > self.smallest, d, torch.zeros_like(d))
        c_in, c_skip, c_out = (c[:, :, None] for c in preconditioning(t, self.std))
        return c_skip * x_t + c_out * self.raw(c_in * x_t, (t, clock), context)

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """A step of no length."""
        return self.step(x_t, t, torch.zeros_like(t), context)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        return torch.tensor(equal_times(self.sampler_steps), device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """``sampler_steps`` equal steps from noise to a chunk."""
        return self.integrate(noise[:, 0], self.euler(), context)

    def euler(self) -> tuple[Step, ...]:
        """The steps of the sampler."""
        return sampling(self.sampler_steps, self.smallest, self.std)


@functools.lru_cache(maxsize=64)
def sampling(count: int, smallest: float, std: float) -> tuple[Step, ...]:
    """The steps of the sampler; the smallest is told as 0."""
    times, length = equal_times(count), 1 / count
    clock = length if length > smallest else 0.0
    return euler_steps(times, [(t, clock) for t in times[:-1]], std)


class ShortcutAlgorithm(FieldAlgorithm[ShortcutConfig, ShortcutModel]):
    """Trains velocity and larger steps together."""

    name = "shortcut"
    model_class = ShortcutModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Flow matching, and in the first rows agreement with two steps of half the length."""
        model, actions, context = self.model, encoded.actions, encoded.context
        size = len(actions)
        large = max(1, round(self.config.share * size))
        t = uniform(size, rng, actions.device)[torch.randperm(size, generator=rng)]
        doublings = torch.randint(0, self.config.doublings, (large,), generator=rng)
        d = torch.zeros_like(t)
        d[:large] = (0.5**doublings).to(t)
        # Large steps start where such steps of the sampler do.
        t[:large] = (t[:large] / d[:large]).floor() * d[:large]
        x_t, target = flow_target(actions, randn(actions, rng), t)
        target[:large] = two_steps(model, x_t[:large], t[:large], d[:large], context[:large])
        error = model.step(x_t, t, d, context) - target
        scaled = (error / preconditioning(t, model.std)[2][:, :, None]) ** 2
        return Losses({"shortcut": encoded.mean(scaled)}, {})


@torch.no_grad()
def two_steps(model: ShortcutModel, x_t: Chunks, t: Rows, d: Rows, context: Context) -> Chunks:
    """Mean velocity of two steps of half the length ``d [b]``."""
    half = d / 2
    first = model.step(x_t, t, half, context)
    middle = x_t + half[:, None, None] * first
    return (first + model.step(middle, t + half, half, context)) / 2
