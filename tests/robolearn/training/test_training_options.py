"""What the loop can do besides: accumulation, schedules, held-out losses, hooks, prefetching."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError
from robolearn.learning import Batch, BatchSpec, Losses
from robolearn.training.loop import FitConfig, FitResult, Hooks, Progress, fit, learning_rate
from tests.learning_mocks import random_flat
from tests.robolearn.training.test_training import TwoHeads, lines, state

CONFIG = FitConfig(steps=12, warmup=2, log_every=4, checkpoint_every=12)


def dataset(batch: int = 4, seed: int = 0) -> EpisodeDataset:
    return EpisodeDataset(random_flat(seed=seed), BatchSpec(1, 2, batch), seed=0)


def run(
    out: Path, config: FitConfig, batch: int = 4, noise: float = 0.01, hooks: Hooks | None = None
) -> tuple[TwoHeads, FitResult]:
    out.mkdir()
    algorithm = TwoHeads(noise=noise)
    return algorithm, fit(
        algorithm, dataset(batch), config, out, seed=3, hooks=Hooks() if hooks is None else hooks
    )


def test_two_batches_of_four_move_weights_like_one_of_eight(tmp_path: Path) -> None:
    one, _ = run(tmp_path / "one", CONFIG, batch=8, noise=0.0)
    two, _ = run(tmp_path / "two", dataclasses.replace(CONFIG, accumulate=2), noise=0.0)
    torch.testing.assert_close(state(one), state(two), rtol=1e-5, atol=1e-6)
    a, b = lines(tmp_path / "one"), lines(tmp_path / "two")
    np.testing.assert_allclose([x["loss/first"] for x in a], [x["loss/first"] for x in b], 1e-5)


def test_prepared_batches_are_the_same_batches(tmp_path: Path) -> None:
    one, _ = run(tmp_path / "one", dataclasses.replace(CONFIG, accumulate=2))
    two, result = run(tmp_path / "two", dataclasses.replace(CONFIG, accumulate=2, prefetch=3))
    assert torch.equal(state(one), state(two))
    assert 0 < result.data_share < 1


def test_held_out_losses_and_evaluations_are_logged(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    seen: list[Progress] = []
    weights: list[bytes] = []

    def evaluate() -> dict[str, float]:
        weights.append((tmp_path / "run" / "weights.safetensors").read_bytes())
        return {"success": len(weights) / 2}

    hooks = Hooks(
        on_step=seen.append,
        on_log=lambda step, figures: told.append((step, figures["loss/first"])),
        held_out=dataset(seed=9),
        evaluate=evaluate,
    )
    config = dataclasses.replace(CONFIG, held_out_every=4, held_out_batches=2, evaluate_every=8)
    _, result = run(tmp_path / "run", config, hooks=hooks)
    rows = lines(tmp_path / "run")
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert all("held_out/first" in row for row in rows)
    # The network learns, so it gets better on episodes that it has not seen as well.
    assert rows[-1]["held_out/first"] < rows[0]["held_out/first"]
    assert ["success" in row for row in rows] == [False, True, True]
    assert [row["success"] for row in rows[1:]] == [0.5, 1.0]
    assert weights[0] != weights[1]
    assert result.metrics["success"] == 1.0
    assert [step for step, _ in told] == [4, 8, 12]
    assert len(seen) == 12
    assert all(0 <= p.data_share <= 1 for p in seen)


def test_looking_at_held_out_episodes_changes_nothing(tmp_path: Path) -> None:
    plain, _ = run(tmp_path / "plain", CONFIG)
    hooks = Hooks(held_out=dataset(seed=9))
    looked, _ = run(tmp_path / "looked", dataclasses.replace(CONFIG, held_out_every=1), hooks=hooks)
    assert torch.equal(state(plain), state(looked))


class Dropping(TwoHeads):
    """Takes torch's global generator as well, as dropout does."""

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        actions = torch.nn.functional.dropout(batch.actions, 0.5, training=self.training)
        return super().forward(dataclasses.replace(batch, actions=actions), step, rng)


def test_dropout_resumes_exactly_as_well(tmp_path: Path) -> None:
    states: list[torch.Tensor] = []
    for stops in ((None,), (5, None)):
        out = tmp_path / str(len(stops))
        out.mkdir()
        for stop in stops:
            torch.rand(7)  # Whatever else happened in the process.
            algorithm = Dropping()
            fit(algorithm, dataset(), CONFIG, out, seed=3, resume=True, stop_after=stop)
        states.append(state(algorithm))
    assert torch.equal(*states)


@pytest.mark.gpu
def test_a_gpu_trains_like_the_cpu(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    one, _ = run(tmp_path / "cpu", CONFIG)
    two, _ = run(tmp_path / "cuda", dataclasses.replace(CONFIG, device="cuda"), noise=0.01)
    torch.testing.assert_close(state(one), state(two).cpu(), rtol=1e-3, atol=1e-4)


def test_schedules() -> None:
    linear = FitConfig(steps=110, warmup=10, final_lr=0.2, schedule="linear")
    assert learning_rate(60, 110, linear) == pytest.approx(0.6)
    assert learning_rate(110, 110, linear) == pytest.approx(0.2)
    constant = FitConfig(steps=110, warmup=10, schedule="constant")
    assert learning_rate(4, 110, constant) == pytest.approx(0.5)
    assert learning_rate(109, 110, constant) == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accumulate": 0}, "must be positive: accumulate=0"),
        ({"prefetch": -1}, "at least 0"),
        ({"precision": "bfloat16"}, "slower than float32 on a CPU"),
    ],
)
def test_bad_options_are_explained(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FitConfig(steps=5, **values)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_gpu_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="torch finds no CUDA device"):
        fit(TwoHeads(), dataset(), FitConfig(steps=2, device="cuda"), tmp_path, seed=0)
    assert not any(tmp_path.iterdir())
