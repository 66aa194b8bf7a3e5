"""``robolearn sweep CONFIG`` finds settings by trying, and reports the choice on fresh trials."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say

if TYPE_CHECKING:
    from eval.sweep import SweepTask


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


def main(argv: list[str]) -> int:
    """Tune, choose, report."""
    args = parse(Args, argv, "sweep", Args.__doc__ or "")
    from eval.sweep import Where
    from robolearn.operations.sweep import SWEEP_TABLE, load_sweep, sweep

    config = load_sweep(args.config)
    output_folder(args.out, "--out", "a sweep")
    total = config.trials * len(config.stages) + config.report_runs
    with progress("sweep", total, quiet=args.json) as advance:

        def show(task: SweepTask, scores: tuple[float, ...]) -> None:
            mean = sum(scores) / len(scores)
            advance(1, f"{task.kind} {task.number}, stage {task.stage}: {mean:.3f}")

        swept = sweep(
            config,
            args.store,
            args.out,
            where=Where(args.workers, args.executor, args.address),
            batch=args.batch,
            command="robolearn sweep " + shlex.join(argv),
            on_done=show,
        )
    if args.json:
        print_json(swept.document())
    else:
        say((args.out / SWEEP_TABLE).read_text(encoding="utf-8"))
    return 0
