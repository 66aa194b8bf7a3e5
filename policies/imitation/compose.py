"""Combines the fields of trained policies at every step into a new one (GPC, Cao et al. 2025).

    convex:  v = sum_i w_i v_i
    or:      v = sum_i p_i v_i,   p = softmax(log w_i + log q_i(x_t)):   what some policy would do
    and:     v = k v_1 + (1 - k) v_2,  k such that both densities grow alike: what both would do

``log q_i`` is followed along the path: d log q_i / dt = -div v_i + s_i . (v - v_i) with the score
s_i = (t v_i - x) / (1 - t); the divergence is estimated with one random vector (Hutchinson 1989),
drawn from the request's seed. The densities of the operators are those of Skreta et al. (2025).

All fields of the family are velocities of the same path, so policies trained in different ways can
be combined, if they scale actions alike. The weights are chosen by ``robolearn compose`` on
conditions that are not those reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from policies.chunks.policy import ChunkPolicy, FieldChunkPolicy, FieldSampler
from policies.chunks.sampler_steps import equal_times
from policies.nets.encoder import same_codec
from policies.nets.shapes import Chunks, Context, Noise, PartRows, Rows, StepTimes
from policies.registry import policy_of
from robolearn.contracts import Policy
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.learning import Algorithm, BatchSpec, Observed
from robolearn.representation import RepresentationConfig, RepresentedPolicy
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import PARTS, Run, nested_run

Operator = Literal["convex", "and", "or"]


@dataclass(frozen=True, slots=True)
class ComposeConfig:
    """How trained policies are combined; written by ``robolearn compose``, not trained."""

    # How their fields are combined.
    operator: Operator = "convex"
    # Weight of each policy, summing to 1; not used by 'and'.
    weights: tuple[float, ...] = (0.5, 0.5)
    # Euler steps.
    sampler_steps: int = 4
    # 1: equal steps; larger: steps become shorter towards the data.
    time_shift: float = 1.0

    def __post_init__(self) -> None:
        if len(self.weights) < 2 or min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-6:
            raise ConfigError(f"weights must be two or more and sum to 1, got {self.weights}")
        if self.operator == "and" and len(self.weights) != 2:
            raise ConfigError(f"'and' combines two policies, got {len(self.weights)}")
        if self.sampler_steps < 1 or self.time_shift <= 0:
            raise ConfigError("sampler_steps must be at least 1 and time_shift positive")

    def batches(self) -> BatchSpec:
        """Nothing is trained."""
        raise ConfigError("compose is not trained: robolearn compose RUN RUN --out RUN")

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Nothing is trained."""
        del space, stats, parent
        raise ConfigError("compose is not trained: robolearn compose RUN RUN --out RUN")

    def load(self, run: Run) -> ChunkPolicy | FieldChunkPolicy:
        """The policies kept inside the run directory, combined."""
        names = [str(i) for i in range(len(self.weights))]
        missing = [name for name in names if not (run.path / PARTS / name).is_dir()]
        if missing:
            raise CheckpointError(f"'{run.path}/{PARTS}' lacks the policies {missing}")
        return compose([policy_of(nested_run(run, f"{PARTS}/{name}")) for name in names], self)


def composed_policy(policies: Sequence[Policy], config: ComposeConfig) -> Policy:
    """As :func:`compose`, with the representation that all of them see things through."""
    inner, first = compose(policies, config), policies[0]
    if isinstance(first, RepresentedPolicy):
        return RepresentedPolicy(inner, first.representation)
    return inner


def compose(policies: Sequence[Policy], config: ComposeConfig) -> ChunkPolicy | FieldChunkPolicy:
    """Combine policies that have fields, see and do the same, and scale actions alike; of those
    with a representation, what is inside of it.
    """
    seen = [_representation(policy) for policy in policies]
    for i, other in enumerate(seen[1:], 1):
        if other != seen[0] and not (other.plain and seen[0].plain):
            raise SpecMismatchError(
                f"policies 0 and {i} see the data differently: {seen[0]} and {other}; train both"
                " with the same data.representation"
            )
    parts: list[FieldChunkPolicy] = []
    for i, outer in enumerate(policies):
        policy = outer.inner if isinstance(outer, RepresentedPolicy) else outer
        if not isinstance(policy, FieldChunkPolicy):
            raise ConfigError(
                f"policy {i} has no field to combine; flow, diffusion, mean_flow, shortcut,"
                " consistency, beso and what is composed of them ('convex') have one"
            )
        parts.append(policy)
    if len(parts) != len(config.weights):
        raise ConfigError(f"{len(parts)} policies, but {len(config.weights)} weights")
    first = parts[0]
    for i, part in enumerate(parts[1:], 1):
        ours, theirs = part.spec, first.spec
        if ours.task_space != theirs.task_space or (ours.n_obs, ours.horizon) != (
            theirs.n_obs,
            theirs.horizon,
        ):
            raise SpecMismatchError(
                f"policy {i} sees or does something else than policy 0: n_obs {ours.n_obs} and"
                f" {theirs.n_obs}, horizon {ours.horizon} and {theirs.horizon}, task space"
                f" {ours.task_space} and {theirs.task_space}"
            )
        if not same_codec(part.model.codec, first.model.codec):
            raise SpecMismatchError(
                f"policies 0 and {i} scale actions differently; train both on the same data with"
                " the same normalization and anchor"
            )
    kind = FieldChunkPolicy if config.operator == "convex" else ChunkPolicy
    return kind(ComposedModel([part.model for part in parts], config), first.spec)


