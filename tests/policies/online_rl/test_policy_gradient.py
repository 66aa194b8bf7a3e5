"""ReinFlow and DPPO: a bandit that both solve, their chains, their losses by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from policies.chunks.policy import FieldChunkPolicy
from policies.critics.denoising.policy_gradient import PolicyGradient
from policies.online_rl.dppo import DppoConfig
from policies.online_rl.reinflow import ReinflowConfig
from policies.registry import explorer_of, load_policy
from robolearn.errors import ConfigError
from robolearn.learning import Batch, request_noise
from robolearn.training.run_directory import load_run
from tests.learning_mocks import BLOCK, TOOL
from tests.policies.every import DECIDING, SPACE, Family, batches_of, tiny

FAST: dict[str, Any] = {
    "bounds": None,
    "clip": 0.1,
    "actor_lr": 4e-3,
    "cloning": 0.0,
    "passes": 4,
}
MORE: dict[str, dict[str, Any]] = {
    "reinflow": {"least_noise": 0.1, "most_noise": 0.2, "entropy": 0.0},
    "dppo": {"first_clip": 0.03},
}
PARENTS = {"reinflow": "flow", "dppo": "diffusion"}
ROWS = 96


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    made = Family(tmp_path_factory.mktemp("policy_gradient"))
    for name in PARENTS.values():
        made.run(name)
    return made


def practised(name: str, family: Family, **more: Any) -> Any:
    """The algorithm before its first update."""
    torch.manual_seed(0)
    config: Any = tiny(name, **FAST | MORE[name] | more)
    data = batches_of(family, name, 8)
    parent = load_run(family.folder / PARENTS[name])
    built = config.build(SPACE, data.stats(), parent)
    assert isinstance(built, PolicyGradient)
    return built


def here(rows: int = ROWS) -> dict[str, torch.Tensor]:
    """The same place for every row."""
    return {TOOL: torch.full((rows, 2, 2), 0.25), BLOCK: torch.full((rows, 2, 3), 0.25)}


def flown(built: Any, first: int, goal: float) -> Batch:
    """A round: what decisions from so many seeds led to, and how near the goal that is."""
    seeds, shown = np.arange(first, first + ROWS), here()
    blank = torch.zeros(ROWS, 4, 2)
    batch = Batch(shown, blank, torch.ones(ROWS, 4, dtype=torch.bool))
    weights = built.policy_weights()
    made = built.replay({k: v.clone() for k, v in weights.items()}, batch, seeds)
    chunks = built.chain.codec.decode(made.chain[:, -1], shown)
    worth = -((chunks[:, :2, 0] - goal) ** 2).mean(dim=1) / 0.01
    return dataclasses.replace(
        batch,
        actions=chunks,
        chain=made.chain,
        chain_log_prob=made.log_prob,
        advantage=worth - worth.mean(),
        worth=worth,
    )


def place(built: Any) -> float:
    """Where the deployed policy goes, on average."""
    model = built.policy().model
    noise = torch.from_numpy(request_noise(np.arange(64), (1, 4, 2)))
    noise = noise.expand(-1, model.draws, -1, -1)
    with torch.no_grad():
        shown = here(64)
        x = model.generate(noise, model.context(shown))
        return float(model.codec.decode(x, shown)[:, :2, 0].mean())


def rounds(built: Any, goal: float, count: int) -> dict[str, float]:
    optimizers = {
        name: torch.optim.Adam(group.parameters, lr=group.lr)
        for name, group in built.groups().items()
    }
    rng, losses = torch.Generator().manual_seed(0), None
    for number in range(count):
        batch = flown(built, 1000 * number, goal)
        for _ in range(built.config.passes):
            losses = built(batch, 0, rng)
            for name, loss in losses.by_group.items():
                gradients = torch.autograd.grad(
                    loss, built.groups()[name].parameters, retain_graph=True, allow_unused=True
                )
                for p, g in zip(built.groups()[name].parameters, gradients, strict=True):
                    p.grad = g
                optimizers[name].step()
    assert losses is not None
    return {k: float(v) for k, v in losses.metrics.items()}


@pytest.mark.parametrize("name", DECIDING)
def test_it_goes_to_where_decisions_were_worth_most(name: str, family: Family) -> None:
    built = practised(name, family)
    begun = place(built)
    goal = begun + (0.08 if begun < 0.25 else -0.08)
    rounds(built, goal, 15)
    assert abs(place(built) - goal) < 0.02


@pytest.mark.parametrize("name", DECIDING)
def test_what_was_flown_is_made_again_and_is_as_dense(name: str, family: Family) -> None:
    built = practised(name, family)
    batch = flown(built, 0, 0.3)
    explored = built.chain.density(batch.chain, built.chain.context(batch.observations))[0]
    torch.testing.assert_close(built.log_prob(explored), batch.chain_log_prob)
    # Nothing is different yet: ratios are 1, and their gradient is that of the density.
    losses = built.policy_loss(batch, torch.Generator())
    assert losses.metrics["kl"].abs() < 1e-5
    assert losses.metrics["clipped"] == 0
    assert built.replay(built.policy_weights(), batch, np.arange(ROWS)).deviation.max() < 1e-4


@pytest.mark.parametrize("name", DECIDING)
def test_ratios_stay_where_they_are_clipped(name: str, family: Family) -> None:
    """Without the clip one round, gone through often, takes the policy far away."""
    gone = []
    for clip in (0.01, 1e3):
        built = practised(name, family, clip=clip, first_clip=clip, passes=20)
        gone.append(rounds(built, 0.4, 1)["kl"])
    assert gone[0] < 0.2 * gone[1]


@pytest.mark.parametrize("name", DECIDING)
def test_cloning_holds_it_at_its_parent(name: str, family: Family) -> None:
    moved = []
    for weight in (0.0, 300.0):
        built = practised(name, family, cloning=weight)
        begun = place(built)
        rounds(built, begun + 0.08, 4)
        moved.append(abs(place(built) - begun))
    assert moved[1] < 0.3 * moved[0]


def test_without_noise_the_chains_are_the_samplers(family: Family) -> None:
    for name in DECIDING:
        built = practised(name, family)
        chain, shown = built.chain, here(3)
        noise = torch.from_numpy(request_noise(np.arange(3), (chain.draws, 4, 2)))
        noise[:, 1:] = 0.0
        context = chain.context(shown)
        if name == "dppo":
            chain = DppoConfig(eta=0.0).chain(chain.model, "")
        with torch.no_grad():
            plain = chain.model.generate(noise[:, : chain.model.draws], context)
            torch.testing.assert_close(chain.run(noise, context)[:, -1], plain)


@pytest.mark.parametrize("sampler", ["ddpm", "ddim"])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_a_denoising_step_is_the_schedulers(family: Family, sampler: str, prediction: str) -> None:
    """With eta 1 and next to no floor it is DDPM's, drawn noise and clipping included."""
    config: Any = tiny("diffusion", sampler="ddpm", prediction=prediction, clip=1.0)
    if sampler == "ddim":
        config = dataclasses.replace(config, clip=0.0)
    torch.manual_seed(3)
    model = config.build(SPACE, batches_of(family, "diffusion", 8).stats(), None).ema
    for parameter in model.parameters():
        parameter.data.add_(0.05 * torch.randn(parameter.shape))
    chain = DppoConfig(floor=1e-9).chain(model, "")
    noise = torch.from_numpy(request_noise(np.arange(3), (chain.draws, 4, 2)))
    context = model.context(here(3))
    with torch.no_grad():
        expected = model.generate(noise, context)
        torch.testing.assert_close(chain.run(noise, context)[:, -1], expected, rtol=1e-4, atol=1e-4)


