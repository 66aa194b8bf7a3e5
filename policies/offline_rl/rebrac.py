"""Penalises what behaviour does not, in actor and critic of TD3: ReBRAC (Tarasov et al. 2023).

    Q:   E[ (Q_i(s, A) - y)^2 ],   y = R + g^h m ( min_i Qbar_i(s', A') - beta_c |A' - A'_data|^2 )
         A' = clip( pi(s') + clip(noise) ),   A'_data: what was done next in the same recording
    pi:  beta_a |pi(s) - A|^2 - min_i Q_i(s, pi(s)) / mean |Q|

Equations 2 and 3 of the paper with TD3's smoothing of the target policy (Fujimoto et al. 2018). The
penalties are sums over the numbers of a chunk's action, averaged over its steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies.critics.actor_critic import GroupLosses, Transition
from policies.critics.delayed import DelayedActorCritic, DelayedConfig
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart


@dataclass(frozen=True, slots=True)
class RebracConfig(DelayedConfig):
    """TD3 with behaviour penalties."""

    # Weight of the actor's distance to what was done; sweep .003 to 1.
    actor_penalty: float = 0.1
    # Weight of the next chunk's distance to what was done next; sweep 0 to .1.
    critic_penalty: float = 0.01

    def __post_init__(self) -> None:
        DelayedConfig.__post_init__(self)
        if min(self.actor_penalty, self.critic_penalty) < 0:
            raise ConfigError("penalties must be at least 0")

    def algorithm(self) -> type[Rebrac]:
        """What trains it."""
        return Rebrac

    def parts(self) -> tuple[BatchPart, ...]:
        """What was done next is compared with."""
        return ("transition", "next_actions")


class Rebrac(DelayedActorCritic[RebracConfig]):
    """Trains critic and actor, the actor less often."""

    name = "rebrac"

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error against a target that keeps near what was done next."""
        batch, c, follow = t.batch, self.config, t.batch.next_observations
        if batch.next_actions is None or batch.next_action_mask is None or follow is None:
            raise ConfigError("rebrac is fed with what was done next (part next_actions)")
        with torch.no_grad():
            chunk = self.smoothed(follow, rng)
            done = self.critic.chunk(batch.next_actions, follow)
            apart = (chunk - done).unflatten(1, (c.horizon, -1)).square().sum(dim=-1)
            mask = batch.next_action_mask.float()
            penalty = (apart * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)
            q = self.target(torch.cat([t.follow, chunk], dim=-1)).amin(dim=0)
            target = self.td_target(t, q - c.critic_penalty * penalty)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """The critic's gradient, and the distance to what was done; every other update."""
        if not self.acts(t):
            return {}
        chunk = self.actor.chunk(t.seen)
        size = self.actor.action_size
        q = self.critic.steering(t.now.detach(), chunk).amin(dim=0)
        scale = q.detach().abs().mean().clamp(min=1e-6)
        cloned = size * t.mean((chunk - t.chunk) ** 2)
        return {"policy": self.config.actor_penalty * cloned - q.mean() / scale}
