"""The one training loop: ``fit(algorithm, dataset, config, run directory)``.

Everything random comes from the seed and the step number, so a run that was interrupted and
resumed ends with the same bits as one that was not.
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from robolearn.checkpoint import WEIGHTS, load_state, load_weights, save_state, write_tensors
from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import Algorithm, Batch, Losses
from robolearn.seeding import child_seed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How long and how to optimise."""

    # Updates. With max_minutes: at most this many.
    steps: int
    # Budget [min]: after a short calibration the number of steps is fixed and recorded; it shrinks
    # when the machine becomes so slow that the budget would be overrun.
    max_minutes: float | None = None
    # Steps of linear warm-up of the learning rate.
    warmup: int = 200
    # The learning rate ends at this share of its peak (cosine decay).
    final_lr: float = 0.0
    # Gradient norm limit per parameter group; 0: none.
    clip: float = 1.0
    # Steps between lines of metrics.jsonl.
    log_every: int = 100
    # Steps between checkpoints (weights and what resuming needs).
    checkpoint_every: int = 1000
    # Steps timed to turn max_minutes into a number of steps, and between looks at it.
    calibration: int = 40

    def __post_init__(self) -> None:
        if min(self.steps, self.log_every, self.checkpoint_every, self.calibration) < 1:
            raise ConfigError("steps, log_every, checkpoint_every, calibration must be positive")
        if self.warmup < 0 or not self.clip >= 0 or not 0 <= self.final_lr <= 1:
            raise ConfigError(
                "warmup and clip must be at least 0 and final_lr in [0, 1], got"
                f" {self.warmup}, {self.clip}, {self.final_lr}"
            )
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise ConfigError(f"max_minutes must be positive, got {self.max_minutes}")
        if self.max_minutes is not None and self.warmup < self.calibration:
            # The schedule before the calibration ends must not depend on its result.
            raise ConfigError(f"with max_minutes, warmup must be >= calibration={self.calibration}")


@runtime_checkable
class Batches(Protocol):
    """Batch ``step`` as a pure function of ``step``."""

    def batch(self, step: int) -> Batch:
        """One batch."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every step."""

    step: int
    total: int
    metrics: Mapping[str, float]
    seconds: float
    eta_s: float


@dataclass(frozen=True, slots=True)
class FitResult:
    """How training ended; ``seconds`` counts all parts of a resumed run."""

    steps: int
    seconds: float
    cpu_seconds: float
    metrics: Mapping[str, float]


@dataclass(slots=True)
class _Clock:
    """Where training stands: step, total number of steps, time used in all parts."""

    step: int
    total: int
    fixed: bool
    seconds: float = 0.0
    cpu_seconds: float = 0.0


