"""Learns as one call what a trained policy's sampler makes of noise: distillation.

    g(eps, o) ~ sampler(eps, o),   loss = |g - sampler|^2     (Luhman and Luhman 2021)

A sampler that draws noise once is a function of it, so a regression on its answers forgets no way
of doing things: other noise, another chunk. The student of a flow policy starts as one Euler step
of it; as no time is told to it, what the time decides becomes part of a bias, and the condition
needs fewer numbers.

A teacher answers to any observation, so lessons need not stay where the recordings are: with
``shifts`` they cover the places that a student with small errors gets to. Where the teacher's
answer jumps, errors are large whatever the student does: ``huber`` keeps these few from deciding
over all others.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from policies.chunks.base import (
    TIME_FEATURES,
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    EncodedBatch,
)
from policies.chunks.policy import ChunkSampler
from policies.chunks.sampler_steps import clock_features
from policies.imitation.flow import FlowModel, sampling
from policies.imitation.teacher import refuse_other_scaling, teacher_of
from policies.nets.residual_mlp import ChunkMLP
from policies.nets.shapes import Chunks, Context, Noise
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import Batch, Losses
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run


@dataclass(frozen=True, slots=True)
class DistilledConfig(ChunkConfig):
    """One call that answers like the sampler of a trained policy (--parent)."""

    # Numbers through which what is observed scales and shifts the layers; 0: as many as its width.
    rank: int = 32
    # Weight of an action that is usually not executed, beside 1 of those that are.
    later: float = 1.0
    # Errors of an action well beyond this count by their size instead of its square (pseudo-Huber,
    # in normalised actions); 0: every error squared.
    huber: float = 0.0
    # Largest standard deviation by which an observed vector is moved in training, per number, SI
    # units; each sample draws its share of it.
    shifts: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])

    def __post_init__(self) -> None:
        ChunkConfig.__post_init__(self)
        if self.rank < 0:
            raise ConfigError(f"rank must be at least 0, got {self.rank}")
        if not self.later >= 0 or not self.huber >= 0:
            raise ConfigError(
                f"later and huber must be at least 0, got {self.later} and {self.huber}"
            )
        if not all(deviation >= 0 for values in self.shifts.values() for deviation in values):
            raise ConfigError(f"shifts must be at least 0, got {self.shifts}")

    def build(
        self, space: TaskSpace, stats: DatasetStats, parent: Run | None
    ) -> DistilledAlgorithm:
        """An untrained student of ``parent``."""
        teacher, parent = teacher_of(parent, "distilled", self, space)
        _check_shifts(self, space)
        if teacher.draws != 1:
            raise ConfigError(
                f"the sampler of the parent '{parent.path}' draws noise {teacher.draws} times"
                " per chunk, a distilled policy once: take one that draws once (flow, ddim, dpm)"
            )
        student = DistilledModel(self, self.policy_spec(space), stats)
        refuse_other_scaling(student, teacher, parent)
        if isinstance(teacher, FlowModel):
            _start_from(student, teacher)
        return DistilledAlgorithm(self, self.policy_spec(space), student, teacher)

    def algorithm(self) -> type[DistilledAlgorithm]:
        """What trains it."""
        return DistilledAlgorithm


def _check_shifts(config: DistilledConfig, space: TaskSpace) -> None:
    cameras = [s.name for s in space.observations if s.is_image]
    if config.shifts and cameras:
        raise SpecMismatchError(f"shifts: pictures do not move along, and {cameras} are observed")
    shapes = {s.name: s.shape for s in space.observations if not s.is_image}
    for name, values in config.shifts.items():
        if shapes.get(name) != (len(values),):
            raise SpecMismatchError(
                f"shifts: '{name}' must be an observed vector of {len(values)} values; observed"
                f" vectors: {shapes}"
            )


class DistilledModel(ChunkModel):
    """Noise and observations to a chunk."""

    def __init__(self, config: DistilledConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        outputs = self.horizon * self.action_size
        self.net = ChunkMLP(
            outputs + self.flat_size,
            config.width,
            outputs,
            config.width,
            config.blocks,
            config.expansion,
            config.rank,
        )

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One call."""
        flat, hidden = self.split_context(context)
        return self.net.trunk(noise.squeeze(1), flat, self.net.modulation(hidden))


@torch.no_grad()
def _start_from(student: DistilledModel, teacher: FlowModel) -> None:
    """Begin as one Euler step of the teacher from noise to data, if the networks are alike: where
    no data is left in noise, that step is ``std net(noise; t = 0)``.
    """
    if not isinstance(teacher.net, ChunkMLP):
        return
    given = {k: v for k, v in teacher.state_dict().items() if not k.startswith("net.modulate.")}
    own = student.state_dict()
    alike = {k: v for k, v in given.items() if k in own and own[k].shape == v.shape}
    if any(k not in alike for k in own if not k.startswith("net.modulate.")):
        return
    student.load_state_dict(alike, strict=False)
    student.net.modulate.start_from(teacher.net.modulate)
    (step,) = sampling(1, teacher.shift, teacher.std)
    time = clock_features((step,), TIME_FEATURES, teacher.fastest, teacher.device)
    last = student.observe[-1]
    if not isinstance(last, nn.Linear):
        raise TypeError("the last layer of what is observed has a bias")
    last.bias.add_(teacher.clock(time)[0])
    student.net.outer.weight.mul_(step.add)
    student.net.outer.bias.mul_(step.add)


class DistilledAlgorithm(ChunkAlgorithm[DistilledConfig, DistilledModel]):
    """Trains the student; the teacher stays as it is."""

    name = "distilled"
    model_class = DistilledModel

    def __init__(
        self,
        config: DistilledConfig,
        spec: PolicySpec,
        student: DistilledModel,
        teacher: ChunkSampler,
    ) -> None:
        super().__init__(config, spec, student)
        self._teacher = teacher

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """One batch of lessons, around what is recorded."""
        if self.config.shifts:
            batch = dataclasses.replace(batch, observations=self._shifted(batch, rng))
        return super().forward(batch, step, rng)

    def _shifted(self, batch: Batch, rng: torch.Generator) -> dict[str, Tensor]:
        """Observations, each vector moved alike at all times of its history."""
        observations = dict(batch.observations)
        share = torch.rand(len(batch.actions), 1, 1, generator=rng)
        for name, values in self.config.shifts.items():
            drawn = torch.randn(len(share), 1, len(values), generator=rng)
            moved = share * drawn * torch.tensor(values)
            observations[name] = observations[name] + moved.to(observations[name].device)
        return observations

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Difference of the answers to the same noise, past the end of an episode too: what the
        teacher does there is as good as what it does before.
        """
        drawn = torch.randn((len(encoded.actions), 1, *encoded.actions.shape[1:]), generator=rng)
        noise = drawn.to(encoded.actions.device)
        with torch.no_grad():
            teacher = self._teacher.to(noise.device)
            target = teacher.generate(noise, teacher.context(encoded.source.observations))
        error = self.model.generate(noise, encoded.context) - target
        squared = error.square().mean(dim=-1)
        if self.config.huber:
            scale = self.config.huber
            squared = 2 * scale * ((squared + scale**2).sqrt() - scale)
        weight = torch.ones(squared.shape[1], device=squared.device)
        weight[self.config.execute :] = self.config.later
        return Losses({"distilled": (squared * weight).mean(dim=0).sum() / weight.sum()}, {})
