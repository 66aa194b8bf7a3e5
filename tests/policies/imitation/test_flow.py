"""The flow policy: contract, loss, hand-computed target, learning a toy."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.imitation.flow import (
    FlowAlgorithm,
    FlowConfig,
    flow_target,
    preconditioning,
    training_times,
)
from policies.nets.chunk_net import ConvConfig
from policies.nets.encoder import ActionCodec, FocusConfig, SignalEncoder
from policies.registry import load_policy
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import Batch, FieldPolicy
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
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

SMALL = FlowConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)


def algorithm(config: FlowConfig = SMALL, spread: float = 0.05) -> FlowAlgorithm:
    torch.manual_seed(0)
    dataset = EpisodeDataset(random_flat((30, 30)), config.batches(), 0)
    built = config.build(SPACE, dataset.stats(), None)
    for parameter in built.ema.parameters():  # Zero gates would hide mistakes.
        parameter.data.add_(spread * torch.randn(parameter.shape))
    return built


class TestFlowContract(PolicyContract):
    def make(self) -> Policy:
        return algorithm().policy()


class TestAnchoredFlowContract(PolicyContract):
    def make(self) -> Policy:
        config = dataclasses.replace(
            SMALL,
            anchor=3.0,
            octaves=2,
            relative=((TOOL, BLOCK),),
            focus=FocusConfig(BLOCK, (0.25, 0.25, 0.5)),
        )
        return algorithm(config).policy()


def test_target_by_hand() -> None:
    a, eps = torch.tensor([[[2.0], [4.0]]]), torch.tensor([[[1.0], [0.0]]])
    x_t, v = flow_target(a, eps, torch.tensor([0.25]))
    assert x_t.flatten().tolist() == [0.75 * 1 + 0.25 * 2, 0.25 * 4]
    assert v.flatten().tolist() == [1.0, 4.0]


@pytest.mark.parametrize("t", [0.0, 0.3, 0.7, 1.0])
def test_preconditioning_is_the_best_linear_estimate(t: float) -> None:
    rng = torch.Generator().manual_seed(0)
    std = 0.5
    a = std * torch.randn(200_000, generator=rng)
    eps = torch.randn(200_000, generator=rng)
    x, v = (1 - t) * eps + t * a, a - eps
    c_in, c_skip, c_out = (c.item() for c in preconditioning(torch.tensor([t]), std))
    assert (c_in * x).std().item() == pytest.approx(1.0, abs=0.01)
    assert ((v - c_skip * x) / c_out).std().item() == pytest.approx(1.0, abs=0.01)
    assert ((v - c_skip * x) * x).mean().item() == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(("steps", "known"), [(1, 0), (4, 0), (4, 2)])
def test_sampling_integrates_the_field(steps: int, known: int) -> None:
    """What is worked out beforehand, against Euler along the velocity itself."""
    policy = algorithm(dataclasses.replace(SMALL, sampler_steps=steps, max_prefix=known)).policy()
    context = policy.context(random_request(3))
    noise = x = torch.randn(3, 4, 2)
    for t, after in itertools.pairwise(policy.model.times()):
        x = x + (after - t) * policy.field(x, t.expand(3), context)
    torch.testing.assert_close(
        policy.model.generate(noise[:, None], context), x, atol=1e-6, rtol=1e-6
    )


def test_the_mask_keeps_padding_out_of_the_loss() -> None:
    built = algorithm()
    dataset = EpisodeDataset(random_flat((30, 30)), SMALL.batches(), 0)
    batch = dataset.batch(0)
    mask = torch.ones_like(batch.action_mask)
    mask[:, 2:] = False
    masked = dataclasses.replace(batch, action_mask=mask)
    for parameter in built.model.parameters():
        parameter.data.zero_()  # The network says 0, so that only the targets matter.

    def loss(b: Batch) -> float:
        return built(b, 0, torch.Generator().manual_seed(0)).by_group["flow"].item()

    far = masked.actions.clone()
    far[:, 2:] += 100.0
    assert loss(masked) == loss(dataclasses.replace(masked, actions=far))
    assert loss(batch) != loss(masked)


def pointing_source() -> ArraySource:
    """The action is where the block is."""
    items = random_source((40, 40)).items
    return ArraySource(
        tuple(dataclasses.replace(e, actions=e.observations[BLOCK][:, :2]) for e in items)
    )


def test_learns_a_toy(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, n_obs=1, horizon=1, execute=1, lr=3e-3, batch_size=64)
    experiment = Experiment(
        "flow",
        DataConfig(observations=(TOOL, BLOCK)),
        config,
        FitConfig(steps=300, warmup=10, log_every=25),
    )
    result = train(experiment, pointing_source(), tmp_path / "run", cache_dir=tmp_path / "cache")
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[-1]["loss/flow"] < 0.3 * lines[0]["loss/flow"]
    policy = load_policy(tmp_path / "run")
    request = random_request(32, n_obs=1)
    error = policy.sample(request).actions[:, 0, 0] - request.observations[BLOCK][:, -1, :2]
    assert np.abs(error).mean() < 0.02
    assert result.windows == 80


def test_field_policy_and_noise_depend_on_the_row_alone() -> None:
    policy = algorithm().policy()
    field: FieldPolicy = policy
    request = random_request(3)
    context = policy.context(request)
    x = torch.zeros(3, 4, 2)
    v = field.field(x, torch.full((3,), 0.5), context)
    assert v.shape == (3, 4, 2)
    one = field.field(x[:1], torch.full((1,), 0.5), context[:1])
    torch.testing.assert_close(one, v[:1])


def test_actions_stay_within_the_limits_of_the_signal() -> None:
    built = algorithm()
    built.ema.net.outer.bias.data += 50.0
    actions = built.policy().sample(random_request(4)).actions
    assert actions.min() >= 0.0
    assert actions.max() <= 0.512 + 1e-6


def test_the_average_follows_and_is_the_policy() -> None:
    built = algorithm()
    for parameter in built.model.parameters():
        parameter.data.fill_(1.0)
    for parameter in built.ema.parameters():
        parameter.data.fill_(0.0)
    built.after_update(0, frozenset({"flow"}))
    values = [p.flatten()[0].item() for p in built.ema.parameters()]
    assert values == pytest.approx([0.9] * len(values))  # Decay (1 + 0) / (10 + 0).
    assert built.policy_weights().keys() == built.model.state_dict().keys()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"execute": 20}, "execute must be in 1..horizon=16"),
        ({"width": 0}, "must be at least 1"),
        ({"time_shift": 0.0}, "must be positive"),
    ],
)
def test_bad_configurations_are_explained(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FlowConfig(**values)  # type: ignore[arg-type]


def test_features_by_hand() -> None:
    """One observation through every kind of feature."""
    spec = PolicySpec(SPACE, 1, 4, 2, "none")
    stats = EpisodeDataset(random_flat(), SMALL.batches(), 0).stats()
    focus = FocusConfig(BLOCK, (0.1, 0.2, np.pi / 2), gains=(2.0,))
    encoder = SignalEncoder(spec, stats, ((TOOL, BLOCK),), 1, focus)
    seen = {
        TOOL: torch.tensor([[[0.3, 0.4]]]),
        BLOCK: torch.tensor([[[0.1, 0.3, -np.pi / 2]]]),
    }
    features = encoder(seen)
    # The block looks down (its x axis), so that up is behind it and the right is on its left.
    expected = [0.3, 0.4, 0.1, 0.3, 0.0, -1.0, -0.1, 0.2, 0.0, np.tanh(0.2), np.tanh(2.0)]
    np.testing.assert_allclose(features[0, 0].abs(), np.abs(expected), atol=1e-6)
    np.testing.assert_allclose(features[0, 0, :-1], expected[:-1], atol=1e-6)
    assert features.shape[-1] == encoder.size == 11
    lifted = encoder.lift(features)
    assert lifted.shape[-1] == encoder.lifted_size == 33
    torch.testing.assert_close(lifted[..., 11:22], (np.pi * features).sin())


def test_anchored_actions_are_seen_from_the_tool() -> None:
    stats = EpisodeDataset(random_flat(), SMALL.batches(), 0).stats()
    codec = ActionCodec(SMALL.policy_spec(SPACE), stats, gain=3.0)
    seen = {TOOL: torch.tensor([[[0.0, 0.0], [0.2, 0.3]]])}
    actions = torch.tensor([[[0.2, 0.3], [0.25, 0.3]]])
    encoded = codec.encode(actions, seen)
    assert encoded[0, 0].tolist() == [0.0, 0.0]
    assert encoded[0, 1, 0].item() == pytest.approx(0.05 * 3 * codec.scale[0].item())
    torch.testing.assert_close(codec.decode(encoded, seen), actions)


def test_relative_and_anchored_signals_must_exist() -> None:
    with pytest.raises(SpecMismatchError, match="planar position"):
        algorithm(dataclasses.replace(SMALL, relative=((TOOL, "arm/joint"),)))
    with pytest.raises(SpecMismatchError, match="two poses in space"):
        algorithm(dataclasses.replace(SMALL, relative=((BLOCK, TOOL),)))
    dataset = EpisodeDataset(random_flat(), SMALL.batches(), 0)
    action = dataclasses.replace(SPACE.actions[0], mode="relative")
    space = dataclasses.replace(SPACE, actions=(action,))
    anchored = dataclasses.replace(SMALL, anchor=1.0)
    with pytest.raises(SpecMismatchError, match="must be an absolute action"):
        anchored.build(space, dataset.stats(), None)


class TestTransformerFlowContract(PolicyContract):
    def make(self) -> Policy:
        return algorithm(dataclasses.replace(SMALL, net="dit", heads=4)).policy()


class TestMixerFlowContract(PolicyContract):
    def make(self) -> Policy:
        return algorithm(dataclasses.replace(SMALL, net="mixer")).policy()


class TestUNetFlowContract(PolicyContract):
    def make(self) -> Policy:
        config = dataclasses.replace(SMALL, net="unet", conv=ConvConfig((8, 16)))
        return algorithm(config, spread=0.0).policy()


def test_time_distributions_have_their_quantiles() -> None:
    u = (torch.arange(10_000) + 0.5) / 10_000
    assert torch.equal(training_times(u, "uniform", (0.0, 1.0)), u)
    normal = training_times(u, "logit_normal", (-0.4, 1.0))
    assert torch.logit(normal).mean().item() == pytest.approx(-0.4, abs=1e-3)
    assert torch.logit(normal).std().item() == pytest.approx(1.0, abs=2e-3)
    beta = training_times(u, "beta", (1.0, 1.5))
    # pi0 draws 1 - t from Beta(1.5, 1), whose quantile function is u^(2/3).
    torch.testing.assert_close(1 - beta.flip(0), u ** (2 / 3), atol=1e-4, rtol=0)
    assert beta.mean().item() == pytest.approx(0.4, abs=1e-3)


def test_known_actions_are_held_and_left_out_of_the_loss() -> None:
    config = dataclasses.replace(SMALL, max_prefix=2)
    built = algorithm(config)
    request = random_request(3)
    plain = built.policy().sample(request)
    wanted = plain.actions[:, 0] + 0.01
    weight = np.tile([1.0, 1.0, 0.5, 0.0], (3, 1))
    asked = dataclasses.replace(request, prefix=wanted, prefix_weight=weight)
    answered = built.policy().sample(asked).actions[:, 0]
    np.testing.assert_allclose(answered[:, :2], wanted[:, :2], atol=1e-5)
    assert np.abs(answered[:, 2:] - plain.actions[:, 0, 2:]).max() > 1e-6
    batch = EpisodeDataset(random_flat((30, 30)), config.batches(), 0).batch(0)
    loss = built(batch, 0, torch.Generator().manual_seed(0)).by_group["flow"]
    assert torch.isfinite(loss)
