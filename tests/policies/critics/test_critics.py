"""What critics are made of: ensembles, what they see, and on which machine they learn."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from policies.critics.behaviour_flow import BehaviourFlow
from policies.critics.bounds import largest_value, require_bounded_rewards
from policies.critics.chunk_critic import ChunkCritic, CriticConfig
from policies.critics.ensemble import Ensemble, from_sequential
from policies.imitation.flow import FlowConfig
from policies.nets.mlp import Mlp
from policies.nets.pictures import PictureConfig
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.store.stats import signal_stats
from robolearn.errors import ConfigError
from robolearn.training.loop import FitConfig
from tests.learning_mocks import SPACE, random_flat
from tests.policies.every import SEEN, Family, pictured


def stack(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.GELU(), nn.LayerNorm(width),
        nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 1),
    )  # fmt: skip


def test_an_ensemble_is_its_members_one_after_the_other() -> None:
    torch.manual_seed(0)
    members = [stack(5, 8) for _ in range(3)]
    torch.manual_seed(0)
    together = Ensemble(3, 5, 8)
    x = torch.randn(7, 5)
    apart = torch.stack([m(x).squeeze(-1) for m in members])
    torch.testing.assert_close(together(x), apart)
    for member in members:
        for parameter in member.parameters():
            parameter.data.add_(0.3 * torch.randn(parameter.shape))
    old = {f"q.{i}.{k}": v for i, m in enumerate(members) for k, v in m.state_dict().items()}
    together.load_state_dict(dict(from_sequential(old, "q.", ("0.", "1.", "2."))))
    apart = torch.stack([m(x).squeeze(-1) for m in members])
    torch.testing.assert_close(together(x), apart)


@pytest.mark.parametrize("members", [1, 3])
def test_without_gradients_an_ensemble_says_the_same(members: int) -> None:
    torch.manual_seed(0)
    together, x = Ensemble(members, 5, 8), torch.randn(7, 5)
    for parameter in together.parameters():
        parameter.data.add_(0.3 * torch.randn(parameter.shape))
    seen, (activations, features) = x.clone(), together.hidden(x)
    with torch.no_grad():
        again, last = together.hidden(x)
    assert torch.equal(x, seen)
    assert all(torch.equal(a, b) for a, b in zip(activations, again, strict=True))
    assert torch.equal(features, last)
    expected = nn.functional.layer_norm(activations[-1], (8,)) * together.gains[1]
    torch.testing.assert_close(features, expected + together.shifts[1])


def test_a_plain_network_says_the_same_without_gradients() -> None:
    torch.manual_seed(0)
    net, x = Mlp(5, 2, 8, 3), torch.randn(7, 5)
    expected, seen = nn.Sequential(*net)(x), x.clone()
    torch.testing.assert_close(net(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(net(x), expected)
    assert torch.equal(x, seen)


def test_a_copy_answers_by_its_own_weights() -> None:
    torch.manual_seed(0)
    for net in (Mlp(5, 2, 8, 2), Ensemble(2, 5, 8)):
        x = torch.randn(7, 5)
        before = net(x)
        copied = copy.deepcopy(net)
        for parameter in copied.parameters():
            parameter.data.zero_()
        assert bool((copied(x) == 0).all())
        assert torch.equal(net(x), before)


def test_the_maker_of_a_chunk_gets_the_same_gradient_and_the_critic_none() -> None:
    data = EpisodeDataset(random_flat((30,)), FlowConfig(horizon=4, execute=2).batches(), 0)
    spec = PolicySpec(SPACE, 2, 4, 4, "minmax")
    torch.manual_seed(0)
    critic = ChunkCritic(CriticConfig(width=8), spec, data.stats(), 4)
    features = torch.randn(6, critic.observed.size)
    chunk = torch.randn(6, 4 * SPACE.action_size, requires_grad=True)
    found = {}
    for judge in (critic.q_values, critic.steering):
        q = judge(features, chunk)
        found[judge] = q, torch.autograd.grad(q.sum(), chunk)[0]
        assert all(p.requires_grad for p in critic.q.parameters())
    (q, slope), (steered, same) = found.values()
    assert torch.equal(q, steered)
    assert torch.equal(slope, same)
    chunk.grad = None
    critic.steering(features, chunk).sum().backward()
    assert all(p.grad is None for p in critic.q.parameters())
    with pytest.raises(RuntimeError):
        critic.steering(features, chunk[:, 1:])
    assert all(p.requires_grad for p in critic.q.parameters())


def test_a_flow_is_sampled_by_eulers_method() -> None:
    torch.manual_seed(0)
    flow, noise, context = BehaviourFlow(3, 2, 8, 2), torch.randn(5, 2), torch.randn(5, 3)
    kept, x = noise.clone(), noise
    for k in range(4):
        x = x + flow.velocity(x, torch.full((5, 1), k / 4), context) / 4
    torch.testing.assert_close(flow.sample(noise, context, 4), x)
    assert torch.equal(noise, kept)


def test_members_do_not_see_each_other() -> None:
    together = Ensemble(2, 3, 4)
    x = torch.randn(5, 3)
    together(x)[0].sum().backward()
    assert all(bool((p.grad[1] == 0).all()) for p in together.parameters() if p.grad is not None)
    assert any(bool((p.grad[0] != 0).any()) for p in together.parameters() if p.grad is not None)


def test_critics_look_at_pictures() -> None:
    data = EpisodeDataset(flatten(pictured()), FlowConfig(horizon=4, execute=2).batches(), 0)
    spec = PolicySpec(SEEN, 2, 4, 2, "minmax")
    config = CriticConfig(width=8, picture=PictureConfig((8, 16), stride=2, points=4))
    critic = ChunkCritic(config, spec, data.stats(), 2, values=True)
    batch = data.batch(0)
    chunk = critic.chunk(batch.actions, batch.observations)
    turned = {k: v.flip(2) if v.dtype == torch.uint8 else v for k, v in batch.observations.items()}
    one, other = (critic.q_values(critic.observed(o), chunk) for o in (batch.observations, turned))
    assert one.shape == (2, len(batch.actions))
    assert (one - other).abs().max() > 1e-6
    one.sum().backward()
    assert critic.observed.pictures is not None
    assert all(p.grad is not None for p in critic.observed.pictures.parameters())


def test_what_values_can_be() -> None:
    costs = signal_stats(torch.tensor([[-0.1], [0.0]]).numpy())
    assert largest_value(costs, 0.9) == pytest.approx(1.0)
    assert largest_value(costs, 1.0) is None
    assert largest_value(None, 0.9) is None
    nothing = signal_stats(torch.zeros(3, 1).numpy())
    assert largest_value(nothing, 0.9) is None
    require_bounded_rewards(costs, 0.9, (-1.0, 0.0))
    require_bounded_rewards(None, 0.9, (-1.0, 0.0))
    with pytest.raises(ConfigError, match=r"algorithm\.bounds to null"):
        require_bounded_rewards(costs, 0.95, (-1.0, 0.0))


@pytest.mark.gpu
def test_critics_learn_on_a_gpu_as_on_the_cpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        family = Family(tmp_path / device, told=True)
        fit = FitConfig(steps=5, warmup=1, log_every=1)
        family.train("flow", fit=fit)
        moved = dataclasses.replace(fit, device=device)  # type: ignore[arg-type]
        family.train("idql", fit=moved)
        lines = (tmp_path / device / "idql" / "metrics.jsonl").read_text().splitlines()
        found[device] = [json.loads(line)["loss/critic"] for line in lines]
    assert found["cuda"] == pytest.approx(found["cpu"], rel=1e-2)
