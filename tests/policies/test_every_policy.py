"""What holds for every registered policy: its contract where it sees pictures and reads text, exact
resume, size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.registry import POLICIES
from robolearn.checkpoint import WEIGHTS, read_tensors
from robolearn.cli.deploy_policy import WarmBuilder
from robolearn.contracts import Policy
from robolearn.errors import SpecMismatchError
from robolearn.training import FitConfig
from robolearn.types import PolicyInput
from tests.contracts import PolicyContract
from tests.policies.every import SEEING, TRAINED, Family, StoppedError, refused

# Noise has no say in what they answer.
DETERMINISTIC = ("bc",)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Policy]:
    """Policies that see vectors and a camera and are told what to do."""
    family = Family(tmp_path_factory.mktemp("told"), told=True)
    return cache(family.policy)


class TestEveryPolicySeesAndReads(PolicyContract):
    @pytest.fixture(autouse=True, params=[*SEEING, "compose"])
    def chosen(self, request: pytest.FixtureRequest, told: Callable[[str], Policy]) -> None:
        self.name, self.policy = request.param, told(request.param)

    def make(self) -> Policy:
        return self.policy

    def request(self, batch: int, n_obs: int) -> PolicyInput:
        return Family(Path(), told=True).request(batch, n_obs)

    def test_another_seed_gives_another_chunk(self) -> None:
        if self.name not in DETERMINISTIC:
            super().test_another_seed_gives_another_chunk()

    def test_pictures_and_words_decide(self) -> None:
        asked = self.request(2, 2)
        plain = self.policy.sample(asked).actions
        turned = {
            k: np.flip(v, axis=2).copy() if v.dtype == np.uint8 else v
            for k, v in asked.observations.items()
        }
        for changed in (
            PolicyInput(turned, asked.t_ns, asked.seed, task=asked.task),
            PolicyInput(asked.observations, asked.t_ns, asked.seed, task=asked.task[::-1]),
        ):
            assert np.abs(self.policy.sample(changed).actions - plain).max() > 1e-6
        with pytest.raises(SpecMismatchError, match="Go left"):
            self.policy.sample(
                PolicyInput(asked.observations, asked.t_ns, asked.seed, task=("Go up",) * 2)
            )

    def test_it_is_warmed_up_before_a_robot_waits_for_it(self) -> None:
        assert WarmBuilder(self.make)() is self.policy


def test_critics_read_vectors_alone(tmp_path: Path) -> None:
    family = Family(tmp_path, told=True)
    assert "leave data.text out" in refused(family, "iql_rerank")
    assert not (tmp_path / "iql_rerank").exists()


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(tmp_path_factory.mktemp("family"))


@pytest.mark.parametrize("name", TRAINED)
def test_a_killed_run_goes_on_to_the_same_bits(name: str, family: Family) -> None:
    fit = FitConfig(steps=5, warmup=1, log_every=1, checkpoint_every=2)
    family.train(name, f"{name}-whole", fit=fit)
    with pytest.raises(StoppedError):
        family.train(name, f"{name}-halves", fit=fit, stop_at=3)
    torch.rand(3)  # Whatever happens in between.
    family.train(name, f"{name}-halves", fit=fit, resume=True)
    whole, halves = (family.folder / f"{name}-{part}" for part in ("whole", "halves"))
    assert (whole / WEIGHTS).read_bytes() == (halves / WEIGHTS).read_bytes()
    one, other = (read_tensors(p / "state/000000005/tensors.safetensors") for p in (whole, halves))
    assert one.keys() == other.keys()
    assert all(torch.equal(v, other[k]) for k, v in one.items())
    begun = read_tensors(whole / WEIGHTS)
    family.train(name, f"{name}-once", fit=FitConfig(steps=1, warmup=1))
    once = read_tensors(family.folder / f"{name}-once" / WEIGHTS)
    assert any(not torch.equal(v, once[k]) for k, v in begun.items())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_run_directory_is_all_that_a_policy_needs(
    name: str, family: Family, tmp_path: Path
) -> None:
    path = family.run(name)
    there = family.policy(name).sample(family.request(3), 2)
    moved = path.rename(tmp_path / "moved")
    from policies.registry import load_policy

    again = load_policy(moved).sample(family.request(3), 2)
    np.testing.assert_array_equal(again.actions, there.actions)
    moved.rename(path)
