"""``robolearn evaluate RUN [RUN ...]`` runs paired rollouts of policies over a suite's conditions.

Instead of a run directory, ``scripted`` (or ``scripted:NOISE``) is the expert of the suite's task.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.agents.execution import Execution
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError
from robolearn.operations.evaluate_options import EvaluateOptions

if TYPE_CHECKING:
    from eval.trials.progress import Progress
    from robolearn.operations.evaluate import EvaluateBegin


@dataclass(frozen=True, slots=True)
class Args:
    """Roll policies out, paired, over the fixed conditions of a suite; resumes where it stopped."""

    # Run directories of the policies, or 'scripted[:NOISE]' for the task's expert.
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    # Policies on servers, too, ws://HOST:PORT (robolearn serve, or one of yours: docs/remote.md);
    # their token in ROBOLEARN_TOKEN.
    server: tuple[str, ...] = ()
    # Results folder: trials.sqlite, trials.csv, trials.parquet, summary.json, videos/.
    out: Path = Path("results/evaluation")
    # Conditions, worlds, and on what it runs.
    options: Annotated[EvaluateOptions, tyro.conf.arg(name="")] = field(
        default_factory=EvaluateOptions
    )
    # Start where the real trials of this folder ('robolearn trial', unblinded, or 'deploy') really
    # began, so that they pair up; suite and execution as in these.
    like: Path | None = None
    # With --like: the simulated world that stands for reality in its folder (reality/pusht,seed=3).
    real_world: str = ""
    # With --like: rollouts from every real start.
    rollouts: int = 5
    # With --like: standard deviations of how exactly starts were measured [m], [rad]; default: what
    # the cell said of its trackers (standard_error), else .3 mm and 1.7 mrad, assumed.
    start_noise_m: float | None = None
    start_noise_rad: float | None = None
    # How chunks become commands; deploy has the same options.
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "evaluate", Args.__doc__ or "")
    args.options.check(args.execution)
    output_folder(args.out, "--out", "results of 'robolearn evaluate'")
    if args.like is not None:
        return _like(args, args.like)
    if args.real_world:
        raise ConfigError("--real-world says whose trials --like FOLDER is about, which is missing")
    from eval.report.lines import evaluation_lines
    from eval.report.markdown import evaluation_document
    from robolearn.operations.evaluate import EvaluateListener, evaluate

    quiet = args.json
    with ExitStack() as stack:
        bars: list[Callable[..., None]] = []

        def begin(what: EvaluateBegin) -> None:
            for line in _beginning(what):
                say(line, quiet=quiet)
            left = what.wanted - what.there
            bars.append(stack.enter_context(progress("evaluate", left, quiet=quiet)))

        def show(p: Progress) -> None:
            said = f"mean score {p.score:.2f} of {p.n} trials"
            bars[0](p.added, f"{p.policy} in {p.world}: {said}")

        def filming() -> None:
            stack.close()
            say("filming what is worth a look", quiet=quiet)

        result = evaluate(
            (*args.runs, *args.server),
            args.out,
            args.options,
            args.execution,
            command="robolearn evaluate " + shlex.join(argv),
            listener=EvaluateListener(begin, show, filming),
        )
    if args.json:
        print_json(evaluation_document(result.data))
        return 0
    for line in evaluation_lines(result.data):
        say(line)
    say(f"results: {args.out}")
    if result.others:
        names = ", ".join(result.others)
        say(f"there are trials of {names}, too: name all in one command for one")
        say("summary and report (nothing is run twice); 'robolearn compare' reads them all")
    return 0


def _like(args: Args, like: Path) -> int:
    from robolearn.operations.trial.like import LikeOptions, evaluate_like
    from robolearn.operations.trial.start_noise import StartNoise

    runs = (*args.runs, *args.server)
    if not runs:
        raise ConfigError("give the policies: run directories, or --server ws://HOST:PORT")
    noise = StartNoise(args.start_noise_m, args.start_noise_rad)
    how = LikeOptions(args.rollouts, noise, args.real_world)
    with progress("evaluate", None, quiet=args.json) as advance:

        def show(p: Progress) -> None:
            advance(p.added, f"{p.policy} in {p.world}: {p.n} trials")

        found = evaluate_like(runs, like, args.out, args.options, args.execution, how, show)
    if args.json:
        told = {"trials": len(found.trials), "real": found.real, "alone": list(found.alone)}
        print_json({**told, "drawn": found.drawn})
        return 0
    say(f"{len(found.trials)} simulated trials from the starts of {found.real} real ones")
    say(found.drawn)
    if found.alone:
        say(f"real trials of {', '.join(found.alone)} were not simulated")
    stands = f" --real-world {args.real_world}" if args.real_world else ""
    say(f"'robolearn trust --real {like}{stands} --sim {args.out}' says how far they agree")
    return 0


def _beginning(what: EvaluateBegin) -> list[str]:
    lines = [f"{what.suite.label}: {what.suite.config.protocol}"]
    if what.plan is not None:
        lines.append(f"plan {what.plan.hash}: {what.plan.plan.words()}")
    if what.again:
        lines.append(
            f"{what.wanted} trials, {what.again} of them moved and repeated starts (--repeat)"
        )
    if what.unplaced:
        lines.append(
            "starts of this suite follow from their seeds alone: policies are paired, but no start"
            " can be moved or repeated, and worlds are not compared start by start"
        )
    if what.there:
        lines.append(f"{what.there} of {what.wanted} trials are there already")
    return [*lines, *what.apart]