def test_dppos_steps_weigh_and_are_clipped_by_hand(family: Family) -> None:
    built = practised("dppo", family, step_discount=0.5, clip=0.1, first_clip=0.02)
    log_ratio = torch.zeros(2, 4)
    same, weight, clip = built.change(log_ratio)
    assert same is log_ratio
    assert weight.tolist() == [0.125, 0.25, 0.5, 1.0]
    grown = [(math.exp(3 * k / 3) - 1) / (math.exp(3) - 1) for k in range(4)]
    np.testing.assert_allclose(clip, [0.02 + 0.08 * g for g in grown], rtol=1e-5)
    # A number far out decides no more than one at the clamp, and what is not executed not at all.
    densities = torch.zeros(1, 4, 4, 2)
    densities[:, :, 0, 0], densities[:, :, 2:] = -100.0, 7.0
    assert built.log_prob(densities).tolist() == [[-1.25] * 4]


def test_reinflows_noise_is_within_its_limits_and_does_not_die(family: Family) -> None:
    built = practised("reinflow", family, least_noise=0.05, most_noise=0.2, entropy=1.0)
    context = built.chain.context(here(3))
    _, deviation = built.chain.step(torch.zeros(3, 4, 2), 0, context)
    torch.testing.assert_close(deviation, torch.full_like(deviation, 0.1), rtol=0.1, atol=0.0)
    grown = []
    for entropy in (0.0, 3.0):
        built = practised("reinflow", family, least_noise=0.05, most_noise=0.2, entropy=entropy)
        # Where it is already, noise only harms.
        grown.append(rounds(built, place(built), 5)["deviation"])
    assert grown[0] < 0.1 < grown[1]
    joint, weight, clip = built.change(torch.tensor([[0.1, 0.3]]))
    assert joint.tolist() == [[pytest.approx(0.2)]]
    assert weight.tolist() == [1.0]
    assert clip.tolist() == [pytest.approx(built.config.clip)]


