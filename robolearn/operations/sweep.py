"""Finds settings of an experiment by trying, and reports the choice on fresh trials."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.plain import plain_values
from eval.report.benchmark_page import flat
from eval.statistics.intervals import Estimate
from eval.statistics.runs import mean_over_runs
from eval.sweep import (
    Candidate,
    Scores,
    SweepConfig,
    SweepResult,
    SweepTask,
    Where,
    result_values,
    run_sweep,
    tuning_conditions,
)
from eval.trials.rollouts import PolicyEntry, WorldEntry, evaluate
from eval.trials.suites import Suite
from eval.trials.table import TrialStore
from robolearn.config import load_config
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, did_you_mean
from robolearn.files import write_atomic
from robolearn.operations.builders import env_builder, policy_builder
from robolearn.operations.goals import world_for
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.suites import open_suite, trial_options
from robolearn.operations.train import load_experiment, train
from robolearn.training.run_directory import policy_hash
from robolearn.types import Condition

SWEEP_TABLE = "sweep.md"


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep tried and chose, and what the choice is worth on fresh trials."""

    config: SweepConfig
    # Label of the suite, with its hash.
    suite: str
    batch: int
    # The command that did it; "" for a call from Python.
    command: str
    # Of the source tree, as far as it is known.
    commit: str
    versions: Mapping[str, str]
    result: SweepResult

    @property
    def reported(self) -> Estimate:
        """Mean score of the choice, over fresh training runs and the suite's conditions."""
        return mean_over_runs(self.result.report).estimate

    @property
    def tuning_less_reported(self) -> float:
        """By how much tuning flattered the choice."""
        return self.result.best.value - self.reported.value

    def document(self) -> dict[str, Any]:
        """The content of ``sweep.json``."""
        return {
            "sweep": dataclasses.asdict(self.config),
            "suite": self.suite,
            "batch": self.batch,
            "command": self.command,
            "commit": self.commit,
            "versions": self.versions,
            **result_values(self.result),
            "reported": plain_values(self.reported),
            "tuning_less_reported": self.tuning_less_reported,
        }


def load_sweep(path: Path) -> SweepConfig:
    """A sweep's file, of whose settings the experiment has every one."""
    config = load_config(SweepConfig, path)
    # A misspelt setting would be found only by the first candidate.
    known = flat(load_experiment(Path(config.experiment)).plain())
    for name in config.space:
        if name not in known:
            raise ConfigError(
                f"{path}: the experiment has no setting '{name}'.{did_you_mean(name, known)}"
            )
    return config


def sweep(
    config: SweepConfig,
    store: Path,
    out: Path,
    *,
    where: Where = Where(),  # noqa: B008 (frozen)
    batch: int = 1,
    command: str = "",
    on_done: Callable[[SweepTask, Scores], None] | None = None,
) -> Swept:
    """Tune on conditions of its own, choose, report on the suite's; written to ``out/sweep.json``
    and ``sweep.md``, too. A sweep that was stopped goes on; ``command`` is kept with the result.
    """
    if where.workers < 0 or batch < 1:
        raise ConfigError("workers must be at least 0 and batch at least 1")
    suite = open_suite(Path(config.suite))
    EpisodeStore.open(store)
    env = make_world(env_builder(config.world).world)
    try:
        if env.task != suite.config.task:
            raise ConfigError(f"'{config.world}' has the task '{env.task}', not the suite's")
        most = max(s.conditions for s in config.stages)
        tuning = tuning_conditions(suite, env.sample_condition, most)
    finally:
        env.close()
    work = TrainAndTry(config, suite, tuning, store.absolute(), out.absolute(), batch)
    result = run_sweep(config, work, out, where, on_done)
    swept = Swept(config, suite.label, batch, command, git_revision(), library_versions(), result)
    write_atomic(out / "sweep.json", json.dumps(swept.document(), indent=1) + "\n")
    write_atomic(out / SWEEP_TABLE, _markdown(swept))
    return swept


@dataclass(frozen=True, slots=True)
class TrainAndTry:
    """Carries out tasks of a sweep: trains a run and rolls it out. Picklable; a worker calls it."""

    config: SweepConfig
    suite: Suite
    tuning: tuple[Condition, ...]
    store: Path
    out: Path
    batch: int

    def __call__(self) -> Callable[[SweepTask], Scores]:
        """Nothing to build: every task trains its own policy."""
        return self.run

    def run(self, task: SweepTask) -> Scores:
        """Score under each condition."""
        stage = self.config.stages[task.stage]
        name = f"{task.kind}-{task.number:03d}-{task.stage}"
        run = self._train(task, stage.steps, self.out / "runs" / name)
        if task.kind == "report":
            conditions = self.suite.select(self.suite.count_for(self.config.world))
        else:
            conditions = self.tuning[: stage.conditions]
        label = self.suite.label if task.kind == "report" else f"tuning of {self.suite.label}"
        return self._try(run, name, label, conditions)

    def _train(self, task: SweepTask, steps: int, run: Path) -> Path:
        settings = {**task.params, "fit.steps": steps, "seed": task.seed}
        experiment = load_experiment(Path(self.config.experiment), settings)
        train(experiment, run, self.store, resume=True)
        return run

    def _try(self, run: Path, name: str, label: str, conditions: tuple[Condition, ...]) -> Scores:
        builder = env_builder(world_for(self.config.world, self.suite.config.task, [run]))
        info = builder.info()
        world = WorldEntry(
            self.config.world, info.hash, info.engine, builder, self.suite.config.instruction
        )
        policy = PolicyEntry(name, policy_hash(run), policy_builder(run))
        options = dataclasses.replace(trial_options(self.suite), suite=label, batch=self.batch)
        with TrialStore(self.out / "trials" / name) as store:
            records = evaluate([policy], [world], {world.name: conditions}, store, options)
        return tuple(r.score for r in records)


def _markdown(swept: Swept) -> str:
    best, fresh = swept.result.best, swept.reported
    known = math.isfinite(fresh.low) and math.isfinite(fresh.high)
    interval = f"{fresh.low:.3f}, {fresh.high:.3f}" if known else "unknown: one run"
    lines = [
        f"# Sweep {swept.config.name}",
        "",
        f"* Chosen: candidate {best.number}: {_settings(best, '`{}` = {}')}.",
        f"* Selection: {swept.result.bias.words()}.",
        (
            f"* **Reported**: {fresh.value:.3f} [{interval}] over"
            f" {len(swept.result.report)} fresh training runs, suite {swept.suite}"
            f" ({fresh.method}). Tuning said {best.value:.3f}:"
            f" {swept.tuning_less_reported:+.3f} too much."
        ),
        "* Seeds and conditions of the tuning are none of the reported ones.",
        "",
        "| candidate | settings | state | stages: mean score |",
        f"|{'---|' * 4}",
    ]
    for c in swept.result.candidates:
        stages = ", ".join(f"{sum(s) / len(s):.3f}" for s in c.scores)
        words = _settings(c, "{} = {}", ".4g")
        lines.append(f"| {c.number} | {words} | {c.state} | {stages} |")
    return "\n".join(lines) + "\n"


def _settings(candidate: Candidate, words: str, number: str = "") -> str:
    settings: list[str] = []
    for name, value in candidate.params.items():
        text = format(value, number) if isinstance(value, float) else value
        settings.append(words.format(name, text))
    return ", ".join(settings)
