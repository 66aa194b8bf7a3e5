"""Tilting: mixtures of Gaussians whose tilted distribution is known, predicates, plans, parents."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from policies.chunks.guidance import Prefix
from policies.chunks.policy import FieldChunkPolicy
from policies.chunks.tilt import TiltConfig, Worth, tilted
from policies.critics.reranked import RerankedPolicy
from policies.offline_rl.chained.doit import Doit, TiltedPolicy
from policies.registry import load_policy
from robolearn.errors import ConfigError
from robolearn.training.run_directory import load_run
from tests.policies.every import Family, batches_of, untrained

PLACES, SPREAD, SHARES = (-1.0, 1.0), 0.3, (0.7, 0.3)
ROWS, SLOPE = 800, 1.0
EXACT = TiltConfig(particles=12, steps=12, temperature=1.0, judged="rollout")
CONTEXT = torch.zeros(ROWS, 1)


def mixture(x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """The velocity of a parent that goes to -1 in seven of ten cases and else to 1, by .3 or so;
    exact, for chunks of a single number.
    """
    del context
    time = t[:, None, None]
    variance = (1 - time) ** 2 + (time * SPREAD) ** 2
    logs, ends = [], []
    for place, share in zip(PLACES, SHARES, strict=True):
        apart = x - time * place
        logs.append(math.log(share) - 0.5 * apart**2 / variance)
        ends.append(place + time * SPREAD**2 / variance * apart)
    shares = torch.softmax(torch.stack(logs), dim=0)
    end = (shares * torch.stack(ends)).sum(dim=0)
    return (end - x) / (1 - time)


def drawn(config: TiltConfig, worth: Worth, seed: int = 0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    noise = torch.randn(ROWS, config.draws, 1, 1, generator=rng)
    return tilted(mixture, noise, CONTEXT, worth, config).flatten()


def linear(chunks: torch.Tensor) -> torch.Tensor:
    return SLOPE * chunks[:, :, 0, 0]


def test_the_tilted_mixture_is_the_one_known() -> None:
    """exp(x) makes of N(m, s^2) exp(m + s^2 / 2) N(m + s^2, s^2)."""
    weights = [p * math.exp(SLOPE * m) for m, p in zip(PLACES, SHARES, strict=True)]
    right = weights[1] / sum(weights)
    assert right == pytest.approx(0.76, abs=0.01)
    x = drawn(EXACT, linear)
    plain = drawn(EXACT, lambda chunks: torch.zeros(chunks.shape[:2]))
    assert float((plain > 0).float().mean()) == pytest.approx(SHARES[1], abs=0.06)
    assert float((x > 0).float().mean()) == pytest.approx(right, abs=0.06)
    # A dozen steps move both modes inwards; of what is left, the tilt.
    for there, here in ((plain < 0, x < 0), (plain > 0, x > 0)):
        moved = float(x[here].mean() - plain[there].mean())
        assert moved == pytest.approx(SLOPE * SPREAD**2, abs=0.05)
        assert float(x[here].std()) == pytest.approx(SPREAD, abs=0.06)


def test_what_is_forbidden_is_not_done() -> None:
    """A predicate has no gradient; even where all draws are forbidden something is sampled."""

    def left_alone(chunks: torch.Tensor) -> torch.Tensor:
        return torch.where(chunks[:, :, 0, 0] > 0, 0.0, -torch.inf)

    for judged in ("rollout", "estimate"):
        config = TiltConfig(particles=12, steps=10, judged=judged)  # type: ignore[arg-type]
        assert float((drawn(config, left_alone) > 0).float().mean()) > 0.8
    nothing = drawn(TiltConfig(), lambda chunks: torch.full(chunks.shape[:2], -torch.inf))
    assert torch.isfinite(nothing).all()


def test_one_particle_is_the_parent() -> None:
    config = TiltConfig(particles=1, steps=12, temperature=1e-3)
    x = drawn(config, linear)
    assert float((x > 0).float().mean()) == pytest.approx(SHARES[1], abs=0.05)


def test_what_is_known_of_a_plan_is_held() -> None:
    config = TiltConfig(particles=4, steps=6, temperature=0.1, judged="rollout")
    noise = torch.randn(6, config.draws, 2, 1, generator=torch.Generator().manual_seed(0))
    wanted = torch.full((6, 2, 1), 0.4)
    weight = torch.tensor([1.0, 0.0])[None, :, None].expand(6, -1, -1)

    def wide(x: torch.Tensor, t: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        return mixture(x, t, context)

    x = tilted(wide, noise, torch.zeros(6, 1), linear, config, Prefix(wanted, weight))
    assert torch.equal(x[:, 0], wanted[:, 0])
    assert (x[:, 1] - 0.4).abs().min() > 1e-3


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(tmp_path_factory.mktemp("doit"))


def test_the_value_that_follows_is_that_of_the_tilted_parent(family: Family) -> None:
    built = untrained("doit", family)
    assert isinstance(built, Doit)
    batch = batches_of(family, "doit", 8).batch(0)
    follow = batch.next_observations
    assert follow is not None
    assert batch.next_candidates is not None
    flat, _ = built.judged(batch.next_candidates, follow)
    q = built.target(
        torch.cat([built.critics.observed(follow).repeat_interleave(3, 0), flat.flatten(0, 1)], 1)
    )
    values = q.amin(dim=0).view(8, 3)
    shares = torch.exp(values / 0.05) / torch.exp(values / 0.05).sum(dim=1, keepdim=True)
    rng = torch.Generator().manual_seed(0)
    found = built.follow(batch, follow, rng)
    torch.testing.assert_close(found, (shares * values).sum(dim=1), atol=1e-5, rtol=1e-4)
    assert (found <= values.amax(dim=1) + 1e-6).all()


def test_tilted_chunks_are_worth_more_than_the_parents(family: Family) -> None:
    policy = load_policy(family.run("doit"))
    assert isinstance(policy, TiltedPolicy)
    assert isinstance(policy.parent, FieldChunkPolicy)
    request = family.request(16)

    def judge(observations: object) -> object:
        return lambda chunks: chunks[:, :, 0, 0]

    config = TiltConfig(particles=8, steps=6, temperature=1e-3)
    better = TiltedPolicy(policy.parent, judge, config)  # type: ignore[arg-type]
    plain = dataclasses.replace(config, particles=1)
    alone = TiltedPolicy(policy.parent, judge, plain)  # type: ignore[arg-type]
    gain = better.sample(request).scores - alone.sample(request).scores
    assert gain.mean() > 0
    assert not isinstance(policy, RerankedPolicy)


def test_chains_and_parents(family: Family) -> None:
    """Over a composed policy, which has a field; over others it is said what to take."""
    family.train("doit", "doit-deep", parent="compose")
    run = load_run(family.folder / "doit-deep")
    assert load_run(run.path / "parent/parts/0").config["policy"] == "flow"
    answer = load_policy(run.path).sample(family.request(3)).actions
    moved = run.path.rename(family.folder / "doit-moved")
    np.testing.assert_array_equal(load_policy(moved).sample(family.request(3)).actions, answer)
    lacking = {"distilled": "has no field that could be tilted", "bc": "noise has no say"}
    for parent, why in lacking.items():
        with pytest.raises(ConfigError, match=why):
            family.train("doit", "none", parent=parent)
    with pytest.raises(ConfigError, match="temperature"):
        TiltConfig(temperature=0.0)
    with pytest.raises(ConfigError, match="particles and steps"):
        TiltConfig(particles=0)
