"""Run directories: complete or refused, altered files are found, states are replaced whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from robolearn.contracts import PolicySpec
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import CheckpointError
from robolearn.learning import BatchSpec
from robolearn.training.run_directory import (
    WEIGHTS,
    load_run,
    load_state,
    load_weights,
    policy_hash,
    save_state,
    write_json,
    write_run,
    write_tensors,
)
from tests.learning_mocks import SPACE, random_flat

SPEC = PolicySpec(SPACE, n_obs=2, horizon=16, execute=8)


def make_run(path: Path) -> Path:
    stats = EpisodeDataset(random_flat(), BatchSpec("windows", 1, 1, 1), 0).stats()
    write_run(path, {"policy": "flow", "algorithm": {}}, SPEC, stats)
    write_json(path / "provenance.json", {"seed": 0})
    write_tensors(path / WEIGHTS, {"a": torch.arange(3.0)}, {"step": "1"})
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    assert run.spec == SPEC
    assert run.config["policy"] == "flow"
    assert run.provenance == {"seed": 0}
    assert torch.equal(run.weights["a"], torch.arange(3.0))
    assert not list(run.path.glob(".*"))


def test_the_hash_follows_what_decides_the_outputs(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    before = policy_hash(path)
    write_json(path / "provenance.json", {"seed": 1})
    assert policy_hash(path) == before
    write_tensors(path / WEIGHTS, {"a": torch.arange(3.0) + 1}, {"step": "1"})
    assert policy_hash(path) != before


@pytest.mark.parametrize("name", ["config.yaml", "spec.json", "stats.json", WEIGHTS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path / "run")
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=f"not a finished run.*{name}.*absent"):
        load_run(path)


@pytest.mark.parametrize("name", ["spec.json", "stats.json", "provenance.json", WEIGHTS])
def test_a_shortened_file_is_named(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path / "run")
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match=str(path)):
        load_run(path)


def test_a_missing_run_lists_what_exists(tmp_path: Path) -> None:
    make_run(tmp_path / "one")
    with pytest.raises(CheckpointError, match=r"no run directory.*has: \['one'\]"):
        load_run(tmp_path / "two")


def test_weights_must_fit_exactly() -> None:
    module = nn.Linear(2, 3)
    good = module.state_dict()
    load_weights(module, good, "x")
    with pytest.raises(CheckpointError, match="missing bias"):
        load_weights(module, {"weight": good["weight"]}, "x")
    with pytest.raises(CheckpointError, match="unexpected extra"):
        load_weights(module, dict(good) | {"extra": torch.zeros(1)}, "x")
    with pytest.raises(CheckpointError, match=r"weight should be \(3, 2\), is \(2, 2\)"):
        load_weights(module, dict(good) | {"weight": torch.zeros(2, 2)}, "x")


def test_only_the_newest_complete_state_counts(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    save_state(tmp_path, 10, {"x": torch.zeros(1)}, {"a": 1})
    save_state(tmp_path, 20, {"x": torch.ones(1)}, {"a": 2})
    half = tmp_path / "state" / ".new-abc"
    half.mkdir()
    found = load_state(tmp_path)
    assert found is not None
    step, tensors, figures = found
    assert (step, tensors["x"].item(), figures) == (20, 1.0, {"a": 2})
    assert sorted(p.name for p in (tmp_path / "state").iterdir()) == [".new-abc", "000000020"]


def test_nothing_executable_is_in_a_run(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    kinds = {p.suffix for p in path.rglob("*") if p.is_file()}
    assert kinds <= {".yaml", ".json", ".jsonl", ".safetensors"}
