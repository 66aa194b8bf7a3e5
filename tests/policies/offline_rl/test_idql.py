"""Critics over a parent policy: contract, losses by hand, re-ranking, a bandit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.chunk_critic import ChunkCritic, expectile_loss
from policies.critics.ensemble import Ensemble
from policies.critics.hindsight import REWARD, HindsightConfig
from policies.critics.reranked import RerankedPolicy
from policies.imitation.flow import FlowConfig
from policies.offline_rl.idql import Idql, IdqlConfig
from policies.registry import load_policy
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.proposed import Proposed
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.lock import StoreLock
from robolearn.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    SpecMismatchError,
    StoreLockedError,
    TrainingError,
)
from robolearn.learning import Batch, FutureSpec, Proposing
from robolearn.seeding import child_seed
from robolearn.spec import SignalSpec
from robolearn.training.data import TrainingData
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run
from robolearn.types import PolicyInput, PolicyOutput
from tests.contracts import PolicyContract
from tests.learning_mocks import (
    BLOCK,
    SPACE,
    TOOL,
    ArraySource,
    random_flat,
    random_request,
    random_source,
)
from tests.policies.family import LEFT, RIGHT

FLOW = FlowConfig(n_obs=2, horizon=4, execute=2, width=16, blocks=1, batch_size=8)
SMALL = IdqlConfig(
    horizon=4, stride=2, width=16, batch_size=8, candidates=4, bounds=None, next_candidates=3
)
EXPECTILE = dataclasses.replace(SMALL, backup="expectile")
DATA = DataConfig(observations=(TOOL, BLOCK))


def parts(config: IdqlConfig = EXPECTILE) -> tuple[Idql, EpisodeDataset]:
    torch.manual_seed(0)
    dataset = EpisodeDataset(random_flat(), config.batches(), 0)
    near = np.random.default_rng(0).normal(0, 0.01, (len(dataset.flat.actions), 3, 4, 2))
    chunks = (dataset.flat.actions[:, None, None] + near).astype(np.float32)
    dataset.candidates = Proposed(np.arange(len(chunks)), chunks)
    flow = FLOW.build(SPACE, dataset.stats(), None)
    for parameter in flow.ema.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
    built = Idql(config, FLOW.policy_spec(SPACE), dataset.stats(), flow.policy())
    return built, dataset


class TestIdqlContract(PolicyContract):
    def make(self) -> Policy:
        return parts()[0].policy()


def test_expectile_loss_by_hand() -> None:
    got = expectile_loss(torch.tensor([2.0, -2.0, 0.0]), 0.9)
    torch.testing.assert_close(got, torch.tensor([0.9 * 4, 0.1 * 4, 0.0]))


def test_a_high_expectile_tends_to_the_maximum() -> None:
    values = torch.linspace(0, 1, 101)
    grid = torch.linspace(0, 1, 1001)
    losses = expectile_loss(values[None] - grid[:, None], 0.99).mean(dim=1)
    assert grid[losses.argmin()].item() > 0.85


def says(ensemble: Ensemble, *values: float) -> None:
    """Let every member say one number, whatever it sees."""
    ensemble.biases[-1].data.copy_(torch.tensor(values).view(-1, 1, 1))


def test_losses_by_hand() -> None:
    """With constant critics the losses are plain arithmetic."""
    config = dataclasses.replace(EXPECTILE, discount=0.5, expectile=0.8, observation_noise=0.0)
    built, dataset = parts(config)
    for module in (built.critics, built.target):
        for parameter in module.parameters():
            parameter.data.zero_()
    assert built.critics.v is not None
    says(built.critics.v, 3.0)
    says(built.critics.q, 1.0, 0.0)
    says(built.target, 5.0, 2.0)
    batch = dataset.gather(np.array([1, 18]))  # Row 18 is the last step of a terminal episode.
    assert batch.reward is not None
    losses = built(batch, 0, torch.Generator().manual_seed(0)).by_group
    assert losses["value"].item() == pytest.approx(0.2 * (2.0 - 3.0) ** 2)
    r = dataset.flat.reward
    targets = [r[1] + 0.5 * r[2] + 0.25 * 3.0, r[18]]
    expected = np.mean([(1.0 - t) ** 2 + (0.0 - t) ** 2 for t in targets])
    assert losses["critic"].item() == pytest.approx(expected, rel=1e-5)


def test_gradients_stay_in_their_group() -> None:
    built, dataset = parts()
    losses = built(dataset.batch(0), 0, torch.Generator().manual_seed(0)).by_group
    groups = built.groups()
    other = torch.autograd.grad(
        losses["value"], groups["critic"].parameters, allow_unused=True, retain_graph=True
    )
    assert all(g is None for g in other)
    other = torch.autograd.grad(losses["critic"], groups["value"].parameters, allow_unused=True)
    assert all(g is None for g in other)


def test_the_target_follows_slowly() -> None:
    built, _ = parts()
    for parameter in built.critics.q.parameters():
        parameter.data.fill_(1.0)
    for parameter in built.target.parameters():
        parameter.data.fill_(0.0)
    built.after_update(0, frozenset({"critic"}))
    assert next(built.target.parameters()).flatten()[0].item() == pytest.approx(0.005)


class LikesRight(Ensemble):
    """Judges a chunk by the x of its first action."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x[:, -4]  # Two steps of two numbers are judged.
        return torch.stack([first, first + 1.0])


