"""f-DVL: its conjugates are those of their divergences, and V goes to the best that was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from policies.offline_rl.dvl import DvlConfig
from robolearn.errors import ConfigError
from tests.policies.offline_rl.bandits import encoded

DIVERGENCES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "chi_square": (lambda x: (x - 1.0) ** 2, 3.0),
    "total_variation": (lambda x: 0.5 * (x - 1.0).abs(), 0.5),
}


def built(divergence: Any, balance: float = 0.7) -> Any:
    config = DvlConfig(divergence=divergence, balance=balance, horizon=1, width=8, depth=1)
    return encoded(config)[0]


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
def test_the_conjugate_and_its_gradient_are_the_divergences(name: str) -> None:
    f, largest = DIVERGENCES[name]
    y = torch.linspace(0.01, largest - 0.01, 40, requires_grad=True)
    conjugate = built(name).conjugate(y)
    visits = torch.linspace(0.0, 5.0, 50_001)
    sums = visits[:, None] * y.detach() - f(visits)[:, None]
    found, where = sums.max(dim=0)
    torch.testing.assert_close(conjugate.detach(), found, atol=1e-5, rtol=1e-4)
    # By the envelope theorem the slope is the ratio of visits that is best for y.
    (slope,) = torch.autograd.grad(conjugate.sum(), y)
    torch.testing.assert_close(slope, visits[where], atol=2e-4, rtol=1e-3)
    assert built(name).conjugate(torch.tensor([-1.0, -10.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", sorted(DIVERGENCES))
def test_values_go_to_the_best_that_was_done(name: str) -> None:
    q, v = torch.linspace(0.0, 1.0, 101), torch.linspace(-1.0, 2.0, 3001)

    def learned(balance: float) -> float:
        algorithm = built(name, balance)
        losses = algorithm.value_loss((q[None] - v[:, None]).flatten()).view(len(v), -1)
        return v[losses.mean(dim=1).argmin()].item()

    values = [learned(balance) for balance in (0.5, 0.9, 0.999)]
    assert values[0] < values[1] < values[2]
    assert values[2] == pytest.approx(1.0, abs=0.02)
    if name == "total_variation":  # A quantile: where l of the chance to be better is 1 - l.
        assert learned(0.8) == pytest.approx(0.75, abs=0.02)


def test_bad_input_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"balance must be in \(0, 1\)"):
        DvlConfig(balance=1.0)
