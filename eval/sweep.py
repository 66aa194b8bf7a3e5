"""Proposes settings, tries them on tuning conditions, and drops them early when they do badly.

Candidates go in waves whose size does not depend on the number of workers, so a sweep gives the
same candidates and values on one worker or many; every finished task is kept in ``sweep.jsonl``, so
that a sweep that was stopped goes on. What is *reported* is never what was tuned on: the chosen
settings are trained again with other seeds and tried under the suite's conditions, and tuning
conditions are drawn from another stream of seeds and checked to be none of the suite's.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eval.statistics.selection import SelectionBias, selection_bias
from eval.trials.executors import Done, run_in_process, run_in_workers
from eval.trials.ray_executor import run_on_ray
from eval.trials.rollouts import ExecutorName
from eval.trials.suites import Suite
from robolearn.config import config_hash
from robolearn.errors import ConfigError, DataError, MissingDependencyError
from robolearn.seeding import child_seed
from robolearn.types import Condition

log = logging.getLogger(__name__)

LEDGER = "sweep.jsonl"
Value = int | float | str
Kind = Literal["tune", "report"]


@dataclass(frozen=True, slots=True)
class Axis:
    """The values of one setting: ``low`` to ``high`` (``log``: evenly in the logarithm; ``whole``:
    whole numbers only), or ``choices``.
    """

    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    choices: tuple[Value, ...] = ()

    def __post_init__(self) -> None:
        ranged = self.low is not None and self.high is not None
        if ranged == bool(self.choices) or (self.low is None) != (self.high is None):
            raise ConfigError(f"an axis has either low and high or choices, got {self}")
        low, high = self.low or 0.0, self.high or 0.0
        if ranged and (not low < high or (self.log and low <= 0)):
            raise ConfigError(f"expected low < high (and low > 0 with log), got {self}")


@dataclass(frozen=True, slots=True)
class Stage:
    """How much is spent on a candidate that got this far: updates of training, conditions."""

    steps: int
    conditions: int

    def __post_init__(self) -> None:
        if self.steps < 1 or self.conditions < 1:
            raise ConfigError(f"steps and conditions must be at least 1, got {self}")


@dataclass(frozen=True, slots=True)
class SweepConfig:
    """The file's content."""

    name: str
    # The experiment whose settings are varied; what follows is relative to the repository's root.
    experiment: str
    # Whose conditions the result is reported on, and in which world.
    suite: str
    world: str
    # Dotted setting of the experiment (algorithm.lr) -> its values.
    space: dict[str, Axis]
    # Candidates; how many are proposed at a time (before their results are known).
    trials: int = 16
    wave: int = 4
    # The early ones decide which candidates are worth the later ones.
    stages: tuple[Stage, ...] = (Stage(500, 10), Stage(3000, 25))
    # Share of the candidates that may go on after an early stage.
    keep: float = 0.5
    # Training runs of the chosen settings that are reported.
    report_runs: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.space or not self.stages:
            raise ConfigError("a sweep needs a space of settings and at least one stage")
        if min(self.trials, self.wave, self.report_runs) < 1 or not 0 < self.keep <= 1:
            raise ConfigError(
                f"expected trials, wave, report_runs >= 1 and 0 < keep <= 1, got {self.trials},"
                f" {self.wave}, {self.report_runs}, {self.keep}"
            )


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One thing to do: candidate ``number`` at ``stage``, or run ``number`` of the report."""

    kind: Kind
    number: int
    stage: int
    params: Mapping[str, Value]
    seed: int

    @property
    def key(self) -> str:
        """What finished tasks are found again by."""
        return config_hash(self.kind, self.number, self.stage, dict(self.params), self.seed)


@dataclass(frozen=True, slots=True)
class Candidate:
    """``scores[stage]``: score under each tuning condition; ``state``: ``complete``, ``pruned`` or
    ``lost`` (its worker died twice).
    """

    number: int
    params: Mapping[str, Value]
    scores: tuple[tuple[float, ...], ...]
    state: Literal["complete", "pruned", "lost"]

    @property
    def value(self) -> float:
        """Mean score at its last stage."""
        return sum(self.scores[-1]) / len(self.scores[-1])


@dataclass(frozen=True, slots=True)
class SweepResult:
    """All candidates, the best, the scores of its fresh runs ``report[run][condition]``."""

    candidates: tuple[Candidate, ...]
    best: Candidate
    bias: SelectionBias
    report: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Where:
    """On what the tasks run; as for evaluations."""

    workers: int = 0
    executor: ExecutorName = "processes"
    address: str = ""
    timeout_s: float = 24 * 3600.0


Scores = tuple[float, ...]
Build = Callable[[], Callable[[SweepTask], Scores]]


def tuning_conditions(
    suite: Suite, draw: Callable[[int], Condition], n: int
) -> tuple[Condition, ...]:
    """``n`` starts that are none of the suite's: another stream of seeds, and compared."""
    reported = suite.select(len(suite.config.conditions))
    seeds = {c.seed for c in reported}
    places = {tuple(sorted(c.poses.items())) for c in reported}
    found: list[Condition] = []
    i = 0
    while len(found) < n:
        start = draw(child_seed(suite.config.seed, "tuning", suite.config.task, i))
        own = child_seed(suite.config.seed, "tuning", suite.config.task, i, "episode") % 2**31
        i += 1
        if own in seeds or tuple(sorted(start.poses.items())) in places:
            continue
        found.append(Condition(f"tune-{len(found):04d}", own, dict(start.poses)))
    return tuple(found)


