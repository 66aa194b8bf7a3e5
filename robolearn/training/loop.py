"""Trains, by the one loop: ``fit(algorithm, dataset, config, run directory)``.

Everything random comes from the seed, the step and the number of the batch within the step, so a
run that was interrupted and resumed ends with the same bits as one that was not, and it does not
matter how the batches of a step are shared out:

    step k          batch 2k        batch 2k + 1
    accumulate 2    process 0       process 0         one after the other, gradients averaged
    two processes   process 0       process 1         at once, gradients averaged
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import Algorithm, Batch, Losses, OnProposed, Schedule
from robolearn.machine.interrupt import held
from robolearn.seeding import child_seed
from robolearn.training.batch_loader import Batches, Feed, on_device
from robolearn.training.budget import Budget
from robolearn.training.distributed import Ranks
from robolearn.training.finite import FiniteLosses
from robolearn.training.log import Journal
from robolearn.training.meter import Meter, detached, mean_losses
from robolearn.training.probe import Probe
from robolearn.training.run_directory import (
    WEIGHTS,
    load_state,
    load_weights,
    save_state,
    seal_run,
    unseal_run,
    write_tensors,
)


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How long and how to optimise."""

    # Updates. With max_minutes: at most this many.
    steps: int
    # Budget [min]: after a short calibration it becomes a number of steps, which then follows the
    # speed that is measured, up and down; the schedule ends with it.
    max_minutes: float | None = None
    # Steps of linear warm-up of the learning rate.
    warmup: int = 200
    # How the learning rate goes down after the warm-up; constant: it does not.
    schedule: Schedule = "cosine"
    # The learning rate ends at this share of its peak.
    final_lr: float = 0.0
    # Batches per update and process; their gradients are averaged.
    accumulate: int = 1
    # Where to train. With several processes each takes a GPU of its own.
    device: Literal["cpu", "cuda"] = "cpu"
    # Number format of matrix products. bfloat16 wants a GPU: it is 21 times slower on most CPUs.
    precision: Literal["float32", "bfloat16"] = "float32"
    # Batches that a thread prepares beforehand; worth it when pictures are decoded on demand.
    prefetch: int = 0
    # Steps between losses on held-out episodes (data.held_out), and their number of batches.
    held_out_every: int = 1000
    held_out_batches: int = 8
    # Steps between evaluations in simulation (--evaluate-world); 0: only the final checkpoint.
    evaluate_every: int = 0
    # Gradient norm limit per parameter group; 0: none.
    clip: float = 1.0
    # Steps between lines of metrics.jsonl.
    log_every: int = 100
    # Lines of metrics.jsonl between diagnoses of a critic, which take two more passes over one
    # batch; 0: none.
    diagnose_every: int = 5
    # Steps between checkpoints (weights and what resuming needs).
    checkpoint_every: int = 1000
    # Steps timed to turn max_minutes into a number of steps, and at most between looks at it.
    calibration: int = 40

    def __post_init__(self) -> None:
        positive = ("steps", "log_every", "checkpoint_every", "calibration", "accumulate")
        positive += ("held_out_every", "held_out_batches")
        low = [f"{name}={getattr(self, name)}" for name in positive if getattr(self, name) < 1]
        if low:
            raise ConfigError(f"must be positive: {', '.join(low)}")
        if min(self.prefetch, self.evaluate_every, self.diagnose_every) < 0:
            raise ConfigError("prefetch, evaluate_every and diagnose_every must be at least 0")
        if self.precision == "bfloat16" and self.device == "cpu":
            raise ConfigError(
                "bfloat16 is slower than float32 on a CPU: use device cuda, or float32"
            )
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


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every step."""

    step: int
    # None until a time budget has become a number of steps.
    total: int | None
    # Says ``metrics``.
    read: Callable[[], Mapping[str, float]]
    seconds: float
    eta_s: float | None
    # Share of the time that was spent waiting for batches.
    data_share: float = 0.0

    @property
    def metrics(self) -> Mapping[str, float]:
        """Means since the last line of the log. Asking waits for the device: not at every step."""
        return self.read()


@dataclass(frozen=True, slots=True)
class FitResult:
    """How training ended; ``seconds`` counts all parts of a resumed run."""

    steps: int
    seconds: float
    cpu_seconds: float
    metrics: Mapping[str, float]
    data_seconds: float = 0.0
    # Spent on diagnoses of the critic.
    diagnosis_seconds: float = 0.0

    @property
    def data_share(self) -> float:
        """Share of the time that was spent waiting for batches."""
        return self.data_seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Hooks:
    """What else happens during training; in the first process only, but for ``held_out``."""

    # Told of the chunks that are drawn before the first step: how many, of how many.
    on_proposed: OnProposed | None = None
    # Told after every step.
    on_step: Callable[[Progress], None] | None = None
    # Told every line of the log: step and figures.
    on_log: Callable[[int, Mapping[str, float]], None] | None = None
    # Batches of episodes that are not trained on.
    held_out: Batches | None = None
    # Figures of the policy as the newest checkpoint has it, such as its success in simulation.
    evaluate: Callable[[], Mapping[str, float]] | None = None


NO_HOOKS = Hooks()


@dataclass(slots=True)
class _Clock:
    """Where training stands: step, total number of steps, time used in all parts."""

    step: int
    total: int
    fixed: bool
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    data_seconds: float = 0.0
    diagnosis_seconds: float = 0.0


def learning_rate(
    step: int, total: int, config: FitConfig, schedule: Schedule | None = None
) -> float:
    """Factor on the peak learning rate: linear warm-up, then ``schedule`` (None: the config's)."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    kind = config.schedule if schedule is None else schedule
    if kind == "constant":
        return 1.0
    done = min(1.0, (step - config.warmup) / max(1, total - config.warmup))
    left = 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.final_lr + (1 - config.final_lr) * left


def fit(
    algorithm: Algorithm,
    batches: Batches,
    config: FitConfig,
    run_dir: Path,
    *,
    seed: int,
    resume: bool = False,
    stop_after: int | None = None,
    hooks: Hooks = NO_HOOKS,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> FitResult:
    """Train until the configured number of steps; write metrics, checkpoints and the weights.

    ``stop_after`` ends this call at that step with a checkpoint, as an interruption would.
    ``ranks``: this process among several that train together
    (``robolearn/training/distributed.py``). Ctrl-C ends the step that is under way and writes a
    checkpoint before it is raised (pressed again a second later: at once); errors:
    :class:`TrainingError` when a loss is not finite (the batch is kept in the run directory).
    """
    feed = Feed(batches, ranks, config.device, config.accumulate, config.prefetch)
    with contextlib.closing(feed):
        trainer = _Trainer(algorithm, feed, config, run_dir, seed, ranks)
        if resume:
            trainer.restore()
        ranks.share_([*algorithm.parameters(), *algorithm.buffers()])
        probe = None
        if config.diagnose_every and ranks.leads:
            held_out, device = hooks.held_out, config.device
            probe = Probe(algorithm, batches, held_out, device=device, seed=seed)
        with held() as interrupted:
            return _loop(trainer, hooks, probe, stop_after, interrupted)


def _loop(
    trainer: _Trainer,
    hooks: Hooks,
    probe: Probe | None,
    stop_after: int | None,
    interrupted: Callable[[], bool],
) -> FitResult:
    clock, config, ranks, meter = trainer.clock, trainer.config, trainer.ranks, trainer.meter
    journal = Journal(trainer.run_dir, hooks.on_log if ranks.leads else None, writes=ranks.leads)
    journal.continue_at(clock.step)
    budget = _budget(config, clock)
    start, begin, begin_cpu = dataclasses.replace(clock), time.perf_counter(), time.process_time()
    pauses, stopped = 0.0, False
    while clock.step < _last(clock, stop_after) and not stopped:
        meter.add(trainer.update())
        now = time.perf_counter()
        clock.seconds = start.seconds + now - begin
        clock.cpu_seconds = start.cpu_seconds + time.process_time() - begin_cpu
        clock.data_seconds = start.data_seconds + trainer.feed.waited_s
        if budget is not None and budget.due(clock.step, clock.seconds):
            found = budget.total(clock.step, clock.seconds, clock.total if clock.fixed else None)
            clock.total, clock.fixed = ranks.lead(found), True
            budget.looked(clock.step, clock.total)
        # Processes that train together stop after the same step.
        stopped = bool(ranks.lead(interrupted()))
        spent = max(now - begin - pauses, 1e-9)
        progress = _progress(clock, start.step, spent, meter, trainer.feed.waited_s)
        end = stopped or clock.step >= _last(clock, stop_after)
        if clock.step % config.held_out_every == 0 or clock.step == clock.total:
            meter.put(trainer.held_out(hooks.held_out))
        logged = clock.step % config.log_every == 0 or clock.step == clock.total
        if logged:
            trainer.finite.look()
        if probe is not None and clock.step % (config.log_every * config.diagnose_every) == 0:
            meter.put(probe.figures())
            clock.diagnosis_seconds = start.diagnosis_seconds + probe.seconds
        if end or clock.step % config.checkpoint_every == 0 or _due(clock, config):
            trainer.checkpoint(logged)
        # Behind the checkpoint: who shows it may have lost the terminal.
        if hooks.on_step is not None and ranks.leads:
            hooks.on_step(progress)
        if hooks.evaluate is not None and _due(clock, config) and ranks.leads:
            meter.put(hooks.evaluate())
        if logged:
            factor = learning_rate(clock.step - 1, clock.total, config)
            figures = {
                "total": clock.total,
                "lr_factor": factor,
                **_seconds(clock),
                **meter.flush(),
            }
            journal.line(clock.step, figures)
        pauses += time.perf_counter() - now
    if stopped and clock.step < clock.total:
        raise KeyboardInterrupt
    spent = clock.seconds, clock.cpu_seconds, meter.last, clock.data_seconds
    return FitResult(clock.step, *spent, clock.diagnosis_seconds)


def _budget(config: FitConfig, clock: _Clock) -> Budget | None:
    if config.max_minutes is None:
        return None
    limit_s = 60.0 * config.max_minutes
    return Budget(limit_s, config.steps, config.calibration, clock.step, clock.seconds)


def _progress(clock: _Clock, first: int, spent_s: float, meter: Meter, waited_s: float) -> Progress:
    """Where training stands; ``first``: the step that this call began at, ``spent_s`` ago."""
    total = clock.total if clock.fixed else None
    eta_s = None if total is None else (total - clock.step) * spent_s / (clock.step - first)
    return Progress(clock.step, total, meter.now, clock.seconds, eta_s, waited_s / spent_s)


def _seconds(clock: _Clock) -> Mapping[str, float]:
    times = (clock.seconds, clock.cpu_seconds, clock.data_seconds)
    names = ("seconds", "cpu_seconds", "data_seconds")
    said = {name: round(value, 2) for name, value in zip(names, times, strict=True)}
    if clock.diagnosis_seconds:
        said["diagnosis_seconds"] = round(clock.diagnosis_seconds, 3)
    return said


def _due(clock: _Clock, config: FitConfig) -> bool:
    """Whether this step is evaluated: every so many, and the last one."""
    every = config.evaluate_every
    return clock.step == clock.total or (every > 0 and clock.step % every == 0)


class _Trainer:
    """Algorithm, optimisers and clock of one run: what a checkpoint holds."""

    def __init__(
        self,
        algorithm: Algorithm,
        feed: Feed,
        config: FitConfig,
        run_dir: Path,
        seed: int,
        ranks: Ranks,
    ) -> None:
        self.algorithm, self.feed, self.config, self.run_dir = algorithm, feed, config, run_dir
        self.seed, self.ranks = seed, ranks
        algorithm.to(config.device)
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
        self.rng, self.meter, self.finite = torch.Generator(), Meter(), FiniteLosses(run_dir)
        self.clock = _Clock(0, config.steps, fixed=config.max_minutes is None)

    def update(self) -> Losses:
        """One step of every group that has a loss; the losses are means over the step's batches."""
        try:
            return self._update()
        except Exception:
            # What is not finite may have come to light as an error of another kind.
            self.finite.look()
            raise

    def _update(self) -> Losses:
        step, config = self.clock.step, self.config
        sums: dict[str, list[Tensor]] = {}
        computed: list[tuple[Batch, Losses]] = []
        for index, number in enumerate(self.feed.numbers(step)):
            batch = self.feed.take(step, index)
            found = self._forward(batch, step, number)
            self._accumulate(found, sums)
            computed.append((batch, detached(found)))
        own = mean_losses([losses for _, losses in computed])
        total = own
        if self.ranks.size > 1:
            # Apart from this process's own, by which it is told whose loss is not finite.
            total = Losses({k: v.clone() for k, v in own.by_group.items()}, own.metrics)
        flat = [g for group in sums.values() for g in group]
        if config.accumulate > 1:
            for gradient in flat:
                gradient.div_(config.accumulate)
        self.ranks.mean_([*flat, *total.by_group.values()])
        self.finite.add(step, total, computed)
        self._apply(sums, step)
        self.algorithm.after_update(step, frozenset(sums))
        self.clock.step += 1
        return total

    def _forward(self, batch: Batch, step: int, number: int) -> Losses:
        # Dropout takes torch's global generator, everything else the one that it is given.
        torch.manual_seed(child_seed(self.seed, "dropout", number))
        self.rng.manual_seed(child_seed(self.seed, "fit", number))
        fast = self.config.precision == "bfloat16"
        with torch.autocast(self.config.device, torch.bfloat16, enabled=fast):
            losses = self.algorithm(batch, step, self.rng)
        unknown = sorted(set(losses.by_group) - set(self.groups))
        if unknown:
            raise TrainingError(f"losses for unknown groups {unknown}: {sorted(self.groups)}")
        return losses

    def _accumulate(self, losses: Losses, sums: dict[str, list[Tensor]]) -> None:
        names = list(losses.by_group)
        for name in names:
            parameters = self.groups[name].parameters
            # A loss moves its own group only, whatever else its graph passes through.
            gradients: Any = torch.autograd.grad(
                losses.by_group[name], parameters, retain_graph=name != names[-1], allow_unused=True
            )
            # The fused optimiser walks through memory, and a convolution of channels_last pictures
            # gives gradients in another order than its weights.
            gradients = [
                g if g is None or g.stride() == p.stride() else torch.empty_like(p).copy_(g)
                for p, g in zip(parameters, gradients, strict=True)
            ]
            filled = gradients
            if self._joins:
                pairs = zip(parameters, gradients, strict=True)
                # Clones: a gradient may be an expanded view, which cannot be written to.
                filled = [torch.zeros_like(p) if g is None else g.clone() for p, g in pairs]
            present = [g for g in filled if g is not None]
            if name in sums:
                for total, gradient in zip(sums[name], present, strict=True):
                    total.add_(gradient)
            else:
                sums[name] = present
                for parameter, gradient in zip(parameters, filled, strict=True):
                    parameter.grad = gradient

    @property
    def _joins(self) -> bool:
        # Parts that a loss did not use this time need zeros, so that sums have the same shape.
        return self.config.accumulate > 1 or self.ranks.size > 1

    def _apply(self, sums: Mapping[str, list[Tensor]], step: int) -> None:
        for name in sums:
            group, optimizer = self.groups[name], self.optimizers[name]
            factor = learning_rate(step, self.clock.total, self.config, group.schedule)
            if self.config.clip > 0:
                torch.nn.utils.clip_grad_norm_(group.parameters, self.config.clip)
            optimizer.param_groups[0]["lr"] = group.lr * factor
            optimizer.step()
            optimizer.zero_grad()

    def held_out(self, batches: Batches | None) -> Mapping[str, float]:
        """Mean losses of the network over held-out batches, always the same ones."""
        if batches is None:
            return {}
        self.algorithm.eval()
        found: list[Losses] = []
        for number in range(self.config.held_out_batches):
            batch = on_device(batches.batch(number), self.config.device)
            found.append(detached(self._forward(batch, self.clock.step, -1 - number)))
        self.algorithm.train()
        means = mean_losses(found).by_group
        return {f"held_out/{name}": loss.item() for name, loss in means.items()}

    def checkpoint(self, logged: bool) -> None:
        """Weights of the policy, and everything that resuming needs; ``logged``: the figures of
        the steps until now get their line.
        """
        self.finite.look()
        if not self.ranks.leads:
            return
        step = self.clock.step
        unseal_run(self.run_dir)
        write_tensors(self.run_dir / WEIGHTS, self.algorithm.policy_weights(), {"step": str(step)})
        seal_run(self.run_dir)
        tensors = {f"algorithm/{k}": v for k, v in self.algorithm.state_dict().items()}
        for name, optimizer in self.optimizers.items():
            for index, state in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer/{name}/{index}/{k}": v for k, v in state.items()}
        meter = Meter() if logged else self.meter
        figures = dataclasses.asdict(self.clock) | {"meter": meter.to_json()}
        save_state(self.run_dir, step, tensors, figures)

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
        clock.data_seconds = figures.get("data_seconds", 0.0)
        clock.diagnosis_seconds = figures.get("diagnosis_seconds", 0.0)
        self.meter.restore(figures.get("meter", {}))


def _last(clock: _Clock, stop_after: int | None) -> int:
    return clock.total if stop_after is None else min(clock.total, stop_after)
