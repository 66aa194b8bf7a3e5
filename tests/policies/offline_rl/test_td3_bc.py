"""TD3+BC: the first critic's term against the distance to what was done."""

from __future__ import annotations

import pytest
import torch

from policies.offline_rl.td3_bc import Td3BcConfig
from robolearn.errors import ConfigError
from tests.policies.offline_rl.bandits import encoded, generator, says


def test_the_actors_loss_by_hand() -> None:
    algorithm, t = encoded(Td3BcConfig(alpha=2.5, horizon=2, width=8, depth=1))
    # The least critic would turn the sign of the term.
    says(algorithm.critic.q, 4.0, -1.0)
    loss = algorithm.actor_losses(t, generator())["policy"]
    off = (algorithm.actor.chunk(t.seen) - t.chunk)[t.there.bool()]
    torch.testing.assert_close(loss, off.square().mean() - 2.5)


def test_the_actor_learns_in_every_other_update_and_its_slow_copy_follows() -> None:
    algorithm, _ = encoded(Td3BcConfig(horizon=2, width=8, depth=1, tau=0.5))
    _, t = encoded(Td3BcConfig(horizon=2, width=8, depth=1))
    assert algorithm.acts(t)
    for updated, moved in ((frozenset({"critic"}), False), (frozenset({"policy"}), True)):
        before = [p.clone() for p in algorithm.slow_actor.parameters()]
        for parameter in algorithm.actor.parameters():
            parameter.data += 1.0
        algorithm.after_update(0, updated)
        same = all(map(torch.equal, before, algorithm.slow_actor.parameters()))
        assert same != moved


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match="alpha must be at least 0"):
        Td3BcConfig(alpha=-1.0)
    with pytest.raises(ConfigError, match="noise and noise_clip"):
        Td3BcConfig(noise=-1.0)