def run_sweep(
    config: SweepConfig,
    build: Build,
    folder: Path,
    where: Where = Where(),
    on_done: Callable[[SweepTask, Scores], None] | None = None,
) -> SweepResult:
    """Propose, try, prune, choose, and try the choice afresh.

    ``build()`` makes the function that carries out a task (in a worker) and returns its scores.
    Raises :class:`DataError` when every candidate was lost.
    """
    runner = _Runner(build, folder / LEDGER, where, on_done)
    runner.load(config_hash(config))
    candidates = _tune(config, runner)
    complete = [c for c in candidates if c.state == "complete"]
    if not complete:
        raise DataError(f"none of {len(candidates)} candidates was completed; see the log")
    best = max(complete, key=lambda c: (c.value, -c.number))
    bias = selection_bias([c.scores[-1] for c in complete], seed=config.seed)
    tasks = [
        SweepTask("report", i, len(config.stages) - 1, best.params, report_seed(config, i))
        for i in range(config.report_runs)
    ]
    fresh = runner.run(tasks)
    lost = [t.number for t in tasks if t.key not in fresh]
    if lost:
        raise DataError(f"runs {lost} of the chosen settings were lost; start the sweep again")
    return SweepResult(tuple(candidates), best, bias, tuple(fresh[t.key] for t in tasks))


def tuning_seed(config: SweepConfig) -> int:
    """The training seed of every candidate: the same, so that settings differ in nothing else."""
    return 2 * (child_seed(config.seed, "tune") % 2**29)


def report_seed(config: SweepConfig, run: int) -> int:
    """Training seeds of the reported runs: odd, where tuning seeds are even."""
    return 2 * (child_seed(config.seed, "report", run) % 2**29) + 1


def _tune(config: SweepConfig, runner: _Runner) -> list[Candidate]:
    optuna = _optuna()
    study: Any = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=config.seed % 2**32, constant_liar=True),
        pruner=optuna.pruners.PercentilePruner(
            100 * config.keep, n_startup_trials=0, n_min_trials=1
        ),
    )
    candidates: list[Candidate] = []
    for start in range(0, config.trials, config.wave):
        wave = [study.ask() for _ in range(min(config.wave, config.trials - start))]
        params = {t.number: {k: _suggest(t, k, a) for k, a in config.space.items()} for t in wave}
        scores: dict[int, list[Scores]] = {t.number: [] for t in wave}
        state: dict[int, Literal["complete", "pruned", "lost"]] = {}
        for stage in range(len(config.stages)):
            tasks = [
                SweepTask("tune", t.number, stage, params[t.number], tuning_seed(config))
                for t in wave
                if t.number not in state
            ]
            found = runner.run(tasks)
            for task in tasks:
                if task.key in found:
                    scores[task.number].append(found[task.key])
                else:
                    state[task.number] = "lost"
            last = stage == len(config.stages) - 1
            living = [t for t in wave if t.number not in state]
            for t in living:
                t.report(_mean(scores[t.number][-1]), stage)
            for t in living:
                state |= {t.number: "complete"} if last else {}
                if not last and t.should_prune():
                    state[t.number] = "pruned"
        for t in wave:
            _tell(optuna, study, t, state[t.number], scores[t.number])
            candidates.append(
                Candidate(t.number, params[t.number], tuple(scores[t.number]), state[t.number])
            )
    return candidates


