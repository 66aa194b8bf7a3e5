"""The loop: exact resume, budget, failures, groups."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from robolearn.contracts import Policy
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, ParamGroup
from robolearn.training.loop import FitConfig, Hooks, Progress, fit, learning_rate
from tests.learning_mocks import random_flat

SPEC = BatchSpec(1, 2, 4)


class TwoHeads(Algorithm):
    """Two linear heads; ``second`` is updated every third step and its loss reads ``first``."""

    batch_spec = SPEC

    def __init__(self, poison_at: int = -1, noise: float = 0.01) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 1), nn.Linear(1, 1)
        self.register_buffer("average", torch.zeros(4))
        self.updates: list[frozenset[str]] = []
        self.poison_at, self.noise = poison_at, noise
        self.tick: Callable[[], None] = lambda: None

    def groups(self) -> Mapping[str, ParamGroup]:
        return {
            "first": ParamGroup(tuple(self.first.parameters()), 1e-2),
            "second": ParamGroup(tuple(self.second.parameters()), 1e-2),
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        self.tick()
        x = batch.actions.flatten(1)
        x = x + self.noise * torch.randn(len(x), 4, generator=rng).to(x.device)
        hidden = self.first(x)
        loss = (hidden - 1).square().mean()
        if step == self.poison_at:
            loss = loss * torch.nan
        losses = {"first": loss}
        if step % 3 == 0:
            losses["second"] = (self.second(hidden) - 2).square().mean()
        return Losses(losses, {"hidden": hidden.mean().item()})

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        self.updates.append(updated)
        self.average.lerp_(self.first.weight.detach()[0], 0.1)

    def policy(self) -> Policy:
        raise AssertionError("not needed here")

    def policy_weights(self) -> Mapping[str, Tensor]:
        return {"average": self.average}


def dataset() -> EpisodeDataset:
    return EpisodeDataset(random_flat(), SPEC, seed=0)


CONFIG = FitConfig(steps=40, warmup=5, log_every=10, checkpoint_every=15)


def state(algorithm: TwoHeads) -> Tensor:
    return torch.cat([v.flatten() for v in algorithm.state_dict().values()])


def lines(path: Path) -> list[dict[str, float]]:
    raw = [json.loads(x) for x in (path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in x.items() if "seconds" not in k} for x in raw]


def test_forty_steps_equal_twenty_and_twenty_more(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    whole.mkdir()
    halves.mkdir()
    one = TwoHeads()
    fit(one, dataset(), CONFIG, whole, seed=3)
    fit(TwoHeads(), dataset(), CONFIG, halves, seed=3, stop_after=20)
    other = TwoHeads()
    result = fit(other, dataset(), CONFIG, halves, seed=3, resume=True)
    assert torch.equal(state(one), state(other))
    assert len(other.updates) == 20
    assert result.steps == 40
    assert lines(whole) == lines(halves)
    assert (whole / "weights.safetensors").read_bytes() == (
        halves / "weights.safetensors"
    ).read_bytes()


def test_steps_after_the_last_checkpoint_are_done_again(tmp_path: Path) -> None:
    """A kill between checkpoints: the loop is left by an exception at step 26."""

    class KilledError(Exception):
        pass

    def kill(progress: Progress) -> None:
        if progress.step == 26:
            raise KilledError

    reference, run = tmp_path / "reference", tmp_path / "run"
    reference.mkdir()
    run.mkdir()
    one, other = TwoHeads(), TwoHeads()
    fit(one, dataset(), CONFIG, reference, seed=3)
    with pytest.raises(KilledError):
        fit(TwoHeads(), dataset(), CONFIG, run, seed=3, hooks=Hooks(on_step=kill))
    with (run / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2')  # Cut short by the kill.
    fit(other, dataset(), CONFIG, run, seed=3, resume=True)
    assert len(other.updates) == 25  # From the checkpoint at 15.
    assert torch.equal(state(one), state(other))
    assert [x["step"] for x in lines(run)] == [10, 20, 30, 40]


def test_same_seed_same_bits_and_other_seed_other_bits(tmp_path: Path) -> None:
    states = []
    for i, seed in enumerate((1, 1, 2)):
        algorithm = TwoHeads()
        (tmp_path / str(i)).mkdir()
        fit(algorithm, dataset(), CONFIG, tmp_path / str(i), seed=seed)
        states.append(state(algorithm))
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_an_absent_group_is_not_updated_and_losses_move_their_own_group(tmp_path: Path) -> None:
    algorithm = TwoHeads()
    before = algorithm.second.weight.detach().clone()
    fit(algorithm, dataset(), FitConfig(steps=3, warmup=1), tmp_path, seed=0)
    assert algorithm.updates == [
        frozenset({"first", "second"}),
        frozenset({"first"}),
        frozenset({"first"}),
    ]
    assert not torch.equal(before, algorithm.second.weight)
    # With the second head frozen out, the first must have moved exactly alike.
    alone = TwoHeads()
    alone.second.weight.data.zero_()
    (tmp_path / "alone").mkdir()
    fit(alone, dataset(), FitConfig(steps=3, warmup=1), tmp_path / "alone", seed=0)
    assert torch.equal(alone.first.weight, algorithm.first.weight)


def test_nan_stops_training_and_keeps_the_batch(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"loss 'first' is nan at step 7.*lower the lr"):
        fit(TwoHeads(poison_at=7), dataset(), CONFIG, tmp_path, seed=0)
    assert (tmp_path / "failed_batch.safetensors").is_file()


class Watch:
    """A clock that only steps move, so that a loaded machine changes nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, algorithm: TwoHeads) -> None:
        self.now_s, self.step_s = 0.0, 0.001
        algorithm.tick = self.move
        monkeypatch.setattr("robolearn.training.loop.time", self)

    def move(self) -> None:
        self.now_s += self.step_s

    def perf_counter(self) -> float:
        return self.now_s

    def process_time(self) -> float:
        return self.now_s


