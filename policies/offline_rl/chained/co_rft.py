"""Learns a value for every prefix of a chunk: chunked TD after CO-RFT (Huang et al. 2025).

    Q_j(o, A_1..j), j = 1..h:   E[ mean_j ( Q_j - y_j )^2 ]
    y_j = sum_{k<j} g^k r_k + g^j m_j min_i Qbar_h( o_j, pibar(o_j) + clip(noise) )
    + conservative E[ log sum_B exp Q_h(o, B) - Q_h(o, A) ],  Q_h(o, pi(o)) not below its return
    pi:  E[ |pi(o) - A|^2 ] - bc Q_h(o, pi(o)) / mean |Q|                     TD3+BC

o_j, m_j: what is observed after j steps, 0 where the task is over. Every prefix says something of
the rewards inside the chunk, which one value of the whole does not. The paper (arXiv 2508.02219)
names prefixes, Cal-QL's floor and TD3; the exact target is UNVERIFIED: only abstract and figures
could be read, and one replication found no gain on its task. Its critic is a transformer beside a
large model; here a network is asked once per prefix. Its first stage, cloning, is the term beside
the critic's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies.critics.actor_critic import GroupLosses, Transition
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.delayed import DelayedActorCritic, DelayedConfig
from policies.critics.prefix_values import PrefixEnsemble
from policies.nets.shapes import Prefixes, Scalar
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart


@dataclass(frozen=True, slots=True)
class CoRftConfig(DelayedConfig):
    """Chunked TD with values of prefixes."""

    # Weight of the critic's gradient beside 1 of behaviour, divided by mean |Q|. TD3+BC: 2.5.
    greed: float = 2.5
    # Weight of Cal-QL's penalty; 0: none.
    conservative: float = 0.0
    # Chunks drawn at random that the penalty compares with, beside the policy's.
    contrast: int = 4

    def __post_init__(self) -> None:
        DelayedConfig.__post_init__(self)
        if min(self.greed, self.conservative, self.contrast) < 0:
            raise ConfigError("greed, conservative and contrast must be at least 0")

    def algorithm(self) -> type[CoRft]:
        """What trains it."""
        return CoRft

    def parts(self) -> tuple[BatchPart, ...]:
        """What each step of a chunk gave and led to; returns for the penalty."""
        parts: tuple[BatchPart, ...] = ("transition", "step_rewards", "step_observations")
        return (*parts, "returns") if self.conservative > 0 else parts


class CoRft(DelayedActorCritic[CoRftConfig]):
    """Trains values of prefixes, and the actor less often."""

    name = "co_rft"

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """Critics of prefixes."""
        c, critic = self.config, super().untrained(spec, stats)
        critic.q = PrefixEnsemble(
            c.members,
            critic.observed.size,
            c.horizon,
            spec.task_space.action_size,
            c.width,
            c.depth,
        )
        return critic

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """What the prefixes are worth, and the penalty."""
        return {"critic": self.mean_td_loss(t, rng) + self.penalty(t, rng)}

    def mean_td_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Squared TD errors, averaged over the prefixes that were done."""
        q = self.critic.q
        if not isinstance(q, PrefixEnsemble):
            raise TypeError("co_rft judges prefixes")
        values = q.prefixes(t.now, t.chunk)
        with torch.no_grad():
            target = self.prefix_targets(t, rng)
        done = t.batch.action_mask[:, : self.config.horizon].float()
        errors = ((values - target) ** 2).mean(dim=0)
        return (errors * done).sum() / done.sum().clamp(min=1.0)

    def prefix_targets(self, t: Transition, rng: torch.Generator) -> Prefixes:
        """``y_j [b, h]``."""
        batch, c = t.batch, self.config
        rewards, follow, bootstrap = (
            batch.step_rewards,
            batch.step_observations,
            batch.step_bootstrap,
        )
        if rewards is None or follow is None or bootstrap is None:
            raise ConfigError("co_rft is fed with what each step of a chunk gave and led to")
        seen = {name: value.flatten(0, 1) for name, value in follow.items()}
        x = torch.cat([self.critic.observed(seen), self.smoothed(seen, rng)], dim=-1)
        following = self.target(x).amin(dim=0).view_as(bootstrap)
        powers = c.discount ** torch.arange(c.horizon, device=rewards.device)
        target = (rewards * powers).cumsum(dim=1) + bootstrap * following
        return target if c.bounds is None else target.clamp(*c.bounds)

    def penalty(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Cal-QL's: other chunks are worth less than the recorded, the policy's not less than its
        return (Nakamoto et al. 2023).
        """
        c, returns = self.config, t.batch.returns
        if not c.conservative or returns is None:
            return t.reward.new_zeros(())
        with torch.no_grad():
            own = self.actor.chunk(t.seen)
        shape = (c.contrast, *t.chunk.shape)
        other = c.clip * (2 * torch.rand(shape, generator=rng).to(own.device) - 1)
        judged = [torch.maximum(self.critic.q_values(t.now, own), returns)]
        judged += [self.critic.q_values(t.now, chunk) for chunk in other]
        above = torch.logsumexp(torch.stack(judged), dim=0)
        return c.conservative * (above - self.critic.q_values(t.now, t.chunk)).mean()

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """The critic's gradient, and the distance to what was done; every other update."""
        if not self.acts(t):
            return {}
        chunk = self.actor.chunk(t.seen)
        q = self.critic.steering(t.now.detach(), chunk).amin(dim=0)
        scale = q.detach().abs().mean().clamp(min=1e-6)
        return {"policy": t.mean((chunk - t.chunk) ** 2) - self.config.greed * q.mean() / scale}