def liking(dataset: EpisodeDataset) -> ChunkCritic:
    critic = SMALL.critic(FLOW.policy_spec(SPACE), dataset.stats())
    critic.q = LikesRight(2, 8, 4)
    return critic


def test_the_best_candidate_is_executed_and_changes_are_reported() -> None:
    built, dataset = parts()
    policy = RerankedPolicy(liking(dataset), built.policy().parent, 4)
    request = random_request(6)
    drawn = policy.parent.sample(request, 4).actions
    output = policy.sample(request)
    best = drawn[:, :, 0, 0].argmax(axis=1)
    np.testing.assert_array_equal(output.actions[:, 0], drawn[np.arange(6), best])
    assert output.extras["changed"].tolist() == (best != 0).tolist()
    assert 0 < output.extras["changed"].sum() < 6


def test_a_gain_below_the_margin_changes_nothing() -> None:
    built, dataset = parts()
    policy = RerankedPolicy(liking(dataset), built.policy().parent, 4, margin=1e6)
    output = policy.sample(random_request(6), n=2)
    assert not output.extras["changed"].any()
    np.testing.assert_array_equal(
        output.actions[:, 0], policy.parent.sample(random_request(6)).actions[:, 0]
    )


def test_one_candidate_is_the_parent() -> None:
    built, _ = parts(dataclasses.replace(EXPECTILE, candidates=1))
    policy = built.policy()
    request = random_request(3)
    np.testing.assert_array_equal(
        policy.sample(request).actions, policy.parent.sample(request).actions
    )
    assert not policy.sample(request).extras["changed"].any()


def test_a_run_keeps_its_parent(tmp_path: Path) -> None:
    source = random_source((20, 20, 15))
    fit = FitConfig(steps=6, warmup=2, log_every=3, checkpoint_every=3)
    cache = tmp_path / "cache"
    train(Experiment("flow", DATA, FLOW, fit), source, tmp_path / "flow", cache_dir=cache)
    parent = load_run(tmp_path / "flow")
    out = tmp_path / "idql"
    experiment = Experiment("idql", DATA, SMALL, fit)
    result = train(experiment, source, out, parent=parent, cache_dir=cache)
    (tmp_path / "flow").rename(tmp_path / "moved")
    run = load_run(out)
    assert run.provenance["parent"] == parent.policy_hash
    assert run.policy_hash == result.policy_hash != parent.policy_hash
    request = random_request(2)
    policy = load_policy(out)
    assert policy.spec == parent.spec
    assert np.isfinite(policy.sample(request).actions).all()
    again = train(experiment, source, out, parent=parent, cache_dir=cache, resume=True)
    assert again.reused
    assert again.policy_hash == result.policy_hash
    import shutil

    shutil.rmtree(out / "parent")
    with pytest.raises(CheckpointError, match=r"parent/config\.yaml is absent"):
        load_policy(out)
    with pytest.raises(CheckpointError, match="lacks the folder 'parent'"):
        load_policy(out, accept_edited=True)


