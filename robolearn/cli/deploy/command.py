"""``robolearn deploy RUN --robot CONFIG``: run a policy on a robot under the safety supervisor."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from hardware.cell.limits import RunLimits
from robolearn.agents.execution import Execution
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError
from robolearn.operations.builders import GuidanceName, require_continued


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """Check, place, ramp, run, score, return: one trial after the other."""

    # Run directory of the policy (or --server).
    run: Annotated[Path | None, tyro.conf.Positional] = None
    # Ask a policy server instead, ws://HOST:PORT; its token in ROBOLEARN_TOKEN.
    server: str = ""
    # A file of configs/hardware/.
    robot: Path
    # Results: store/, trials.sqlite, deploy.json, videos/; a folder of earlier trials gains these.
    out: Path
    # How many trials.
    episodes: int = 2
    # Where the starts come from.
    suite: Path = Path("configs/eval/pusht.yaml")
    # Index of the first condition of the suite.
    first: int = 0
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Control steps per trial; default: what the suite says.
    max_steps: int | None = None
    # How chunks become commands; evaluate has the same options.
    execution: Annotated[Execution, tyro.conf.arg(name="")] = Execution(  # noqa: RUF009 (frozen)
        lead_ticks=1, realtime_chunking=True
    )
    # What computes the policy; onnx: ONNX Runtime, without real-time chunking.
    runtime: Literal["torch", "onnx"] = "torch"
    # How chunks continue each other: guided with the Jacobian, with the identity instead, by a hard
    # mask, or as the policy was trained to (algorithm.max_prefix); auto: as trained if it was, else
    # jacobian.
    guidance: GuidanceName = "auto"
    # What a policy that reads text is told; default: what the suite says.
    instruction: str = ""
    # Check everything, ask the policy once about what it sees now, move nothing.
    dry_run: bool = False
    # Run the policy on live observations, move nothing, show how its actions deviate.
    shadow: bool = False
    # Who scores: the task's predicate, or the operator's keys alone (keys always count).
    score: Literal["task", "operator"] = "task"
    # Tighter limits for this run.
    limits: Annotated[RunLimits, tyro.conf.arg(name="")] = field(default_factory=RunLimits)
    # Who supervises, kept with every trial.
    operator: str = ""
    # Draw a video of every trial from its recorded poses.
    video: bool = True
    # Do not ask before the arm moves.
    yes: bool = False
    # Print one JSON document and nothing else.
    json: bool = False

    @property
    def executed(self) -> Execution:
        """``execution``, without the real-time chunking that an ensemble or ONNX replaces."""
        continued = self.runtime == "torch" and self.execution.ensemble is None
        return dataclasses.replace(
            self.execution,
            realtime_chunking=self.execution.realtime_chunking and continued,
        )


def main(argv: list[str]) -> int:
    """Run the command; Ctrl-C stops the arm and keeps every finished trial (exit code 130)."""
    args = parse(Args, argv, "deploy", Args.__doc__ or "")
    _check_counts(args)
    if args.dry_run and args.shadow:
        raise ConfigError("--dry-run and --shadow exclude each other; leave one out")
    args.executed.check()
    require_continued(args.guidance, args.executed.realtime_chunking)
    output_folder(args.out, "--out", "")
    if not (args.yes or args.dry_run or args.shadow):
        # Told before a robot is connected, not after.
        from robolearn.cli.shared.consent import require_terminal

        require_terminal("the arm will move")
    # Idle threads of a numerics library would spin beside the control loop; set before its import.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    from robolearn.cli.deploy.run import Deployment

    deployment = Deployment(args)
    try:
        document = deployment.run()
    except KeyboardInterrupt:
        say(
            f"\nstopped by Ctrl-C: the arm stands; {deployment.finished} finished trial(s) are"
            f" kept in {args.out}",
            quiet=args.json,
        )
        return 130
    if args.json:
        print_json(document)
    return 0


def _check_counts(args: Args) -> None:
    # Checked before anything is started: the arm must not move for a typing error.
    for option, value, least in (
        ("--episodes", args.episodes, 1),
        ("--first", args.first, 0),
        ("--max-steps", args.max_steps, 1),
    ):
        if value is not None and value < least:
            raise ConfigError(f"{option} must be at least {least}, got {value}")
