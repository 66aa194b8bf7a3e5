"""COCOA answers where nothing was seen by what it knows of an anchor and of the way to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.actor_critic import Transition
from policies.offline_rl.cocoa import CocoaConfig, moved
from policies.offline_rl.iql import IqlConfig
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.errors import ConfigError
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource
from tests.policies.offline_rl.bandits import encoded, generator

TINY: dict[str, Any] = {"horizon": 2, "width": 8, "depth": 1, "transduction": 4, "embedding": 3}
TOY: dict[str, Any] = {"horizon": 1, "width": 32, "depth": 2}
STEP, ROWS = 0.15, 7


def answer(yaw: np.ndarray) -> np.ndarray:
    """What is to be done where the block is turned like this, wherever it and the tool are."""
    return 0.25 + 0.12 * np.sin(3.0 * yaw)


def belt() -> FlatEpisodes:
    """A belt carries tool and block together from .2 to .3 m and back, the block turned anyhow. The
    first number of an action moves the belt, the second is the answer.
    """
    rng = np.random.default_rng(0)
    episodes: list[EpisodeArrays] = []
    for i in range(40):
        x, u = [rng.uniform(0.2, 0.3)], list[float]()
        for _ in range(ROWS):
            low, high = (STEP * (v - 0.25) for v in (0.1, 0.4))
            step = rng.uniform(max(low, 0.2 - x[-1]), min(high, 0.3 - x[-1]))
            u.append(step / STEP + 0.25)
            x.append(x[-1] + step)
        yaw = np.full(ROWS, -np.pi + 2 * np.pi * i / 40)
        episodes.append(
            EpisodeArrays(
                id=f"e{i}",
                observations=at(np.array(x[:-1]), yaw),
                actions=np.stack([np.array(u), answer(yaw)], axis=1),
                reward=np.zeros(ROWS),
                done=np.zeros(ROWS, dtype=np.bool_),
            )
        )
    return flatten(ArraySource(tuple(episodes)))


def at(x: np.ndarray, yaw: np.ndarray) -> dict[str, np.ndarray]:
    """Observations where the belt is at ``x`` [m]."""
    return {TOOL: np.stack([x, x], axis=1), BLOCK: np.stack([x, x, yaw], axis=1)}


def untrained(config: CocoaConfig | IqlConfig, flat: FlatEpisodes) -> tuple[Any, Transition]:
    """An algorithm, and what it sees of all rows that something follows."""
    torch.manual_seed(0)
    data = EpisodeDataset(flat, config.batches(), 0)
    built: Any = config.build(SPACE, data.stats(), None)
    rows = np.flatnonzero(np.arange(len(flat.actions)) % ROWS < ROWS - 1)
    return built, built.encoded(data.gather(rows), 0, generator())


def minimise(loss: Callable[[int], torch.Tensor], parameters: Any, updates: int) -> None:
    optimiser = torch.optim.Adam(parameters, lr=0.01)
    for update in range(updates):
        optimiser.zero_grad()
        loss(update).backward()
        optimiser.step()


@pytest.fixture(scope="module")
def learned() -> tuple[Any, Any]:
    """COCOA and IQL after they were taught the recorded answers."""
    flat = belt()
    cocoa, t = untrained(CocoaConfig(anchor_steps=4, rollout=4, transduction=32, **TOY), flat)
    seeker, actor = cocoa.seeker, cocoa.actor
    learns = [*seeker.parameters(), *cocoa.reverse.parameters()]
    minimise(lambda k: sum(cocoa.anchor_losses(t, generator(k)).values()), learns, 100)
    parts = seeker.apart(t.seen)
    answers = t.chunk[:, 1]
    learns = [*actor.product.parameters(), *actor.policy.parameters()]
    minimise(lambda _: ((actor.combined(parts)[:, 1] - answers) ** 2).mean(), learns, 200)
    iql, t = untrained(IqlConfig(**TOY), flat)
    plain = iql.actor
    minimise(lambda _: ((plain.chunk(t.seen)[:, 1] - answers) ** 2).mean(), plain.parameters(), 200)
    return cocoa, iql


def error(algorithm: Any, *places: float) -> float:
    """Root mean square [m] of the answers where the belt is at any of ``places`` [m]."""
    x, yaw = (v.ravel() for v in np.meshgrid(places, np.linspace(-3.0, 3.0, 40)))
    seen = {k: torch.tensor(v[:, None], dtype=torch.float32) for k, v in at(x, yaw).items()}
    actor = algorithm.actor
    with torch.no_grad():
        chunk = actor.chunk(actor.context(seen)).unflatten(1, (1, 2))
        actions = actor.codec.decode(chunk, seen).numpy()
    return float(np.sqrt(np.mean((actions[:, 0, 1] - answer(yaw)) ** 2)))


def test_it_answers_where_nothing_was_seen(
    learned: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cocoa, iql = learned
    assert error(cocoa, 0.22, 0.25, 0.28) < 0.015
    assert error(iql, 0.22, 0.25, 0.28) < 0.015
    # A quarter of what was seen beyond its ends.
    new = error(cocoa, 0.175, 0.325)
    assert new < 0.7 * error(iql, 0.175, 0.325)
    # It is the anchor that makes the difference.
    monkeypatch.setattr(cocoa.seeker, "steps", 0)
    assert new < 0.4 * error(cocoa, 0.175, 0.325)


def test_anchors_are_where_the_data_are(learned: tuple[Any, Any]) -> None:
    seeker = learned[0].seeker
    state = torch.zeros(21, seeker.size)
    # The belt in normalised units: what was seen is within 1. The block is turned by a quarter.
    state[:, :4] = torch.linspace(-1.5, 1.5, 21)[:, None]
    state[:, 5] = 1.0
    anchor = seeker.anchor(state)
    assert anchor[:, :4].abs().max() < 1.15
    outside = state[:, 0].abs() > 1.0
    assert ((state - anchor)[outside, 0] * state[outside, 0].sign() > 0.3).all()
    # It stays turned as it is.
    assert (anchor[:, 4:] - state[:, 4:]).abs().max() < 0.1


def test_rollouts_back_keep_their_direction() -> None:
    algorithm, t = encoded(CocoaConfig(rollout=3, noise=0.0, scale=0.5, **TINY))
    size, g = algorithm.seeker.size, t.chunk.shape[1]
    away = torch.randn(g, size, generator=generator(1))
    algorithm.reverse = torch.nn.Linear(size + g, size, bias=False)
    algorithm.reverse.weight.data.copy_(torch.cat([torch.zeros(size, size), -away.T], dim=1))
    begins = t.seen[:, :size]
    states, chunks = algorithm.rolled_back(begins, t.chunk, generator())
    order = torch.randperm(4, generator=generator())
    assert not torch.equal(order, torch.arange(4))
    direction = 0.5 * t.chunk[order]
    torch.testing.assert_close(chunks, direction.clamp(-1, 1).repeat(3, 1))
    wanted = torch.cat([begins - k * direction @ away for k in (1, 2, 3)])
    torch.testing.assert_close(states, wanted)


def test_models_and_seeker_by_hand() -> None:
    algorithm, t = encoded(CocoaConfig(**TINY))
    size = algorithm.seeker.size
    now, after = t.seen[:, :size], t.next_seen[:, :size]
    # The last of the rows ends its task: what follows is not to be known.
    assert (t.bootstrap > 0).tolist() == [True, True, True, False]
    losses = algorithm.anchor_losses(t, generator())
    ahead = moved(algorithm.seeker.model, now, t.chunk) - after
    back = moved(algorithm.reverse, after, t.chunk) - now
    torch.testing.assert_close(losses["forward"], (ahead[:3] ** 2).mean())
    torch.testing.assert_close(losses["reverse"], (back[:3] ** 2).mean())
    begins = torch.cat([after[:3], now[3:]])
    states, chunks = algorithm.rolled_back(begins, t.chunk, generator())
    apart = algorithm.seeker.chunk(states) - chunks
    torch.testing.assert_close(losses["seeker"], (apart**2).mean())


def test_anchor_and_delta_are_multiplied() -> None:
    algorithm, t = encoded(CocoaConfig(**TINY))
    size, q = algorithm.seeker.size, algorithm.critic.q
    state = t.seen[:, :size]
    delta, anchor, rest = t.now[:, :size], t.now[:, size : 2 * size], t.now[:, 2 * size :]
    torch.testing.assert_close(delta + anchor, state)
    torch.testing.assert_close(anchor, algorithm.seeker.anchor(state))
    assert rest.shape[1] == 0
    f = q.product.f.several(torch.cat([delta, t.chunk], dim=1)).unflatten(-1, (4, 3))
    g = q.product.g.several(torch.cat([anchor, t.chunk], dim=1)).unflatten(-1, (4, 3))
    product = q.product(torch.cat([t.now, t.chunk], dim=1))
    torch.testing.assert_close(product, torch.einsum("mbte,mbte->mbt", f, g))


def test_nothing_of_values_and_actor_moves_the_anchors() -> None:
    algorithm, t = encoded(CocoaConfig(**TINY))
    losses = {**algorithm.critic_loss(t, generator()), **algorithm.actor_losses(t, generator())}
    learns = [*algorithm.seeker.parameters(), *algorithm.reverse.parameters()]
    for name in ("critic", "value", "policy"):
        found = torch.autograd.grad(losses[name], learns, allow_unused=True, retain_graph=True)
        assert all(slope is None for slope in found)
    groups = algorithm.groups()
    assert set(groups) == set(losses)
    owned = [id(p) for group in groups.values() for p in group.parameters]
    assert len(owned) == len(set(owned)) == len({id(p) for p in learnt(algorithm)})


def learnt(algorithm: Any) -> list[torch.nn.Parameter]:
    return [p for p in algorithm.parameters() if p.requires_grad]


def test_bad_input_is_explained() -> None:
    for more, what in (
        ({"anchor_steps": 0}, "anchor_steps, rollout"),
        ({"noise": -0.1}, "scale and noise"),
        ({"expectile": 1.0}, "expectile"),
    ):
        with pytest.raises(ConfigError, match=what):
            CocoaConfig(**more)  # type: ignore[arg-type]
