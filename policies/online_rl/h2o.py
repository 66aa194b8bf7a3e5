"""Learns from simulation and reality in one critic: H2O (Niu et al. 2022).

    D1(s, A, s'), D2(s, A):  logits of "real" among both kinds of transitions
    ratio:  log P_real(s'|s, A) / P_sim(s'|s, A) = D1 - D2                               (Bayes)
    Q:   mean over real of d^2 + mean over simulated of clip(ratio, 1e-5, 1)^(1/2) d^2,  d: TD error
         + weight [ log sum over simulated of w exp Q - mean over real of Q ],
           w: the gap max(log P_sim / P_real, 0), as a share of its sum over the batch
    pi:  SAC's

Simulated transitions that reality would not make count little in the TD error, and where the gap is
large their values are pushed down: the policy does not run after what only the simulator offers.
Both discriminators see the same mixture, so that its shares cancel. Inputs are noisy, or they would
tell any two transitions apart.

The paper's gap is a divergence over s' that is estimated by noise around the simulated one; here it
is that of the s' that was seen, cut at 0 [ours]. The square root and the clip were read in the
authors' code, with weight .01 and noise .1.

Which windows are real: ``origin`` of the batch, the number of their store (``data.stores``); while
practising in simulation the demonstrations, if those are real (``practice.demonstrations``), on an
arm what it does itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from policies.chunks.base import randn
from policies.critics.actor_critic import GroupLosses, Transition, mlp
from policies.critics.diagnostics import Figures
from policies.nets.shapes import MemberRows, RowFlags, Rows, Scalar
from policies.online_rl.sac import SacConfig, SacTraining
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart

LEAST_RATIO = 1e-5
LEAST_GAP = 1e-6
"""Share of a simulated transition that looks real: the sum is over something."""


@dataclass(frozen=True, slots=True)
class H2oConfig(SacConfig):
    """Hybrid offline and online."""

    # Number of the store (origin) whose windows are real; in simulated practice 1: the
    # demonstrations, on an arm 0.
    real: int = 1
    # Weight of what pushes simulated values down and real ones up. The paper: .01.
    weight: float = 0.01
    # Noise on what the discriminators see, in normalised numbers. The paper: .1.
    noise: float = 0.1
    # CQL's line of work bootstraps without entropy.
    entropy_backup: bool = False

    def __post_init__(self) -> None:
        SacConfig.__post_init__(self)
        if min(self.real, self.weight, self.noise) < 0:
            raise ConfigError("real, weight and noise must be at least 0")

    def algorithm(self) -> type[H2o]:
        """What trains it."""
        return H2o

    def practice(self) -> Mapping[str, Any]:
        """The paper: half of a batch is real."""
        return {"demonstrations": 0.5}

    def parts(self) -> tuple[BatchPart, ...]:
        """Where windows are from."""
        return ("transition", "origin")


class H2o(SacTraining[H2oConfig]):
    """Trains critic, actor, and what tells simulation from reality."""

    name = "h2o"

    def __init__(self, config: H2oConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        size, chunk = self.critic.observed.size, self.actor.chunk_size
        self.led = mlp(2 * size + chunk, 1, config.width, config.depth)
        self.begun = mlp(size + chunk, 1, config.width, config.depth)

    def real(self, t: Transition) -> RowFlags:
        """Which rows are real."""
        if t.batch.origin is None:
            raise ConfigError("h2o is fed with where windows are from (part origin)")
        return t.batch.origin == self.config.real

    def logits(self, t: Transition, rng: torch.Generator | None) -> tuple[Rows, Rows]:
        """``D1`` and ``D2``, each ``[b]``; ``rng``: for noise, in training."""
        begun = torch.cat([t.now.detach(), t.chunk], dim=-1)
        led = torch.cat([begun, t.follow], dim=-1)
        if rng is not None:
            begun, led = (x + self.config.noise * randn(x, rng) for x in (begun, led))
        return self.led(led).squeeze(-1), self.begun(begun).squeeze(-1)

    def log_ratio(self, t: Transition) -> Rows:
        """``log P_real / P_sim`` of what followed ``[b]``; 0 where nothing does."""
        with torch.no_grad():
            led, begun = self.logits(t, None)
            return (led - begun) * (t.bootstrap > 0)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Weighted TD errors, the push, and what tells both apart."""
        q = self.critic.q_values(t.now, t.chunk)
        real, ratio = self.real(t), self.log_ratio(t)
        error = (trusted(ratio, real) * self.td_errors(t, q, rng)).mean()
        return {
            "critic": error + self.config.weight * pushed(q, ratio, real),
            "dynamics": self.told_apart(t, real, rng),
        }

    def told_apart(self, t: Transition, real: RowFlags, rng: torch.Generator) -> Scalar:
        """Cross entropy of both discriminators, where something follows."""
        follows = (t.bootstrap > 0).float()
        losses = [
            functional.binary_cross_entropy_with_logits(logit, real.float(), reduction="none")
            for logit in self.logits(t, rng)
        ]
        return ((losses[0] + losses[1]) * follows).sum() / follows.sum().clamp(min=1.0)

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:  # noqa: ARG002
        """``trust``: what simulated TD errors are weighed by, in the mean."""
        simulated = (~self.real(t)).float()
        share = trusted(self.log_ratio(t), self.real(t))
        return {"trust": (share * simulated).sum() / simulated.sum().clamp(min=1.0)}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """SAC's, and the discriminators."""
        apart = (*self.led.parameters(), *self.begun.parameters())
        return {**super().actor_groups(), "dynamics": apart}


def trusted(log_ratio: Rows, real: RowFlags) -> Rows:
    """What TD errors are weighed by ``[b]``: 1 where they are real."""
    simulated = log_ratio.exp().clamp(LEAST_RATIO, 1.0).sqrt()
    return torch.where(real, torch.ones_like(simulated), simulated)


def pushed(q: MemberRows, log_ratio: Rows, real: RowFlags) -> Scalar:
    """``log sum of w exp Q`` over simulated rows minus the mean of real ones, summed over members;
    0 where one kind is absent.
    """
    if bool(real.all()) or not bool(real.any()):
        return 0.0 * q.sum()
    gap = (-log_ratio[~real]).clamp(min=LEAST_GAP)
    below = (q[:, ~real] + (gap / gap.sum()).log()).logsumexp(dim=1)
    return (below - q[:, real].mean(dim=1)).sum()
