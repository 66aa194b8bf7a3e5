"""Weights by version: of one run and one version each, or refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from robolearn.errors import CheckpointError
from robolearn.training.run_directory import WEIGHTS, load_run, seal_run
from robolearn.training.versions import (
    load_version,
    remove_versions,
    version_file,
    versions,
    write_version,
)
from tests.robolearn.training.test_checkpoint import make_chain, make_run


def practising(path: Path) -> Path:
    """A run in the middle of its training: without weights, provenance and digests of its own."""
    make_chain(path)
    for name in (WEIGHTS, "provenance.json", "digests.json"):
        (path / name).unlink()
    return path


def test_a_version_is_read_although_the_run_has_no_weights_yet(tmp_path: Path) -> None:
    run_dir = practising(tmp_path / "out")
    for number in (3, 12):
        write_version(run_dir, number, {"a": torch.full((2,), float(number))})
    # Digits to some, and no number.
    (run_dir / "versions" / "²³.safetensors").write_bytes(b"")
    assert versions(run_dir) == (3, 12)
    run = load_version(run_dir, 12)
    assert (run.path, run.config["policy"]) == (run_dir, "flow")
    assert run.weights["a"].tolist() == [12.0, 12.0]
    assert load_version(run_dir, 3).policy_hash != run.policy_hash
    with pytest.raises(CheckpointError, match=r"no version 4; it has 3 to 12 \(2\)"):
        load_version(run_dir, 4)
    remove_versions(run_dir, frozenset({12}))
    assert versions(run_dir) == (12,)


def test_a_finished_run_is_as_its_last_version(tmp_path: Path) -> None:
    run_dir = make_run(tmp_path / "out")
    write_version(run_dir, 1, load_run(run_dir).weights)
    seal_run(run_dir)
    assert load_run(run_dir).weights.keys() == load_version(run_dir, 1).weights.keys()


def test_a_version_stays_one_when_the_practice_goes_on_for_longer(tmp_path: Path) -> None:
    run_dir = practising(tmp_path / "out")
    write_version(run_dir, 1, {"a": torch.zeros(1)})
    before, config = load_version(run_dir, 1), run_dir / "config.yaml"
    config.write_text(config.read_text() + "practice: {max_minutes: 20.0}\nholds: parent\n")
    assert load_version(run_dir, 1).weights.keys() == before.weights.keys()
    config.write_text(config.read_text() + "more: 1\n")
    with pytest.raises(CheckpointError, match="is not version 1 of this run"):
        load_version(run_dir, 1)


def test_weights_of_another_version_or_run_are_refused(tmp_path: Path) -> None:
    run_dir, other = practising(tmp_path / "out"), practising(tmp_path / "other")
    written = write_version(run_dir, 1, {"a": torch.zeros(1)})
    shutil.copyfile(written, version_file(run_dir, 2))
    with pytest.raises(CheckpointError, match="is not version 2 of this run"):
        load_version(run_dir, 2)
    # The same files make the same run, wherever it lies; another configuration does not.
    version_file(other, 1).parent.mkdir()
    shutil.copyfile(written, version_file(other, 1))
    load_version(other, 1)
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("seed: 0", "seed: 1"))
    with pytest.raises(CheckpointError, match="of this run"):
        load_version(other, 1)
    (run_dir / "parent" / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match="of this run"):
        load_version(run_dir, 1)


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    run_dir = practising(tmp_path / "out")
    path = write_version(run_dir, 1, {"a": torch.zeros(64)})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_version(run_dir, 1)
