"""BESO: EDM's algebra, goals, hindsight, guidance."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.imitation.beso import (
    BesoConfig,
    BesoModel,
    first_open,
    log_logistic,
    reached,
    relabelled,
)
from robolearn.contracts import Policy
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.learning import BatchSpec, FutureSpec
from tests.contracts import PolicyContract
from tests.learning_mocks import (
    BLOCK,
    TOOL,
    ArraySource,
    random_flat,
    random_request,
    random_source,
    rows_shown,
)
from tests.policies.family import a_batch, learn, mode_shares, two_modes, untrained

SMALL = BesoConfig(n_obs=2, horizon=4, execute=2, width=32, blocks=2, batch_size=16)
GOAL = dataclasses.replace(SMALL, goal=(BLOCK,))


class TestBesoContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(SMALL).policy()


class TestGoalContract(PolicyContract):
    def make(self) -> Policy:
        return untrained(GOAL).policy()


def net(config: BesoConfig = SMALL) -> BesoModel:
    found = untrained(config).ema
    assert isinstance(found, BesoModel)
    return found


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.5])
def test_the_scaling_gives_unit_inputs_and_targets(sigma: float) -> None:
    model = net()
    rng = torch.Generator().manual_seed(0)
    a = 0.5 * torch.randn(100_000, generator=rng)
    x = a + sigma * torch.randn(100_000, generator=rng)
    c_in, c_skip, c_out = (c.item() for c in model.scales(torch.tensor([sigma])))
    assert (c_in * x).std().item() == pytest.approx(1.0, abs=0.01)
    assert ((a - c_skip * x) / c_out).std().item() == pytest.approx(1.0, abs=0.01)


def test_noise_levels_are_log_logistic_within_bounds() -> None:
    u = (torch.arange(20_001) + 0.5) / 20_001
    sigma = log_logistic(u, 0.5, (0.01, 2.0))
    assert 0.01 <= sigma.min().item() < 0.011
    assert 1.99 < sigma.max().item() <= 2.0
    wide = log_logistic(u, 0.5, (1e-6, 1e6))
    assert wide.median().item() == pytest.approx(0.5, rel=1e-3)
    # Where a logistic variable has three quarters below it, it is log 3.
    assert wide.quantile(0.75).item() == pytest.approx(0.5 * 3.0, rel=1e-3)


@pytest.mark.parametrize(("largest", "low", "high"), [(10.0, 0.02, 0.25), (1.0, 0.7, 1.0)])
def test_a_rare_way_to_act_stays_rare(
    monkeypatch: pytest.MonkeyPatch, largest: float, low: float, high: float
) -> None:
    """With the exact denoiser of a mixture: chunks of -1, or of 0.5 with a chance of 0.1. From too
    little noise the way nearer to zero is drawn nearly always.
    """
    model = net(dataclasses.replace(SMALL, horizon=16, sampler_steps=4, sigma=(0.05, largest)))

    def exact(x: torch.Tensor, sigma: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        far, near = (((x - a) ** 2).flatten(1).sum(1) for a in (-1.0, 0.5))
        odds = np.log(0.1 / 0.9) + (far - near) / (2 * sigma**2)
        share = torch.sigmoid(odds)[:, None, None]
        return 0.5 * share - (1 - share)

    monkeypatch.setattr(model, "denoise", exact)
    noise = torch.randn(2_000, 1, 16, 2, generator=torch.Generator().manual_seed(0))
    chunks = model.generate(noise, torch.zeros(2_000, 1))
    rare = (chunks.flatten(1).mean(1) > -0.25).double().mean().item()
    assert low < rare <= high


def test_the_velocity_leads_to_the_estimate() -> None:
    model = net()
    context = torch.randn(3, model.flat_size + model.seen_size)
    x, t = torch.randn(3, 4, 2), torch.tensor([0.6, 0.7, 0.9])
    s = t[:, None, None]
    end = x + (1 - s) * model.velocity(x, t, context)
    torch.testing.assert_close(end, model.denoise(x / s, (1 - t) / t, context))


def test_guidance_is_linear_in_its_strength() -> None:
    request = random_request(3)
    seen = {k: torch.as_tensor(v, dtype=torch.float32) for k, v in request.observations.items()}
    x, sigma = torch.randn(3, 4, 2), torch.full((3,), 0.7)
    ends = []
    for strength in (0.0, 1.0, 2.5):
        model = net(dataclasses.replace(GOAL, strength=strength))
        ends.append(model.denoise(x, sigma, model.context(seen)))
    free, aimed, more = ends
    assert (aimed - free).abs().max() > 1e-4
    torch.testing.assert_close(more, free + 2.5 * (aimed - free), atol=1e-5, rtol=1e-4)
    moved = dict(seen) | {BLOCK: seen[BLOCK] + 0.05}
    other = net(GOAL)
    assert (other.context(moved) - other.context(seen)).abs().max() > 1e-5
    # Only the goal part of the context changes: the goal is not among the features.
    kept = other.flat_size + other.seen_size
    torch.testing.assert_close(other.context(moved)[:, :kept], other.context(seen)[:, :kept])


def test_a_dropped_goal_is_not_seen_in_training() -> None:
    always = dataclasses.replace(GOAL, dropped=0.999999, observation_noise=0.0)
    model = net(always)
    batch = a_batch(always)
    context = model.context(batch.observations, torch.Generator().manual_seed(0))
    goals = context[:, -always.width :]
    torch.testing.assert_close(goals, model.nothing.expand_as(goals))


def test_hindsight_shows_what_comes_later() -> None:
    config = dataclasses.replace(SMALL, goal=(BLOCK,), hindsight=((BLOCK, BLOCK),), ahead=(3, 5))
    flat = random_flat((20, 20))
    dataset = EpisodeDataset(flat, config.batches(), 0)
    batch = dataset.batch(2)
    assert batch.future is not None
    changed = relabelled(batch, config.hindsight)
    assert changed.observations[BLOCK].shape == batch.observations[BLOCK].shape
    blocks = np.asarray(flat.observations[BLOCK][np.arange(40)])
    for row in range(len(batch.actions)):
        now, then = (
            int(np.flatnonzero(np.equal(blocks, b.observations[BLOCK][row, -1]).all(axis=1))[0])
            for b in (batch, changed)
        )
        last = 19 if now < 20 else 39
        assert min(now + 3, last) <= then <= min(now + 5, last)
    again = EpisodeDataset(flat, config.batches(), 0).batch(2)
    assert again.future is not None
    assert torch.equal(again.future[BLOCK], batch.future[BLOCK])
    assert EpisodeDataset(flat, SMALL.batches(), 0).batch(2).future is None


def test_the_goal_is_what_is_reached_next() -> None:
    """Against a search tick by tick: a mark that holds for one tick only is met, always if it holds
    by the least number of ticks ahead, and the later the less often.
    """
    rng = np.random.default_rng(0)
    flat = random_flat((30, 30))
    held = (rng.random((60, 2)) < 0.08).astype(np.float32)
    held[30] = 1.0  # Held at the start of the second episode: not reached in it.
    flat = dataclasses.replace(flat, observations=dict(flat.observations) | {BLOCK: held})
    future = FutureSpec(uniform=1.0, ahead=(2, 6), events=BLOCK)
    spec = BatchSpec(1, 4, 16, future=future)
    dataset = EpisodeDataset(flat, spec, 0)
    met: dict[int, list[bool]] = {k: [] for k in range(1, 8)}
    for step in range(60):
        batch = dataset.batch(step)
        later, rows = batch.future, rows_shown(flat, batch)
        assert later is not None
        for row, shown in zip(rows, later[BLOCK].numpy(), strict=True):
            end = 29 if row < 30 else 59
            ahead = range(row + 1, min(row + 7, end) + 1)
            due = [k for k in ahead if bool(((held[k] > 0.5) & (held[k - 1] < 0.5)).any())]
            # A row that was drawn before the mark holds does not have it.
            if due and row + 7 <= end:
                fresh = (held[due[0]] > 0.5) & (held[row] < 0.5)
                met[due[0] - row].append(bool((shown[fresh] > 0.5).all()))
    assert all(met[1] + met[2])
    assert not any(met[7])
    shares = [float(np.mean(met[k])) for k in range(3, 7)]
    assert shares == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=0.12)
    strange = dataclasses.replace(future, events="marks")
    with pytest.raises(DataError, match="no observation 'marks' to find events in"):
        EpisodeDataset(flat, dataclasses.replace(spec, future=strange), 0)


def test_marks_of_what_was_newly_reached() -> None:
    rng = torch.Generator().manual_seed(0)
    now = torch.tensor([[0.0, 1.0, 0.0, 0.0]]).expand(4000, 2, 4)
    later = torch.tensor([[0.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]).repeat(2000, 1)
    wanted = reached(now, later, rng)
    assert (wanted[0::2].sum(dim=1) == 1.0).all()  # one of the new ones
    assert 0.45 < float(wanted[0::2, 2].mean()) < 0.55
    assert (wanted[1::2] == 0.0).all()  # undone is not reached


def test_sub_goals_are_pursued_one_after_another() -> None:
    wanted = torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(3, 1, 4)
    holds = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    pursued = first_open(wanted, holds[:, None], (2, 0, 1, 3))[:, 0]
    assert pursued.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]


def test_learns_two_modes(tmp_path: Path) -> None:
    config = BesoConfig(
        n_obs=1, horizon=2, execute=1, width=32, blocks=2, lr=3e-3, batch_size=64, ema=0.97
    )
    left, right = mode_shares(learn(config, two_modes(), tmp_path, 300))
    assert min(left, right) > 0.2
    assert left + right > 0.7


def test_play_becomes_a_policy_that_reaches_goals(tmp_path: Path) -> None:
    """The tool walks at random and the 'goal' signal says nothing; asked for a place, the policy
    moves towards it.
    """
    rng = np.random.default_rng(0)
    items = []
    for episode in random_source((60,) * 8).items:
        steps = rng.choice([-0.02, 0.02], (6, 1)).repeat(10, axis=0)
        tool = np.stack(
            [np.clip(0.25 + np.cumsum(steps[:, 0]), 0.02, 0.48), np.full(60, 0.25)], axis=1
        )
        after = np.concatenate([tool[1:], tool[-1:]])
        block = np.concatenate([tool, np.zeros((60, 1))], axis=1)
        items.append(
            dataclasses.replace(episode, observations={TOOL: tool, BLOCK: block}, actions=after)
        )
    config = BesoConfig(
        n_obs=1,
        horizon=2,
        execute=1,
        width=32,
        blocks=2,
        lr=3e-3,
        batch_size=64,
        ema=0.97,
        goal=(BLOCK,),
        hindsight=((BLOCK, BLOCK),),
        ahead=(3, 6),
    )
    policy = learn(config, ArraySource(tuple(items)), tmp_path, 250)
    request = random_request(32, 1)
    tool = np.full((32, 1, 2), 0.25)
    aim = np.where(np.arange(32) % 2 == 0, 0.17, 0.33)
    goal = np.stack([aim, np.full(32, 0.25), np.zeros(32)], axis=1)[:, None]
    asked = dataclasses.replace(request, observations={TOOL: tool, BLOCK: goal})
    moved = policy.sample(asked).actions[:, 0, 0, 0] - 0.25
    assert (np.sign(moved) == np.sign(aim - 0.25)).mean() > 0.85


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sigma": (1.0, 0.5)}, "sigma must rise"),
        ({"dropped": 1.0}, "dropped must be"),
        ({"ahead": (5, 3)}, "ahead two rising"),
        ({"hindsight": ((BLOCK, TOOL),)}, "not among the goals"),
        ({"order": (0, 1)}, "one goal of marks"),
        ({"goal": (BLOCK,), "hindsight": ((BLOCK, BLOCK),), "order": (1, 1)}, "different sub"),
    ],
)
def test_bad_configurations_are_explained(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BesoConfig(**values)  # type: ignore[arg-type]


def test_goals_must_be_observed() -> None:
    with pytest.raises(SpecMismatchError, match="no observed signal 'block/pos'"):
        untrained(dataclasses.replace(SMALL, goal=("block/pos",)))
    with pytest.raises(SpecMismatchError, match="shaped like the goal"):
        untrained(dataclasses.replace(SMALL, goal=(BLOCK,), hindsight=((BLOCK, TOOL),)))
    with pytest.raises(SpecMismatchError, match="must leave something to see"):
        untrained(dataclasses.replace(SMALL, goal=(BLOCK, TOOL)))
