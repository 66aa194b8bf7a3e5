"""What cannot be trained on at the command line: one line, exit code 2, nothing that a second try
trips over; and what `robolearn evaluate` says to a run that is not whole.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from robolearn.cli.main import main
from robolearn.training.run_directory import read_tensors, write_tensors
from tests.robolearn.cli.learning.test_train import place, run

__all__ = ["place"]

BAD = (
    ("a chunk longer than episodes", ("--algorithm.horizon", "64"), "longest has 15"),
    ("nothing left to train on", ("--data.held-out", "0.9"), "nothing left"),
    ("nothing held out", ("--data.held-out", "0.1"), "is none; raise it"),
    ("no such signal", ("--data.observations", "tool/xy"), "Did you mean 'tool/xy_table'"),
    ("no such scaling", ("--data.normalization", "block/pos", "none"), "block/pose"),
    ("no such episodes", ("--data.kinds", "deployment"), "scripted of task"),
    ("execute beyond the chunk", ("--algorithm.execute", "5"), "execute must be in 1..horizon=4"),
    ("a signal relative to none", ("--algorithm.relative", "a/b", "block/pose"), "'a/b'"),
    (
        "held actions beyond the chunk",
        ("--algorithm.max-prefix", "4"),
        "max_prefix must be in 0..horizon-1",
    ),
    ("half precision on a CPU", ("--fit.precision", "bfloat16"), "slower than float32"),
)


def exit_code(place: Path, *words: str) -> object:
    """What a shell sees: options that cannot be are refused while they are parsed."""
    try:
        return run(place, *words)
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(("words", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_it_is_explained_and_the_next_try_is_free(
    place: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(place, *words, "--track", "tensorboard") == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not (place / "run").exists()


def test_after_a_mistake_the_same_folder_can_be_used(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, "--algorithm.horizon", "64") == 2
    assert run(place) == 0
    assert "trained: 8 steps" in capsys.readouterr().out


def test_a_loss_that_explodes_keeps_its_batch_and_the_run_can_be_tried_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--algorithm.lr", "1e30", "--algorithm.weight-decay", "0")
    assert run(place, *words) == 2
    said = capsys.readouterr().err
    assert "lower the lr" in said
    kept = read_tensors(place / "run" / "failed_batch.safetensors")
    assert kept["actions"].shape == (8, 4, 2)
    assert run(place) == 2
    assert "--resume, or choose another --out" in capsys.readouterr().err
    assert run(place, "--resume") == 2
    assert "algorithm.lr" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["extra", "missing", "shape", "spec", "nothing"])
def test_a_run_that_is_not_whole_is_not_evaluated(
    place: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place) == 0
    folder = place / "run"
    weights = read_tensors(folder / "weights.safetensors")
    first = next(iter(weights))
    message = "was edited after it was written: weights.safetensors differs"
    if change == "extra":
        weights["more"] = torch.zeros(1)
    elif change == "missing":
        del weights[first]
    elif change == "shape":
        weights[first] = torch.zeros(3, 3, 3)
    elif change == "spec":
        raw = json.loads((folder / "spec.json").read_text())
        (folder / "spec.json").write_text(json.dumps(raw | {"horizon": 9}))
        message = "was edited after it was written: spec.json differs"
    else:
        (folder / "config.yaml").unlink()
        message = "is not a finished run: ['config.yaml'] absent"
    write_tensors(folder / "weights.safetensors", weights, {})
    capsys.readouterr()
    out = place / "results"
    words = ["--worlds", "gym_pusht", "--conditions", "1", "--out", str(out), "--videos", "0"]
    assert main(["evaluate", str(folder), *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1
    assert not out.exists()