def test_bad_input_is_explained() -> None:
    built, dataset = parts()
    with pytest.raises(ConfigError, match="needs a parent run"):
        SMALL.build(SPACE, dataset.stats(), None)
    with pytest.raises(ConfigError, match="stride must be in"):
        dataclasses.replace(SMALL, stride=5)
    batch = dataset.batch(0)
    windows = Batch(batch.observations, batch.actions, batch.action_mask)
    with pytest.raises(ConfigError, match="chunked transitions"):
        built(windows, 0, torch.Generator())
    with pytest.raises(ConfigError, match="bounds must rise"):
        dataclasses.replace(SMALL, bounds=(0.0, -1.0))


def test_the_best_of_what_was_proposed_follows_a_chunk() -> None:
    config = dataclasses.replace(SMALL, discount=0.5, observation_noise=0.0, bounds=(-0.2, 0.7))
    built, dataset = parts(config)
    built.target = LikesRight(2, 8, 4)
    for parameter in built.critics.q.parameters():
        parameter.data.zero_()
    rows = np.array([1, 18])  # Row 18 is the last step of a terminal episode.
    batch = dataset.gather(rows)
    assert batch.next_observations is not None
    assert dataset.candidates is not None
    losses = built(batch, 0, torch.Generator().manual_seed(0)).by_group
    assert set(losses) == {"critic"}
    proposed = torch.from_numpy(dataset.candidates.at(np.array([3]))[0])
    follow = {name: v[:1].expand(3, *v.shape[1:]) for name, v in batch.next_observations.items()}
    best = float(built.critics.chunk(proposed, follow)[:, 0].max())
    r = dataset.flat.reward
    targets = np.clip([r[1] + 0.5 * r[2] + 0.25 * best, r[18]], -0.2, 0.7)
    assert losses["critic"].item() == pytest.approx(2 * np.mean(targets**2), rel=1e-4)


def test_a_target_over_three_chunks_by_hand() -> None:
    """The rewards of six steps as recorded, then the best of what the parent would do there."""
    config = dataclasses.replace(
        SMALL, discount=0.5, observation_noise=0.0, backup_chunks=3, every=2
    )
    built, dataset = parts(config)
    assert (built.batch_spec.stride, built.critics.stride) == (6, 2)
    built.target = LikesRight(2, 8, 4)
    # Rows 15 and 18: the task ends at row 18, within the second chunk and within the first.
    batch = dataset.gather(np.array([8, 15, 18]))
    assert dataset.candidates is not None
    assert batch.next_observations is not None
    found = built.td_target(batch, torch.Generator().manual_seed(0))
    proposed = torch.from_numpy(dataset.candidates.at(np.array([14]))[0])
    follow = {name: v[:1].expand(3, *v.shape[1:]) for name, v in batch.next_observations.items()}
    np.testing.assert_allclose(follow[TOOL][0, -1], dataset.flat.following[TOOL][14])
    best = float(built.critics.chunk(proposed, follow)[:, 0].max())
    r = dataset.flat.reward
    expected = [
        sum(0.5**i * r[8 + i] for i in range(6)) + 0.5**6 * best,
        sum(0.5**i * r[15 + i] for i in range(4)),
        r[18],
    ]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    # Chunks are asked for there, and at no other rows.
    rows = dataset.proposed_rows()
    assert len(rows)
    assert set(rows) <= {w + 6 for w in dataset.windows}
    with pytest.raises(ConfigError, match="backup_chunks"):
        dataclasses.replace(SMALL, backup_chunks=0)