def test_before_it_flew_it_learns_values_alone(family: Family) -> None:
    built = practised("reinflow", family)
    batch = batches_of(family, "reinflow", 8).batch(0)
    losses = built(batch, 0, torch.Generator())
    assert set(losses.by_group) == {"value"}
    wanted = batch.reward + batch.bootstrap * built.value(batch.next_observations)
    torch.testing.assert_close(built.worth(batch), wanted)
    held = dataclasses.replace(built.config, bounds=(-0.01, 0.0))
    built.config = held
    assert built.worth(batch).min() >= -0.01


@pytest.mark.parametrize("name", DECIDING)
def test_it_is_deployed_as_its_parents_kind(name: str, family: Family) -> None:
    family.train(name)
    run = family.folder / name
    policy = load_policy(run)
    assert isinstance(policy, FieldChunkPolicy)
    request = family.request(3)
    parent = load_policy(family.folder / PARENTS[name])
    # Values alone were learned.
    np.testing.assert_array_equal(policy.sample(request).actions, parent.sample(request).actions)
    explorer = explorer_of(load_run(run))
    assert np.abs(explorer.sample(request).actions - policy.sample(request).actions).max() > 1e-3


def test_who_cannot_be_practised_is_told_what_can(family: Family) -> None:
    flow, diffusion = (load_run(family.folder / n) for n in ("flow", "diffusion"))
    stats = batches_of(family, "reinflow", 8).stats()
    for name, parent, words in (
        ("reinflow", diffusion, "has no steps along a velocity.*dppo diffusion"),
        ("dppo", flow, "does not sample by DDPM or DDIM.*reinflow a flow"),
        ("reinflow", None, "needs a parent run"),
    ):
        with pytest.raises(ConfigError, match=words):
            tiny(name, bounds=None).build(SPACE, stats, parent)
    for kind, wrong, words in (
        (ReinflowConfig, {"least_noise": 0.0}, "without noise a chain has no density"),
        (DppoConfig, {"floor": 0.0}, "without noise a chain has no density"),
        (DppoConfig, {"first_clip": 0.5}, r"first_clip in \(0, clip\]"),
        (ReinflowConfig, {"stride": 17}, "stride must be in 1..horizon=16"),
        (ReinflowConfig, {"clip": 0.0}, "clip, actor_lr and lr must be positive"),
    ):
        with pytest.raises(ConfigError, match=words):
            kind(**wrong)
