"""Distillation: what a trained policy's sampler makes of noise, learned as one call.

    g(eps, o) ~ sampler(eps, o),   loss = |g - sampler|^2     (Luhman and Luhman 2021)

A sampler that draws noise once is a function of it, so a regression on its answers forgets no way
of doing things: other noise, another chunk. No time is asked for, so the network needs no condition
on it either: a plain residual MLP, with half of the weights of a flow policy of the same width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from policies.chunk import (
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    ChunkPolicy,
    FieldChunkPolicy,
    Lesson,
)
from policies.nets.encoder import refuse_pictures
from policies.nets.residual_mlp import PlainMLP
from policies.teacher import refuse_other_scaling, teacher_of
from robolearn.checkpoint import Run, load_weights
from robolearn.contracts import PolicySpec
from robolearn.data.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses
from robolearn.spec import TaskSpace


@dataclass(frozen=True, slots=True)
class DistilledConfig(ChunkConfig):
    """One call that answers like the sampler of a trained policy (--parent)."""

    # Updates that an answer of the teacher serves on average; 1: every one is learned from once, at
    # once. The teacher's calls are most of the cost, and its answers hold no noise to fit to.
    reuse: int = 1
    # Answers kept to draw from, where they are reused.
    pool: int = 32768

    def __post_init__(self) -> None:
        ChunkConfig.__post_init__(self)
        if self.reuse < 1 or self.pool < self.batch_size * self.reuse:
            raise ConfigError("reuse must be at least 1, pool at least batch_size * reuse")

    def build(
        self, space: TaskSpace, stats: DatasetStats, parent: Run | None
    ) -> DistilledAlgorithm:
        """An untrained student of ``parent``."""
        teacher, parent = teacher_of(parent, "distilled", self, space)
        if teacher.model.draws != 1:
            raise ConfigError(
                f"the sampler of the parent '{parent.path}' draws noise {teacher.model.draws} times"
                " per chunk, a distilled policy once: take one that draws once (flow, ddim, dpm)"
            )
        if self.reuse > 1:
            refuse_pictures(self.policy_spec(space))
        student = DistilledModel(self, self.policy_spec(space), stats)
        refuse_other_scaling(student, teacher.model, parent)
        return DistilledAlgorithm(self, self.policy_spec(space), student, teacher)

    def load(self, run: Run) -> ChunkPolicy:
        """The trained policy of a run directory; the teacher is not needed any more."""
        model = DistilledModel(self, run.spec, run.stats)
        load_weights(model, run.weights, str(run.path))
        return ChunkPolicy(model.eval(), run.spec)


class DistilledModel(ChunkModel):
    """Noise and observations to a chunk."""

    def __init__(self, config: DistilledConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats, observes=False)
        outputs = self.horizon * self.action_size
        self.net = PlainMLP(
            outputs + self.context_size, outputs, config.width, config.blocks, config.expansion
        )

    def generate(self, noise: Tensor, context: Tensor) -> Tensor:
        """One call."""
        x = noise[:, 0]
        return self.net(torch.cat([x.flatten(1), context], dim=-1)).view_as(x)


class DistilledAlgorithm(ChunkAlgorithm):
    """Trains the student; the teacher stays as it is."""

    def __init__(
        self,
        config: DistilledConfig,
        spec: PolicySpec,
        student: DistilledModel,
        teacher: FieldChunkPolicy,
    ) -> None:
        super().__init__("distilled", config, spec, student)
        self._teacher, self.config = teacher, config
        # What is reused: part of the state that a resumed run restores.
        count = config.pool if config.reuse > 1 else 0
        chunk = (spec.horizon, spec.task_space.action_size)
        self.register_buffer("contexts", torch.zeros(count, student.context_size))
        self.register_buffer("noises", torch.zeros(count, 1, *chunk))
        self.register_buffer("answers", torch.zeros(count, *chunk))
        self.contexts: Tensor
        self.noises: Tensor
        self.answers: Tensor
        self.model: DistilledModel
        self.ema: DistilledModel

    def losses(self, lesson: Lesson, step: int, rng: torch.Generator) -> Losses:
        """Squared difference of the answers to the same noise, past the end of an episode too:
        what the teacher does there is as good as what it does before.
        """
        actions, context = lesson.actions, lesson.context
        drawn = torch.randn((len(actions), 1, *actions.shape[1:]), generator=rng)
        noise = drawn.to(actions.device)
        with torch.no_grad():
            teacher = self._teacher.model.to(actions.device)
            target = teacher.generate(noise, teacher.context(lesson.batch.observations))
        if self.training and self.config.reuse > 1:
            kept = (self.contexts, self.noises, self.answers)
            context, noise, target = self._drawn(kept, (context, noise, target), step, rng)
        error = (self.model.generate(noise, context) - target) ** 2
        return Losses({"distilled": error.mean()}, {})

    def _drawn(
        self,
        kept: tuple[Tensor, ...],
        new: tuple[Tensor, ...],
        step: int,
        rng: torch.Generator,
    ) -> tuple[Tensor, ...]:
        """Put new answers in the place of the oldest, and draw ``reuse`` times as many of all."""
        size, count = len(new[0]), len(kept[0])
        places = (step * size + torch.arange(size)) % count
        for pool, values in zip(kept, new, strict=True):
            pool[places] = values.detach()
        filled = min(count, (step + 1) * size)
        index = torch.randint(0, filled, (size * self.config.reuse,), generator=rng)
        return tuple(pool[index] for pool in kept)

    def policy(self) -> ChunkPolicy:
        """The policy with the averaged weights."""
        return ChunkPolicy(self.ema, self.spec)
