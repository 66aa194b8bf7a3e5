"""What holds for every registered policy: its contract where it sees pictures and reads text, exact
resume, size.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.imitation.compose import ComposeConfig, compose
from policies.registry import POLICIES, load_policy
from robolearn.contracts import Policy
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.inference.warm import WarmBuilder
from robolearn.learning import FieldPolicy
from robolearn.representation import RepresentedPolicy
from robolearn.seeding import child_seed
from robolearn.training.loop import FitConfig, fit
from robolearn.training.run_directory import WEIGHTS, load_run, read_tensors
from robolearn.types import PolicyInput
from tests.contracts import PolicyContract
from tests.learning_mocks import TOOL
from tests.policies.every import (
    AIMING,
    SEEING,
    TRAINED,
    Family,
    StoppedError,
    batches_of,
    shake,
    untrained,
)

# Noise has no say in what they answer.
DETERMINISTIC = (
    *AIMING,
    "a2pr",
    "adversarial",
    "awac",
    "bc",
    "co_rft",
    "cocoa",
    "cql",
    "dsrl",
    "dvl",
    "h2o",
    "hil_serl",
    "iql",
    "rebrac",
    "riql",
    "rlpd",
    "sac",
    "safe",
    "td3_bc",
    "wsrl",
)


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


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(tmp_path_factory.mktemp("family"))


FIVE = FitConfig(steps=5, warmup=1, log_every=1, checkpoint_every=2)


@pytest.fixture(scope="module")
def whole(family: Family) -> Callable[[str], Path]:
    """Runs of five updates that nothing interrupted, each made once."""
    return cache(lambda name: family.train(name, f"{name}-whole", fit=FIVE).run_dir)


@pytest.mark.parametrize("name", TRAINED)
def test_a_killed_run_goes_on_to_the_same_bits(
    name: str, family: Family, whole: Callable[[str], Path]
) -> None:
    halves = family.folder / f"{name}-halves"
    with pytest.raises(StoppedError):
        family.train(name, halves.name, fit=FIVE, stop_at=3)
    begun = read_tensors(halves / WEIGHTS)
    torch.rand(3)  # Whatever happens in between.
    family.train(name, halves.name, fit=FIVE, resume=True)
    assert (whole(name) / WEIGHTS).read_bytes() == (halves / WEIGHTS).read_bytes()
    states = [p / "state/000000005/tensors.safetensors" for p in (whole(name), halves)]
    one, other = (read_tensors(path) for path in states)
    assert one.keys() == other.keys()
    assert all(torch.equal(v, other[k]) for k, v in one.items())
    ended = read_tensors(halves / WEIGHTS)
    assert any(not torch.equal(v, ended[k]) for k, v in begun.items())


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_run_directory_is_all_that_a_policy_needs(
    name: str, family: Family, whole: Callable[[str], Path], tmp_path: Path
) -> None:
    path = family.folder / name
    if name in TRAINED and not path.is_dir():
        shutil.copytree(whole(name), path)
        shake(path)
    path = family.run(name)
    there = family.policy(name).sample(family.request(3), 2)
    moved = path.rename(tmp_path / "moved")
    again = load_policy(moved).sample(family.request(3), 2)
    np.testing.assert_array_equal(again.actions, there.actions)
    moved.rename(path)


RELATIVE_PARENTS = ("flow", "diffusion", "mean_flow", "shortcut", "beso", "consistency")


@pytest.fixture(scope="module")
def relative(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """What actions are relative to is where the tool is, seen through a representation."""
    return Family(tmp_path_factory.mktemp("relative"), actions="relative")


def test_students_and_compositions_keep_a_representation(relative: Family) -> None:
    """A student of a policy with relative actions, and two of them composed, load as such, and
    answer with absolute ones.
    """
    request = relative.request(3)
    for name in ("consistency", "distilled", "compose"):
        policy = relative.policy(name)
        assert isinstance(policy, RepresentedPolicy)
        assert policy.spec.task_space == relative.space
        actions = policy.sample(request).actions
        moved = dict(request.observations) | {TOOL: request.observations[TOOL] + 0.01}
        shifted = policy.sample(dataclasses.replace(request, observations=moved)).actions
        # All that is decoded moves with the tool; what the network makes of it moves a bit more.
        assert np.abs(shifted - actions - 0.01).mean() < 0.005
        plan = np.clip(actions[:, 0] + 0.003, 0.0, 0.512)
        free, held = (
            policy.sample(dataclasses.replace(request, prefix=p)).actions[:, 0]
            for p in (None, plan)
        )
        if name != "distilled":
            assert np.abs(held - plan).mean() < 0.8 * np.abs(free - plan).mean()


def test_representations_that_differ_are_explained(relative: Family, tmp_path: Path) -> None:
    plain = Family(tmp_path)
    parts = [load_policy(f.run("flow")) for f in (relative, plain)]
    with pytest.raises(SpecMismatchError, match=r"same data\.representation"):
        compose(parts, ComposeConfig())
    for family, other in ((plain, relative), (relative, plain)):
        (family.folder / "other").symlink_to(other.run("flow"))
        with pytest.raises((ConfigError, SpecMismatchError), match=r"data\.representation"):
            family.train("consistency", "student", parent="other")
        assert not (family.folder / "student").exists()
        (family.folder / "other").unlink()


def test_critics_see_the_data_as_their_parent_does(relative: Family, tmp_path: Path) -> None:
    policy = relative.policy("idql")
    assert isinstance(policy, RepresentedPolicy)
    request = relative.request(3)
    drawn = relative.policy("flow").sample(request, 8).actions
    chosen = policy.sample(request).actions[:, 0]
    assert (np.abs(drawn - chosen[:, None]).max(axis=(2, 3)).min(axis=1) < 1e-6).all()
    plain = Family(tmp_path)
    (plain.folder / "other").symlink_to(relative.run("flow"))
    with pytest.raises((ConfigError, SpecMismatchError)):
        plain.train("idql", "critics", parent="other")
    assert not (plain.folder / "critics").exists()


@pytest.mark.parametrize("parent", RELATIVE_PARENTS)
def test_a_student_learns_from_every_policy_with_a_field(parent: str, family: Family) -> None:
    more = {"goal": ()} if parent == "beso" else {}
    family.run(parent, **more)
    result = family.train("consistency", f"student-of-{parent}", parent=parent)
    assert np.isfinite(result.fit.metrics["loss/consistency"])
    student = load_policy(family.folder / f"student-of-{parent}")
    assert isinstance(student, FieldPolicy)
    assert load_run(family.folder / f"student-of-{parent}").provenance["parent"] is not None


@pytest.mark.parametrize("parent", ["bc", "act", "bc_rnn", "distilled", "idql"])
def test_without_a_field_there_is_nothing_to_learn_from(parent: str, family: Family) -> None:
    family.run(parent)
    with pytest.raises(ConfigError, match=r"has no field to learn from.*'lessons' says"):
        family.train("distilled", "none", parent=parent)
    with pytest.raises(ConfigError, match="has no field to learn from"):
        family.train("consistency", "none", parent=parent)
    assert not (family.folder / "none").exists()


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_add_up_over_batches(name: str, family: Family, tmp_path: Path) -> None:
    """Two batches per update move the weights by the mean of what each of them gives alone."""
    config = FitConfig(steps=1, warmup=0, schedule="constant", clip=0.0, accumulate=2)
    trained, plain = untrained(name, family), untrained(name, family)
    data = batches_of(family, name, 4)
    fit(trained, data, config, tmp_path, seed=3)
    losses: dict[str, list[Tensor]] = {}
    for number in (0, 1):
        rng = torch.Generator().manual_seed(child_seed(3, "fit", number))
        for group, loss in plain(data.batch(number), 0, rng).by_group.items():
            losses.setdefault(group, []).append(loss)
    for group, found in losses.items():
        told = plain.groups()[group]
        parameters = [p.detach().clone() for p in told.parameters]
        gradients = torch.autograd.grad(
            torch.stack(found).mean(), told.parameters, allow_unused=True, retain_graph=True
        )
        copies = [torch.nn.Parameter(p) for p in parameters]
        for copy, gradient in zip(copies, gradients, strict=True):
            copy.grad = torch.zeros_like(copy) if gradient is None else gradient
        rates = {"lr": told.lr, "betas": told.betas, "weight_decay": told.weight_decay}
        torch.optim.AdamW(copies, **rates, fused=True).step()  # type: ignore[arg-type]
        for copy, one in zip(copies, trained.groups()[group].parameters, strict=True):
            torch.testing.assert_close(copy, one, rtol=1e-4, atol=1e-6)


def test_two_batches_of_a_regression_are_one_of_twice_the_size(
    family: Family, tmp_path: Path
) -> None:
    """Where nothing is drawn at random, the sum is that of one batch of both."""
    states: list[Tensor] = []
    for accumulate in (1, 2):
        built = untrained("bc", family)
        out = tmp_path / str(accumulate)
        out.mkdir()
        config = FitConfig(steps=3, warmup=1, accumulate=accumulate)
        fit(built, batches_of(family, "bc", 8 // accumulate), config, out, seed=3)
        states.append(torch.cat([v.flatten().double() for v in built.state_dict().values()]))
    torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)
