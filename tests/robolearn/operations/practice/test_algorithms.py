"""Algorithms over a parent practise from end to end: each changes what it is there to change, its
run loads and acts, and going on later gives the bits of a practice that was never stopped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.chunk_critic import ChunkCritic, judged_part, least
from policies.critics.editing.edits import Edits
from policies.critics.reranked import ChunkLimits, RerankedPolicy
from policies.imitation.diffusion import DiffusionConfig
from policies.nets.shapes import FlatCandidates
from policies.offline_rl.chained.expo import ExpoConfig
from policies.online_rl.dsrl import SteeredPolicy
from policies.registry import explorer_of, load_policy, policy_of
from robolearn.contracts import Policy
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.practice.experiment import practice_experiment
from robolearn.operations.practice.finetune import finetune
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.result import FinetuneResult
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import PARENT, load_run, policy_hash
from robolearn.training.versions import load_version
from robolearn.types import PolicyInput
from tests.learning_mocks import random_source
from tests.two_runs import two_runs

WORLD = ("pusht_reference",)
DATA = DataConfig(observations=(TOOL, BLOCK))
SMALL: dict[str, Any] = {
    "algorithm.width": 16,
    "algorithm.batch_size": 16,
    "fit.checkpoint_every": 1,
    "practice.lanes": 2,
    "practice.parent_share": 0.5,
    "practice.max_steps": 24,
    "practice.warmup_episodes": 2,
    "practice.critic_updates": 24,
    "practice.updates_per_decision": 1.0,
    "practice.test_starts": 1,
    "practice.test_every": 0,
    "practice.disk_gib": 0.0,
}
OWN: Mapping[str, Mapping[str, Any]] = {
    "expo": {"algorithm.lr": 1e-2},
    "pa_rl": {"algorithm.policy_lr": 3e-3, "algorithm.critics_first": 10},
    "dice_rl": {"algorithm.actor_lr": 1e-2, "algorithm.critics_first": 10, "algorithm.cloning": 1},
    "dsrl": {"algorithm.lr": 1e-2, "algorithm.actor_lr": 1e-2, "algorithm.critics_first": 10},
    "dppo": {"algorithm.actor_lr": 1e-2},
}


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A flow policy ``one``, and ``diffusion`` for DPPO."""
    folder = two_runs(tmp_path_factory.mktemp("parents"), DATA, 12)
    config = DiffusionConfig(
        n_obs=2, horizon=8, execute=4, width=16, blocks=1, batch_size=8, levels=20, sampler_steps=4
    )
    fit = FitConfig(steps=2, warmup=1, log_every=1, checkpoint_every=2)
    experiment = Experiment("diffusion", DATA, config, fit)
    train(experiment, random_source(), folder / "diffusion", cache_dir=folder / "cache")
    return folder


@dataclasses.dataclass(frozen=True)
class Practice:
    """One algorithm at the size of a toy."""

    name: str
    parent: Path
    folder: Path

    def finetune(self, out: str, episodes: int, *, resume: bool = False) -> FinetuneResult:
        """Practise until there are so many episodes."""
        file = self.folder / f"{self.name}.yaml"
        file.write_text(f"policy: {self.name}\n")
        settings = SMALL | OWN[self.name] | {"practice.max_episodes": episodes}
        experiment = practice_experiment(load_run(self.parent), file, settings)
        store, run = self.folder / f"{out}_store", self.folder / out
        return finetune(experiment, self.parent, WORLD, store, run, resume=resume)


def states(store: Path) -> PolicyInput:
    """What a policy of two observations sees at decisions of the episodes that were practised."""
    seen: dict[str, list[np.ndarray]] = {TOOL: [], BLOCK: []}
    for number in EpisodeStore.open(store).ids():
        episode = EpisodeStore.open(store).read(number)
        for name, rows in seen.items():
            observed = episode.observed(name)
            rows += [observed[tick - 1 : tick + 1] for tick in range(1, len(observed), 4)]
    values = {name: np.stack(rows).astype(np.float64) for name, rows in seen.items()}
    count = len(values[TOOL])
    return PolicyInput(values, np.zeros(count, dtype=np.int64), np.arange(count))


def seen(request: PolicyInput) -> dict[str, torch.Tensor]:
    return {k: torch.from_numpy(v.astype(np.float32)) for k, v in request.observations.items()}


def judged(critic: ChunkCritic, request: PolicyInput, policy: Policy) -> FlatCandidates:
    """What ``critic`` judges of eight chunks of ``policy``."""
    chunks = torch.from_numpy(policy.sample(request, 8).actions.astype(np.float32))
    return judged_part(critic, chunks, seen(request))


def worth(critic: ChunkCritic, request: PolicyInput, flat: FlatCandidates) -> float:
    """On average, by what the critics say."""
    with torch.no_grad():
        return float(least(critic.q, critic.observed(seen(request)), flat).mean())


