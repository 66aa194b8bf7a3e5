"""``robolearn train``: train a policy from a store."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from robolearn.cli.common import parse, print_json, progress, say
from robolearn.cli.outputs import output_folder
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.experiment import Experiment, TrainResult


@dataclass(frozen=True)
class TrainArgs:
    """Where to read from and write to; with --config also every value of the experiment."""

    config: Path | None = None
    """Experiment file, e.g. configs/train/pusht_flow_demo.yaml."""
    store: Path | None = None
    """Episode store: a folder, or s3://bucket/prefix; left out: the stores that --config names."""
    out: Path | None = None
    """Run directory to write."""
    parent: Path | None = None
    """Run to build on (iql_rerank: a trained flow policy)."""
    threads: int = 1
    """Torch threads."""
    resume: bool = False
    """Go on where a run stopped; a finished one is reused."""
    json: bool = False
    """Print the result as JSON only."""


def main(argv: list[str]) -> int:
    config = _peek(argv)
    if config is None:
        args = parse(TrainArgs, argv, "train", "Train a policy from a store.")
        raise ConfigError("--config is missing, e.g. --config configs/train/pusht_flow_demo.yaml")
    from policies.registry import policy_config
    from robolearn.experiment import load_experiment

    experiment = load_experiment(config, policy_config)
    args, experiment = _parse(argv, experiment)
    if experiment.data.stores and args.store is not None:
        raise ConfigError(f"{config} names its stores itself (data: stores); leave --store out")
    if args.store is None and not experiment.data.stores:
        raise ConfigError("--store STORE is missing (or name stores under 'data' in --config)")
    if args.out is None:
        raise ConfigError("--out RUN is missing")
    if args.threads < 1:
        raise ConfigError(f"--threads must be at least 1, got {args.threads}")
    output_folder(args.out, "--out", "a run")
    result = _train(args, experiment, args.store, args.out)
    if args.json:
        print_json(dataclasses.asdict(result))
    else:
        _report(result)
    return 0


def _peek(argv: list[str]) -> Path | None:
    """The experiment file decides which further options exist, so it is looked up first."""
    for i, word in enumerate(argv):
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
        if word == "--config" and i + 1 < len(argv):
            return Path(argv[i + 1])
    return None


def _parse(argv: list[str], experiment: Experiment) -> tuple[TrainArgs, Experiment]:
    """Options of the command and of every value in the experiment, e.g. ``--fit.steps 100``."""
    fields: list[Any] = [
        ("args", TrainArgs, dataclasses.field(default_factory=TrainArgs)),
        ("data", type(experiment.data), experiment.data),
        ("algorithm", type(experiment.algorithm), experiment.algorithm),
        ("fit", type(experiment.fit), experiment.fit),
        ("seed", int, experiment.seed),
    ]
    import tyro

    annotated = [
        (
            name,
            tyro.conf.OmitArgPrefixes[kind] if name == "args" else tyro.conf.AvoidSubcommands[kind],
        )
        for name, kind, _ in fields
    ]
    kind = dataclasses.make_dataclass("Train", annotated, frozen=True)
    default: Any = kind(TrainArgs(), *[value for _, _, value in fields[1:]])
    parsed = cast("Any", parse(kind, argv, "train", "Train a policy.", default=default))
    changed = dataclasses.replace(
        experiment,
        data=parsed.data,
        algorithm=parsed.algorithm,
        fit=parsed.fit,
        seed=parsed.seed,
    )
    return parsed.args, changed


def _train(args: TrainArgs, experiment: Experiment, store: Path | None, out: Path) -> TrainResult:
    from robolearn.checkpoint import load_run
    from robolearn.data.mixture import MixtureSource
    from robolearn.data.selection import StoreSource
    from robolearn.data.store import EpisodeStore
    from robolearn.experiment import train
    from robolearn.training import Progress

    source = (
        MixtureSource(experiment.data)
        if store is None
        else StoreSource(EpisodeStore.open(store), experiment.data)
    )
    where = store or ", ".join(choice.path for choice in experiment.data.stores)
    parent = None if args.parent is None else load_run(args.parent)
    quiet = args.json or not sys.stderr.isatty()
    say(
        f"train {experiment.policy}: {len(source.ids)} episodes of {where} -> {out}",
        quiet=args.json,
    )
    shown = 0
    next_line_s = 0.0
    with progress(f"train {experiment.policy}", experiment.fit.steps, quiet=quiet) as advance:

        def on_step(now: Progress) -> None:
            nonlocal shown, next_line_s
            note = " ".join(f"{k} {v:.4f}" for k, v in now.metrics.items() if k.startswith("loss"))
            # With a time budget the total is known only after the calibration.
            advance(now.step - shown, f"of {now.total} in the budget, {note}")
            shown = now.step
            if quiet and not args.json and now.seconds >= next_line_s:
                # Without a terminal: a plain line now and then instead of a bar.
                next_line_s = now.seconds + 15.0
                eta = f"{now.eta_s / 60:.1f} min left"
                say(f"  step {now.step}/{now.total} {note} {now.seconds:.0f} s, {eta}")

        return train(
            experiment,
            source,
            out,
            parent=parent,
            resume=args.resume,
            threads=args.threads,
            on_step=on_step,
        )


def _report(result: TrainResult) -> None:
    what = "reused (same experiment, data and code path)" if result.reused else "trained"
    loss = ", ".join(f"{k} {v:.4f}" for k, v in result.fit.metrics.items())
    say(
        f"{what}: {result.fit.steps} steps, {result.fit.seconds:.0f} s"
        f" ({result.fit.cpu_seconds:.0f} CPU-s), {result.parameters:,} parameters,"
        f" {result.windows:,} windows of {result.episodes} episodes"
    )
    say(f"  {loss}")
    say(f"run {result.run_dir} policy {result.policy_hash}")
