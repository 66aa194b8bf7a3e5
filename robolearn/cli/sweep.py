"""``robolearn sweep CONFIG``: find settings by trying, and report the choice on fresh trials."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError, did_you_mean
from robolearn.files import write_atomic

if TYPE_CHECKING:
    from eval.sweep import SweepConfig, SweepResult, SweepTask
    from eval.trials.suites import Suite
    from robolearn.types import Condition


@dataclass(frozen=True, slots=True)
class Args:
    """Try settings of an experiment, drop bad ones early, report the best on fresh trials."""

    # The sweep, e.g. configs/sweep/pusht_flow.yaml.
    config: Annotated[Path, tyro.conf.Positional]
    # Episode store to train from.
    store: Path
    # Folder of the sweep: runs, sweep.jsonl, sweep.json. A sweep that was stopped goes on.
    out: Path = Path("runs/sweep")
    # Worker processes; 0: in this process. The result is the same with any number.
    workers: int = 1
    # Where the workers run: processes of this machine, or Ray actors.
    executor: Literal["processes", "ray"] = "processes"
    # Ray cluster (auto, ray://HOST:10001); empty: Ray is started on this machine.
    address: str = ""
    # Environments per forward pass of a policy (belongs to a trial's identity).
    batch: int = 1
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class TrainAndTry:
    """Carries out tasks of a sweep: trains a run and rolls it out. Picklable."""

    config: SweepConfig
    suite: Suite
    tuning: tuple[Condition, ...]
    store: Path
    out: Path
    batch: int

    def __call__(self) -> TrainAndTry:
        """Nothing to build: every task trains its own policy."""
        return self

    def run(self, task: SweepTask) -> tuple[float, ...]:
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
        import yaml

        from eval.sweep import with_settings
        from robolearn.cli.train.command import main as train
        from robolearn.config import load_yaml

        settings = with_settings(load_yaml(Path(self.config.experiment)), task.params)
        settings = with_settings(settings, {"fit.steps": steps, "seed": task.seed})
        run.mkdir(parents=True, exist_ok=True)
        path = run.with_suffix(".yaml")
        path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
        words = ["--config", str(path), "--store", str(self.store), "--out", str(run), "--json"]
        with contextlib.redirect_stdout(io.StringIO()):
            train([*words, "--resume"])
        return run

    def _try(
        self, run: Path, name: str, label: str, conditions: tuple[Condition, ...]
    ) -> tuple[float, ...]:
        from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
        from eval.trials.table import TrialStore
        from robolearn.operations.builders import env_builder, policy_builder
        from robolearn.operations.code_hash import code_hash
        from robolearn.training.run_directory import policy_hash

        builder = env_builder(self.config.world)
        info = builder.info()
        world = WorldEntry(
            self.config.world, info.hash, info.engine, builder, self.suite.config.instruction
        )
        policy = PolicyEntry(name, policy_hash(run), policy_builder(run))
        options = Options(
            suite=label,
            task=self.suite.config.task,
            max_steps=self.suite.config.max_steps,
            batch=self.batch,
            code=code_hash(),
        )
        with TrialStore(self.out / "trials" / name) as store:
            records = evaluate([policy], [world], {world.name: conditions}, store, options)
        return tuple(r.score for r in records)


def main(argv: list[str]) -> int:
    """Tune, choose, report."""
    args = parse(Args, argv, "sweep", Args.__doc__ or "")
    from eval.sweep import Where, run_sweep, tuning_conditions
    from eval.trials.suites import load_suite
    from robolearn.data.store.store import EpisodeStore
    from robolearn.operations.builders import env_builder
    from sim.worlds import make_world

    config = _load(args.config)
    if args.workers < 0 or args.batch < 1:
        raise ConfigError("--workers must be at least 0 and --batch at least 1")
    suite = load_suite(Path(config.suite))
    EpisodeStore.open(args.store)
    output_folder(args.out, "--out", "a sweep")
    env = make_world(env_builder(config.world).world)
    try:
        if env.task != suite.config.task:
            raise ConfigError(f"'{config.world}' has the task '{env.task}', not the suite's")
        most = max(s.conditions for s in config.stages)
        tuning = tuning_conditions(suite, env.sample_condition, most)
    finally:
        env.close()
    work = TrainAndTry(
        config, suite, tuning, args.store.absolute(), args.out.absolute(), args.batch
    )
    where = Where(args.workers, args.executor, args.address)
    total = config.trials * len(config.stages) + config.report_runs
    with progress("sweep", total, quiet=args.json) as advance:

        def show(task: SweepTask, scores: tuple[float, ...]) -> None:
            mean = sum(scores) / len(scores)
            advance(1, f"{task.kind} {task.number}, stage {task.stage}: {mean:.3f}")

        result = run_sweep(config, Builder(work), args.out, where, show)
    document = _document(argv, args, config, suite, result)
    write_atomic(args.out / "sweep.json", json.dumps(document, indent=1) + "\n")
    (args.out / "sweep.md").write_text(_markdown(document), encoding="utf-8")
    if args.json:
        print_json(document)
    else:
        say(_markdown(document))
    return 0


@dataclass(frozen=True, slots=True)
class Builder:
    """What a worker calls once."""

    work: TrainAndTry

    def __call__(self) -> Any:
        """The function that carries out tasks."""
        return self.work.run


def _load(path: Path) -> SweepConfig:
    from eval.report.benchmark_page import flat
    from eval.sweep import SweepConfig
    from policies.registry import policy_config
    from robolearn.config import load_config
    from robolearn.training.experiment import load_experiment

    config = load_config(SweepConfig, path)
    # A misspelt setting would be found only by the first candidate.
    known = flat(load_experiment(Path(config.experiment), policy_config).plain())
    for name in config.space:
        if name not in known:
            raise ConfigError(
                f"{path}: the experiment has no setting '{name}'.{did_you_mean(name, known)}"
            )
    return config


def _document(
    argv: list[str], args: Args, config: SweepConfig, suite: Suite, result: SweepResult
) -> dict[str, Any]:
    from eval.plain import plain_values
    from eval.statistics.clusters import mean_two_way
    from eval.statistics.intervals import OUTCOME
    from eval.sweep import result_values
    from robolearn.data.provenance import git_revision, library_versions

    runs = [i for i, r in enumerate(result.report) for _ in r]
    conditions = [j for r in result.report for j in range(len(r))]
    values = [v for r in result.report for v in r]
    fresh = mean_two_way(values, runs, conditions, bounds=OUTCOME)
    return {
        "sweep": dataclasses.asdict(config),
        "suite": suite.label,
        "batch": args.batch,
        "command": "robolearn sweep " + shlex.join(argv),
        "commit": git_revision(),
        "versions": library_versions(),
        **result_values(result),
        "reported": plain_values(fresh),
        "tuning_less_reported": result.best.value - fresh.value,
    }


def _markdown(document: dict[str, Any]) -> str:
    best, reported = document["best"], document["reported"]
    settings = ", ".join(f"`{k}` = {v}" for k, v in best["params"].items())
    low, high = reported["low"], reported["high"]
    interval = "unknown: one run" if low is None else f"{low:.3f}, {high:.3f}"
    lines = [
        f"# Sweep {document['sweep']['name']}",
        "",
        f"* Chosen: candidate {best['number']}: {settings}.",
        f"* Selection: {document['selection']['words']}.",
        (
            f"* **Reported**: {reported['value']:.3f} [{interval}] over"
            f" {len(document['report'])} fresh training runs, suite {document['suite']}"
            f" ({reported['method']}). Tuning said {best['value']:.3f}:"
            f" {document['tuning_less_reported']:+.3f} too much."
        ),
        "* Seeds and conditions of the tuning are none of the reported ones.",
        "",
        "| candidate | settings | state | stages: mean score |",
        "|---|---|---|---|",
    ]
    for c in document["candidates"]:
        words = ", ".join(f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
                          for k, v in c["params"].items())  # fmt: skip
        stages = ", ".join(f"{sum(s) / len(s):.3f}" for s in c["scores"])
        lines.append(f"| {c['number']} | {words} | {c['state']} | {stages} |")
    return "\n".join(lines) + "\n"
