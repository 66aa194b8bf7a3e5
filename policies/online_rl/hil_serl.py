"""Learns from practice, demonstrations and corrections, the gripper by a critic of its own:
HIL-SERL (Luo, Xu, Wu, Levine 2024).

    arm:      RLPD of all numbers of a chunk but the gripper's
    gripper:  E[ (D(s, w) - y)^2 ],  y = R - c [w changes the gripper] + g^h m Dbar(s', w*)
              w* = argmax D(s', .);   executed: argmax D(s, .), one width for a whole chunk

Open and closed are two islands: a Gaussian between them half-closes the gripper, and the critic's
gradient ends in the gap. So the width of a chunk is one of a few, chosen by a double DQN (van
Hasselt et al. 2016). ``gripper/width`` says which state is wanted; the release's trigger (open,
hold, close) is too rare an event to be learned from much: here to command the same again is to
hold. Corrections come by ``practice.demonstrations`` where somebody takes over
(``robolearn finetune --takeover``).

Without a gripper it is RLPD with two critics, as is the paper's agent for a fixed one.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from policies.chunks.base import move_towards, randn
from policies.critics.actor_critic import GroupLosses, Transition
from policies.critics.chunk_critic import ChunkCritic, CriticConfig
from policies.critics.diagnostics import Figures
from policies.critics.ensemble import Ensemble
from policies.critics.gaussian.squashed import SquashedActor, squashed_density
from policies.nets.shapes import (
    CandidateRows,
    ChunkFeatures,
    Chunks,
    Context,
    Noise,
    OneChunk,
    RowIndex,
    Rows,
    Widths,
)
from policies.online_rl.rlpd import RlpdConfig, RlpdTraining
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, Observed
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run

WIDTH = "gripper/width"
"""The action, and the observation, that has a critic of its own [m]."""


@dataclass(frozen=True, slots=True)
class HilSerlConfig(RlpdConfig):
    """RL with prior data, corrections, and a gripper that is chosen."""

    # The release: 2.
    members: int = 2
    # As many as say what follows; the release: both.
    subset: int = 2
    # The release: two updates of the critics per update of the actor.
    actor_every: int = 2
    # Widths that are chosen among, from the narrowest that was commanded to the widest.
    widths: int = 2
    # What a chunk costs that moves the gripper from one of them towards another; the release: .02
    # [memory], where success is worth 1. Needs ``gripper/width`` among the observations.
    change_cost: float = 0.02

    def __post_init__(self) -> None:
        RlpdConfig.__post_init__(self)
        if self.widths < 2 or not (math.isfinite(self.change_cost) and self.change_cost >= 0):
            raise ConfigError(
                "widths must be at least 2 and change_cost at least 0, got"
                f" {self.widths} and {self.change_cost}"
            )

    def algorithm(self) -> type[HilSerl]:
        """What trains it."""
        return HilSerl

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """As RLPD's; errors: :class:`ConfigError` for more than one gripper."""
        gripper_column(space)
        return RlpdConfig.build(self, space, stats, parent)


def gripper_column(space: TaskSpace) -> int | None:
    """Which number of an action is the gripper's; None: there is none.

    Errors: :class:`ConfigError` for several, which are not one choice.
    """
    names = [a.name for a in space.actions for _ in range(a.size)]
    found = [k for k, name in enumerate(names) if name.endswith(WIDTH)]
    if len(found) > 1:
        raise ConfigError(
            f"hil_serl chooses the width of one gripper, got {len(found)}"
            f" ({sorted({names[k] for k in found})}); use rlpd"
        )
    return found[0] if found else None


def arm_numbers(spec: PolicySpec) -> OneChunk:
    """``[1, g]``: 1 for the numbers of a flat chunk that are the arm's, 0 for the gripper's."""
    mask = torch.ones(spec.horizon, spec.task_space.action_size)
    column = gripper_column(spec.task_space)
    if column is not None:
        mask[:, column] = 0.0
    return mask.flatten()[None]


