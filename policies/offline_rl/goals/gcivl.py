"""Reaches goals by values of observations alone: GCIVL (OGBench, Park et al. 2025).

    V:   IVL, expectile .9 (policies/critics/goal_values.py)
    pi:  -E[ min(exp(beta (V(s', g') - V(s, g'))), 100) log pi(A | s, g') ]

What was done counts by how much nearer to the goal it led. No action is judged, so what luck did
counts as well; there is no critic of actions whose gradient could leave the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.critics.actor_critic import DeterministicActor, GroupLosses
from policies.critics.goal_values import GoalValueConfig, GoalValues, unlikely
from robolearn.errors import ConfigError
from robolearn.learning import Batch, with_goals


@dataclass(frozen=True, slots=True)
class GcivlConfig(GoalValueConfig):
    """Goal-conditioned implicit value learning."""

    # Inverse temperature of the weights. Published: 10.
    beta: float = 10.0

    def __post_init__(self) -> None:
        GoalValueConfig.__post_init__(self)
        if not self.beta >= 0:
            raise ConfigError(f"beta must be at least 0, got {self.beta}")

    def algorithm(self) -> type[Gcivl]:
        """What trains it."""
        return Gcivl


class Gcivl(GoalValues[GcivlConfig, DeterministicActor]):
    """Trains V and the actor together."""

    name = "gcivl"
    actor_class = DeterministicActor

    def actor_losses(self, batch: Batch, rng: torch.Generator) -> GroupLosses:
        """What led nearer to the actor's goals is imitated."""
        if batch.actor_goals is None:
            raise ConfigError("gcivl is fed with goals of the actor")
        aimed = with_goals(batch, batch.actor_goals)
        now, then = aimed.observations, aimed.next_observations
        if then is None:
            raise ConfigError("gcivl is fed with chunked transitions")
        actor, size = self.actor, batch.actions.shape[-1]
        done = actor.codec.encode(batch.actions, now).flatten(1)
        there = batch.action_mask.repeat_interleave(size, dim=1).float()
        error = unlikely(actor.chunk(actor.context(now, rng)), done, there)
        return {"policy": (self.imitated(now, then, self.config.beta) * error).mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": tuple(self.actor.parameters())}
