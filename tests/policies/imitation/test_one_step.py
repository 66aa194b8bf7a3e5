"""Mean flow, shortcut and consistency: identities on known fields, two modes in one step."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.chunks.base import ChunkConfig, EncodedBatch
from policies.chunks.policy import ChunkPolicy, FieldChunkPolicy
from policies.chunks.request import request_tensors
from policies.imitation.consistency import ConsistencyConfig, ConsistencyModel, teacher_step
from policies.imitation.distilled import DistilledAlgorithm, DistilledConfig, DistilledModel
from policies.imitation.flow import FlowConfig
from policies.imitation.mean_flow import MeanFlowConfig, MeanFlowModel
from policies.imitation.shortcut import ShortcutConfig, ShortcutModel, two_steps
from policies.nets.average_velocity import mean_flow_target
from policies.registry import policy_of
from robolearn.contracts import Policy
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import Batch
from robolearn.training.run_directory import Run, load_run
from tests.contracts import PolicyContract
from tests.learning_mocks import random_flat, random_request
from tests.policies.family import a_batch, learn, mode_shares, two_modes, untrained

Model = TypeVar("Model", bound=torch.nn.Module)
MEAN = MeanFlowConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)
SHORT = ShortcutConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)
TOY = {"n_obs": 1, "horizon": 2, "execute": 1, "width": 32, "blocks": 2, "lr": 3e-3, "ema": 0.97}


class TestMeanFlowContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(MEAN).policy()


class TestShortcutContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(SHORT).policy()


class TestConsistencyContract(PolicyContract):
    def make(self) -> Policy:
        return FieldChunkPolicy(untrained_student(1).eval(), untrained(MEAN).spec)


class TestDistilledContract(PolicyContract):
    def make(self) -> Policy:
        config = DistilledConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, rank=8)
        spec, stats = untrained(MEAN).spec, random_stats()
        return ChunkPolicy(spread(DistilledModel(config, spec, stats)).eval(), spec)


def test_the_target_of_mean_flow_is_the_slope_of_the_network() -> None:
    """The forward-mode product against a difference quotient."""
    model = untrained(MEAN).ema.double()
    assert isinstance(model, MeanFlowModel)
    rng = torch.Generator().manual_seed(0)
    x, v = torch.randn(2, 3, 4, 2, generator=rng, dtype=torch.float64)
    t, r = torch.tensor([0.1, 0.4, 0.5]).double(), torch.tensor([0.9, 0.6, 0.5]).double()
    width = model.flat_size + model.seen_size
    context = torch.randn(3, width, generator=rng, dtype=torch.float64)
    target = mean_flow_target(lambda at, now: model.average(at, now, r, context), x, v, t, r)
    h = 1e-5
    after = model.average(x + h * v, t + h, r, context)
    before = model.average(x - h * v, t - h, r, context)
    slope = (after - before) / (2 * h)
    expected = v + (r - t)[:, None, None] * slope
    torch.testing.assert_close(target, expected.detach(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(target[2], v[2])  # No time passes: the velocity itself.


def test_mean_flow_knows_straight_paths() -> None:
    """Where all data is one point, the average velocity is the velocity, and the identity holds."""
    model = untrained(MEAN).ema
    assert isinstance(model, MeanFlowModel)
    goal = torch.full((3, 4, 2), 0.3)

    def straight(x: Tensor, t: Tensor, r: Tensor, context: Tensor) -> Tensor:
        return (goal - x) / (1 - t)[:, None, None]

    model.average = straight  # type: ignore[method-assign]
    x, t, r = torch.randn(3, 4, 2), torch.tensor([0.1, 0.5, 0.7]), torch.full((3,), 0.9)
    v = straight(x, t, r, x)
    seen = x.flatten(1)
    found = mean_flow_target(lambda at, now: model.average(at, now, r, seen), x, v, t, r)
    torch.testing.assert_close(found, v)


@pytest.mark.parametrize("steps", [1, 4])
def test_jumps_and_steps_follow_what_the_network_says(steps: int) -> None:
    """What is worked out beforehand, against the average velocity and the steps themselves."""
    mean = untrained(dataclasses.replace(MEAN, sampler_steps=steps)).ema
    short = untrained(dataclasses.replace(SHORT, sampler_steps=steps)).ema
    student = untrained_student(steps)
    assert isinstance(mean, MeanFlowModel)
    assert isinstance(short, ShortcutModel)
    context = torch.randn(3, mean.flat_size + mean.seen_size)
    noise = torch.randn(3, steps, 4, 2)
    a, b, c = noise[:, 0], noise[:, 0], noise[:, 0]
    for i, (start, stop) in enumerate(itertools.pairwise(mean.times())):
        t, r, d = start.expand(3), stop.expand(3), stop - start
        a = a + d * mean.average(a, t, r, context)
        b = b + d * short.step(b, t, d.expand(3), context)
        c = student.end(c if i == 0 else (1 - start) * noise[:, i] + start * c, t, context)
    for model, expected in ((mean, a), (short, b), (student, c)):
        found = model.generate(noise, context)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)


def untrained_student(steps: int) -> ConsistencyModel:
    config = ConsistencyConfig(
        n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16, sampler_steps=steps
    )
    return spread(ConsistencyModel(config, untrained(MEAN).spec, random_stats()))


def random_stats() -> DatasetStats:
    return EpisodeDataset(random_flat((30, 30)), MEAN.batches(), 0).stats()


def spread(model: Model) -> Model:
    """Not the zero function, which would hide mistakes."""
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape))
    return model


def test_two_steps_by_hand() -> None:
    model = untrained(SHORT).ema
    assert isinstance(model, ShortcutModel)
    asked: list[tuple[float, float]] = []

    def step(x: Tensor, t: Tensor, d: Tensor, context: Tensor) -> Tensor:
        asked.append((t.item(), d.item()))
        return x + t[:, None, None]

    model.step = step  # type: ignore[method-assign]
    x = torch.full((1, 4, 2), 2.0)
    mean = two_steps(model, x, torch.tensor([0.5]), torch.tensor([0.5]), x.flatten(1))
    # First 2 + 0.5 = 2.5; x becomes 2.625; second 2.625 + 0.75 = 3.375.
    torch.testing.assert_close(mean, torch.full((1, 4, 2), (2.5 + 3.375) / 2))
    assert asked == [(0.5, 0.25), (0.75, 0.25)]


def test_the_smallest_step_is_the_velocity() -> None:
    model = untrained(SHORT).ema
    assert isinstance(model, ShortcutModel)
    x, t = torch.randn(2, 4, 2), torch.tensor([0.25, 0.5])
    context = torch.randn(2, model.flat_size + model.seen_size)
    small = torch.full((2,), 0.5**5)
    torch.testing.assert_close(model.step(x, t, small, context), model.velocity(x, t, context))
    assert (model.step(x, t, 2 * small, context) - model.velocity(x, t, context)).abs().max() > 0


@pytest.mark.parametrize(
    "config",
    [MeanFlowConfig(**TOY, batch_size=128), ShortcutConfig(**TOY, batch_size=128, sampler_steps=2)],
    ids=["mean_flow", "shortcut"],
)
def test_learns_two_modes(config: ChunkConfig, tmp_path: Path) -> None:
    left, right = mode_shares(learn(config, two_modes(), tmp_path, 200))
    assert min(left, right) > 0.2
    assert left + right > 0.6


@pytest.mark.parametrize("net", ["mlp", "unet", "dit", "mixer"])
def test_mean_flow_trains_every_network(net: str) -> None:
    config = dataclasses.replace(MEAN, net=net)  # type: ignore[arg-type]
    built = untrained(config)
    loss = built(a_batch(config), 0, torch.Generator().manual_seed(0)).by_group["mean_flow"]
    loss.backward()
    assert torch.isfinite(loss)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A flow policy of the two-mode toy, which others learn from."""
    folder = tmp_path_factory.mktemp("parent")
    learn(FlowConfig(**TOY, batch_size=128, time_shift=1.0), two_modes(), folder, 150)
    return load_run(folder / "flow")


