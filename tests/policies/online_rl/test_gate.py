"""Uni-O4 before its switch: recordings whose best is known, and steps that are taken back."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.denoising.gate import GateConfig
from policies.critics.denoising.policy_gradient import PolicyGradient
from policies.registry import explorer_of, load_policy
from robolearn.errors import ConfigError
from robolearn.learning import Batch
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run
from tests.policies.every import DECIDING, Family, StoppedError
from tests.policies.online_rl.test_policy_gradient import (
    PARENTS,
    flown,
    here,
    place,
    practised,
)

ROWS = 64
GATE = GateConfig(every=5, critics_first=60, expectile=0.5, tau=0.1)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    made = Family(tmp_path_factory.mktemp("gate"))
    for name in PARENTS.values():
        made.run(name)
    return made


def gated(name: str, family: Family, **more: Any) -> Any:
    """The algorithm before its first update."""
    return practised(name, family, **({"gate": GATE, "lr": 5e-3, "actor_lr": 1e-2} | more))


def recorded(number: int, centre: float, goal: float) -> Batch:
    """What somebody did who went anywhere around ``centre``, each chunk a task of its own, and how
    near ``goal`` [m] that was.
    """
    rng = np.random.default_rng(number)
    shown = here(ROWS)
    actions = np.full((ROWS, 4, 2), 0.25)
    actions[:, :, 0] = centre + rng.uniform(-0.12, 0.12, (ROWS, 1))
    reward = -((actions[:, 0, 0] - goal) ** 2) / 0.01
    return Batch(
        shown,
        torch.from_numpy(actions.astype(np.float32)),
        torch.ones(ROWS, 4, dtype=torch.bool),
        reward=torch.from_numpy(reward.astype(np.float32)),
        bootstrap=torch.zeros(ROWS),
        next_observations=shown,
    )


def learn(built: Any, count: int, centre: float, goal: float) -> dict[str, float]:
    """So many updates from recordings."""
    groups = built.groups()
    optimizers = {k: torch.optim.Adam(g.parameters, lr=g.lr) for k, g in groups.items()}
    rng, figures = torch.Generator().manual_seed(0), dict[str, float]()
    for number in range(count):
        losses = built(recorded(number, centre, goal), number, rng)
        for name, loss in losses.by_group.items():
            parameters = groups[name].parameters
            found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            for p, g in zip(parameters, found, strict=True):
                p.grad = g
            optimizers[name].step()
        built.after_update(number, frozenset(losses.by_group))
        figures = {k: float(v) for k, v in losses.metrics.items()}
    return figures


@pytest.mark.parametrize("name", DECIDING)
def test_recordings_lead_it_to_what_was_best_in_them(name: str, family: Family) -> None:
    built = gated(name, family)
    begun = place(built)
    goal = begun + (0.06 if begun < 0.25 else -0.06)
    figures = learn(built, 150, begun, goal)
    assert 3 <= figures["gate_risen"] <= figures["gate_looks"]
    gone = (place(built) - begun) / (goal - begun)
    assert 0.4 < gone < 1.2


def test_before_the_critics_know_anything_nobody_moves(family: Family) -> None:
    built = gated("reinflow", family)
    before = {k: v.clone() for k, v in built.policy_weights().items() if k.startswith("chain.")}
    losses = built(recorded(0, 0.25, 0.3), GATE.critics_first - 1, torch.Generator())
    assert set(losses.by_group) == {"value", "critic"}
    losses = built(recorded(0, 0.25, 0.3), GATE.critics_first, torch.Generator())
    assert set(losses.by_group) == {"value", "critic", "policy"}
    # The kept policy drew, and nobody has moved yet.
    assert losses.metrics["kl"].abs() < 1e-5
    for name, value in built.policy_weights().items():
        if name in before:
            assert torch.equal(value, before[name])


def looked(built: Any, rise: float, least: float = 0.0) -> tuple[int, int]:
    """A step that moves the policy, judged by critics that say so much more of it; whether it was
    kept, and how often anybody looked.
    """
    gate = built.gate
    gate.config = dataclasses.replace(gate.config, least=least)
    said = iter((0.3 + rise, 0.3))
    gate.evaluated = lambda *_: next(said)
    with torch.no_grad():
        for parameter in built.chain.parameters():
            parameter.add_(0.01)
    gate.made.fill_(gate.config.every)
    gate.look(built.chain, here(8), torch.Generator())
    return int(gate.risen), int(gate.looks)


def apart(built: Any) -> float:
    pairs = zip(built.chain.parameters(), built.gate.kept.parameters(), strict=True)
    return sum(float((a - b).detach().abs().sum()) for a, b in pairs)


def test_a_step_is_kept_only_where_the_evaluation_rises(family: Family) -> None:
    worse = gated("reinflow", family)
    begun = [p.detach().clone() for p in worse.gate.kept.parameters()]
    assert looked(worse, -0.01) == (0, 1)
    # Taken back, not only left out of what is deployed.
    assert apart(worse) == 0.0
    assert all(torch.equal(a, b) for a, b in zip(begun, worse.chain.parameters(), strict=True))
    better = gated("reinflow", family)
    assert looked(better, 0.01) == (1, 1)
    assert apart(better) == 0.0
    assert not all(
        torch.equal(a, b) for a, b in zip(begun, better.gate.kept.parameters(), strict=True)
    )
    # No less than asked for; and a rise that is none is none.
    assert looked(gated("reinflow", family), 0.01, least=0.02) == (0, 1)
    assert looked(gated("reinflow", family), 0.0) == (0, 1)


def test_between_two_looks_what_is_kept_flies(family: Family) -> None:
    built = gated("reinflow", family)
    begun = place(built)
    learn(built, GATE.critics_first + GATE.every - 1, 0.25, 0.4)
    assert apart(built) > 0.0
    assert place(built) == begun
    weights = built.policy_weights()
    kept = built.gate.kept.state_dict()
    assert all(torch.equal(weights[f"chain.{k}"], v) for k, v in kept.items())


def test_once_it_decides_itself_nothing_is_kept_back(family: Family) -> None:
    """Plain PPO behind the switch."""
    built = gated("reinflow", family)
    batch = flown(built, 0, 0.3)
    losses = built(batch, 10_000, torch.Generator())
    assert set(losses.by_group) == {"value", "policy"}
    with torch.no_grad():
        for parameter in built.chain.parameters():
            parameter.add_(0.01)
    assert apart(built) > 0.0
    built.after_update(0, frozenset(losses.by_group))
    assert apart(built) == 0.0
    assert int(built.gate.made) == 0


def test_losses_and_advantages_by_hand(family: Family) -> None:
    built = gated("reinflow", family, gate=dataclasses.replace(GATE, expectile=0.8))
    gate, batch = built.gate, recorded(1, 0.25, 0.3)
    batch = dataclasses.replace(batch, bootstrap=torch.full((ROWS,), 0.9))
    found = gate.losses(batch, built.value)
    value = built.value(batch.observations)
    features = gate.critic.observed(batch.observations)
    chunk = gate.critic.chunk(batch.actions, batch.observations)
    least = gate.target(torch.cat([features, chunk], dim=-1)).amin(dim=0)
    u = least - value
    torch.testing.assert_close(
        found["value"], (torch.where(u < 0, 0.2, 0.8) * u**2).mean(), rtol=1e-4, atol=1e-6
    )
    target = (batch.reward + 0.9 * value).detach()
    q = gate.critic.q_values(features, chunk)
    torch.testing.assert_close(found["critic"], ((q - target) ** 2).sum(dim=0).mean())
    assert (
        torch.autograd.grad(found["critic"], tuple(built.value.parameters()), allow_unused=True)[0]
        is None
    )
    imagined = built.imagined(gate, batch, torch.Generator())
    actions = built.chain.codec.decode(imagined.chain[:, -1], batch.observations)
    torch.testing.assert_close(
        imagined.advantage, gate.worth(actions, batch.observations) - value.detach()
    )


def test_a_gated_run_is_like_any_other_and_goes_on_to_the_same_bits(family: Family) -> None:
    gate: dict[str, Any] = {"gate": GateConfig(every=2, critics_first=1)}
    fit = FitConfig(steps=6, warmup=1, log_every=1, checkpoint_every=2)
    family.train("reinflow", "whole", fit=fit, **gate)
    with pytest.raises(StoppedError):
        family.train("reinflow", "cut", fit=fit, stop_at=3, **gate)
    family.train("reinflow", "cut", fit=fit, resume=True, **gate)
    whole, cut = (load_run(family.folder / n) for n in ("whole", "cut"))
    assert whole.weights.keys() == cut.weights.keys()
    assert all(torch.equal(v, cut.weights[k]) for k, v in whole.weights.items())
    assert not any(k.startswith("gate") for k in whole.weights)
    request = family.request(3)
    deployed, parent = load_policy(whole.path), load_policy(family.folder / "flow")
    assert type(deployed) is type(parent)
    explored = explorer_of(whole).sample(request).actions
    assert np.abs(explored - deployed.sample(request).actions).max() > 1e-3


def test_bad_settings_are_explained(family: Family) -> None:
    bad: tuple[tuple[dict[str, Any], str], ...] = (
        ({"every": 0}, "every and members at least 1"),
        ({"expectile": 1.0}, r"expectile in \(0, 1\)"),
        ({"tau": 0.0}, r"tau in \(0, 1\]"),
        ({"least": -1.0}, "least must be at least 0"),
        ({"least": float("nan")}, "least must be at least 0"),
    )
    for wrong, words in bad:
        with pytest.raises(ConfigError, match=words):
            GateConfig(**wrong)
    built = gated("reinflow", family)
    lone = dataclasses.replace(recorded(0, 0.25, 0.3), reward=None)
    with pytest.raises(ConfigError, match="fed with chunked transitions"):
        built(lone, 0, torch.Generator())
    assert isinstance(built, PolicyGradient)
    # More is to be learned from the warm-up, and without a gate there is none.
    assert built.config.practice()["critic_updates"] == 4000
    assert practised("reinflow", family).gate is None
