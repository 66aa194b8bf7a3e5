"""Runs that build on runs that build on runs: each is complete by itself, whatever becomes of the
others.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from policies.chunks.policy import FieldChunkPolicy
from policies.imitation.compose import ComposeConfig, compose
from policies.registry import load_policy
from robolearn.errors import CheckpointError, ConfigError
from robolearn.training.run_directory import load_run, policy_hash, read_tensors, write_tensors
from tests.policies.every import Family


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Critics over a student of what is composed of flow and diffusion."""
    made = Family(tmp_path_factory.mktemp("chain"))
    for name, parent in (("distilled", "compose"), ("idql", "distilled")):
        made.train(name, parent=parent)
    return made


def test_a_chain_is_complete_without_the_runs_it_was_made_of(
    family: Family, tmp_path: Path
) -> None:
    moved = tmp_path / "critics"
    shutil.copytree(family.folder / "idql", moved)
    request = family.request(3)
    for inside, name in (
        ("", "idql"),
        ("parent", "distilled"),
        ("parent/parent", "compose"),
        ("parent/parent/parts/0", "flow"),
        ("parent/parent/parts/1", "diffusion"),
    ):
        run = load_run(moved / inside)
        assert run.config["policy"] == name
        assert run.policy_hash == policy_hash(family.folder / name)
        answer = load_policy(moved / inside).sample(request).actions
        np.testing.assert_array_equal(
            answer, load_policy(family.folder / name).sample(request).actions
        )


def test_an_edit_anywhere_in_a_chain_is_found(family: Family, tmp_path: Path) -> None:
    moved = tmp_path / "critics"
    shutil.copytree(family.folder / "idql", moved)
    name = "parent/parent/parts/1/weights.safetensors"
    weights = read_tensors(moved / name)
    write_tensors(moved / name, {k: v + 1e-3 for k, v in weights.items()}, {})
    with pytest.raises(CheckpointError, match=f"edited after it was written: {name} differs"):
        load_policy(moved)
    policy = load_policy(moved, accept_edited=True)
    assert np.isfinite(policy.sample(family.request(2)).actions).all()
    assert policy_hash(moved) != policy_hash(family.folder / "idql")


@pytest.mark.parametrize("student", ["consistency", "distilled"])
def test_a_student_learns_from_a_composed_policy(student: str, family: Family) -> None:
    result = family.train(student, f"{student}-of-composed", parent="compose")
    assert np.isfinite(result.fit.metrics[f"loss/{student}"])
    policy = load_policy(family.folder / f"{student}-of-composed")
    assert policy.spec.task_space == load_policy(family.folder / "compose").spec.task_space


def test_what_is_composed_can_be_composed(family: Family) -> None:
    inner, other = (load_policy(family.folder / name) for name in ("compose", "diffusion"))
    policy = compose([inner, other], ComposeConfig("convex", (0.5, 0.5)))
    assert isinstance(policy, FieldChunkPolicy)
    # Once more a half of diffusion, beside 0.4 of flow and 0.6 of it.
    parts = [load_policy(family.folder / name) for name in ("flow", "diffusion")]
    flat = compose(parts, ComposeConfig("convex", (0.2, 0.8)))
    request = family.request(3)
    np.testing.assert_allclose(
        policy.sample(request).actions, flat.sample(request).actions, atol=1e-5
    )
    either = compose([inner, other], ComposeConfig("or"))
    with pytest.raises(ConfigError, match="policy 0 has no field"):
        compose([either, other], ComposeConfig())