def test_a_time_budget_fixes_the_steps_and_resume_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FitConfig(steps=10**6, max_minutes=0.1 / 60, warmup=20, calibration=10)
    totals: list[int | None] = []
    algorithm = TwoHeads()
    Watch(monkeypatch, algorithm)
    result = fit(
        algorithm,
        dataset(),
        config,
        tmp_path,
        seed=0,
        hooks=Hooks(on_step=lambda p: totals.append(p.total)),
    )
    assert totals[0] is None  # Nothing is promised before it is known.
    assert totals[-1] == result.steps == 100
    (line,) = [x for x in lines(tmp_path) if x["step"] == result.steps]
    assert line["total"] == result.steps
    again = fit(TwoHeads(), dataset(), config, tmp_path, seed=0, resume=True)
    assert again.steps == result.steps


def test_a_machine_that_becomes_slow_does_not_overrun_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FitConfig(steps=10**6, max_minutes=0.1 / 60, warmup=20, calibration=10)
    totals: list[int] = []
    algorithm = TwoHeads()
    watch = Watch(monkeypatch, algorithm)

    def slow(progress: Progress) -> None:
        totals.append(progress.total)
        if progress.step > 20:
            watch.step_s = 0.005

    result = fit(algorithm, dataset(), config, tmp_path, seed=0, hooks=Hooks(on_step=slow))
    assert result.steps == totals[-1] < totals[10] == 100
    assert totals[10:] == sorted(totals[10:], reverse=True)
    assert result.seconds < 0.11


@pytest.mark.parametrize("phase", ["start", "middle"])
def test_a_machine_that_is_busy_for_a_while_still_gets_its_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    config = FitConfig(steps=10**6, max_minutes=1.0 / 60, warmup=20, calibration=10)
    algorithm = TwoHeads()
    watch = Watch(monkeypatch, algorithm)
    busy = range(60) if phase == "start" else range(300, 340)
    rates: list[float] = []

    def load(progress: Progress) -> None:
        watch.step_s = 0.005 if progress.step in busy else 0.001
        if progress.total is not None:
            rates.append(learning_rate(progress.step - 1, progress.total, config))

    watch.step_s = 0.005 if phase == "start" else 0.001
    result = fit(algorithm, dataset(), config, tmp_path, seed=0, hooks=Hooks(on_step=load))
    assert result.seconds == pytest.approx(1.0, rel=0.02)
    assert rates[-1] < 0.01  # The schedule ends with the budget.


