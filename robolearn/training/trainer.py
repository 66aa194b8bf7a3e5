"""Updates an algorithm's parameters from batches; keeps and restores everything that takes.

The one way to do it: :func:`robolearn.training.loop.fit` trains on what is there, the learner of a
practice on what is still being collected (:mod:`robolearn.training.learner`).
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor

from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import Algorithm, Batch, Losses, Schedule
from robolearn.seeding import child_seed
from robolearn.training.batch_loader import Batches, Feed, on_device, seed_globally
from robolearn.training.distributed import Ranks
from robolearn.training.run_directory import (
    WEIGHTS,
    load_state,
    load_weights,
    save_state,
    seal_run,
    unseal_run,
    write_tensors,
)
from robolearn.training.watching.finite import FiniteLosses
from robolearn.training.watching.meter import Meter, detached, mean_losses

NOTHING: Mapping[str, Any] = MappingProxyType({})


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


@dataclass(slots=True)
class Clock:
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


class Trainer:
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
        # One optimiser: what has no gradient in an update is left as it is.
        plans = [
            {
                "params": group.parameters,
                "lr": group.lr,
                "betas": group.betas,
                "weight_decay": group.weight_decay,
            }
            for group in self.groups.values()
        ]
        self.optimizer = torch.optim.AdamW(plans, fused=True)
        self.rng, self.meter, self.finite = torch.Generator(), Meter(), FiniteLosses(run_dir)
        self.clock = Clock(0, config.steps, fixed=config.max_minutes is None)

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
        seed_globally(child_seed(self.seed, "dropout", number), self.config.device)
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
        plans = zip(self.groups.items(), self.optimizer.param_groups, strict=True)
        for (name, group), plan in plans:
            if name not in sums:
                continue
            factor = learning_rate(step, self.clock.total, self.config, group.schedule)
            if self.config.clip > 0:
                torch.nn.utils.clip_grad_norm_(group.parameters, self.config.clip)
            plan["lr"] = group.lr * factor
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _places(self) -> Mapping[int, str]:
        """The name in a checkpoint of every parameter's state, by its number in the optimiser."""
        places = [
            f"optimizer/{name}/{index}"
            for name, group in self.groups.items()
            for index in range(len(group.parameters))
        ]
        return dict(enumerate(places))

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

    def checkpoint(self, logged: bool, more: Mapping[str, Any] = NOTHING) -> None:
        """Weights of the policy, and everything that resuming needs; ``logged``: the figures of
        the steps until now get their line. ``more``: what else is kept, as JSON values.
        """
        self.finite.look()
        if not self.ranks.leads:
            return
        step = self.clock.step
        unseal_run(self.run_dir)
        write_tensors(self.run_dir / WEIGHTS, self.algorithm.policy_weights(), {"step": str(step)})
        seal_run(self.run_dir)
        tensors = {f"algorithm/{k}": v for k, v in self.algorithm.state_dict().items()}
        places = self._places()
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"{places[number]}/{k}": v for k, v in state.items()}
        meter = Meter() if logged else self.meter
        figures = dataclasses.asdict(self.clock) | {"meter": meter.to_json()} | dict(more)
        save_state(self.run_dir, step, tensors, figures)

    def restore(self) -> Mapping[str, Any]:
        """Continue from the newest checkpoint, if there is one; its figures."""
        found = load_state(self.run_dir)
        if found is None:
            return NOTHING
        step, tensors, figures = found
        own = {
            k.removeprefix("algorithm/"): v
            for k, v in tensors.items()
            if k.startswith("algorithm/")
        }
        load_weights(self.algorithm, own, f"{self.run_dir}/state")
        raw: dict[str, Any] = self.optimizer.state_dict()
        raw["state"], numbers = {}, {place: n for n, place in self._places().items()}
        for key, value in tensors.items():
            place, _, field = key.rpartition("/")
            if place in numbers:
                raw["state"].setdefault(numbers[place], {})[field] = value
        self.optimizer.load_state_dict(raw)
        clock = self.clock
        clock.step, clock.total, clock.fixed = step, int(figures["total"]), bool(figures["fixed"])
        clock.seconds, clock.cpu_seconds = figures["seconds"], figures["cpu_seconds"]
        clock.data_seconds = figures.get("data_seconds", 0.0)
        clock.diagnosis_seconds = figures.get("diagnosis_seconds", 0.0)
        self.meter.restore(figures.get("meter", {}))
        return figures
