"""A learner of its own decisions: which ones it finds, makes again, and learns from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.imitation.flow import FlowConfig
from policies.online_rl.reinflow import ReinflowConfig
from policies.registry import explorer_of
from robolearn.contracts import Policy
from robolearn.data.episode import Episode, episode_from_arrays
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.representation import RepresentationConfig
from robolearn.seeding import child_seed
from robolearn.training.experiment import Experiment, train
from robolearn.training.learner import Learner
from robolearn.training.run_directory import Run, load_run
from robolearn.training.trainer import FitConfig
from robolearn.training.versions import load_version
from robolearn.types import PolicyInput
from tests.growing_store import add_episodes, own_episode
from tests.learning_mocks import BLOCK, TOOL, random_source

FLOW = FlowConfig(n_obs=2, horizon=4, execute=2, width=16, blocks=1, batch_size=8)
OWN = ReinflowConfig(
    horizon=4, stride=2, discount=0.9, width=16, depth=1, batch_size=8, noise_width=8
)
DATA = DataConfig(
    (TOOL, BLOCK), kinds=("online",), reward=RewardConfig("success", {"discount": 0.9})
)
PRACTICE = Experiment("reinflow", DATA, OWN, FitConfig(steps=1000, warmup=0), seed=3)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("parent")
    fit = FitConfig(steps=2, warmup=0, diagnose_every=0)
    experiment = Experiment("flow", DataConfig((TOOL, BLOCK)), FLOW, fit)
    train(experiment, random_source(), folder / "run", cache_dir=folder / "cache")
    return load_run(folder / "run")


def flown(seed: int, policy: Policy, said: dict[str, Any], steps: int = 9) -> Episode:
    """An episode whose decisions ``policy`` makes, as an agent asks for them."""
    plain = own_episode(seed, steps)
    seen = {name: plain.observed(name) for name in (TOOL, BLOCK)}
    actions = np.zeros((steps, 2))
    for number, row in enumerate(range(0, steps, 2)):
        rows = [max(0, row - 1), row]
        asked = PolicyInput(
            {name: values[rows][None] for name, values in seen.items()},
            np.zeros(1, dtype=np.int64),
            np.array([child_seed(seed, number)]),
        )
        chunk = policy.sample(asked).actions[0, 0]
        actions[row : row + 2] = chunk[: steps - row][:2]
    meta = dataclasses.replace(plain.meta, provenance={"practice": {"execute": 2, **said}})
    return episode_from_arrays(meta, seen, {TOOL: actions}, progress=plain.progress)


def add(path: Path, episodes: Sequence[Episode]) -> None:
    with EpisodeStore.open_or_create(path).writer() as writer:
        for episode in episodes:
            writer.append(episode)


def by(out: Path, version: int) -> tuple[Policy, dict[str, Any]]:
    run = load_version(out, version)
    return explorer_of(run), {"version": version, "policy_hash": run.policy_hash}


def test_it_learns_from_its_newest_decisions_alone(parent: Run, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(PRACTICE, parent, store, out) as learner:
        # The warm-up is the parent's: values are learned from it, the policy stays.
        assert learner.decisions == 0
        before = {k: v.clone() for k, v in learner.algorithm.policy_weights().items()}
        assert "loss/policy" not in learner.update(2)
        after = learner.algorithm.policy_weights()
        moved = {k for k, v in before.items() if not torch.equal(v, after[k])}
        assert moved
        assert all(k.startswith("value.") for k in moved)
        explorer, said = by(out, learner.hand_over())
        # One fails (the last decision has nothing behind it), one succeeds (all five count).
        add(store, [flown(seed, explorer, said) for seed in (20, 21)])
        add_episodes(store, range(4, 6))
        taken = learner.take_in()
        assert (taken.episodes, taken.decisions) == (4, 4 + 5)
        batch = learner.batch(0)
        assert batch.chain is not None
        made = learner.algorithm.chain.codec.decode(batch.chain[:, -1], batch.observations)
        torch.testing.assert_close(made[:, 0], batch.actions[:, 0], rtol=0.0, atol=1e-6)
        # A pass holds every decision once; the next one in another order.
        firsts = [learner.batch(k).actions[:, 0] for k in range(9)]
        drawn = torch.cat(firsts).view(8, 9, 2)
        assert all(len(torch.unique(p, dim=0)) == 9 for p in drawn)
        assert not torch.equal(drawn[0], drawn[1])
        figures = learner.update(3)
        assert np.isfinite(figures["loss/policy"])
        # Nothing new of its own: the round before is what there is.
        add_episodes(store, range(6, 8))
        assert learner.take_in().decisions == 0
        assert learner.batch(0).chain is not None
        second, said = by(out, learner.hand_over())
        assert not np.array_equal(
            *(p.sample(_blank()).actions for p in (explorer, second))  # type: ignore[misc]
        )
        learner.finish()
    assert load_run(out).provenance["practised"]["decisions"] == 9


def _blank() -> PolicyInput:
    seen = {TOOL: np.full((1, 2, 2), 0.25), BLOCK: np.full((1, 2, 3), 0.25)}
    return PolicyInput(seen, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


def test_decisions_of_others_are_passed_over(parent: Run, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(PRACTICE, parent, store, out) as learner:
        explorer, said = by(out, learner.hand_over())
        others = (
            {"version": None},
            {"version": 1, "policy_hash": "another practice"},
            {"version": 7},
        )
        add(store, [flown(20 + i, explorer, said | o) for i, o in enumerate(others)])
        assert learner.take_in().decisions == 0
        assert learner.batch(0).chain is None
        # Too far behind.
        for _ in range(5):
            learner.hand_over()
        add(store, [flown(30, explorer, said)])
        assert learner.take_in().decisions == 0


def test_decisions_that_come_out_otherwise_are_refused(parent: Run, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(PRACTICE, parent, store, out) as learner:
        explorer, said = by(out, learner.hand_over())
        honest = flown(20, explorer, said)
        meta = dataclasses.replace(
            honest.meta, condition=dataclasses.replace(honest.meta.condition, seed=999)
        )
        add(store, [dataclasses.replace(honest, meta=meta)])
        with pytest.raises(DataError, match="differ from what was executed by"):
            learner.take_in()


def test_worth_is_said_anew_in_every_pass(parent: Run, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(PRACTICE, parent, store, out) as learner:
        explorer, said = by(out, learner.hand_over())
        add(store, [flown(seed, explorer, said) for seed in (20, 21)])
        learner.take_in()

        def worth() -> torch.Tensor:
            batch = learner.batch(0)
            assert batch.worth is not None
            return batch.worth

        # Nine decisions, eight per batch: batch 1 belongs to the first pass in part.
        first = worth()
        learner.update(2)
        assert torch.equal(worth(), first)
        learner.update(1)
        assert not torch.equal(worth(), first)


def test_a_killed_learner_goes_on_with_further_decisions(parent: Run, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    with Learner(PRACTICE, parent, store, out) as learner:
        explorer, said = by(out, learner.hand_over())
        add(store, [flown(21, explorer, said)])
        learner.take_in()
        learner.update(2)
        learner.checkpoint()
    # Flown before the kill, committed, and never learned from.
    add(store, [flown(23, explorer, said)])
    with Learner(PRACTICE, parent, store, out, resume=True) as again:
        assert again.decisions == 5
        again.hand_over()
        assert again.take_in().decisions == 5
        assert np.isfinite(again.update(1)["loss/policy"])


def test_through_a_representation_they_are_the_same(tmp_path: Path) -> None:
    """Relative actions: what is made again is what the network said, not the world's actions."""
    seen = dataclasses.replace(
        DATA, representation=RepresentationConfig(actions={TOOL: "relative"})
    )
    fit = FitConfig(steps=2, warmup=0, diagnose_every=0)
    shown = dataclasses.replace(seen, kinds=("demonstration",), reward=RewardConfig())
    experiment = Experiment("flow", shown, FLOW, fit)
    train(experiment, random_source(), tmp_path / "parent", cache_dir=tmp_path / "cache")
    store, out = tmp_path / "store", tmp_path / "out"
    add_episodes(store, range(4))
    practice = dataclasses.replace(PRACTICE, data=seen)
    with Learner(practice, load_run(tmp_path / "parent"), store, out) as learner:
        explorer, said = by(out, learner.hand_over())
        add(store, [flown(21, explorer, said)])
        assert learner.take_in().decisions == 5
        assert np.isfinite(learner.update(1)["loss/policy"])


def test_demonstrations_are_refused(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(4))
    shown = dataclasses.replace(random_source(seed=50), content_hash="shown")
    with pytest.raises(ConfigError, match="has no use for demonstrations"):
        Learner(
            PRACTICE,
            parent,
            tmp_path / "store",
            tmp_path / "out",
            demonstrations=shown,
            share=0.5,
        )