def learning_rate(step: int, total: int, config: FitConfig) -> float:
    """Factor on the peak learning rate: linear warm-up, then half a cosine."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    done = (step - config.warmup) / max(1, total - config.warmup)
    return config.final_lr + (1 - config.final_lr) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def fit(
    algorithm: Algorithm,
    batches: Batches,
    config: FitConfig,
    run_dir: Path,
    *,
    seed: int,
    resume: bool = False,
    stop_after: int | None = None,
    on_step: Callable[[Progress], None] | None = None,
) -> FitResult:
    """Train until the configured number of steps; write metrics, checkpoints and the weights.

    ``stop_after`` ends this call at that step with a checkpoint, as an interruption would.
    Ctrl-C leaves the last checkpoint; errors: :class:`TrainingError` when a loss is not finite
    (the batch is kept in the run directory).
    """
    trainer = _Trainer(algorithm, batches, config, run_dir, seed)
    if resume:
        trainer.restore()
    clock, meter = trainer.clock, _Meter()
    metrics_file = run_dir / "metrics.jsonl"
    _truncate_metrics(metrics_file, clock.step)
    durations: list[float] = []
    first, seconds0, cpu0 = clock.step, clock.seconds, clock.cpu_seconds
    begin, begin_cpu = time.perf_counter(), time.process_time()
    while clock.step < _last(clock, stop_after):
        started = time.perf_counter()
        meter.add(trainer.update())
        now = time.perf_counter()
        clock.seconds = seconds0 + now - begin
        clock.cpu_seconds = cpu0 + time.process_time() - begin_cpu
        if config.max_minutes is not None:
            durations.append(now - started)
            if len(durations) == config.calibration:
                _fix_total(clock, config, durations)
                durations.clear()
        if on_step is not None:
            eta = (clock.total - clock.step) * (now - begin) / (clock.step - first)
            on_step(Progress(clock.step, clock.total, meter.now(), clock.seconds, eta))
        end = clock.step >= _last(clock, stop_after)
        if clock.step % config.log_every == 0 or clock.step == clock.total:
            factor = learning_rate(clock.step - 1, clock.total, config)
            _log_line(metrics_file, clock, factor, meter.flush())
        if end or clock.step % config.checkpoint_every == 0:
            trainer.checkpoint()
    return FitResult(clock.step, clock.seconds, clock.cpu_seconds, meter.last)


class _Trainer:
    """Algorithm, optimisers, random generator and clock of one run: what a checkpoint holds."""

    def __init__(
        self, algorithm: Algorithm, batches: Batches, config: FitConfig, run_dir: Path, seed: int
    ) -> None:
        self.algorithm, self.batches, self.config, self.run_dir = (
            algorithm,
            batches,
            config,
            run_dir,
        )
        self.groups = algorithm.groups()
        self.optimizers = {
            name: torch.optim.AdamW(
                group.parameters,
                lr=group.lr,
                betas=group.betas,
                weight_decay=group.weight_decay,
                fused=True,
            )
            for name, group in self.groups.items()
        }
        self.rng = torch.Generator().manual_seed(child_seed(seed, "fit"))
        self.clock = _Clock(0, config.steps, fixed=config.max_minutes is None)

    def update(self) -> Losses:
        """One step of every group that has a loss."""
        step = self.clock.step
        batch = self.batches.batch(step)
        losses = self.algorithm(batch, step, self.rng)
        unknown = sorted(set(losses.by_group) - set(self.groups))
        if unknown:
            raise TrainingError(f"losses for unknown groups {unknown}: {sorted(self.groups)}")
        for name, loss in losses.by_group.items():
            if not math.isfinite(loss.item()):
                raise TrainingError(_save_failure(self.run_dir, step, name, loss, batch))
        names = list(losses.by_group)
        for name in names:
            parameters = self.groups[name].parameters
            # A loss moves its own group only, whatever else its graph passes through.
            gradients = torch.autograd.grad(
                losses.by_group[name], parameters, retain_graph=name != names[-1], allow_unused=True
            )
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
        factor = learning_rate(step, self.clock.total, self.config)
        for name in names:
            group, optimizer = self.groups[name], self.optimizers[name]
            if self.config.clip > 0:
                torch.nn.utils.clip_grad_norm_(group.parameters, self.config.clip)
            optimizer.param_groups[0]["lr"] = group.lr * factor
            optimizer.step()
            optimizer.zero_grad()
        self.algorithm.after_update(step, frozenset(names))
        self.clock.step += 1
        return losses

    def checkpoint(self) -> None:
        """Weights of the policy, and everything that resuming needs."""
        step = self.clock.step
        write_tensors(self.run_dir / WEIGHTS, self.algorithm.policy_weights(), {"step": str(step)})
        tensors = {f"algorithm/{k}": v for k, v in self.algorithm.state_dict().items()}
        tensors["rng"] = self.rng.get_state()
        for name, optimizer in self.optimizers.items():
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer/{name}/{index}/{k}": v for k, v in state.items()}
        save_state(self.run_dir, step, tensors, dataclasses.asdict(self.clock))

    def restore(self) -> None:
        """Continue from the newest checkpoint, if there is one."""
        found = load_state(self.run_dir)
        if found is None:
            return
        step, tensors, figures = found
        own = {
            k.removeprefix("algorithm/"): v
            for k, v in tensors.items()
            if k.startswith("algorithm/")
        }
        load_weights(self.algorithm, own, f"{self.run_dir}/state")
        self.rng.set_state(tensors["rng"])
        for name, optimizer in self.optimizers.items():
            raw: dict[str, Any] = optimizer.state_dict()
            raw["state"] = {}
            prefix = f"optimizer/{name}/"
            for key, value in tensors.items():
                if key.startswith(prefix):
                    index, field = key.removeprefix(prefix).split("/")
                    raw["state"].setdefault(int(index), {})[field] = value
            optimizer.load_state_dict(raw)
        clock = self.clock
        clock.step, clock.total, clock.fixed = step, int(figures["total"]), bool(figures["fixed"])
        clock.seconds, clock.cpu_seconds = figures["seconds"], figures["cpu_seconds"]


def _last(clock: _Clock, stop_after: int | None) -> int:
    return clock.total if stop_after is None else min(clock.total, stop_after)


class _Meter:
    """Means between two lines of the log."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self.last: Mapping[str, float] = {}

    def add(self, losses: Losses) -> None:
        values = {f"loss/{k}": v.item() for k, v in losses.by_group.items()} | dict(losses.metrics)
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def now(self) -> Mapping[str, float]:
        return {k: v / self._counts[k] for k, v in self._sums.items()} or self.last

    def flush(self) -> Mapping[str, float]:
        self.last = self.now()
        self._sums, self._counts = {}, {}
        return self.last


