"""ARSQ: values that are exact soft values of all chunks, and modes that are not mixed up."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.critics.ensemble import Ensemble
from policies.nets.bisimulation import BisimulationConfig
from policies.offline_rl.arsq import ArsqConfig, SoftQ, taken
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.errors import ConfigError
from tests.learning_mocks import BLOCK, TOOL, ArraySource, random_episode
from tests.policies.offline_rl.bandits import answered, encoded, generator, says

TINY: dict[str, Any] = {"width": 8, "depth": 1, "horizon": 1}
CORNER = 4 / 9
"""Where the two modes are, in normalised actions: at the middle of one of nine intervals."""


def soft(**more: Any) -> SoftQ:
    """Of three features and two numbers; far from what it begins with."""
    torch.manual_seed(0)
    q = SoftQ(3, 2, ArsqConfig(**(TINY | more)))
    with torch.no_grad():
        q.weights[-1].normal_(0.0, 0.2)
    return q


def every_chunk(q: SoftQ) -> Tensor:
    """All of the chunks that can be told apart, ``[bins ** (zooms * 2), 2]``."""
    count = q.config.bins**q.config.zooms
    middles = (2.0 * torch.arange(count) + 1.0) / count - 1.0
    return torch.cartesian_prod(middles, middles)


@pytest.mark.parametrize("zooms", [1, 2])
def test_v_is_the_soft_value_of_all_chunks(zooms: int) -> None:
    q = soft(bins=3, zooms=zooms, temperature=0.3)
    features, chunks = torch.randn(1, 3), every_chunk(q)
    values = q(torch.cat([features.expand(len(chunks), -1), chunks], dim=-1))
    assert values.std() > 0.1
    summed = 0.3 * torch.logsumexp(values / 0.3, dim=1)
    torch.testing.assert_close(summed, q.v(features)[:, 0], rtol=1e-4, atol=1e-4)


def test_what_is_drawn_is_the_boltzmann_policy() -> None:
    q = soft(bins=2, zooms=2, temperature=0.3, members=1)
    features, chunks, count = torch.randn(1, 3), every_chunk(q), 20_000
    with torch.no_grad():
        values = q(torch.cat([features.expand(len(chunks), -1), chunks], dim=-1))[0]
        drawn = q.drawn(features.expand(count, -1), torch.randn(count, 2, 2, generator=generator()))
    apart, which = torch.cdist(drawn, chunks).min(dim=1)
    assert apart.max() < 1e-5
    share = torch.bincount(which, minlength=len(chunks)) / count
    torch.testing.assert_close(share, (values / 0.3).softmax(dim=0), atol=0.015, rtol=0.0)


def test_choices_and_what_they_know_by_hand() -> None:
    q = soft(bins=3, zooms=2)
    choices = q.choices(torch.tensor([[-1.0, 0.5], [1.0, -0.1]]))
    assert choices.tolist() == [[[0, 2], [0, 0]], [[2, 1], [2, 1]]]
    wanted = [[0.0, 0.0], [-2 / 3, 0.0], [-2 / 3, 2 / 3], [-8 / 9, 2 / 3]]
    torch.testing.assert_close(q.middles(choices)[0], torch.tensor(wanted))


def corners() -> FlatEpisodes:
    """Any place is tried once; two opposite corners are worth 1, the other two nothing."""
    rng = np.random.default_rng(0)
    place = rng.uniform(0.1, 0.4, (600, 2))
    place[:2] = [[0.1, 0.1], [0.4, 0.4]]
    unit = (place - 0.25) / 0.15
    near = [np.sum((unit - s * np.array([CORNER, -CORNER])) ** 2, axis=1) for s in (1.0, -1.0)]
    episode = dataclasses.replace(
        random_episode("e", 600, 0),
        observations={TOOL: np.full((600, 2), 0.25), BLOCK: np.full((600, 3), 0.25)},
        actions=place,
        reward=np.exp(-np.minimum(*near) / 0.25),
        done=np.ones(600, dtype=np.bool_),
    )
    return flatten(ArraySource((episode,)))


def gone(folder: Path, steps: int) -> np.ndarray:
    """Where it goes after so many updates, in normalised actions ``[64, 2]``."""
    config = ArsqConfig(
        bins=3, temperature=0.1, cloning=0.0, horizon=1, width=32, depth=1, batch_size=64, lr=5e-3
    )
    return (answered(config, folder, steps, corners()) - 0.25) / 0.15


def test_two_modes_are_found_and_not_mixed_up(tmp_path: Path) -> None:
    places = gone(tmp_path, 200)
    assert (places[:, 0] * places[:, 1] < 0).mean() > 0.9
    assert 0.25 < (places[:, 0] > 0).mean() < 0.75
    assert np.abs(np.abs(places) - CORNER).mean() < 0.2


def test_numbers_that_do_not_know_each_other_mix_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without what is known of earlier choices."""

    def blind(q: SoftQ, x: Tensor) -> Any:
        return Ensemble.hidden(q, torch.cat([x[:, :-2], torch.zeros_like(x[:, -2:])], dim=-1))

    monkeypatch.setattr(SoftQ, "hidden", blind)
    places = gone(tmp_path, 100)
    assert (places[:, 0] * places[:, 1] < 0).mean() < 0.75