def edited(policy: Policy, request: PolicyInput) -> tuple[FlatCandidates, FlatCandidates]:
    """Chunks of the policy below, and what is made of each."""
    assert isinstance(policy, RerankedPolicy)
    critic, editor = policy.critic, policy.editor
    assert isinstance(editor, Edits)
    flat = judged(critic, request, policy.parent)
    limits, features = ChunkLimits(critic, seen(request)), critic.observed(seen(request))
    with torch.no_grad():
        return flat, editor.edited(critic.q, features, flat, limits).flat


def expo(out: Path, parent: Policy, request: PolicyInput) -> None:
    """Edits are small, and what they make of the parent's chunks is worth more than these."""
    policy = load_policy(out)
    assert isinstance(policy, RerankedPolicy)
    flat, made = edited(policy, request)
    assert 1e-3 < float((made - flat).abs().max()) <= ExpoConfig().beta + 1e-6
    assert worth(policy.critic, request, made) > worth(policy.critic, request, flat) + 1e-3
    # What it chooses from are the parent's chunks as they were.
    assert torch.equal(flat, judged(policy.critic, request, parent))


def dice_rl(out: Path, parent: Policy, request: PolicyInput) -> None:
    """Corrections are none at first, pay then, and nothing that is not corrected is done."""
    first, made = edited(policy_of(load_version(out, 1)), request)
    torch.testing.assert_close(made, first)
    policy = load_policy(out)
    assert isinstance(policy, RerankedPolicy)
    flat, made = edited(policy, request)
    assert worth(policy.critic, request, made) > worth(policy.critic, request, flat) + 1e-3
    answers = policy.sample(request, 1).actions[:, :, None]
    apart = np.abs(answers - parent.sample(request, policy.candidates).actions[:, None])
    assert apart.max(axis=(-2, -1)).min() > 1e-6


def pa_rl(out: Path, parent: Policy, request: PolicyInput) -> None:
    """The policy itself was taught what is worth more to the critics than what its parent does."""
    policy = load_policy(out)
    assert isinstance(policy, RerankedPolicy)
    taught = worth(policy.critic, request, judged(policy.critic, request, policy.parent))
    assert taught > worth(policy.critic, request, judged(policy.critic, request, parent)) + 1e-3


def dsrl(out: Path, parent: Policy, request: PolicyInput) -> None:
    """The noise that it chooses leads the parent's sampler to what is worth more than by chance,
    and than what it chose when it began.
    """
    policy = load_policy(out)
    assert isinstance(policy, SteeredPolicy)
    one = policy.sample(request, 1).actions
    others = dataclasses.replace(request, seed=request.seed + 1)
    np.testing.assert_array_equal(one, policy.sample(others, 1).actions)
    chosen = judged_part(policy.critics, torch.from_numpy(one.astype(np.float32)), seen(request))
    begun = policy_of(load_version(out, 1)).sample(request, 1).actions.astype(np.float32)
    for other in (
        judged(policy.critics, request, parent),
        judged_part(policy.critics, torch.from_numpy(begun), seen(request)),
    ):
        gain = worth(policy.critics, request, chosen) - worth(policy.critics, request, other)
        assert gain > 1e-3


def dppo(out: Path, parent: Policy, request: PolicyInput) -> None:
    """Of the parent's decisions it learns what they are worth; of its own, to decide otherwise."""
    before = parent.sample(request, 2).actions
    first = policy_of(load_version(out, 2))
    np.testing.assert_array_equal(first.sample(request, 2).actions, before)
    policy = load_policy(out)
    assert type(policy) is type(parent)
    assert np.abs(policy.sample(request, 2).actions - before).max() > 1e-4


CHECKS: Mapping[str, Callable[[Path, Policy, PolicyInput], None]] = {
    "dice_rl": dice_rl,
    "dppo": dppo,
    "dsrl": dsrl,
    "expo": expo,
    "pa_rl": pa_rl,
}


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_it_practises(name: str, parents: Path, tmp_path: Path) -> None:
    parent = parents / ("diffusion" if name == "dppo" else "one")
    before = policy_hash(parent)
    practice = Practice(name, parent, tmp_path)
    cut = practice.finetune("cut", 4)
    assert (cut.kept, cut.sound, cut.episodes) == ("last", True, 4)
    gone_on = practice.finetune("cut", 6, resume=True)
    whole = practice.finetune("whole", 6)
    assert (whole.kept, whole.sound, whole.episodes) == ("last", True, 6)
    assert gone_on.updates == whole.updates > cut.updates
    weights = [load_run(found.run_dir).weights for found in (gone_on, whole)]
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
    out, store = whole.run_dir, tmp_path / "whole_store"
    assert (policy_hash(parent), policy_hash(out / PARENT)) == (before, before)
    # After the warm-up it drove beside its parent, at its own chunks as it explores.
    flights = Ledger.of(out).flights
    assert [(f.driver, f.version) for f in flights[2:]] == [
        ("explorer", 2),
        ("parent", None),
        ("explorer", 3),
        ("parent", None),
    ]
    assert [f.id for f in flights] == list(EpisodeStore.open(store).ids())
    request = states(store)
    explored = explorer_of(load_version(out, 3)).sample(request, 3).actions
    assert np.isfinite(explored).all()
    assert explored.std(axis=1).max() > 1e-5
    CHECKS[name](out, load_policy(parent), request)