def test_critics_begin_where_nothing_succeeded_yet() -> None:
    """Rewards that are all 0, or all the same cost: nothing is known of what is possible, or just
    that; a first success later is no divergence.
    """
    for always, bounds in ((0.0, None), (-0.1, (-1.0, 0.0))):
        config = dataclasses.replace(SMALL, discount=0.9, bounds=bounds)
        source = random_source((20, 20, 15))
        items = tuple(
            dataclasses.replace(e, reward=np.full(len(e.actions), always)) for e in source.items
        )
        flat = flatten(ArraySource(items))
        dataset = EpisodeDataset(flat, config.batches(), 0)
        dataset.candidates = Proposed(
            np.arange(len(flat.actions)), np.zeros((len(flat.actions), 3, 4, 2), np.float32)
        )
        flow = FLOW.build(SPACE, dataset.stats(), None)
        built = Idql(config, FLOW.policy_spec(SPACE), dataset.stats(), flow.policy())
        rng = torch.Generator().manual_seed(0)
        batch = dataset.batch(0)
        solved = dataclasses.replace(batch, reward=torch.zeros_like(batch.actions[:, 0, 0]))
        for shown in (batch, solved):
            losses = built(shown, 0, rng)
            assert torch.isfinite(losses.by_group["critic"])
            assert all(torch.isfinite(v) for v in built.diagnose(shown, rng).values())


def test_chunks_are_proposed_once_where_transitions_end_and_the_same_again(tmp_path: Path) -> None:
    source = random_source((20, 20, 15))
    fit = FitConfig(steps=1, warmup=1)
    train(Experiment("flow", DATA, FLOW, fit), source, tmp_path / "flow", cache_dir=tmp_path)
    parent = load_run(tmp_path / "flow")
    config, told = dataclasses.replace(SMALL, every=4), list[tuple[int, int]]()
    drawn = []
    for _ in range(2):
        data = TrainingData(
            dataclasses.replace(DATA, held_out=0.34), config.batches(), 0, source, flatten(source)
        )
        with pytest.raises(DataError, match="nothing was proposed"):
            data.dataset.batch(0)
        algorithm = config.build(SPACE, data.stats, parent)
        assert isinstance(algorithm, Proposing)
        data.propose(algorithm, lambda done, of: told.append((done, of)))
        drawn.append(data.dataset.candidates)
    first, again = drawn
    assert first is not None
    assert again is not None
    # Two steps after every fourth row of all three episodes, held out or not.
    expected = [b + k for b, n in ((0, 20), (20, 20), (40, 15)) for k in range(2, n, 4)]
    ended = flatten(source).done
    np.testing.assert_array_equal(
        first.rows, [r for r in expected if not ended[r - 2 : r].any() and r - 2 + 2 < 55]
    )
    assert first.chunks.shape == (len(first.rows), 3, 4, 2)
    assert told[-1] == (len(first.rows), len(first.rows))
    np.testing.assert_array_equal(first.chunks, again.chunks)
    with pytest.raises(DataError, match="nothing was proposed"):
        first.at(np.array([1]))
    # They are the parent's chunks at the rows' observations.
    reader = EpisodeDataset(flatten(source), FLOW.batches(), 0)
    seen = reader.gather(np.array([30])).observations
    request = PolicyInput(
        {k: v.double().numpy() for k, v in seen.items()},
        np.zeros(1, dtype=np.int64),
        np.array([child_seed(0, "propose", 30)]),
    )
    answer = load_policy(tmp_path / "flow").sample(request, 3).actions
    np.testing.assert_allclose(first.at(np.array([30]))[0], answer[0], atol=1e-6)


def test_a_second_training_is_refused_before_it_draws_and_a_failed_one_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random_source((12, 9))
    fit, out = FitConfig(steps=1, warmup=1), tmp_path / "idql"
    train(Experiment("flow", DATA, FLOW, fit), source, tmp_path / "flow", cache_dir=tmp_path)
    parent = load_run(tmp_path / "flow")

    def again() -> None:
        train(Experiment("idql", DATA, SMALL, fit), source, out, parent=parent, cache_dir=tmp_path)

    def fails(self: Idql, observations: Any, seeds: Any) -> Any:
        with pytest.raises(StoreLockedError, match="is being written"):
            StoreLock(out)
        raise DataError("the parent cannot")

    monkeypatch.setattr(Idql, "propose", fails)
    with pytest.raises(DataError, match="the parent cannot"):
        again()
    assert not out.exists()
    monkeypatch.undo()
    again()
    with pytest.raises(ConfigError, match="at least 1"):
        dataclasses.replace(SMALL, every=0)