def test_losses_by_hand() -> None:
    config = ArsqConfig(**(TINY | {"horizon": 2}), discount=0.5, bins=3, cloning=2.0, margin=-0.2)
    algorithm, t = encoded(config)
    q = algorithm.critic.q
    says(q.v, 1.0, 0.0)
    says(algorithm.target.v, 5.0, 2.0)
    error = algorithm.mean_td_loss(t, generator()).item()
    target = t.reward + t.bootstrap * 2.0
    picked, advantages = q.judged(t.now, t.chunk)
    values = torch.tensor([[1.0], [0.0]]) + taken(advantages, picked).sum(dim=-1)
    assert error == pytest.approx(((values - target) ** 2).mean().item(), rel=1e-5)
    pushed = 0.0
    for member, row, place in itertools.product(range(2), range(4), range(8)):
        own = int(picked[row, place])
        a = advantages[member, row, place].tolist()
        above = [max(a[k] - a[own], -0.2) for k in range(3) if k != own]
        # Two zooms of two actions of two numbers.
        pushed += float(t.there[row, place % 4]) * sum(above) / 2
    loss = algorithm.critic_loss(t, generator())["critic"].item()
    assert loss - error == pytest.approx(2.0 * pushed / 8, rel=1e-4, abs=1e-6)
    assert pushed != 0.0


def test_what_was_not_recorded_is_pushed_down_to_the_margin() -> None:
    """By gradient on the push alone, others end as far below as the margin says."""
    algorithm, t = encoded(ArsqConfig(**TINY, bins=3, zooms=1, temperature=0.5, margin=-1.0))
    q = algorithm.critic.q
    optimiser = torch.optim.Adam(q.parameters(), lr=0.05)
    for _ in range(60):
        picked, advantages = q.judged(t.now, t.chunk)
        optimiser.zero_grad()
        algorithm.push(t, picked, advantages).backward()
        optimiser.step()
    picked, advantages = q.judged(t.now, t.chunk)
    above = advantages - taken(advantages, picked)[..., None]
    others = above[above != 0]
    assert others.max() < -0.9


def test_an_encoder_of_histories_is_the_critics_alone() -> None:
    config = ArsqConfig(**TINY, bins=3, bisimulation=BisimulationConfig(size=4, width=8))
    algorithm, t = encoded(config)
    losses = algorithm(t.batch, 1, generator()).by_group
    plain = algorithm.critic_loss(t, generator())["critic"]
    assert set(losses) == {"critic"}
    assert losses["critic"].item() > plain.item()


def test_the_likeliest_is_done_where_it_is_asked_for() -> None:
    q = soft(bins=3, zooms=1, members=1, greedy=True)
    features = torch.randn(1, 3).expand(5, -1)
    with torch.no_grad():
        drawn = q.drawn(features, torch.randn(5, 1, 2))
        first = q.next_choice(features[:1], torch.zeros(1, 2), 0)[0, 0].argmax()
    assert torch.equal(drawn, drawn[:1].expand(5, -1))
    assert int(q.choices(drawn)[0, 0, 0]) == int(first)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="bins must be at least 2"):
        ArsqConfig(bins=1)
    with pytest.raises(ConfigError, match="temperature must be above 0"):
        ArsqConfig(temperature=0.0)
