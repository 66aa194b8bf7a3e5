"""Gives algorithms that edit the chunks of a trained policy what they share: who is edited, and by
whom the best is chosen.

    acting: argmax_A min_i Q_i(o, A) over A in {B_j + e_j} and, unless ``edited_alone``, {B_j}

for the parent's chunks B_1..B_k and an edit e of each (``editing/edits.py``). Practising, edits are
drawn at random.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.editing.edits import EditConfig, Edits
from policies.critics.editing.entropy import EntropyWeight
from policies.critics.over_parent import OverParent, OverParentConfig
from policies.critics.parent import kept_parent, policy_for
from policies.critics.reranked import Exploration, RerankedPolicy
from policies.nets.shapes import EditNoise, FlatCandidates, SomeCandidates
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart, ParamGroup, Weights
from robolearn.training.run_directory import Run, load_weights


@dataclass(frozen=True, slots=True)
class OverEditsConfig(OverParentConfig):
    """What algorithms that edit a parent's chunks are configured by."""

    chooses: ClassVar[bool] = False

    # Whether edited chunks compete with each other alone when acting; false: with those that they
    # were made of as well.
    edited_alone: bool = False
    # Weight of the edits' entropy; where target_entropy is given, the first one.
    entropy: float = 0.0
    # Entropy of an edit, in units of its largest size, that the weight is moved to hold (minus half
    # of its numbers is usual); null: the weight stays.
    target_entropy: float | None = None

    def __post_init__(self) -> None:
        OverParentConfig.__post_init__(self)
        if not self.entropy >= 0:
            raise ConfigError(f"entropy must be at least 0, got {self.entropy}")

    @abstractmethod
    def edit(self) -> EditConfig:
        """What an edit is made of."""

    def parts(self) -> tuple[BatchPart, ...]:
        """The parent's chunks here and there."""
        return ("transition", "candidates", "next_candidates")

    def edits(self, critics: ChunkCritic, spec: PolicySpec) -> Edits:
        """Untrained."""
        size = spec.task_space.action_size
        return Edits(self.edit(), critics.observed.size, self.stride, size)

    def acting(
        self,
        critics: ChunkCritic,
        parent: Policy,
        edits: Edits,
        exploration: Exploration | None = None,
    ) -> RerankedPolicy:
        """The best of the parent's chunks and of their edits."""
        return RerankedPolicy(
            critics,
            parent,
            self.candidates,
            self.margin,
            edits,
            alone=self.edited_alone,
            exploration=exploration,
        )

    def exploration(self, edits: Edits) -> Exploration:  # noqa: ARG002
        """How it acts while practising."""
        return Exploration()

    def load(self, run: Run) -> RerankedPolicy:
        """Critics and edits over the parent kept inside the run directory."""
        return self.acting(*self._trained(run))

    def explorer(self, run: Run) -> RerankedPolicy:
        """Who acts while practising: edits are drawn."""
        critics, parent, edits = self._trained(run)
        return self.acting(critics, parent, edits, self.exploration(edits))

    def _trained(self, run: Run) -> tuple[ChunkCritic, Policy, Edits]:
        critics = self.critic(run.spec, run.stats)
        edits = self.edits(critics, run.spec)
        trained = nn.ModuleDict({"critics": critics, "edits": edits}).eval()
        load_weights(trained, run.weights, str(run.path))
        return critics, policy_for(kept_parent(run), run.spec.task_space), edits


EditingT = TypeVar("EditingT", bound=OverEditsConfig)


class OverEdits(OverParent[EditingT], Generic[EditingT]):
    """Trains critics and edits."""

    def __init__(
        self, config: EditingT, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__(config, spec, stats, parent)
        self.edits = config.edits(self.critics, spec)
        self.entropy = EntropyWeight(config.entropy, config.target_entropy)

    def noise(self, flat: FlatCandidates, rng: torch.Generator) -> EditNoise:
        """What edits of ``flat`` are drawn by."""
        return randn(flat.new_empty(*flat.shape[:2], self.edits.numbers), rng)

    def some(self, flat: FlatCandidates, count: int, rng: torch.Generator) -> SomeCandidates:
        """``count`` chunks of every row, drawn at random."""
        lots = torch.rand(flat.shape[:2], generator=rng).argsort(dim=1)[:, :count]
        return flat.gather(1, lots.to(flat.device)[..., None].expand(-1, -1, flat.shape[2]))

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """``edit``, and what weighs its entropy."""
        learned = {
            name: dataclasses.replace(self.group(parameters), weight_decay=0.0)
            for name, parameters in self.entropy.groups().items()
        }
        return {"edit": self.group(tuple(self.edits.parameters())), **learned}

    def policy(self) -> RerankedPolicy:
        """As it acts."""
        return self.config.acting(self.critics, self.parent, self.edits)

    def policy_weights(self) -> Weights:
        """Critics and edits; the parent is kept beside them as a run of its own."""
        return nn.ModuleDict({"critics": self.critics, "edits": self.edits}).state_dict()