def test_steps_that_take_a_tenth_of_the_budget_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FitConfig(steps=10**6, max_minutes=1.0 / 60, warmup=4, calibration=4)
    algorithm = TwoHeads()
    Watch(monkeypatch, algorithm).step_s = 0.09
    result = fit(algorithm, dataset(), config, tmp_path, seed=0)
    assert result.seconds == pytest.approx(1.0, rel=0.1)


def test_ctrl_c_keeps_every_step_and_resumes_with_the_same_bits(tmp_path: Path) -> None:
    def press(progress: Progress) -> None:
        if progress.step == 26:
            signal.raise_signal(signal.SIGINT)

    reference, run = tmp_path / "reference", tmp_path / "run"
    reference.mkdir()
    run.mkdir()
    one, other = TwoHeads(), TwoHeads()
    fit(one, dataset(), CONFIG, reference, seed=3)
    with pytest.raises(KeyboardInterrupt):
        fit(TwoHeads(), dataset(), CONFIG, run, seed=3, hooks=Hooks(on_step=press))
    fit(other, dataset(), CONFIG, run, seed=3, resume=True)
    assert len(other.updates) == 13  # The step that was under way is kept, too.
    assert torch.equal(state(one), state(other))
    assert lines(run) == lines(reference)


def test_a_display_that_is_gone_takes_no_step_away(tmp_path: Path) -> None:
    """The terminal closes: the signal comes, and whoever writes to it fails."""

    def show(progress: Progress) -> None:
        if progress.step == 17:
            raise OSError(5, "Input/output error")

    pressed = TwoHeads()
    pressed.tick = lambda: len(pressed.updates) == 16 and signal.raise_signal(signal.SIGINT)
    with pytest.raises(OSError, match="Input/output"):
        fit(pressed, dataset(), CONFIG, tmp_path, seed=3, hooks=Hooks(on_step=show))
    other = TwoHeads()
    fit(other, dataset(), CONFIG, tmp_path, seed=3, resume=True)
    assert len(other.updates) == 40 - 17


def test_ctrl_c_inside_an_update_waits_for_its_end(tmp_path: Path) -> None:
    reference, run = tmp_path / "reference", tmp_path / "run"
    reference.mkdir()
    run.mkdir()
    one, pressed, other = TwoHeads(), TwoHeads(), TwoHeads()
    pressed.tick = lambda: len(pressed.updates) == 17 and signal.raise_signal(signal.SIGINT)
    fit(one, dataset(), CONFIG, reference, seed=3)
    with pytest.raises(KeyboardInterrupt):
        fit(pressed, dataset(), CONFIG, run, seed=3)
    assert len(pressed.updates) == 18
    fit(other, dataset(), CONFIG, run, seed=3, resume=True)
    assert torch.equal(state(one), state(other))


def test_learning_rate_warms_up_and_decays() -> None:
    config = FitConfig(steps=110, warmup=10, final_lr=0.1)
    assert learning_rate(0, 110, config) == pytest.approx(0.1)
    assert learning_rate(9, 110, config) == pytest.approx(1.0)
    assert learning_rate(60, 110, config) == pytest.approx(0.55)
    assert learning_rate(110, 110, config) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "must be positive"),
        ({"steps": 5, "max_minutes": 0.0}, "max_minutes must be positive"),
        ({"steps": 5, "max_minutes": 1.0, "warmup": 3}, "warmup must be >= calibration"),
    ],
)
def test_bad_configurations_are_explained(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FitConfig(**values)  # type: ignore[arg-type]
