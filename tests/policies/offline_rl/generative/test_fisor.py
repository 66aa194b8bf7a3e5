"""FISOR: targets and weights by hand, and a plane with a forbidden disc on the way."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.actor_critic import ActorCriticConfig
from policies.offline_rl.generative.fisor import Fisor, FisorConfig
from policies.offline_rl.iql import IqlConfig
from robolearn.contracts import Policy
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.errors import ConfigError
from robolearn.learning import Batch
from robolearn.region import Region
from robolearn.training.loop import FitConfig, fit
from robolearn.types import PolicyInput
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource, random_flat
from tests.policies.offline_rl.test_actor_critics import says

DISC = Region(TOOL, centre=(0.25, 0.25), radius=0.06)
STEP = 0.04
"""As far as behaviour goes in a step [m]."""
SMALL: dict[str, Any] = {
    "horizon": 1,
    "width": 32,
    "depth": 2,
    "batch_size": 128,
    "lr": 3e-3,
    "tau": 0.05,
    "discount": 0.9,
}


def plane() -> ArraySource:
    """Random steps from anywhere; each is worth how far to the right it goes."""
    rng = np.random.default_rng(0)
    items: list[EpisodeArrays] = []
    for k in range(80):
        way = rng.uniform(-STEP, STEP, (15, 2))
        start = rng.uniform(0.08, 0.42, 2)
        places = np.clip(start + np.concatenate([[[0.0, 0.0]], np.cumsum(way, axis=0)]), 0.05, 0.45)
        items.append(
            EpisodeArrays(
                id=f"e{k}",
                observations={TOOL: places[:-1], BLOCK: np.full((15, 3), 0.25)},
                actions=places[1:],
                reward=(places[1:, 0] - places[:-1, 0]) / STEP,
                cost=DISC.holds(places[1:]).astype(np.float64),
            )
        )
    return ArraySource(tuple(items))


def driven(config: ActorCriticConfig, steps: int, folder: Path) -> np.ndarray:
    """Where the policy goes from the left of the disc, ``[10, 40, 2]``."""
    torch.manual_seed(0)
    data = EpisodeDataset(flatten(plane()), config.batches(), 0)
    algorithm = config.build(SPACE, data.stats(), None)
    fit(algorithm, data, FitConfig(steps=steps, warmup=10), folder, seed=0)
    return went(algorithm.policy())


def went(policy: Policy) -> np.ndarray:
    rng = np.random.default_rng(1)
    here = np.stack([np.full(40, 0.12), rng.uniform(0.22, 0.28, 40)], axis=1)
    places: list[np.ndarray] = []
    for k in range(10):
        request = PolicyInput(
            {TOOL: here[:, None], BLOCK: np.full((40, 1, 3), 0.25)},
            np.zeros(40, dtype=np.int64),
            np.arange(40) + 100 * k,
        )
        way = policy.sample(request).actions[:, 0, 0] - here
        here = here + np.clip(way, -STEP, STEP)
        places.append(here)
    return np.stack(places)


def test_the_forbidden_disc_is_gone_around(tmp_path: Path) -> None:
    crossing = driven(IqlConfig(beta=3.0, **SMALL), 150, tmp_path)
    within = float(DISC.holds(crossing.reshape(-1, 2)).mean())
    assert within > 0.1
    config = FisorConfig(candidates=4, beta=10.0, **SMALL)
    around = driven(config, 400, tmp_path)
    forbidden = float(DISC.holds(around.reshape(-1, 2)).mean())
    assert forbidden < within / 3
    # And it gets to the right all the same.
    gained = [float((p[-1, :, 0] - 0.12).mean()) for p in (crossing, around)]
    assert gained[1] > 0.8 * gained[0]


def built(**more: Any) -> tuple[Fisor, EpisodeDataset]:
    config = FisorConfig(horizon=2, discount=0.5, width=8, depth=1, batch_size=4, **more)
    flat = random_flat()
    flat = dataclasses.replace(flat, cost=(np.arange(len(flat.reward)) == 2).astype(np.float32))
    data = EpisodeDataset(flat, config.batches(), 0)
    found: Any = config.build(SPACE, data.stats(), None)
    return found, data


def test_targets_by_hand() -> None:
    algorithm, data = built(violation=5.0)
    feasibility = algorithm.actor.critic
    assert feasibility.v is not None
    assert algorithm.critic.v is not None
    says(feasibility.q, 1.0, 0.0)
    says(feasibility.v, 3.0)
    says(algorithm.feasible_target, 2.0, 7.0)
    says(algorithm.critic.q, 0.0, 0.0)
    says(algorithm.critic.v, 4.0)
    says(algorithm.target, 5.0, 2.0)
    # Row 1 costs at its second step, row 8 costs nothing, row 18 ends the task.
    batch = data.gather(np.array([1, 8, 18]))
    losses = algorithm(batch, 0, torch.Generator().manual_seed(0)).by_group
    targets = np.array([0.75 * 5.0 + 0.25 * 5.0, 0.75 * -1.0 + 0.25 * 3.0, -1.0])
    wanted = np.mean([(1.0 - targets) ** 2, targets**2])
    assert losses["feasibility"].item() == pytest.approx(float(wanted), rel=1e-5)
    # The larger of what the targets say is above the threshold: that counts 1 - expectile.
    assert losses["threshold"].item() == pytest.approx(0.1 * (7.0 - 3.0) ** 2, rel=1e-5)
    assert losses["value"].item() == pytest.approx(0.1 * (2.0 - 4.0) ** 2, rel=1e-5)


@pytest.mark.parametrize(
    ("v_h", "q_h", "weight"),
    [
        (-0.5, -0.2, float(np.exp(3 * 0.4))),
        (-0.5, 0.2, 0.0),
        (0.5, 0.2, float(np.exp(5 * 0.3))),
        (20.0, 2.0, 150.0),
    ],
    ids=("the best that stays", "what does not stay", "the way back", "at most 150"),
)
def test_weights_by_hand(v_h: float, q_h: float, weight: float) -> None:
    algorithm, data = built()
    feasibility = algorithm.actor.critic
    assert feasibility.v is not None
    assert algorithm.critic.v is not None
    says(feasibility.v, v_h)
    says(algorithm.feasible_target, q_h - 1.0, q_h)
    says(algorithm.critic.v, 1.0)
    says(algorithm.target, 1.4, 3.0)
    t = algorithm.encoded(data.gather(np.array([1, 8])), 0, torch.Generator().manual_seed(0))
    assert algorithm.weight(t).tolist() == pytest.approx([weight, weight], rel=1e-5)


def test_the_most_feasible_sample_is_done() -> None:
    algorithm, data = built(candidates=6, diffusion_steps=3)
    actor = algorithm.actor.eval()
    observations = data.gather(np.array([1, 8])).observations
    noise = torch.randn(2, 18, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        context = actor.context(observations)
        seen, judged = actor.split(context)
        each = [
            actor.held(actor.diffusion.sample(noise[:, 3 * k : 3 * k + 3].flatten(2), seen))
            for k in range(6)
        ]
        worst = torch.stack([actor.critic.q_values(judged, x).amax(dim=0) for x in each])
        chosen = worst.argmin(dim=0)
        wanted = torch.stack([each[int(k)][row] for row, k in enumerate(chosen)])
        found = actor.generate(noise, context).flatten(1)
    assert worst.std() > 0
    torch.testing.assert_close(found, wanted)


def test_of_the_feasible_samples_the_one_that_is_worth_most_is_done() -> None:
    algorithm, data = built(candidates=6, diffusion_steps=3, choice="worth")
    actor = algorithm.actor.eval()
    assert actor.worth is algorithm.critic
    batch = data.gather(np.array([1, 8, 18]))
    noise = torch.randn(3, 18, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        context = actor.context(batch.observations)
        seen, judged = actor.split(context)
        each = torch.stack(
            [
                actor.held(actor.diffusion.sample(noise[:, 3 * k : 3 * k + 3].flatten(2), seen))
                for k in range(6)
            ]
        )
        worst = torch.stack([actor.critic.q_values(judged, x).amax(dim=0) for x in each])
        t = algorithm.encoded(batch, 0, torch.Generator())
        worth = torch.stack([algorithm.critic.q_values(t.now, x).amin(dim=0) for x in each])
        # The middle of all is where feasibility ends; in the last row it ends below all of them.
        shift = torch.tensor([worst.median(), worst.median(), worst[:, 2].min() - 1.0])
        for row, bound in enumerate(shift):
            bias = actor.critic.q.biases[-1]
            bias -= bound
            found = actor.generate(noise, context).flatten(1)[row]
            bias += bound
            there = [k for k in range(6) if worst[k, row] <= bound]
            best = max(there, key=lambda k: float(worth[k, row])) if there else None
            wanted = worst[:, row].argmin() if best is None else best
            torch.testing.assert_close(found, each[int(wanted), row])
    assert worst.std() > 0
    assert worth.std() > 0


def test_who_chooses_by_worth_is_kept_with_its_critic() -> None:
    algorithm, _ = built(choice="worth")
    names = set(algorithm.policy_weights())
    assert {n for n in names if n.startswith("worth.q.")} == {
        f"worth.q.{n}" for n in algorithm.critic.q.state_dict()
    }
    assert not [n for n in built()[0].policy_weights() if n.startswith("worth")]


def test_without_costs_it_is_said() -> None:
    algorithm, data = built()
    batch = data.gather(np.array([1, 8]))
    with pytest.raises(ConfigError, match="fisor is fed with what chunks cost"):
        algorithm(dataclasses.replace(batch, worst_cost=None), 0, torch.Generator())
    windows = Batch(batch.observations, batch.actions, batch.action_mask)
    with pytest.raises(ConfigError, match="fisor is fed with chunked transitions"):
        algorithm(windows, 0, torch.Generator())
    with pytest.raises(ConfigError, match="violation must be above 0"):
        FisorConfig(violation=0.0)