def test_consistency_learns_from_a_parent_in_one_step(parent: Run, tmp_path: Path) -> None:
    student = ConsistencyConfig(**TOY, batch_size=64, teacher_steps=8)
    policy = learn(student, two_modes(), tmp_path, 120, parent)
    assert isinstance(policy, FieldChunkPolicy)
    left, right = mode_shares(policy)
    assert min(left, right) > 0.2
    assert left + right > 0.6
    again = dataclasses.replace(student, sampler_steps=3)
    with pytest.raises(ConfigError, match="needs a parent run"):
        student.build(parent.spec.task_space, parent.stats, None)
    with pytest.raises(SpecMismatchError, match="must see and do what its parent"):
        dataclasses.replace(again, n_obs=3).build(parent.spec.task_space, parent.stats, parent)
    with pytest.raises(SpecMismatchError, match="scales actions differently"):
        dataclasses.replace(again, anchor=2.0).build(parent.spec.task_space, parent.stats, parent)
    with pytest.raises(ConfigError, match="drop 'parent'"):
        FlowConfig(**TOY).build(parent.spec.task_space, parent.stats, parent)


def test_distilled_answers_like_its_parent_to_the_same_noise(parent: Run, tmp_path: Path) -> None:
    """Both modes, the same one as the teacher's four calls, and as often."""
    student = DistilledConfig(**TOY, batch_size=64, rank=8)
    policy, teacher = learn(student, two_modes(), tmp_path, 150, parent), policy_of(parent)
    assert min(mode_shares(teacher)) > 0.2
    np.testing.assert_allclose(mode_shares(policy), mode_shares(teacher), atol=0.1)
    request = random_request(64, 1, seed=5)
    same = {k: np.full_like(v, 0.25) for k, v in request.observations.items()}
    request = dataclasses.replace(request, observations=same)
    both = [p.sample(request).actions for p in (policy, teacher)]
    assert np.median(np.abs(np.subtract(*both))) < 0.015
    assert np.std(both[1]) > 0.05
    with pytest.raises(ConfigError, match="distilled needs a parent run"):
        student.build(parent.spec.task_space, parent.stats, None)


