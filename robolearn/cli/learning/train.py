"""``robolearn train`` trains a policy from a store."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from robolearn.cli.learning.experiment_options import named_file, parse_with
from robolearn.cli.shared.fitting import ShownFit
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError
from robolearn.training.trackers import TrackerName

if TYPE_CHECKING:
    from robolearn.operations.train import Evaluation
    from robolearn.training.diagnosis import Diagnosis
    from robolearn.training.experiment import Experiment, TrainResult


@dataclass(frozen=True)
class TrainArgs:
    """Where to read from and write to; with --config also every value of the experiment."""

    # Experiment file, e.g. configs/train/pusht_flow_demo.yaml.
    config: Path | None = None
    # Episode store: a folder, or s3://bucket/prefix; left out: the stores that --config names.
    store: Path | None = None
    # Run directory to write.
    out: Path | None = None
    # Run to build on (idql, expo, residual ...: the policy whose chunks are improved on).
    parent: Path | None = None
    # Train with each of these seeds at once, one process and thread each, into OUT/seed_N.
    seeds: tuple[int, ...] = ()
    # Of --seeds so many at a time; 0: as many as there are cores.
    workers: int = 0
    # Torch threads.
    threads: int = 1
    # Pictures: copied into the cache, or decoded from the store for every batch; auto: copied up to
    # 16 GiB and half of the free disk.
    images: Literal["auto", "cache", "store"] = "auto"
    # Also log to: tensorboard (RUN/tensorboard), wandb. metrics.jsonl is always written.
    track: tuple[TrackerName, ...] = ()
    # World to evaluate checkpoints in: every fit.evaluate-every steps, and the final one.
    evaluate_world: str = ""
    # Conditions of these evaluations.
    evaluate_suite: Path = Path("configs/eval/pusht.yaml")
    # So many of them.
    evaluate_conditions: int = 10
    # Go on where a run stopped; a finished one is reused.
    resume: bool = False
    # Print the result as JSON only.
    json: bool = False


_WITHOUT_CONFIG = (
    "Train a policy from a store. With --config FILE all values of the experiment are options:"
    " --seed, --data.*, --algorithm.*, --fit.* (robolearn train --config FILE --help lists them)."
)


def main(argv: list[str]) -> int:
    """Parse, train, report."""
    config = named_file(argv) or _of_run(argv)
    if config is None:
        args = parse(TrainArgs, argv, "train", _WITHOUT_CONFIG)
        raise ConfigError(
            "--config is missing, e.g. --config configs/train/pusht_flow_demo.yaml; only with"
            " --resume and the --out of a run that has begun is it the run's own"
        )
    from robolearn.operations.train import TrainListener, load_experiment, train
    from robolearn.training.distributed import leads_here

    args, experiment = _parse(argv, load_experiment(config))
    if args.store is None and not experiment.data.stores:
        raise ConfigError("--store STORE is missing (or name stores under 'data' in --config)")
    if args.out is None:
        raise ConfigError("--out RUN is missing")
    if args.threads < 1:
        raise ConfigError(f"--threads must be at least 1, got {args.threads}")
    output_folder(args.out, "--out", "a run")
    if args.seeds:
        return _several(args, experiment)
    where = args.store or ", ".join(choice.path for choice in experiment.data.stores)
    quiet = args.json or not leads_here()

    def begin(episodes: int, processes: int) -> None:
        more = f" on {processes} processes" if processes > 1 else ""
        say(
            f"train {experiment.policy}: {episodes} episodes of {where} -> {args.out}{more}",
            quiet=quiet,
        )

    with contextlib.closing(ShownFit(f"train {experiment.policy}", quiet=quiet)) as shown:
        try:
            result = train(
                experiment,
                args.out,
                args.store,
                parent=args.parent,
                resume=args.resume,
                threads=args.threads,
                images=args.images,
                track=args.track,
                evaluation=_evaluation(args),
                listener=TrainListener(begin, shown.on_episode, shown.on_proposed, shown.on_step),
            )
        except KeyboardInterrupt:
            shown.close()
            if shown.step:
                kept = f"stopped after step {shown.step}, which '{args.out}' keeps"
                say(f"{kept}; --resume goes on", quiet=quiet)
            raise
    if not leads_here():
        return 0
    if args.json:
        print_json(dataclasses.asdict(result))
    else:
        _report(result)
    return 0


def _of_run(argv: list[str]) -> Path | None:
    """The configuration inside the run that is to go on."""
    from robolearn.training.run_directory import CONFIG_FILE

    out = named_file(argv, "--out")
    if out is None or "--resume" not in argv:
        return None
    config = out / CONFIG_FILE
    return config if config.is_file() else None


def _evaluation(args: TrainArgs) -> Evaluation | None:
    from robolearn.operations.train import Evaluation

    world, suite, count = args.evaluate_world, args.evaluate_suite, args.evaluate_conditions
    return Evaluation(world, suite, count) if world else None


def _several(args: TrainArgs, experiment: Experiment) -> int:
    """Train with several seeds; one summary at the end."""
    from eval.plain import plain_values
    from robolearn.operations.train import train_seeds

    out = args.out or Path()
    say(f"train {experiment.policy}: seeds {list(args.seeds)} -> {out}", quiet=args.json)

    def done(seed: int, result: TrainResult) -> None:
        what = "reused" if result.reused else "trained"
        note = f"{what}: {result.fit.steps} steps, {result.fit.seconds:.0f} s"
        verdict = "" if result.diagnosis is None else f", critic {result.diagnosis.verdict}"
        say(f"  seed {seed} {note}{verdict}, policy {result.policy_hash}", quiet=args.json)

    found = train_seeds(
        experiment,
        args.seeds,
        out,
        args.store,
        workers=args.workers,
        parent=args.parent,
        resume=args.resume,
        images=args.images,
        track=args.track,
        evaluation=_evaluation(args),
        on_done=done,
    )
    if args.json:
        print_json(plain_values({"runs": found.runs, "losses": found.losses}))
        return 0
    for name, (mean, spread) in found.losses.items():
        say(f"  {name}: {mean:.4f}, standard deviation over seeds {spread:.4f}")
    say(f"runs {', '.join(str(run.run_dir) for run in found.runs.values())}")
    return 0


def _parse(argv: list[str], experiment: Experiment) -> tuple[TrainArgs, Experiment]:
    """Options of the command and of every value in the experiment."""
    names = ("data", "algorithm", "fit", "seed")
    values = {name: getattr(experiment, name) for name in names}
    args, changed = parse_with(TrainArgs, values, argv, "train", "Train a policy.", TrainArgs())
    return args, dataclasses.replace(experiment, **changed)


def _report(result: TrainResult) -> None:
    what = "reused (same experiment, data and code path)" if result.reused else "trained"
    loss = ", ".join(f"{k} {v:.4f}" for k, v in result.fit.metrics.items())
    say(
        f"{what}: {result.fit.steps} steps, {result.fit.seconds:.0f} s"
        f" ({result.fit.cpu_seconds:.0f} CPU-s), {result.parameters:,} parameters,"
        f" {result.windows:,} windows of {result.episodes} episodes"
    )
    share = result.fit.data_share
    say(f"  {share:.1%} of the time waiting for batches{_slow(share)}")
    say(f"  {loss}")
    if result.diagnosis is not None:
        _say_diagnosis(result.diagnosis)
    say(f"run {result.run_dir} policy {result.policy_hash}")


def _say_diagnosis(diagnosis: Diagnosis) -> None:
    first, *notes = diagnosis.words
    took = f"took {diagnosis.time_share:.1%} of the time"
    say(f"  critic ({diagnosis.verdict}; {took}): {first}")
    for note in notes:
        say(f"  critic: {note}")


def _slow(share: float) -> str:
    """What to do when batches come slower than the optimiser takes them."""
    if share <= 0.05:
        return ""
    return " (more than 5 %: try --fit.prefetch 2, or --images cache for pictures)"