def _tell(optuna: Any, study: Any, trial: Any, state: str, scores: Sequence[Scores]) -> None:
    states = optuna.trial.TrialState
    if state == "complete":
        study.tell(trial, _mean(scores[-1]))
    else:
        study.tell(trial, state=states.PRUNED if state == "pruned" else states.FAIL)


def _suggest(trial: Any, name: str, axis: Axis) -> Value:
    if axis.choices:
        return trial.suggest_categorical(name, list(axis.choices))
    if axis.whole:
        return int(trial.suggest_int(name, int(axis.low or 0), int(axis.high or 0), log=axis.log))
    return float(trial.suggest_float(name, axis.low, axis.high, log=axis.log))


class _Runner:
    """Runs tasks that are not in the ledger yet; every result is in it before it is used."""

    def __init__(
        self,
        build: Build,
        ledger: Path,
        where: Where,
        on_done: Callable[[SweepTask, Scores], None] | None,
    ) -> None:
        self._build, self._ledger, self._where, self._on_done = build, ledger, where, on_done
        self._known: dict[str, Scores] = {}

    def load(self, identity: str) -> None:
        """What an earlier start of the same sweep has finished."""
        if not self._ledger.is_file():
            self._ledger.parent.mkdir(parents=True, exist_ok=True)
            self._append({"sweep": identity})
            return
        lines = self._ledger.read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                if number < len(lines):
                    raise DataError(f"'{self._ledger}', line {number}: {error}") from error
                # A kill while the last line was written: that task is done again.
                whole = "".join(f"{text}\n" for text in lines[:-1])
                self._ledger.write_text(whole, encoding="utf-8")
        if not rows or rows[0].get("sweep") != identity:
            raise ConfigError(
                f"'{self._ledger}' belongs to another sweep (its settings differ); choose another"
                " folder (--out)"
            )
        self._known = {row["task"]: tuple(row["scores"]) for row in rows[1:]}

    def run(self, tasks: Sequence[SweepTask]) -> dict[str, Scores]:
        """Scores by key; tasks whose worker died twice are missing."""
        todo = [t for t in tasks if t.key not in self._known]
        for done in self._spread(todo) if todo else ():
            if done.result is None:
                log.error("%s %d is lost: %s", done.task.kind, done.task.number, done.lost)
                continue
            self._append({"task": done.task.key, "scores": list(done.result)})
            self._known[done.task.key] = done.result
            if self._on_done is not None:
                self._on_done(done.task, done.result)
        return {t.key: self._known[t.key] for t in tasks if t.key in self._known}

    def _append(self, row: Mapping[str, Any]) -> None:
        with self._ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _spread(self, tasks: Sequence[SweepTask]) -> Any:
        where = self._where
        if where.workers == 0:
            return run_in_process(self._build, tasks)
        if where.executor == "ray":
            return run_on_ray(
                self._build, tasks, workers=where.workers, timeout_s=where.timeout_s,
                address=where.address,
            )  # fmt: skip
        return run_in_workers(self._build, tasks, workers=where.workers, timeout_s=where.timeout_s)


def with_settings(experiment: Mapping[str, Any], params: Mapping[str, Value]) -> dict[str, Any]:
    """A copy of an experiment's plain values with dotted settings replaced."""
    out: dict[str, Any] = json.loads(json.dumps(experiment))
    for name, value in params.items():
        *path, last = name.split(".")
        where: Any = out
        for part in path:
            where = where.setdefault(part, {})
            if not isinstance(where, dict):
                raise ConfigError(f"'{name}' of the space: '{part}' is not a group of settings")
        where[last] = value
    return out


def result_values(result: SweepResult) -> dict[str, Any]:
    """A result as JSON values."""
    return {
        "candidates": [dataclasses.asdict(c) | {"value": c.value if c.scores else None}
                       for c in result.candidates],
        "best": dataclasses.asdict(result.best) | {"value": result.best.value},
        "selection": dataclasses.asdict(result.bias)
        | {"corrected": result.bias.corrected, "words": result.bias.words()},
        "report": [list(r) for r in result.report],
    }  # fmt: skip


def _mean(scores: Scores) -> float:
    return sum(scores) / len(scores)


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise MissingDependencyError(
            f"Optuna cannot be imported ({error}); install it with pip install 'robolearn[sweep]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# What an executor yields for a task of a sweep.
SweepDone = Done[SweepTask, Scores]
