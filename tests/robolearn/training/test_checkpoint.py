"""Run directories: complete or refused, altered files are found, states are replaced whole."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors import safe_open
from torch import nn

from robolearn.contracts import PolicySpec
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import CheckpointError
from robolearn.learning import BatchSpec
from robolearn.training.run_directory import (
    DIGESTS,
    WEIGHTS,
    checked_hash,
    copy_run,
    load_run,
    load_state,
    load_weights,
    policy_hash,
    read_tensors,
    save_state,
    seal_run,
    write_json,
    write_run,
    write_tensors,
)
from tests.learning_mocks import SPACE, random_flat

CONFIG = {
    "policy": "flow",
    "seed": 0,
    "algorithm": {"steps": 4, "lr": 1e-3, "relative": [["tool/xy", "block/pose"]], "net": "mlp"},
    "data": {"held_out": 0.1, "text": False, "stores": []},
}
SPEC = PolicySpec(SPACE, n_obs=2, horizon=16, execute=8)


def make_run(path: Path) -> Path:
    stats = EpisodeDataset(random_flat(), BatchSpec(1, 1, 1), 0).stats()
    write_run(path, CONFIG, SPEC, stats)
    write_json(path / "provenance.json", {"seed": 0})
    write_tensors(path / WEIGHTS, {"a": torch.arange(3.0), "b": torch.zeros(2)}, {"step": "1"})
    seal_run(path)
    return path


def make_chain(path: Path) -> Path:
    """A run that builds on one that is composed of another."""
    make_run(path)
    make_run(path / "parent")
    copy_run(path / "parent", path / "parent/parts/0")
    for run in (path / "parent", path):
        seal_run(run)
    return path


def test_the_same_weights_are_the_same_bytes(tmp_path: Path) -> None:
    """What a policy is called by follows from them."""
    tensors = {"b/\u00e4": torch.arange(3.0), "a": torch.zeros(2, dtype=torch.int64)}
    metadata = {name: f"of {name}" for name in ("step", "version", "run", "\u00fc", "a")}
    for number in range(12):
        write_tensors(tmp_path / f"{number}.safetensors", tensors, metadata)
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    found = read_tensors(tmp_path / "0.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    with safe_open(str(tmp_path / "0.safetensors"), "pt") as file:
        assert file.metadata() == metadata


RUNS = ("", "parent/", "parent/parts/0/")


def edits(value: Any) -> Iterator[Any]:
    """Copies of a document, in each of which another value is edited or removed."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: other} for other in edits(inner))
    elif isinstance(value, list):
        yield [*value, 1]
        for index, inner in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in edits(inner))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        yield math.nextafter(value, math.inf)
    else:
        yield 1 if value is None else value + type(value)(1)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run"))
    assert run.spec == SPEC
    assert run.config["policy"] == "flow"
    assert run.provenance == {"seed": 0}
    assert torch.equal(run.weights["a"], torch.arange(3.0))
    assert not list(run.path.glob(".*"))


def test_where_a_run_comes_from_does_not_decide_its_outputs(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    before = policy_hash(path)
    write_json(path / "provenance.json", {"seed": 1})
    assert policy_hash(path) == before
    # But whoever deploys reads latencies there.
    with pytest.raises(CheckpointError, match=r"provenance\.json differs"):
        load_run(path)


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", ["config.yaml", "spec.json", "stats.json"])
def test_every_edited_value_changes_the_hash_and_is_refused(
    tmp_path: Path, run: str, name: str
) -> None:
    path = make_chain(tmp_path / "run")
    file, before = path / run / name, policy_hash(path)
    text = file.read_text()
    document = yaml.safe_load(text) if name == "config.yaml" else json.loads(text)
    hashes = {before}
    for number, changed in enumerate(edits(document)):
        file.write_text(json.dumps(changed))  # Which is YAML as well.
        hashes.add(policy_hash(path))
        assert len(hashes) == number + 2, changed
    assert len(hashes) > 10
    with pytest.raises(CheckpointError, match=f"edited after it was written: {run}{name} differs"):
        checked_hash(path)
    file.write_text(text)
    assert load_run(path).policy_hash == before


@pytest.mark.parametrize("run", RUNS)
def test_every_edited_weight_changes_the_hash_and_is_refused(tmp_path: Path, run: str) -> None:
    path = make_chain(tmp_path / "run")
    file, before = path / run / WEIGHTS, policy_hash(path)
    original = read_tensors(file)
    hashes = {before}
    for name, tensor in original.items():
        for index in range(len(tensor)):
            changed = tensor.clone()
            changed[index] = torch.nextafter(changed[index], torch.tensor(9.0))
            write_tensors(file, original | {name: changed}, {"step": "1"})
            hashes.add(policy_hash(path))
            with pytest.raises(CheckpointError, match=f"written: {run}{WEIGHTS} differs"):
                load_run(path)
    assert len(hashes) == 6
    assert load_run(path, accept_edited=True).policy_hash in hashes - {before}


def test_layout_and_order_of_keys_are_no_edit(tmp_path: Path) -> None:
    path = make_chain(tmp_path / "run")
    before = policy_hash(path)
    for run in RUNS:
        config = yaml.safe_load((path / run / "config.yaml").read_text())
        turned = yaml.safe_dump(dict(reversed(config.items())), sort_keys=False, indent=8)
        (path / run / "config.yaml").write_text(f"# A comment\n\n{turned}")
        for name in ("spec.json", "stats.json"):
            values = json.loads((path / run / name).read_text())
            (path / run / name).write_text(json.dumps(dict(reversed(values.items())), indent=7))
    assert policy_hash(path) == load_run(path).policy_hash == before


def test_runs_inside_that_go_or_come_are_named(tmp_path: Path) -> None:
    path = make_chain(tmp_path / "run")
    (path / "parent/parts/0").rename(path / "parent/parts/1")
    with pytest.raises(
        CheckpointError, match=r"parts/0/config\.yaml is absent.*parts/1/config\.yaml was added"
    ):
        load_run(path)


def test_a_run_of_an_earlier_version_is_loaded_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = make_chain(tmp_path / "run")
    load_run(path)
    assert not caplog.records
    (path / DIGESTS).unlink()
    with caplog.at_level(logging.WARNING):
        load_run(path)
    assert "has no digests.json" in caplog.text
    # What is inside of it may know more.
    write_json(path / "parent/parts/0/spec.json", {})
    with pytest.raises(
        CheckpointError, match=r"'.*parent' was edited .*: parts/0/spec\.json differs"
    ):
        load_run(path)


def test_a_copy_holds_every_run_inside_and_no_state(tmp_path: Path) -> None:
    path = make_chain(tmp_path / "run")
    save_state(path / "parent", 10, {"x": torch.zeros(1)}, {})
    (path / "policy.onnx").write_bytes(b"x")
    copy_run(path, tmp_path / "copy")
    assert load_run(tmp_path / "copy").policy_hash == policy_hash(path)
    assert not list((tmp_path / "copy").rglob("state"))
    assert not (tmp_path / "copy/policy.onnx").exists()
    copied = {p.relative_to(tmp_path / "copy").as_posix() for p in (tmp_path / "copy").rglob("*")}
    assert {f"{run}{WEIGHTS}" for run in RUNS} <= copied


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


@pytest.mark.parametrize("name", ["spec.json", "stats.json", "provenance.json", DIGESTS])
def test_brackets_without_end_are_damage(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run")
    (run / name).write_text("[" * 100_000)
    with pytest.raises(CheckpointError):
        load_run(run)


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
