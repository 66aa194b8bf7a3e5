"""Distils a trained policy's field into one call from noise to a chunk: consistency distillation.

    f(x_t, t) = x_t + (1 - t) u(x_t, t),   f(x_t, t) ~ f_ema(x_s, s),   x_s: teacher's step t -> s

with t from 0 (noise) to 1 (data), where f is the identity (Song et al. 2023, equation 10, written
for the straight path). The parent is any policy with a field: flow, diffusion, mean_flow, shortcut.
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
)
from policies.chunks.policy import FieldSampler
from policies.chunks.sampler_steps import Step, equal_times, euler_steps
from policies.imitation.flow import flow_target, preconditioning
from policies.imitation.teacher import refuse_other_scaling, teacher_of
from policies.nets.shapes import AnyContext, Chunks, Context, Noise, Rows, StepTimes
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run


@dataclass(frozen=True, slots=True)
class ConsistencyConfig(FieldConfig):
    """A student of a trained policy (--parent), from whose weights it starts if it can."""

    # Teacher steps from noise to data.
    teacher_steps: int = 16
    # Standard deviation of normalised actions that the preconditioning assumes.
    action_std: float = 0.5
    # Network calls per chunk.
    sampler_steps: int = 1

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if self.teacher_steps < 2 or self.sampler_steps < 1 or self.action_std <= 0:
            raise ConfigError("teacher_steps must be >= 2, sampler_steps >= 1, action_std positive")

    def build(
        self, space: TaskSpace, stats: DatasetStats, parent: Run | None
    ) -> ConsistencyAlgorithm:
        """An untrained student of ``parent``."""
        spec = self.policy_spec(space)
        teacher, parent = teacher_of(parent, "consistency", self, space)
        student = ConsistencyModel(self, spec, stats)
        refuse_other_scaling(student, teacher, parent)
        _start_from(student, teacher)
        return ConsistencyAlgorithm(self, spec, student, teacher)

    def algorithm(self) -> type[ConsistencyAlgorithm]:
        """What trains it."""
        return ConsistencyAlgorithm


def _start_from(student: ConsistencyModel, teacher: FieldSampler) -> None:
    """Begin with the teacher's weights, if the networks are alike."""
    own, given = student.state_dict(), teacher.state_dict()
    if all(k in given and given[k].shape == v.shape for k, v in own.items()):
        student.load_state_dict({k: given[k] for k in own})


class ConsistencyModel(FieldModel):
    """A network from any point of a path to its end."""

    def __init__(self, config: ConsistencyConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.std, self.sampler_steps = config.action_std, config.sampler_steps
        self.draws = config.sampler_steps

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """Straight to where the path is said to end."""
        c_in, c_skip, c_out = (c[:, :, None] for c in preconditioning(t, self.std))
        return c_skip * x_t + c_out * self.raw(c_in * x_t, (t,), context)

    def end(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """The chunk at the end of the path through ``x_t``."""
        return x_t + (1 - t)[:, None, None] * self.velocity(x_t, t, context)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        return torch.tensor(equal_times(self.sampler_steps), device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """To the end; every further step goes a part of the way back, with new noise."""
        x = noise[:, 0]
        for i, t in enumerate(equal_times(self.sampler_steps)[:-1]):
            if i > 0:
                x = (1 - t) * noise[:, i] + t * x
            x = self.integrate(x, to_the_end(t, self.std), context)
        return x


@functools.lru_cache(maxsize=64)
def to_the_end(t: float, std: float) -> tuple[Step, ...]:
    """One step from ``t`` to 1."""
    return euler_steps((t, 1.0), [(t,)], std)


class ConsistencyAlgorithm(FieldAlgorithm[ConsistencyConfig, ConsistencyModel]):
    """Trains the student; the teacher stays as it is."""

    name = "consistency"
    model_class = ConsistencyModel

    def __init__(
        self,
        config: ConsistencyConfig,
        spec: PolicySpec,
        student: ConsistencyModel,
        teacher: FieldSampler,
    ) -> None:
        super().__init__(config, spec, student)
        self._teacher = teacher

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Disagreement about the end between two neighbours on the teacher's path."""
        model, actions = self.model, encoded.actions
        count = self.config.teacher_steps
        index = torch.randint(0, count, (len(actions),), generator=rng).to(actions.device)
        t, s = index / count, (index + 1) / count
        x_t, _ = flow_target(actions, randn(actions, rng), t)
        with torch.no_grad():
            seen = self._teacher.context(encoded.source.observations)
            x_s = teacher_step(self._teacher, x_t, t, s, seen)
            target = self.ema.end(x_s, s, self.ema.context(encoded.source.observations))
        error = model.end(x_t, t, encoded.context) - target
        scaled = (error / self.config.action_std) ** 2
        return Losses({"consistency": encoded.mean(scaled)}, {})


def teacher_step(
    teacher: FieldSampler, x_t: Chunks, t: Rows, s: Rows, context: AnyContext
) -> Chunks:
    """One step of Heun's method from ``t [b]`` to ``s [b]``; of Euler's where ``s`` is the end,
    beyond which a field may not be asked.
    """
    dt = (s - t)[:, None, None]
    first = teacher.velocity(x_t, t, context)
    inside = torch.where(s < 1, s, t)
    second = teacher.velocity(x_t + dt * first, inside, context)
    slope = torch.where((s < 1)[:, None, None], (first + second) / 2, first)
    return x_t + dt * slope
