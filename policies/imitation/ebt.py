"""Descends a learned energy (energy-based transformers, Gladstone et al. 2025).

    E(x, o) = |x - net(x, o)|^2 / 2,      x <- x - rate grad_x E      (a few steps from noise)
    loss = mean over the steps of |x_k - a|^2, through the descent (second derivatives)

The energy of the chunk that comes out says how sure the policy is: candidates are ranked by it.
Training starts anywhere between noise and data, so that the energy has a valley at every mode;
nothing tells the network where it starts.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from policies.chunks.base import (
    ChunkAlgorithm,
    EncodedBatch,
    FieldConfig,
    FieldModel,
    randn,
    uniform,
)
from policies.chunks.policy import answer, on
from policies.chunks.request import request_tensors
from policies.imitation.flow import flow_target
from policies.nets.shapes import Chunks, Context, Noise, Rows, StepTimes
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses
from robolearn.types import PolicyInput, PolicyOutput


@dataclass(frozen=True, slots=True)
class EbtConfig(FieldConfig):
    """Energy-based policy."""

    # Steps of the descent in training.
    descent_steps: int = 2
    # Steps of the descent when sampling.
    sampler_steps: int = 4
    # First value of the learned rate of descent.
    rate: float = 0.5

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if min(self.descent_steps, self.sampler_steps) < 1 or not self.rate > 0:
            raise ConfigError(
                f"descent_steps and sampler_steps must be >= 1, rate positive, got {self}"
            )

    def algorithm(self) -> type[EbtAlgorithm]:
        """What trains it."""
        return EbtAlgorithm


class EbtModel(FieldModel):
    """The energy and its descent."""

    differentiates = True

    def __init__(self, config: EbtConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.sampler_steps = config.sampler_steps
        self.log_rate = nn.Parameter(torch.tensor(config.rate).log())

    def energy(self, x: Chunks, context: Context) -> Rows:
        """Energies ``[b]`` of chunks ``[b, h, a]``."""
        restored = self.raw(x, (torch.zeros(len(x), device=x.device),), context)
        return 0.5 * ((x - restored) ** 2).sum(dim=(1, 2))

    def descend(self, x: Chunks, context: Context, steps: int, *, train: bool) -> list[Chunks]:
        """The chunk after every step; with ``train`` the steps can be differentiated."""
        path: list[Tensor] = []
        rate = self.log_rate.exp()
        with torch.enable_grad():
            for _ in range(steps):
                # In training every step is judged by itself: gradients stop at its start.
                x = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.energy(x, context).sum(), x, create_graph=train)
                x = x - rate * slope
                path.append(x)
        return path

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """Straight to where one step of the descent leads."""
        end = self.descend(x_t, context, 1, train=False)[0].detach()
        return (end - x_t) / (1 - t)[:, None, None]

    def times(self) -> StepTimes:
        """Times of as many steps, from 0 to 1."""
        return torch.linspace(0.0, 1.0, self.sampler_steps + 1, device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Descend from noise."""
        return self.descend(noise[:, 0], context, self.sampler_steps, train=False)[-1].detach()


class EbtPolicy:
    """Candidates with the lowest energy first; ``scores`` are negative energies."""

    def __init__(self, model: EbtModel, spec: PolicySpec) -> None:
        self.model, self._spec = model, spec

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons, normalisation."""
        return self._spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row."""
        begin = time.perf_counter_ns()
        drawn = answer(self.model, self._spec, request, n)
        with torch.no_grad():
            observations = on(self.model.device, request_tensors(request, self._spec))
            context = self.model.context(observations).repeat_interleave(n, dim=0)
            observations = {k: v.repeat_interleave(n, dim=0) for k, v in observations.items()}
            flat = torch.from_numpy(drawn.actions.astype(np.float32)).flatten(0, 1)
            x = self.model.codec.encode(flat.to(self.model.device), observations)
            energy = self.model.energy(x, context).view(-1, n).cpu().double().numpy()
        order = np.argsort(energy, axis=1, kind="stable")
        return dataclasses.replace(
            drawn,
            actions=np.take_along_axis(drawn.actions, order[:, :, None, None], axis=1),
            scores=-np.take_along_axis(energy, order, axis=1),
            latency_ns=time.perf_counter_ns() - begin,
        )


class EbtAlgorithm(ChunkAlgorithm[EbtConfig, EbtModel]):
    """Trains the energy through its descent."""

    name = "ebt"
    model_class = EbtModel
    policy_class = EbtPolicy

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The error after every step."""
        actions = encoded.actions
        t = uniform(len(actions), rng, actions.device)
        start, _ = flow_target(actions, randn(actions, rng), t)
        path = self.model.descend(start, encoded.context, self.config.descent_steps, train=True)
        errors = [encoded.mean((x - actions) ** 2) for x in path]
        loss = torch.stack(errors).mean()
        return Losses({"ebt": loss}, {"last": errors[-1].item()})
