"""Several seeds at once: the same runs as one after the other, resumed, with one summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.robolearn.cli.learning.test_train import place, run

__all__ = ["place"]


def test_seeds_at_once_are_the_runs_of_each_alone(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, "--seeds", "0", "1", "--workers", "2", out="many") == 0
    said = capsys.readouterr().out
    assert "seed 0 trained: 8 steps" in said
    assert "standard deviation over seeds" in said
    assert run(place, "--seed", "1", out="one") == 0
    weights = [
        (place / name / "weights.safetensors").read_bytes() for name in ("many/seed_1", "one")
    ]
    assert weights[0] == weights[1]
    assert weights[0] != (place / "many" / "seed_0" / "weights.safetensors").read_bytes()
    kept = json.loads((place / "many" / "seeds.json").read_text())
    assert set(kept["runs"]) == {"0", "1"}
    mean, spread = kept["losses"]["loss/flow"]
    losses = [kept["runs"][seed]["fit"]["metrics"]["loss/flow"] for seed in ("0", "1")]
    assert mean == pytest.approx(sum(losses) / 2)
    assert spread == pytest.approx(abs(losses[0] - losses[1]) / 2**0.5)
    # What is there is reused, one more is trained.
    capsys.readouterr()
    more = ("--seeds", "0", "1", "2", "--workers", "1", "--resume", "--json")
    assert run(place, *more, out="many") == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [found[s]["reused"] for s in ("0", "1", "2")] == [True, True, False]


def test_what_cannot_be_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(place, "--seeds", "1", "1") == 2
    assert "different numbers" in capsys.readouterr().err
    assert run(place, "--seeds", "0", "--workers", "-1") == 2
    assert "workers must be at least 0" in capsys.readouterr().err
    assert run(place, "--seeds", "0", "--workers", "1") == 0
    capsys.readouterr()
    assert run(place, "--seeds", "0", "--workers", "1") == 2
    assert "go on with --resume" in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(place, "--seeds", "0") == 2
    assert "without a launcher" in capsys.readouterr().err
