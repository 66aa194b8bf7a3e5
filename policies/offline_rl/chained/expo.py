"""Edits the chunks of a trained policy a little and takes the best: EXPO (Dong et al. 2025).

    e(o, B) = beta tanh(u),   u ~ N(mean(o, B), deviation(o, B))     edit of the parent's chunk B
    pi(o) = argmax_A min_i Q_i(o, A) over A in {B_j, B_j + e_j},  j = 1..k
    Q:  E[ sum_i ( Q_i(o, A) - clip( R + g^s m Qbar(o', pi(o')) ) )^2 ]
    e:  -E[ min_i Q_i(o, B + e) - entropy log p(e) ]

The same argmax acts and follows in the targets; without it in the targets the paper loses most of
its gain. Only the edit is trained, so the parent may be of any kind; the paper goes on cloning with
it online. With ``beta`` 0 this is IDQL. Equations after the paper's summary (arXiv 2507.07986), the
settings are [unverified]: no code was at hand. Acting takes the mean edit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import mlp
from policies.critics.chunk_critic import least
from policies.critics.ensemble import Ensemble
from policies.critics.over_parent import OverParent, OverParentConfig, Step
from policies.critics.parent import inner_policy, kept_parent
from policies.critics.reranked import ChunkLimits, Editor, Options, RerankedPolicy
from policies.nets.shapes import CandidateRows, Features, FlatCandidates, Rows
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Batch, BatchPart, Losses, Observed, ParamGroup, Weights
from robolearn.training.run_directory import Run, load_weights

SMALL = 1e-2
"""Of the last layer of the edit at first: it begins near the parent."""
DEVIATIONS = (-5.0, 2.0)
"""Least and largest log deviation before the squash, as usual in soft actor-critics."""


@dataclass(frozen=True, slots=True)
class ExpoConfig(OverParentConfig):
    """A small edit on top of a parent."""

    # Largest edit of a number, in normalised actions. The paper: .05 (precise) to .7 (exploring).
    beta: float = 0.1
    # Weight of the edit's entropy.
    entropy: float = 0.0

    def __post_init__(self) -> None:
        OverParentConfig.__post_init__(self)
        if not self.beta >= 0 or not self.entropy >= 0:
            raise ConfigError(
                f"beta and entropy must be at least 0, got {self.beta} and {self.entropy}"
            )

    def algorithm(self) -> type[Expo]:
        """What trains it."""
        return Expo

    def parts(self) -> tuple[BatchPart, ...]:
        """The parent's chunks here and there."""
        return ("transition", "candidates", "next_candidates")

    def load(self, run: Run) -> RerankedPolicy:
        """Critics and edits over the parent kept inside the run directory."""
        critics = self.critic(run.spec, run.stats)
        edits = Edits(self, critics.observed.size, run.spec.task_space.action_size)
        trained = nn.ModuleDict({"critics": critics, "edits": edits}).eval()
        load_weights(trained, run.weights, str(run.path))
        parent = inner_policy(kept_parent(run))
        return RerankedPolicy(critics, parent, self.candidates, self.margin, edits)


class Edits(Editor):
    """What is added to a chunk."""

    def __init__(self, config: ExpoConfig, features: int, action_size: int) -> None:
        super().__init__()
        self.beta, chunk = config.beta, config.stride * action_size
        self.net = mlp(features + chunk, 2 * chunk, config.width, config.depth)
        last = self.net[-1]
        if isinstance(last, nn.Linear):
            with torch.no_grad():
                last.weight.mul_(SMALL)
                last.bias.zero_()

    def draw(
        self, features: Features, flat: FlatCandidates, rng: torch.Generator | None
    ) -> tuple[FlatCandidates, CandidateRows]:
        """Edits ``[b, k, g]`` of ``flat`` and their log density, in units of beta; without ``rng``
        the mean.
        """
        at = features[:, None].expand(-1, flat.shape[1], -1)
        mean, deviation = self.net(torch.cat([at, flat], dim=-1)).chunk(2, dim=-1)
        deviation = deviation.clamp(*DEVIATIONS)
        noise = torch.zeros_like(mean) if rng is None else randn(mean, rng)
        u = mean + deviation.exp() * noise
        squashed = torch.tanh(u)
        density = -0.5 * noise**2 - deviation - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2), without cancellation.
        slope = 2 * (math.log(2.0) - u - nn.functional.softplus(-2 * u))
        return self.beta * squashed, (density - slope).sum(dim=-1)

    def edited(
        self,
        q: Ensemble,  # noqa: ARG002
        features: Features,
        flat: FlatCandidates,
        limits: ChunkLimits,
        rng: torch.Generator | None = None,
    ) -> Options:
        """Every candidate, edited."""
        edit, _ = self.draw(features, flat, rng)
        index = torch.arange(flat.shape[1], device=flat.device)
        return Options(limits.held(flat + edit), index.expand(len(flat), -1))


class Expo(OverParent[ExpoConfig]):
    """Trains critics and edits."""

    name = "expo"

    def __init__(
        self, config: ExpoConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__(config, spec, stats, parent)
        self.edits = Edits(config, self.critics.observed.size, spec.task_space.action_size)

    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:
        """The best of the parent's chunks and of their edits."""
        flat, limits = self.judged(batch.next_candidates, observations)
        features = self.critics.observed(observations)
        edited = self.edits.edited(self.target, features, flat, limits, rng).flat
        return least(self.target, features, torch.cat([flat, edited], dim=1)).amax(dim=1)

    def beside(self, step: Step, rng: torch.Generator) -> Losses:
        """The critics' gradient, on edits of the parent's chunks."""
        flat, limits = self.judged(step.batch.candidates, step.batch.observations)
        now = step.now.detach()
        edit, density = self.edits.draw(now, flat, rng)
        worth = least(self.critics.q, now, limits.held(flat + edit))
        loss = (self.config.entropy * density - worth).mean()
        return Losses({"edit": loss}, {"edit_size": edit.detach().abs().mean()})

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """One group."""
        return {"edit": self.group(tuple(self.edits.parameters()))}

    def policy(self) -> RerankedPolicy:
        """The best of the parent's chunks and of their edits."""
        c = self.config
        return RerankedPolicy(self.critics, self.parent, c.candidates, c.margin, self.edits)

    def policy_weights(self) -> Weights:
        """Critics and edits; the parent is kept beside them as a run of its own."""
        return nn.ModuleDict({"critics": self.critics, "edits": self.edits}).state_dict()
