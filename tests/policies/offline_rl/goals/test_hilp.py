"""A line that is walked in pieces, either way; its map; and skills on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from policies.nets.bisimulation import BisimulationConfig
from policies.offline_rl.goals.hilp import SKILL, HilpConfig
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from tests.learning_mocks import TOOL, ArraySource
from tests.policies.offline_rl.goals.crossroads import (
    GOAL,
    GOALS,
    ROADS,
    SMALL,
    answered,
    learned,
    walks,
)

RIGHT, LEFT = (0.4, 0.25), (0.1, 0.25)
LINE = [(0.1 + 0.05 * k, 0.25) for k in range(7)]
# None of the pieces goes all the way.
PIECES = [(0, 3), (1, 4), (2, 5), (3, 6)]
CONFIG = HilpConfig(skills=4, **{**SMALL, "discount": 0.9})


def pieces() -> ArraySource:
    found = []
    for low, high in PIECES:
        there = LINE[low : high + 1]
        found += [(there, [RIGHT] * 4), (there[::-1], [LEFT] * 4)]
    return walks(found * 5, "line")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return learned(CONFIG, tmp_path_factory.mktemp("hilp"), 200, pieces())


def test_distances_on_the_map_are_ordered_by_steps(trained: Any) -> None:
    places = {TOOL: torch.tensor(LINE)[:, None]}
    with torch.no_grad():
        phi = trained.map.now(places)[0]
    apart = torch.cdist(phi, phi)
    for row in (apart[0], apart[6].flip(0)):
        assert row.tolist() == sorted(row.tolist())
    # A step is one, discounted ones are less; over two pieces, too.
    assert apart.diagonal(1).mean() == pytest.approx(1.0, abs=0.35)
    assert 2.5 < apart[0, 6] < 5.5


def test_a_goal_lies_in_a_direction(trained: Any) -> None:
    policy = trained.policy()
    for k, place in enumerate(LINE):
        for goal in (0, 6):
            if goal != k:
                way = float(answered(policy, place, LINE[goal])[0])
                assert (way > 0.25) == (goal > k), (k, goal, way)


def test_skills_are_paid_for_what_they_gain_along_their_direction(trained: Any) -> None:
    data = EpisodeDataset(flatten(pieces()), CONFIG.batches(), 0)
    batch = data.batch(0)
    found = trained.explored(batch, torch.Generator().manual_seed(0))
    z = found.observations[SKILL][:, 0]
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(len(z)))
    assert (z.mean(dim=0).abs() < 0.4).all()
    assert batch.next_observations is not None
    with torch.no_grad():
        here, there = (trained.map.now(o)[0] for o in (batch.observations, batch.next_observations))
    torch.testing.assert_close(found.reward, ((there - here) * z).sum(dim=-1))
    torch.testing.assert_close(found.next_observations[SKILL][:, 0], z)
    # Skills do not end, where goals do.
    assert found.bootstrap.tolist() == pytest.approx([0.9] * len(z))


def test_only_distances_draw_the_map(trained: Any) -> None:
    batch = EpisodeDataset(flatten(pieces()), CONFIG.batches(), 0).batch(0)
    losses = trained(batch, 1, torch.Generator().manual_seed(0)).by_group
    assert set(losses) == set(trained.groups()) == {"map", "value", "critic", "policy"}
    phi = list(trained.map.parameters())
    for name, loss in losses.items():
        found = torch.autograd.grad(loss, phi, allow_unused=True, retain_graph=True)
        assert any(g is not None for g in found) == (name == "map")


def test_what_hilp_lacks_is_explained() -> None:
    with pytest.raises(ConfigError, match="hilp learns to reach goals: name them"):
        HilpConfig()
    with pytest.raises(ConfigError, match="rewards of hilp's skills are drawn"):
        HilpConfig(goals=GOALS, bisimulation=BisimulationConfig())
    with pytest.raises(ConfigError, match="skills must be at least 1"):
        HilpConfig(goals=GOALS, skills=0)
    spec = CONFIG.batches().future
    assert spec is not None
    assert (spec.geometric, spec.random, spec.current, spec.goals) == (
        0.625,
        0.375,
        0.0,
        ((GOAL, TOOL),),
    )
    assert CONFIG.policy_spec(ROADS).task_space == ROADS