def test_a_distilled_policy_starts_as_one_euler_step(parent: Run) -> None:
    """Of a flow policy, if its rank allows; with less, nearly."""
    teacher = policy_of(parent)
    assert isinstance(teacher, FieldChunkPolicy)
    request = random_request(8, 1, seed=1)
    context, noise = teacher.context(request), torch.randn(8, 1, 2, 2)
    expected = noise[:, 0] + teacher.field(noise[:, 0], torch.zeros(8), context)
    for rank, tolerance in ((0, 1e-5), (32, 1e-5), (24, 0.2)):
        config = DistilledConfig(**TOY, batch_size=16, rank=rank)
        built = config.build(parent.spec.task_space, parent.stats, parent)
        assert isinstance(built, DistilledAlgorithm)
        seen = built.model.context(request_tensors(request, parent.spec))
        found = built.model.generate(noise, seen)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_lessons_around_what_is_recorded(parent: Run) -> None:
    """Moved as far as wanted, all times of a history alike; the loss by hand."""
    space, stats = parent.spec.task_space, parent.stats
    name = "tool/xy_table"
    far = DistilledConfig(**TOY, batch_size=16, shifts={name: (0.5, 0.0)}, later=0.5, huber=0.1)
    built = far.build(space, stats, parent)
    assert isinstance(built, DistilledAlgorithm)
    batch = Batch({name: torch.zeros(4000, 3, 2)}, torch.zeros(4000, 2, 2), torch.ones(4000, 2) > 0)
    moved = built._shifted(batch, torch.Generator().manual_seed(0))[name]
    assert torch.equal(moved[:, 0], moved[:, 2])
    assert not moved[..., 1].any()
    assert moved[:, 0, 0].std().item() == pytest.approx(0.5 / 3**0.5, rel=0.05)

    noise = torch.randn(3, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    observed = {s.name: torch.zeros(3, 1, *s.shape) for s in space.observations}
    source = Batch(observed, torch.zeros(3, 2, 2), torch.ones(3, 2) > 0)
    context = built.model.context(observed)
    teacher = policy_of(parent)
    assert isinstance(teacher, FieldChunkPolicy)
    target = teacher.model.generate(noise, teacher.model.context(observed))
    error = (built.model.generate(noise, context) - target).square().mean(dim=-1)
    size = 0.2 * ((error + 0.01).sqrt() - 0.1)
    expected = (size[:, 0].mean() + 0.5 * size[:, 1].mean()) / 1.5
    weight = torch.ones(3, 2, 1) > 0
    encoded = EncodedBatch(source.actions, context, weight, source)
    found = built.losses(encoded, 0, torch.Generator().manual_seed(0)).by_group["distilled"]
    torch.testing.assert_close(found, expected)
    with pytest.raises(SpecMismatchError, match="an observed vector of 3 values"):
        dataclasses.replace(far, shifts={name: (0.1, 0.1, 0.1)}).build(space, stats, parent)


def test_a_teacher_steps_along_a_known_field() -> None:
    """dx/dt = -x: Heun's second order; the last step to the end is Euler's."""
    policy = untrained(FlowConfig(horizon=4, execute=2, width=32, blocks=2)).policy()
    assert isinstance(policy, FieldChunkPolicy)
    policy.model.velocity = lambda x_t, t, context: -x_t  # type: ignore[method-assign]
    x = torch.ones(2, 4, 2)
    out = teacher_step(policy.model, x, torch.tensor([0.5, 0.9]), torch.tensor([0.6, 1.0]), x)
    torch.testing.assert_close(out[0], torch.full((4, 2), 1 - 0.1 + 0.005))
    torch.testing.assert_close(out[1], torch.full((4, 2), 0.9))


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (MeanFlowConfig, {"share": 0.0}, "share must be"),
        (MeanFlowConfig, {"action_std": 0.0}, "must be positive"),
        (ShortcutConfig, {"sampler_steps": 3}, "sampler_steps must be one of"),
        (ConsistencyConfig, {"teacher_steps": 1}, "teacher_steps must be"),
        (DistilledConfig, {"huber": -1.0}, "later and huber must be"),
        (DistilledConfig, {"shifts": {"a": (-1.0,)}}, "shifts must be"),
    ],
)
def test_bad_configurations_are_explained(
    kind: type[ChunkConfig], values: dict[str, float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**values)  # type: ignore[arg-type]


def test_one_call_per_chunk() -> None:
    policy = untrained(MEAN).policy()
    assert isinstance(policy, FieldChunkPolicy)
    calls = 0
    real = policy.model.net.trunk

    def counted(*args: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return real(*args)

    policy.model.net.trunk = counted  # type: ignore[method-assign]
    policy.sample(random_request(3))
    assert calls == 1