def test_rewards_that_the_bounds_would_cut_are_refused(tmp_path: Path) -> None:
    source = random_source((20, 20, 15))
    fit = FitConfig(steps=1, warmup=1)
    train(Experiment("flow", DATA, FLOW, fit), source, tmp_path / "flow", cache_dir=tmp_path)
    bounded = dataclasses.replace(SMALL, bounds=(-1.0, 0.0), discount=0.9)
    told = r"rewards are in \[0, 1\].*\{task: success, params: \{discount: 0.9\}\}, or algorithm"
    with pytest.raises(ConfigError, match=told):
        train(
            Experiment("idql", DATA, bounded, fit),
            source,
            tmp_path / "idql",
            parent=load_run(tmp_path / "flow"),
            cache_dir=tmp_path,
        )
    assert not (tmp_path / "idql").exists()


def test_a_parent_of_another_task_space_or_length_is_refused(tmp_path: Path) -> None:
    source = random_source((20, 20, 15))
    fit = FitConfig(steps=1, warmup=1)
    train(Experiment("flow", DATA, FLOW, fit), source, tmp_path / "flow", cache_dir=tmp_path)
    parent, stats = load_run(tmp_path / "flow"), parts()[1].stats()
    other = dataclasses.replace(SPACE, observations=SPACE.observations[:1])
    with pytest.raises(SpecMismatchError, match="reads and writes another task space"):
        SMALL.build(other, stats, parent)
    with pytest.raises(ConfigError, match=r"must be the parent's \(2, 4\), got \(2, 6\)"):
        dataclasses.replace(SMALL, horizon=6).build(SPACE, stats, parent)


def test_values_that_run_away_stop_training() -> None:
    built, dataset = parts()
    says(built.critics.q, 1e4, 0.0)
    with pytest.raises(TrainingError, match=r"values diverge: \|Q\| is 1e\+04 at step 0"):
        built(dataset.batch(0), 0, torch.Generator().manual_seed(0))
    built(dataset.batch(0), 1, torch.Generator().manual_seed(0))


class TwoWays:
    """Goes left or right, as the seed says; knows nothing of rewards."""

    spec = FLOW.policy_spec(SPACE)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        right = np.stack([np.random.default_rng(s).random(n) < 0.5 for s in request.seed])
        actions = np.full((len(right), n, 4, 2), 0.25)
        actions[..., 0] = np.where(right, RIGHT, LEFT)[..., None]
        return PolicyOutput(actions, np.zeros(right.shape), request.t_ns, 0)


WANTED, HOLDS = "goal/wanted", "goal/achieved"
MARKED = dataclasses.replace(
    SPACE,
    observations=(
        *SPACE.observations,
        SignalSpec(WANTED, (2,), "1", 10.0),
        SignalSpec(HOLDS, (2,), "1", 10.0),
    ),
)


class TwoWaysToMarks(TwoWays):
    spec = FLOW.policy_spec(MARKED)