def _fix_total(clock: _Clock, config: FitConfig, durations: list[float]) -> None:
    # The first steps pay for allocation; the median is robust to a busy moment.
    typical = float(np.median(durations[len(durations) // 4 :]))
    budget = (config.max_minutes or 0.0) * 60.0
    affordable = max(clock.step, math.floor((budget - clock.seconds) / typical) + clock.step)
    if not clock.fixed:
        clock.total, clock.fixed = min(config.steps, affordable), True
        log.info("%.1f ms per step: %d steps in the budget", typical * 1e3, clock.total)
    elif affordable < 0.9 * clock.total:
        # Only downwards: a machine that became busy must not overrun the budget by far.
        log.info("the machine became slower: %d instead of %d steps", affordable, clock.total)
        clock.total = affordable


def _log_line(path: Path, clock: _Clock, lr: float, metrics: Mapping[str, float]) -> None:
    line = {
        "step": clock.step,
        "total": clock.total,
        "seconds": round(clock.seconds, 2),
        "cpu_seconds": round(clock.cpu_seconds, 2),
        "lr_factor": lr,
        **metrics,
    }
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")


def _truncate_metrics(path: Path, step: int) -> None:
    """Drop lines past ``step``: the steps after the checkpoint will be done again."""
    if not path.is_file():
        return
    kept: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if int(json.loads(line)["step"]) <= step:
                kept.append(line)
        except (ValueError, KeyError):
            continue  # A line cut short by a kill.
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def _save_failure(run_dir: Path, step: int, group: str, loss: Tensor, batch: Batch) -> str:
    tensors = {f"observations/{k}": v for k, v in batch.observations.items()}
    tensors |= {"actions": batch.actions, "action_mask": batch.action_mask}
    if batch.reward is not None:
        tensors["reward"] = batch.reward
    path = run_dir / "failed_batch.safetensors"
    write_tensors(path, tensors, {"step": str(step)})
    bad = [k for k, v in tensors.items() if not bool(torch.isfinite(v).all())]
    cause = f"its inputs {bad} are not finite" if bad else "its inputs are finite: lower the lr"
    return (
        f"loss '{group}' is {loss.item()} at step {step}; {cause}."
        f" The batch is in '{path}', the last checkpoint is kept"
    )
