"""Chooses among the chunks of a trained policy by critics: IDQL (Hansen-Estruch et al. 2023).

    Q:  E[ sum_i ( Q_i(o, A) - clip( R + g^s m W(o') ) )^2 ]            (critics/over_parent.py)

    backup candidates:  W = max over k chunks B of the parent at o' of min_i Qbar_i(o', B)
    backup expectile:   W = V,  V: E[ L_k( min_i Qbar_i(o, A) - V(o) ) ],  L_k(u) = |k - 1(u<0)| u^2

Acting: of ``candidates`` chunks of the parent, the one with the highest min Q. Chunked as in
Q-chunking (Li, Zhou, Levine 2025, equation 5); the expectile is equation 4 of IQL (Kostrikov et al.
2021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from policies.critics.chunk_critic import ChunkCritic, expectile_loss, least_of_members
from policies.critics.ensemble import from_sequential, prefixed
from policies.critics.hindsight import REWARD, HindsightConfig
from policies.critics.over_parent import OverParent, OverParentConfig, Step
from policies.critics.parent import differing_keys, judged_run, kept_parent, policy_for
from policies.critics.reranked import RerankedPolicy
from policies.nets.shapes import Rows
from robolearn.config import from_dict
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats, SignalStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchPart,
    BatchSpec,
    Losses,
    Observed,
    ParamGroup,
    Weights,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import HOLDS, PARENT, Run, load_weights

NETWORKS = (
    "n_obs",
    "horizon",
    "stride",
    "discount",
    "bounds",
    "members",
    "width",
    "depth",
    "relative",
    "focus",
    "picture",
    "anchor",
    "backup",
    "goals",
)
"""Keys that decide what critics are, see, and mean."""


@dataclass(frozen=True, slots=True)
class IdqlConfig(OverParentConfig):
    """Critics over a parent policy."""

    # What follows a chunk is worth: the best of the parent's chunks there (next_candidates of
    # them), or what the critics make of the behaviour that was recorded, an expectile of it.
    backup: Literal["candidates", "expectile"] = "candidates"
    # Expectile of V: 0.5 is the behaviour's mean, towards 1 its best (backup expectile).
    expectile: float = 0.9
    # Goals that critics judge chunks for, with rewards of theirs; for a parent that is told goals,
    # such as beso (backup expectile). Null: the recordings' own rewards.
    goals: HindsightConfig | None = None

    def __post_init__(self) -> None:
        OverParentConfig.__post_init__(self)
        if not 0.0 < self.expectile < 1.0:
            raise ConfigError(f"expectile must be in (0, 1), got {self.expectile}")
        if self.goals is not None and self.backup != "expectile":
            raise ConfigError(
                "goals: the parent's chunks are drawn once for every row, before its goal is known;"
                " set 'backup: expectile'"
            )

    def algorithm(self) -> type[Idql]:
        """What trains it."""
        return Idql

    def parts(self) -> tuple[BatchPart, ...]:
        """Chunked transitions, and what the parent would do after them."""
        expected = self.backup == "expectile"
        return ("transition",) if expected else OverParentConfig.parts(self)

    def batches(self) -> BatchSpec:
        """Chunked transitions, with goals if there are any; no actor pursues them."""
        spec = OverParentConfig.batches(self)
        if self.goals is None:
            return spec
        return dataclasses.replace(self.goals.asked(spec), actor_future=None)

    def rewards(self, stats: DatasetStats) -> SignalStats | None:
        """Those that are learned from; None: not known."""
        return stats.reward if self.goals is None else REWARD

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Untrained critics over the policy of ``parent``; over a run of critics those go on.

        Errors: :class:`ConfigError` where its critics are others, :class:`SpecMismatchError` where
        they see by other statistics.
        """
        while parent is not None and parent.config.get(HOLDS) == PARENT:
            parent = kept_parent(parent)
        if parent is None or parent.config.get("policy") != Idql.name:
            return OverParentConfig.build(self, space, stats, parent)
        built = OverParentConfig.build(self, space, stats, judged_run(parent, Idql.name))
        assert isinstance(built, Idql)
        self._require_same(parent, stats)
        built.go_on(_with_names_of_now(parent.weights), str(parent.path))
        return built

    def _require_same(self, parent: Run, stats: DatasetStats) -> None:
        theirs = from_dict(IdqlConfig, parent.config["algorithm"], f"{parent.path}/config.yaml")
        if differing := differing_keys(theirs, self, NETWORKS):
            raise ConfigError(
                f"the critics of '{parent.path}' do not fit: {'; '.join(differing)}; set these keys"
                " of algorithm to what they are there, or give the policy that it builds on:"
                f" {parent.path / PARENT}"
            )
        if (stats.observations, stats.actions) != (parent.stats.observations, parent.stats.actions):
            raise SpecMismatchError(
                f"the critics of '{parent.path}' see by the statistics of its own data; go on with"
                " 'robolearn finetune', which keeps them, or give the policy that it builds on:"
                f" {parent.path / PARENT}"
            )

    def load(self, run: Run) -> RerankedPolicy:
        """The trained critics over the parent kept inside the run directory."""
        critics = self.critic(run.spec, run.stats, values=self.backup == "expectile")
        load_weights(critics, _with_names_of_now(run.weights), str(run.path))
        parent = policy_for(judged_run(kept_parent(run), Idql.name), run.spec.task_space)
        return RerankedPolicy(critics.eval(), parent, self.candidates, self.margin)


class Idql(OverParent[IdqlConfig]):
    """Trains the critics alone."""

    name = "idql"

    def go_on(self, weights: Weights, where: str) -> None:
        """Begin with critics that were trained."""
        load_weights(self.critics, weights, where)
        self.target.load_state_dict(self.critics.q.state_dict())

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """With V for an expectile."""
        return self.config.critic(spec, stats, values=self.config.backup == "expectile")

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """``value`` for an expectile."""
        v = self.critics.v
        return {} if v is None else {"value": self.group(tuple(v.parameters()))}

    def beside(self, step: Step, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The expectile loss of V."""
        critics = self.critics
        if critics.v is None:
            return Losses({}, {})
        judged = self.target(torch.cat([step.now, step.chunk], dim=-1).detach()).amin(dim=0)
        value = critics.v(step.now.detach()).squeeze(0)
        loss = expectile_loss(judged - value, self.config.expectile).mean()
        return Losses({"value": loss}, {"v_mean": value.detach().mean()})

    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:  # noqa: ARG002
        """What follows a chunk is worth."""
        critics = self.critics
        features = critics.observed(observations)
        if critics.v is not None:
            return critics.v(features).squeeze(0)
        chunks = batch.next_candidates
        if chunks is None:
            raise ConfigError("idql is fed with the parent's chunks after every transition")
        worth = least_of_members(self.target, critics, features, chunks, observations)
        return worth.amax(dim=1)


def _with_names_of_now(weights: Weights) -> Weights:
    """Weights of a run of an earlier version, which kept two critics one after the other."""
    if "q.0.0.weight" not in weights:
        return weights
    found: dict[str, Tensor] = {
        **prefixed(from_sequential(weights, "q.", ("0.", "1.")), "q."),
        **prefixed(from_sequential(weights, "v.", ("",)), "v."),
    }
    for name, value in weights.items():
        if name.startswith("encoder."):
            found[f"observed.{name}"] = value
        elif not name.startswith(("q.", "v.")):
            found[name] = value
    return found