class GrippingActor(SquashedActor):
    """A Gaussian for the arm; what each width of the gripper is worth."""

    arm: OneChunk
    widths: Widths

    def __init__(self, config: HilSerlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.column = gripper_column(spec.task_space)
        self.register_buffer("arm", arm_numbers(spec), persistent=False)
        self.grips: Ensemble | None = None
        if self.column is None:
            return
        if config.anchor > 0:
            raise ConfigError(
                "anchor sees actions from where the tool is, of which a gripper's width is none;"
                " set anchor to 0"
            )
        size = self.observed.size
        self.grips = Ensemble(1, size, config.width, config.depth, config.widths)
        name, offset = _action_of(spec.task_space, self.column)
        limits = stats.actions[name]
        ends = limits.minimum[offset], limits.maximum[offset]
        widths = torch.linspace(float(ends[0]), float(ends[1]), config.widths)
        scale, shift = (self.codec.get_buffer(n)[self.column] for n in ("scale", "offset"))
        self.register_buffer("widths", widths * scale + shift, persistent=False)

    def worths(self, context: Context) -> CandidateRows:
        """What each width is worth ``[b, widths]``."""
        assert self.grips is not None
        return self.grips.several(context)[0]

    def nearest(self, chunk: ChunkFeatures) -> RowIndex:
        """The width that the normalised ``chunk [b, g]`` commands on average."""
        wanted = chunk.unflatten(1, (self.horizon, self.action_size))[:, :, self.column].mean(1)
        return (wanted[:, None] - self.widths).abs().argmin(dim=1)

    def draw(self, context: Context, rng: torch.Generator) -> tuple[ChunkFeatures, Rows]:
        """Of the arm; 0 for the gripper's numbers."""
        mean, log_deviation = self.gaussian(context)
        noise, clip = randn(mean, rng), self.config.clip
        u = mean + log_deviation.exp() * noise
        density = squashed_density(u, noise, log_deviation) - math.log(clip)
        return clip * torch.tanh(u) * self.arm, (density * self.arm).sum(dim=-1)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The mean, and the width that is worth most."""
        return self._gripping(super().generate(noise, context), context)

    def sampled(self, noise: Noise, context: Context) -> Chunks:
        """The arm as it is drawn, the width that is worth most."""
        return self._gripping(super().sampled(noise, context), context)

    def _gripping(self, chunks: Chunks, context: Context) -> Chunks:
        if self.grips is None:
            return chunks
        width = self.widths[self.worths(context).argmax(dim=1)]
        arm = self.arm.unflatten(1, (self.horizon, self.action_size))
        return chunks * arm + width[:, None, None] * (1.0 - arm)


class ArmCritic(ChunkCritic):
    """Judges what the arm does, whatever the gripper does."""

    arm: OneChunk

    def __init__(
        self, config: CriticConfig, spec: PolicySpec, stats: DatasetStats, stride: int
    ) -> None:
        super().__init__(config, spec, stats, stride)
        self.register_buffer("arm", arm_numbers(spec), persistent=False)

    def chunk(self, actions: Chunks, observations: Observed) -> ChunkFeatures:
        """As :class:`ChunkCritic`, 0 for the gripper's numbers."""
        return self.whole(actions, observations) * self.arm

    def whole(self, actions: Chunks, observations: Observed) -> ChunkFeatures:
        """With the gripper's."""
        return super().chunk(actions, observations)


class HilSerl(RlpdTraining[HilSerlConfig]):
    """Trains the arm as RLPD does, and a critic that chooses the gripper's width."""

    name = "hil_serl"
    actor_class = GrippingActor
    critic: ArmCritic

    def __init__(self, config: HilSerlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        if config.entropy is None:
            grips = 0 if self.gripping.column is None else self.gripping.horizon
            self.entropy = config.entropy_per_number * (self.gripping.chunk_size - grips)
        observed = {s.name for s in spec.task_space.observations}
        self._seen = next((n for n in observed if n.endswith(WIDTH)), "")
        if self.gripping.grips is not None and config.change_cost and not self._seen:
            raise ConfigError(
                f"change_cost: whether a chunk moves the gripper is seen by '{WIDTH}', which is not"
                f" observed ({sorted(observed)}); name it in data.observations, or set change_cost"
                " to 0"
            )
        self.slow_grips = copy.deepcopy(self.gripping.grips)
        if self.slow_grips is not None:
            self.slow_grips.requires_grad_(requires_grad=False)

    @property
    def gripping(self) -> GrippingActor:
        """The actor, which it is."""
        return cast("GrippingActor", self.actor)

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """The arm's."""
        return ArmCritic(self.config.critic(), spec, stats, self.config.horizon)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """RLPD's, and that of the gripper's critic."""
        losses = super().critic_loss(t, rng)
        if self.gripping.grips is None:
            return losses
        chosen = self.chosen(t)
        # What is seen is encoded for the arm.
        said = self.gripping.worths(t.seen.detach()).gather(1, chosen[:, None])[:, 0]
        return {**losses, "gripper": ((said - self.grip_target(t, chosen)) ** 2).mean()}

    def chosen(self, t: Transition) -> RowIndex:
        """The widths that the chunks of a batch commanded."""
        whole = self.critic.whole(t.batch.actions, t.batch.observations)
        return self.gripping.nearest(whole)

    def grip_target(self, t: Transition, chosen: RowIndex) -> Rows:
        """What a choice led to: its reward, less its cost, and what the slow critic says of the
        best width after it.
        """
        assert self.slow_grips is not None
        with torch.no_grad():
            best = self.gripping.worths(t.next_seen).argmax(dim=1)
            follow = self.slow_grips.several(t.next_seen)[0].gather(1, best[:, None])[:, 0]
            target = self.td_target(t, follow)
            return target - self.config.change_cost * self.changes(t, chosen)

    def changes(self, t: Transition, chosen: RowIndex) -> Rows:
        """1 where the gripper is seen nearest to another width than the one that was commanded."""
        if not self._seen:
            return torch.zeros_like(t.reward)
        seen = t.batch.observations[self._seen][:, -1].flatten(1)[:, 0]
        codec, column = self.critic.codec, self.gripping.column
        scale, shift = (codec.get_buffer(n)[column] for n in ("scale", "offset"))
        before = ((seen * scale + shift)[:, None] - self.gripping.widths).abs().argmin(dim=1)
        return (before != chosen).to(t.reward.dtype)

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:
        """``grip_agreement``: how often the gripper's critic chooses what was done."""
        found = super().more_figures(t, rng)
        if self.gripping.grips is None:
            return found
        with torch.no_grad():
            best = self.gripping.worths(t.seen).argmax(dim=1)
        return {**found, "grip_agreement": (best == self.chosen(t)).float().mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """RLPD's without what chooses the width, which is a group of its own."""
        found = dict(super().actor_groups())
        grips = self.gripping.grips
        if grips is None:
            return found
        own = tuple(grips.parameters())
        known = {id(p) for p in own}
        found["policy"] = tuple(p for p in found["policy"] if id(p) not in known)
        return {**found, "gripper": own}

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """The slow critic of the gripper, too."""
        super().after_update(step, updated)
        if self.slow_grips is not None and self.gripping.grips is not None:
            move_towards(self.slow_grips, self.gripping.grips, self.config.tau)


def _action_of(space: TaskSpace, column: int) -> tuple[str, int]:
    """The action that a number of all of them belongs to, and which of its numbers it is."""
    numbers = [(a.name, k) for a in space.actions for k in range(a.size)]
    return numbers[column]
