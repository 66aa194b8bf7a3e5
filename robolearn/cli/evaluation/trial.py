"""``robolearn trial`` runs blinded trials of several policies on a robot, and reports them."""

from __future__ import annotations

import getpass
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from robolearn.agents.execution import Execution, GuidanceName
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say, typed_options
from robolearn.cli.shared.verbs import Verbs, run_verb
from robolearn.machine.interrupt import stopped_by
from robolearn.machine.threads import one_thread

if TYPE_CHECKING:
    from robolearn.operations.trial.on_cell import SessionResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArgs:
    """Run trials of several policies in turns: planned beforehand, in random order, by aliases.

    The first call locks the plan; every further one ('robolearn trial --out DIR') goes on with it,
    after days or a crash. 'robolearn trial report DIR --unblind' tells the names at the end.
    """

    # The plan, the episodes, the table of trials; a folder that has them goes on.
    out: Path
    # A file of configs/hardware/; later calls need it only if the plan has several cells.
    robot: Path | None = None
    # Run directories of the policies, or ws://HOST:PORT of servers (token in ROBOLEARN_TOKEN).
    policies: tuple[str, ...] = ()
    # Where the starts come from.
    suite: Path | None = None
    # Conditions that every policy tries (with --ab: comparisons); default: the suite's subset.
    trials: int | None = None
    # So many of the conditions are tried twice, to know how far a real trial predicts its own
    # repetition.
    repeats: int = 0
    # Two policies after each other from the same start; you are asked which was better.
    ab: bool = False
    # The order of the trials is drawn from it.
    seed: int = 0
    # Further cells that share the plan; each condition belongs to one cell.
    cells: tuple[Path, ...] = ()
    # Who supervises, kept with every trial; default: the name you logged in with.
    operator: str = ""
    # CAMERA=SCENE: before every trial start.png in the folder is the camera's picture with the
    # wanted start over it, as the scene's camera of that name would see it.
    overlay: str = ""
    # End the session after so many trials.
    at_most: int | None = None
    # Start the virtual lab of the config for every session.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Control steps per trial; default: what the suite says.
    max_steps: int | None = None
    # Who says how a trial went: the task's predicate (keys count), the operator's keys alone, or
    # the operator by the steps of --rubric, of which the last one is the goal.
    score: Literal["task", "operator", "rubric"] = "task"
    # Steps towards the goal, in words; after every trial you are asked how far it came.
    rubric: tuple[str, ...] = ()
    # fixed: no results are shown before the end; sequential: what is decided by now is shown, and
    # the trials end once every pair is (not with --ab).
    rule: Literal["fixed", "sequential"] = "fixed"
    # What decides.
    by: Literal["success", "score"] = "success"
    # Probability of calling equal policies different.
    alpha: float = 0.05
    # How chunks become commands; evaluate and deploy have the same options.
    execution: Annotated[Execution, tyro.conf.arg(name="")] = Execution(  # noqa: RUF009 (frozen)
        lead_ticks=1, realtime_chunking=True
    )
    # What computes the policies.
    runtime: Literal["torch", "onnx"] = "torch"
    # How chunks continue each other.
    guidance: GuidanceName = "auto"
    # What policies that read text are told; default: what the suite says.
    instruction: str = ""
    # How many safety stops the session goes on after; each ends its trial as a failure.
    go_on_after_stop: int = 0
    # Do not ask before the arm moves.
    yes: bool = False
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class ReportArgs:
    """Say where trials stand; with --unblind, when all are done, which policy is which."""

    # The folder of the trials.
    out: Annotated[Path, tyro.conf.Positional]
    # Write the trials with the policies' names into it, for 'compare' and 'trust'.
    unblind: bool = False
    # Why the names must be known before all trials are done; none can follow then.
    reason: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class VoidArgs:
    """Take the trial of a slot out, for a reason that is not its outcome; it is tried again."""

    # Number of the slot, as it was told when it ran.
    slot: Annotated[int, tyro.conf.Positional]
    # The folder of the trials.
    out: Path
    # Why; kept with the trial.
    reason: str
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run trials, or one of the verbs."""
    verbs: Verbs = {"report": (ReportArgs, _report), "void": (VoidArgs, _void)}
    if argv and argv[0] in verbs:
        return run_verb("trial", "Blinded trials.", verbs, argv)
    try:
        args = parse(RunArgs, argv, "trial", RunArgs.__doc__ or "")
    except SystemExit:
        if "--help" in argv or "-h" in argv:
            lines = [
                f"  {name:<8}{(kind.__doc__ or '').strip()}" for name, (kind, _) in verbs.items()
            ]
            print("\nverbs:\n" + "\n".join(lines))
        raise
    return _run(args, typed_options(RunArgs, argv))


# What the design calls options that are called otherwise here.
_IN_DESIGN = {
    "ab": "pairs",
    "rule": "rule.kind",
    "by": "rule.by",
    "alpha": "rule.alpha",
    **{f.name: f"execution.{f.name}" for f in fields(Execution)},
}


def _run(args: RunArgs, typed: frozenset[str]) -> int:
    output_folder(args.out, "--out", "blinded trials")
    if not args.yes:
        from robolearn.cli.shared.consent import require_terminal

        require_terminal("the arm will move")
    one_thread()
    from eval.rule import Rule
    from robolearn.cli.deploy.terminal import TerminalOperator
    from robolearn.operations.trial.on_cell import run_trials
    from robolearn.operations.trial.options import DesignOptions, TrialOptions

    design = DesignOptions(
        policies=args.policies,
        suite=args.suite,
        trials=args.trials,
        repeats=args.repeats,
        pairs=args.ab,
        seed=args.seed,
        max_steps=args.max_steps,
        score=args.score,
        rubric=args.rubric,
        rule=Rule(by=args.by, kind=args.rule, alpha=args.alpha),
        execution=args.execution,
        runtime=args.runtime,
        guidance=args.guidance,
        instruction=args.instruction,
        start_lab=args.start_lab,
        lab_seed=args.lab_seed,
        given=frozenset(_IN_DESIGN.get(name, name) for name in typed),
    )
    options = TrialOptions(
        out=args.out,
        robot=args.robot,
        cells=args.cells,
        design=design,
        operator=args.operator or getpass.getuser(),
        overlay=args.overlay,
        at_most=args.at_most,
        go_on_after_stop=args.go_on_after_stop,
    )
    operator = TerminalOperator(yes=args.yes, quiet=args.json)
    try:
        result = run_trials(options, operator)
    except KeyboardInterrupt:
        say(
            f"\nstopped by {stopped_by()}: the arm stands; {operator.finished} trial(s) of this"
            f" session are kept; go on with 'robolearn trial --out {args.out}'",
            quiet=args.json,
        )
        return 130
    if args.json:
        now = {"session": operator.finished, "left": result.standing.left}
        compare = sum(result.uncompared.values())
        more = {"uncompared": compare, "decided": result.decided}
        print_json({"plan": result.plan, "slots": result.slots, **now, **more})
        return 0
    say(f"{operator.finished} trial(s) in this session; {_what_is_left(result, args.out)}")
    return 0


def _what_is_left(result: SessionResult, out: Path) -> str:
    """By cell, with the command that goes on there."""
    names = f"'robolearn trial report {out} --unblind' tells the names"
    if result.decided:
        rest = result.standing.left
        unneeded = f"; the {rest} planned trials that are left are not tried" if rest else ""
        return f"every pair is decided{unneeded}: {names}"
    parts: list[str] = []
    for cell, file in result.cells.items():
        waiting, pairs = len(result.standing.waiting[cell]), result.uncompared.get(cell, 0)
        told = [f"{waiting} left"] if waiting else []
        told += [f"{pairs} pair(s) to compare"] if pairs else []
        # A plan of one cell knows where that is.
        several = len(result.cells) > 1
        where, on = (f" on {cell}", f" --robot {file}") if several else ("", "")
        if told:
            said = f"{' and '.join(told)}{where}"
            parts.append(f"{said}: 'robolearn trial --out {out}{on}' goes on")
    return "; ".join(parts) or f"all done: {names}"


def _report(argv: list[str]) -> int:
    args = parse(ReportArgs, argv, "trial report", ReportArgs.__doc__ or "")
    from eval.plain import plain_values
    from robolearn.operations.trial.report import trial_report, unblind

    if not args.unblind:
        report = trial_report(args.out)
        if args.json:
            print_json(plain_values(report))
            return 0
        for line in report.lines:
            say(line)
        return 0
    found = unblind(args.out, reason=args.reason)
    if args.json:
        print_json(
            {
                "policies": dict(found.policies),
                "trials": len(found.trials),
                "votes": len(found.votes),
                "complete": found.complete,
            }
        )
        return 0
    for alias, name in found.policies.items():
        say(f"  {alias:<10} {name}")
    if not found.complete:
        say("unblinded before all trials were done; what is compared now is exploratory")
    say(f"'robolearn compare {args.out}' compares them,")
    say(f"'robolearn trust --real {args.out} --sim RESULTS' judges a simulator by them")
    return 0


def _void(argv: list[str]) -> int:
    args = parse(VoidArgs, argv, "trial void", VoidArgs.__doc__ or "")
    from robolearn.operations.trial.report import void_trial

    count = void_trial(args.out, args.slot, args.reason)
    if args.json:
        print_json({"slot": args.slot, "voided": count})
        return 0
    say(f"slot {args.slot}: {count} trial(s) voided; tried again after the last slot")
    return 0