def _representation(policy: Policy) -> RepresentationConfig:
    if isinstance(policy, RepresentedPolicy):
        return policy.representation.config
    return RepresentationConfig()


class ComposedModel(FieldSampler):
    """Several models with fields as one; only the convex operator has a field of its own."""

    differentiates = True

    def __init__(self, parts: Sequence[FieldSampler], config: ComposeConfig) -> None:
        super().__init__()
        self.config = config
        self.fields = nn.ModuleList(parts)
        first = parts[0]
        self.codec, self.horizon, self.action_size = first.codec, first.horizon, first.action_size
        self.context_size = sum(part.context_size for part in parts)

    @property
    def parts(self) -> tuple[FieldSampler, ...]:
        """The models that are combined."""
        return tuple(cast("FieldSampler", part) for part in self.fields)

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """The contexts of all parts side by side ``[b, c]``."""
        return torch.cat([part.context(observations, rng) for part in self.parts], dim=-1)

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """The convex combination ``[b, h, a]``."""
        fields = self._fields(x_t, t, self._split(context))
        return torch.stack([w * v for w, v in zip(self.config.weights, fields, strict=True)]).sum(0)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        times = equal_times(self.config.sampler_steps, self.config.time_shift)
        return torch.tensor(times, device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Euler along the combined field from ``noise [b, 1, h, a]``."""
        noise = noise[:, 0]
        times = equal_times(self.config.sampler_steps, self.config.time_shift)
        contexts = self._split(context)
        probe = torch.where(noise >= 0, 1.0, -1.0)
        weights = torch.tensor(self.config.weights, device=noise.device)
        log_density = noise.new_zeros(len(noise), len(self.parts))
        x = noise
        for t, after in itertools.pairwise(times):
            at = torch.full((len(x),), t, device=x.device)
            if self.config.operator == "convex":
                fields = self._fields(x, at, contexts)
                v = torch.stack([w * f for w, f in zip(weights, fields, strict=True)]).sum(0)
            else:
                fields, divergences = self._with_divergence(x, at, contexts, probe)
                v = self._combined(x, t, fields, divergences, weights.log() + log_density)
                log_density = log_density + (after - t) * growth(x, t, v, fields, divergences)
            x = x + (after - t) * v
        return x

    def _combined(
        self, x: Tensor, t: float, fields: list[Tensor], divergences: list[Tensor], logits: Tensor
    ) -> Tensor:
        if self.config.operator == "or":
            share = logits.softmax(dim=1)
            return torch.stack([share[:, i, None, None] * f for i, f in enumerate(fields)]).sum(
                dim=0
            )
        k = equal_growth(x, t, fields, divergences)[:, None, None]
        return k * fields[0] + (1 - k) * fields[1]

    def _fields(self, x: Tensor, t: Tensor, contexts: tuple[Tensor, ...]) -> list[Tensor]:
        return [p.velocity(x, t, c) for p, c in zip(self.parts, contexts, strict=True)]

    def _with_divergence(
        self, x: Tensor, t: Tensor, contexts: tuple[Tensor, ...], probe: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        fields: list[Tensor] = []
        divergences: list[Tensor] = []
        for part, context in zip(self.parts, contexts, strict=True):
            with torch.enable_grad():
                leaf = x.detach().requires_grad_()
                v = part.velocity(leaf, t, context)
                (slope,) = torch.autograd.grad(v, leaf, probe)
            fields.append(v.detach())
            divergences.append((slope * probe).sum(dim=(1, 2)))
        return fields, divergences

    def _split(self, context: Tensor) -> tuple[Tensor, ...]:
        return context.split([part.context_size for part in self.parts], dim=-1)


def score(x: Chunks, t: float, v: Chunks) -> Chunks:
    """Gradient of the log density of x_t at time ``t`` in [0, 1) from its velocity."""
    return (t * v - x) / (1 - t)


def growth(
    x: Chunks, t: float, v: Chunks, fields: Sequence[Chunks], divergences: Sequence[Rows]
) -> PartRows:
    """D log q_i / dt ``[b, parts]`` of every part at a point that moves with ``v``."""
    return torch.stack(
        [
            (score(x, t, f) * (v - f)).sum(dim=(1, 2)) - divergence
            for f, divergence in zip(fields, divergences, strict=True)
        ],
        dim=1,
    )


def equal_growth(
    x: Chunks, t: float, fields: Sequence[Chunks], divergences: Sequence[Rows]
) -> Rows:
    """The weight ``[b]`` in [0, 1] of the first of two fields with which both log densities grow
    alike, or come as near to that as they can; a half where the fields agree.
    """
    apart = fields[0] - fields[1]
    first, second = ((score(x, t, f) * apart).sum(dim=(1, 2)) for f in fields)
    slope = first - second
    even = torch.full_like(slope, 0.5)
    k = torch.where(slope.abs() > 1e-8, (divergences[0] - divergences[1] + first) / slope, even)
    return k.clamp(0.0, 1.0)
