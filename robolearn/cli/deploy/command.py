"""``robolearn deploy RUN --robot CONFIG`` runs a policy on a robot under the safety supervisor."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from hardware.cell.limits import RunLimits
from robolearn.agents.execution import Execution, GuidanceName
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError
from robolearn.machine.interrupt import stopped_by
from robolearn.machine.threads import one_thread
from robolearn.operations.deploy.options import DeployOptions, TakeOverOptions


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
    # Take a run whose files were edited since it was written.
    accept_edited: bool = False
    # The policy's certificate (robolearn certify); default: certificate.json of the run.
    certificate: Path | None = None
    # Let it drive a cell that demands a certificate without one that holds, and say why; the reason
    # is kept with every episode.
    accept_uncertified: str = ""
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
    # Who takes over from the policy when it is lost, and hands back: keyboard, spacemouse, gamepad,
    # leader, browser (docs/teleoperation.md), or scripted (the task's expert). A trial in which
    # somebody did is marked, and is no success of the policy.
    takeover: str = ""
    # A file of configs/collect/ with the settings of that device, of the mapping and of the touch.
    takeover_config: Path | None = None
    # Port of the page (0: any free one).
    port: int = 0
    # Address of this computer under which a tablet in its network opens the page, with TLS.
    host: str = ""
    # How many safety stops it goes on after; each ends its trial as a failure. A lab is cleared by
    # itself; of a real arm you are asked first.
    go_on_after_stop: int = 0
    # Who supervises, kept with every trial.
    operator: str = ""
    # Draw a video of every trial from its recorded poses.
    video: bool = True
    # Do not ask before the arm moves.
    yes: bool = False
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run the command; Ctrl-C stops the arm and keeps every finished trial (exit code 130)."""
    args = parse(Args, argv, "deploy", Args.__doc__ or "")
    options = options_of(args)
    output_folder(args.out, "--out", "")
    if not args.yes and options.mode == "run":
        # Told before a robot is connected, not after.
        from robolearn.cli.shared.consent import require_terminal

        require_terminal("the arm will move")
    one_thread()
    from robolearn.cli.deploy.terminal import TerminalOperator
    from robolearn.operations.deploy.run import deploy

    operator = TerminalOperator(yes=args.yes, quiet=args.json)
    try:
        result = deploy(options, operator, write=_write)
    except KeyboardInterrupt:
        say(
            f"\nstopped by {stopped_by()}: the arm stands; {operator.finished} finished trial(s)"
            f" are kept in {args.out}, and what was recorded of the one that ran"
            f" ('robolearn data repair {args.out / 'store'}')",
            quiet=args.json,
        )
        return 130
    if options.mode == "run":
        say(result.text(), quiet=args.json)
        say(f"results: {args.out}", quiet=args.json)
    if args.json:
        print_json(result.document())
    return 0


def _write(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def options_of(args: Args) -> DeployOptions:
    """What the operation is asked for; ConfigError for flags that exclude each other."""
    if args.dry_run and args.shadow:
        raise ConfigError("--dry-run and --shadow exclude each other; leave one out")
    if not args.takeover:
        unheard = ("takeover_config", "port", "host")
        refuse_without_use(args, unheard, "of the device of --takeover, which is not given")
    return DeployOptions(
        run=args.run,
        server=args.server,
        robot=args.robot,
        out=args.out,
        suite=args.suite,
        episodes=args.episodes,
        first=args.first,
        max_steps=args.max_steps,
        execution=args.execution,
        runtime=args.runtime,
        guidance=args.guidance,
        accept_edited=args.accept_edited,
        certificate=args.certificate,
        accept_uncertified=args.accept_uncertified,
        instruction=args.instruction,
        mode="dry_run" if args.dry_run else "shadow" if args.shadow else "run",
        score=args.score,
        limits=args.limits,
        start_lab=args.start_lab,
        lab_seed=args.lab_seed,
        takeover=TakeOverOptions(
            by=args.takeover, config=args.takeover_config, port=args.port, host=args.host
        ),
        go_on_after_stop=args.go_on_after_stop,
        operator=args.operator,
        video=args.video,
    )