def test_the_way_to_the_mark_that_is_wanted_is_taken() -> None:
    """Left brings the first mark after six steps, right the second."""
    marks = HindsightConfig(((WANTED, HOLDS),), marks=True)
    config = dataclasses.replace(
        EXPECTILE, discount=0.9, stride=4, lr=5e-3, tau=0.1, candidates=8, goals=marks
    )
    items: list[Any] = []
    for i, e in enumerate(random_source((8,) * 8).items):
        holds = np.zeros((8, 2))
        holds[6:, i % 2] = 1.0
        there = {TOOL: np.full((8, 2), 0.25), BLOCK: np.full((8, 3), 0.25)}
        told = {**there, WANTED: np.zeros((8, 2)), HOLDS: holds}
        actions = np.tile([(LEFT, RIGHT)[i % 2], 0.25], (8, 1))
        items.append(dataclasses.replace(e, observations=told, actions=actions))
    dataset = EpisodeDataset(
        flatten(ArraySource(tuple(items), "marks", MARKED)), config.batches(), 0
    )
    built = Idql(config, TwoWaysToMarks.spec, dataset.stats(), TwoWaysToMarks())
    groups = [p for group in built.groups().values() for p in group.parameters]
    optimizer = torch.optim.Adam(groups, lr=config.lr)
    for step in range(200):
        losses = built(dataset.batch(step), step, torch.Generator().manual_seed(step)).by_group
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        built.after_update(step, frozenset(losses))
    asked = random_request(16)
    for mark, way in enumerate((LEFT, RIGHT)):
        seen = {TOOL: np.full((16, 2, 2), 0.25), BLOCK: np.full((16, 2, 3), 0.25)}
        seen |= {WANTED: np.tile(np.eye(2)[mark], (16, 2, 1)), HOLDS: np.zeros((16, 2, 2))}
        request = dataclasses.replace(asked, observations=seen)
        assert (built.policy().sample(request).actions[:, 0, :, 0] == way).all()


def test_critics_of_goals_and_what_goes_with_them() -> None:
    config = dataclasses.replace(EXPECTILE, goals=HindsightConfig(((WANTED, HOLDS),), marks=True))
    spec = config.batches()
    assert spec.aims
    assert spec.actor_future is None
    with pytest.raises(ConfigError, match="set 'backup: expectile'"):
        dataclasses.replace(config, backup="candidates")
    # A step costs one for every goal: more than bounds of -1 and 0 hold.
    assert config.rewards(parts()[1].stats()) is REWARD
    with pytest.raises(ConfigError, match="marks: expected one pair of goals"):
        HindsightConfig(((WANTED, HOLDS),), actor=FutureSpec(geometric=1.0), marks=True)


def test_of_two_ways_the_better_one_is_taken() -> None:
    """Left costs .1 a step and right nothing, for as many steps as are left of four: on average
    left is worth -.1 (1 + 1.9 + 2.71 + 3.439) / 4.
    """
    config = dataclasses.replace(
        SMALL, discount=0.9, stride=4, bounds=(-1.0, 0.0), lr=5e-3, tau=0.1, candidates=8
    )
    items = [
        dataclasses.replace(
            e,
            observations={TOOL: np.full((4, 2), 0.25), BLOCK: np.full((4, 3), 0.25)},
            actions=np.tile([(LEFT, RIGHT)[i % 2], 0.25], (4, 1)),
            reward=np.full(4, (-0.1, 0.0)[i % 2]),
            done=np.arange(4) == 3,
        )
        for i, e in enumerate(random_source((4,) * 8).items)
    ]
    flat = flatten(ArraySource(tuple(items)))
    dataset = EpisodeDataset(flat, config.batches(), 0)
    built = Idql(config, TwoWays.spec, dataset.stats(), TwoWays())
    seen = {k: torch.full((32, 2, n), 0.25) for k, n in ((TOOL, 2), (BLOCK, 3))}
    dataset.candidates = Proposed(np.arange(32), built.propose(seen, np.arange(32)).numpy())
    optimizer = torch.optim.Adam(built.critics.parameters(), lr=config.lr)
    for step in range(150):
        losses = built(dataset.batch(step), step, torch.Generator().manual_seed(step)).by_group
        optimizer.zero_grad()
        losses["critic"].backward()
        optimizer.step()
        built.after_update(step, frozenset(losses))
    asked = random_request(16)
    same = {k: np.full_like(v, 0.25) for k, v in asked.observations.items()}
    request = dataclasses.replace(asked, observations=same)
    assert (built.policy().sample(request).actions[:, 0, :, 0] == RIGHT).all()
    assert 0.2 < (TwoWays().sample(request).actions[..., 0] == RIGHT).mean() < 0.8
    scores = RerankedPolicy(built.critics, TwoWays(), 8).sample(request, 8)
    right = scores.actions[:, :, 0, 0] == RIGHT
    assert scores.scores[~right].mean() == pytest.approx(-0.2262, abs=0.04)
    assert scores.scores[right].mean() == pytest.approx(0.0, abs=0.04)
