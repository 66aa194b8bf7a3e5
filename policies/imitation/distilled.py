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

With ``lessons`` k any policy is a teacher, also one that chooses among chunks or corrects them:

    g(c_j, o) ~ teacher(s_j, o),   j = 1..k:   s_j: a seed that is the same for every observation,
                                               c_j: the noise that a sampler draws from it first

What is chosen of many chunks depends on noise that no student could be told; by few seeds it
becomes as many functions of what is observed alone. They are drawn once before training, at every
row. Answering, the student takes the c_j that is most alike to the noise of the request, so that it
goes on doing one thing or another: what choosing among eight is worth costs one call.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from policies.chunks.base import (
    TIME_FEATURES,
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    EncodedBatch,
)
from policies.chunks.policy import ChunkSampler, FieldChunkPolicy
from policies.chunks.sampler_steps import clock_features
from policies.critics.candidates import draw_chunks
from policies.critics.parent import judged_policy
from policies.critics.reranked import RerankedPolicy
from policies.imitation.flow import FlowModel, sampling
from policies.imitation.teacher import refuse_other_scaling, teacher_of
from policies.nets.encoder import same_codec
from policies.nets.residual_mlp import ChunkMLP
from policies.nets.shapes import Candidates, Chunks, Codes, Context, Noise
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import Batch, BatchSpec, Losses, Observed, request_noise
from robolearn.seeding import child_seed
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run
from robolearn.types import RequestNumbers


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
    # Answers of the parent at every row, drawn once before training; 0: its sampler, which must be
    # a function of noise, is asked in every update.
    lessons: int = 0
    # Steps between the rows that are learned from. A policy's own episodes hold a decision every
    # ``execute`` steps; 1: every step, with as many answers to draw.
    every: int = 1
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
        if self.lessons < 0:
            raise ConfigError(f"lessons must be at least 0, got {self.lessons}")
        if self.lessons and (self.shifts or self.mirror is not None):
            raise ConfigError(
                f"lessons ({self.lessons} answers per row, drawn once) are answers to what is"
                " recorded, as it is: leave out shifts and mirror"
            )
        if not all(deviation >= 0 for values in self.shifts.values() for deviation in values):
            raise ConfigError(f"shifts must be at least 0, got {self.shifts}")

    def batches(self) -> BatchSpec:
        """Windows, and what the parent answers at them."""
        spec = dataclasses.replace(ChunkConfig.batches(self), every=self.every)
        return dataclasses.replace(spec, parts=("candidates",)) if self.lessons else spec

    def build(
        self, space: TaskSpace, stats: DatasetStats, parent: Run | None
    ) -> DistilledAlgorithm:
        """An untrained student of ``parent``."""
        if self.lessons:
            asked = judged_policy(parent, "distilled", space, self.n_obs, self.horizon)
            student = DistilledModel(self, self.policy_spec(space), stats)
            flow = _flow_of(asked)
            if flow is not None and _seen_alike(student, flow):
                _start_from(student, flow)
            return DistilledAlgorithm(self, self.policy_spec(space), student, asked)
        remedy = "; any policy teaches as many answers per row as 'lessons' says (4)"
        teacher, parent = teacher_of(parent, "distilled", self, space, remedy)
        _check_shifts(self, space)
        if teacher.draws != 1:
            raise ConfigError(
                f"the sampler of the parent '{parent.path}' draws noise {teacher.draws} times"
                " per chunk, a distilled policy once: take one that draws once (flow, ddim, dpm)"
                f"{remedy}"
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

    codes: Codes

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
        shape = (self.horizon, self.action_size)
        codes = torch.zeros(0, *shape)
        if config.lessons:
            codes = torch.from_numpy(request_noise(lesson_seeds(config.lessons), shape))
        self.register_buffer("codes", codes, persistent=False)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One call; with lessons, from the code that is most alike to the noise."""
        if len(self.codes):
            flat = self.codes.flatten(1)
            alike = noise.flatten(1) @ (flat / flat.norm(dim=1, keepdim=True)).T
            noise = self.codes[alike.argmax(dim=1)][:, None]
        return self.answer(noise, context)

    def answer(self, noise: Noise, context: Context) -> Chunks:
        """To this very noise."""
        flat, hidden = self.split_context(context)
        return self.net.trunk(noise.squeeze(1), flat, self.net.modulation(hidden))


def lesson_seeds(count: int) -> RequestNumbers:
    """Of so many ways to answer."""
    seeds = [child_seed(0, "lesson", number) for number in range(count)]
    return np.array(seeds, dtype=np.int64)


def _flow_of(policy: Policy) -> FlowModel | None:
    """The flow policy that ``policy`` chooses among the chunks of, if that is what it does."""
    while isinstance(policy, RerankedPolicy):
        policy = policy.parent
    model = policy.model if isinstance(policy, FieldChunkPolicy) else None
    return model if isinstance(model, FlowModel) else None


def _seen_alike(student: DistilledModel, teacher: FlowModel) -> bool:
    """Whether the same numbers mean the same to both."""
    known = student.encoder.transforms == teacher.encoder.transforms
    return known and same_codec(student.codec, teacher.codec)


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
        teacher: ChunkSampler | Policy,
    ) -> None:
        super().__init__(config, spec, student)
        self._teacher = teacher

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Candidates:
        """The teacher's answers, whatever the row: ``lessons`` of them."""
        if isinstance(self._teacher, ChunkSampler):
            raise ConfigError("without lessons the teacher is asked in every update")
        each = [
            draw_chunks(self._teacher, observations, np.full_like(seeds, seed), 1)
            for seed in lesson_seeds(self.config.lessons)
        ]
        return torch.cat(each, dim=1)

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
        noise, target = self._lesson(encoded, rng)
        error = self.model.answer(noise, encoded.context) - target
        squared = error.square().mean(dim=-1)
        if self.config.huber:
            scale = self.config.huber
            squared = 2 * scale * ((squared + scale**2).sqrt() - scale)
        weight = torch.ones(squared.shape[1], device=squared.device)
        weight[self.config.execute :] = self.config.later
        return Losses({"distilled": (squared * weight).mean(dim=0).sum() / weight.sum()}, {})

    def _lesson(self, encoded: EncodedBatch, rng: torch.Generator) -> tuple[Noise, Chunks]:
        """Noise for every row, and what the teacher makes of it there."""
        source, rows = encoded.source, len(encoded.actions)
        if isinstance(self._teacher, ChunkSampler):
            drawn = torch.randn((rows, 1, *encoded.actions.shape[1:]), generator=rng)
            noise = drawn.to(encoded.actions.device)
            with torch.no_grad():
                teacher = self._teacher.to(noise.device)
                return noise, teacher.generate(noise, teacher.context(source.observations))
        if source.candidates is None:
            raise ConfigError("distilled is fed with what its parent answers at every row")
        device = encoded.actions.device
        which = torch.randint(self.config.lessons, (rows,), generator=rng).to(device)
        answers = source.candidates[torch.arange(rows, device=device), which]
        target = self.model.codec.encode(answers, source.observations)
        return self.model.codes[which][:, None], target
