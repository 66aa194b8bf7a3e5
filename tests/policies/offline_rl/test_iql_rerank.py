"""IQL critics over a parent policy: contract, losses by hand, re-ranking."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.imitation.flow import FlowConfig
from policies.offline_rl.idql import (
    Critics,
    IqlRerank,
    IqlRerankConfig,
    RerankedPolicy,
    expectile_loss,
)
from policies.registry import load_policy
from robolearn.contracts import Policy
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import CheckpointError, ConfigError
from robolearn.learning import Batch
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run
from tests.contracts import PolicyContract
from tests.learning_mocks import (
    BLOCK,
    SPACE,
    TOOL,
    random_flat,
    random_request,
    random_source,
)

FLOW = FlowConfig(n_obs=2, horizon=4, execute=2, width=16, blocks=1, batch_size=8)
SMALL = IqlRerankConfig(horizon=4, stride=2, width=16, batch_size=8, candidates=4, margin=0.0)
DATA = DataConfig(observations=(TOOL, BLOCK))


def parts(config: IqlRerankConfig = SMALL) -> tuple[IqlRerank, EpisodeDataset]:
    torch.manual_seed(0)
    dataset = EpisodeDataset(random_flat(), config.batches(), 0)
    flow = FLOW.build(SPACE, dataset.stats(), None)
    for parameter in flow.ema.parameters():
        parameter.data.add_(0.1 * torch.randn(parameter.shape))
    built = IqlRerank(config, FLOW.policy_spec(SPACE), dataset.stats(), flow.policy())
    return built, dataset


class TestIqlRerankContract(PolicyContract):
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


def test_losses_by_hand() -> None:
    """With constant critics the losses are plain arithmetic."""
    config = dataclasses.replace(SMALL, discount=0.5, expectile=0.8, observation_noise=0.0)
    built, dataset = parts(config)
    for module in (built.critics, built.target):
        for parameter in module.parameters():
            parameter.data.zero_()
    built.critics.v[-1].bias.data.fill_(3.0)  # type: ignore[union-attr]
    built.critics.q[0][-1].bias.data.fill_(1.0)  # type: ignore[index]
    built.target[0][-1].bias.data.fill_(5.0)  # type: ignore[index]
    built.target[1][-1].bias.data.fill_(2.0)  # type: ignore[index]
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
    assert next(built.target.parameters()).flatten()[0].item() == pytest.approx(0.01)


class LikesRight(Critics):
    """Judges a chunk by the x of its first action."""

    def q_values(self, features: torch.Tensor, chunk: torch.Tensor) -> torch.Tensor:
        del features
        return torch.stack([chunk[:, 0], chunk[:, 0] + 1.0])


def test_the_best_candidate_is_executed_and_changes_are_reported() -> None:
    built, dataset = parts()
    critics = LikesRight(SMALL, FLOW.policy_spec(SPACE), dataset.stats())
    policy = RerankedPolicy(critics, built.policy().parent, SMALL)
    request = random_request(6)
    drawn = policy.parent.sample(request, 4).actions
    output = policy.sample(request)
    best = drawn[:, :, 0, 0].argmax(axis=1)
    np.testing.assert_array_equal(output.actions[:, 0], drawn[np.arange(6), best])
    assert output.extras["changed"].tolist() == (best != 0).tolist()
    assert 0 < output.extras["changed"].sum() < 6


def test_a_gain_below_the_margin_changes_nothing() -> None:
    built, dataset = parts(dataclasses.replace(SMALL, margin=1e6))
    critics = LikesRight(SMALL, FLOW.policy_spec(SPACE), dataset.stats())
    policy = RerankedPolicy(critics, built.policy().parent, built.config)
    output = policy.sample(random_request(6), n=2)
    assert not output.extras["changed"].any()
    np.testing.assert_array_equal(
        output.actions[:, 0], policy.parent.sample(random_request(6)).actions[:, 0]
    )


def test_one_candidate_is_the_parent() -> None:
    built, _ = parts(dataclasses.replace(SMALL, candidates=1))
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
    out = tmp_path / "iql"
    experiment = Experiment("iql_rerank", DATA, SMALL, fit)
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
