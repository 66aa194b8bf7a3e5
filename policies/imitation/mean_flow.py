"""Learns one call from noise to a chunk: mean flow (Geng et al. 2025, arXiv 2505.13447).

    u(x_t, t, r) = 1 / (r - t)  integral of v from t to r,      x_r = x_t + (r - t) u(x_t, t, r)

What the network is regressed on is said in :mod:`policies.nets.average_velocity`; with r = t it is
flow matching.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from policies.chunks.base import (
    EncodedBatch,
    FieldAlgorithm,
    FieldConfig,
    FieldModel,
    randn,
)
from policies.chunks.sampler_steps import Step, equal_times, euler_steps
from policies.imitation.flow import flow_target, preconditioning
from policies.nets.average_velocity import mean_flow_target
from policies.nets.shapes import Chunks, Context, Noise, Rows, StepTimes
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses


@dataclass(frozen=True, slots=True)
class MeanFlowConfig(FieldConfig):
    """Mean-flow policy."""

    # Share of a batch with r > t; the rest learns the velocity itself.
    share: float = 0.25
    # Mean and deviation of the normal whose sigmoid gives both times (the paper's -0.4 and 1, seen
    # from the data's side).
    time_parameters: tuple[float, float] = (0.4, 1.0)
    # The squared error is divided by (error + 0.001) to this power, held fixed; 0: not at all.
    power: float = 1.0
    # Standard deviation of normalised actions that the preconditioning assumes.
    action_std: float = 0.5
    # Network calls per chunk.
    sampler_steps: int = 1

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if not 0 < self.share <= 1 or self.sampler_steps < 1 or self.power < 0:
            raise ConfigError("share must be in (0, 1], sampler_steps at least 1, power at least 0")
        if self.action_std <= 0 or self.time_parameters[1] <= 0:
            raise ConfigError("action_std and the deviation of time_parameters must be positive")

    def algorithm(self) -> type[MeanFlowAlgorithm]:
        """What trains it."""
        return MeanFlowAlgorithm


class MeanFlowModel(FieldModel):
    """A network for average velocities."""

    # Its derivative by time is learned from, so time has to be seen smoothly.
    fastest = 4.0

    def __init__(self, config: MeanFlowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats, clocks=2)
        self.std, self.sampler_steps = config.action_std, config.sampler_steps

    def average(self, x_t: Chunks, t: Rows, r: Rows, context: Context) -> Chunks:
        """Average velocity from ``t [b]`` to ``r [b]``, preconditioned like a velocity at t."""
        c_in, c_skip, c_out = (c[:, :, None] for c in preconditioning(t, self.std))
        return c_skip * x_t + c_out * self.raw(c_in * x_t, (t, r - t), context)

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """The average over no time at all."""
        return self.average(x_t, t, t, context)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        return torch.tensor(equal_times(self.sampler_steps), device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """``sampler_steps`` jumps from noise to a chunk."""
        return self.integrate(noise[:, 0], self.euler(), context)

    def euler(self) -> tuple[Step, ...]:
        """The jumps of the sampler."""
        return sampling(self.sampler_steps, self.std)


@functools.lru_cache(maxsize=64)
def sampling(count: int, std: float) -> tuple[Step, ...]:
    """The jumps of the sampler."""
    times = equal_times(count)
    return euler_steps(times, [(t, r - t) for t, r in itertools.pairwise(times)], std)


class MeanFlowAlgorithm(FieldAlgorithm[MeanFlowConfig, MeanFlowModel]):
    """Trains the average velocity."""

    name = "mean_flow"
    model_class = MeanFlowModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The squared distance to the right side of the identity."""
        model, actions, context = self.model, encoded.actions, encoded.context
        size = len(actions)
        jumps = max(1, round(self.config.share * size))
        t, r = self._times(size, jumps, rng, actions.device)
        x_t, velocity = flow_target(actions, randn(actions, rng), t)
        target = velocity.clone()
        seen, end = context[:jumps].detach(), r[:jumps]
        target[:jumps] = mean_flow_target(
            lambda x, start: model.average(x, start, end, seen),
            *(x_t[:jumps], velocity[:jumps], t[:jumps], end),
        )
        error = model.average(x_t, t, r, context) - target
        squared = (error / preconditioning(t, model.std)[2][:, :, None]) ** 2
        weight = encoded.weight.expand_as(squared)
        row = (squared * weight).sum(dim=(1, 2)) / weight.sum(dim=(1, 2)).clamp_min(1)
        scale = (row.detach() + 1e-3) ** -self.config.power
        return Losses({"mean_flow": (scale * row).mean()}, {"error": row.mean().item()})

    def _times(
        self, size: int, jumps: int, rng: torch.Generator, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Start and end of every row; in the first ``jumps`` rows they differ."""
        mean, deviation = self.config.time_parameters
        drawn = torch.sigmoid(mean + deviation * torch.randn(2, size, generator=rng)).to(device)
        t, r = drawn.amin(dim=0), drawn.amax(dim=0)
        still = torch.arange(size, device=device) >= jumps
        return torch.where(still, drawn[0], t), torch.where(still, drawn[0], r)
