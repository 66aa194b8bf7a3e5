"""Takes the best of several chunks of a cloned flow by critics: QC (Li, Zhou, Levine 2025).

    Q:  E[ (Q_i(s, A) - (R + g^h m max_k mean_i Qbar_i(s', A_k)))^2 ],   A_k: flow samples at s'
    v:  flow matching on recorded chunks                                  (behaviour alone)

Acting takes the best of ``candidates`` samples as well, so nothing is ever done that behaviour does
not. Costs ``candidates * flow_steps`` passes of the flow per row; FQL learns to do it in one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.critics.behaviour_flow import BehaviourFlow
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.ensemble import Ensemble
from policies.critics.judged_actor import JudgedActor
from policies.nets.shapes import (
    CandidateRows,
    Chunks,
    Context,
    Features,
    FlatCandidates,
    Noise,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class QcConfig(ActorCriticConfig):
    """Q-chunking with the best of several samples."""

    # Flow samples to choose from, in training and acting. The paper: 32, which a GPU wants.
    candidates: int = 4
    # Euler steps of the flow.
    flow_steps: int = 10

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if min(self.candidates, self.flow_steps) < 1:
            raise ConfigError("candidates and flow_steps must be at least 1")

    def algorithm(self) -> type[Qc]:
        """What trains it."""
        return Qc


class QcActor(JudgedActor):
    """The flow, and the critic that chooses among its samples."""

    def __init__(self, config: QcConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.draws, self.steps = config.candidates, config.flow_steps
        size = self.observed.size
        self.flow = BehaviourFlow(size, self.chunk_size, config.width, config.depth)
        self.critic = ChunkCritic(config.critic(), spec, stats, spec.horizon)

    def candidates(self, noise: Noise, seen: Features) -> FlatCandidates:
        """Flow samples ``[b, draws, g]`` from ``noise [b, draws, h, a]``."""
        flat = noise.flatten(2).flatten(0, 1)
        at = seen.repeat_interleave(noise.shape[1], dim=0)
        x = self.held(self.flow.sample(flat, at, self.steps))
        return x.unflatten(0, (-1, noise.shape[1]))

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The best of the samples."""
        seen, judged = self.split(context)
        chunks = self.candidates(noise, seen)
        return self.chosen(chunks, worth(self.critic.q, judged, chunks).argmax(dim=1))


def worth(q: Ensemble, features: Features, chunks: FlatCandidates) -> CandidateRows:
    """What the members of ``q`` say of ``chunks [b, k, g]`` on average."""
    count = chunks.shape[1]
    x = torch.cat([features.repeat_interleave(count, dim=0), chunks.flatten(0, 1)], dim=-1)
    return q(x).mean(dim=0).view(-1, count)


class Qc(ActorCritic[QcConfig, QcActor]):
    """Trains flow and critic."""

    name = "qc"
    actor_class = QcActor

    def __init__(self, config: QcConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        # The policy chooses by the critic that is trained: one set of weights.
        self.actor.critic = self.critic

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is the best of the flow's."""
        actor = self.actor
        shape = (len(t.chunk), actor.draws, actor.horizon, actor.action_size)
        noise = torch.randn(shape, generator=rng).to(t.chunk.device)
        with torch.no_grad():
            seen = actor.split(t.next_seen)[0]
            chunks = actor.candidates(noise, seen)
            following = worth(self.target, t.follow, chunks).amax(dim=1)
            target = self.td_target(t, following)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Flow matching: the critic has no say in it."""
        return {"flow": self.actor.flow.loss(t, rng, self.actor.split(t.seen)[0])}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"flow": (*self.actor.flow.parameters(), *self.actor.observed.parameters())}
