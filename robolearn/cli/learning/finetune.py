"""``robolearn finetune RUN`` lets a trained policy practise, and keeps what it learned."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from hardware.cell.limits import RunLimits
from robolearn.cli.learning.experiment_options import named_file, parse_with
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError
from robolearn.machine.interrupt import stopped_by
from robolearn.machine.threads import one_thread

if TYPE_CHECKING:
    from robolearn.operations.practice.experiment import PracticeExperiment
    from robolearn.operations.practice.listener import RoundReport
    from robolearn.operations.practice.records import VersionTest
    from robolearn.operations.practice.result import FinetuneResult

LINE_EVERY_S = 15.0
"""Between two lines on a round [s]."""


@dataclass(frozen=True)
class FinetuneArgs:
    """What practises where; with every value of the experiment: --practice.*, --algorithm.*,
    --fit.*, --data.*, --seed.
    """

    # Run directory of the policy that practises; it stays as it is.
    run: Annotated[Path | None, tyro.conf.Positional] = None
    # World to practise in: a packaged scene, a scene folder (robolearn identify), an adapter.
    world: str = ""
    # Or a cell to practise on, in real time: a file of configs/hardware/ (docs/practice.md).
    robot: Path | None = None
    # Several worlds, by turns: variants (NAME~mass=1~friction=0.5) make what is learned robust.
    worlds: tuple[str, ...] = ()
    # Store that the episodes go into (kind online); it may hold others.
    store: Path | None = None
    # Run directory to write.
    out: Path | None = None
    # What is learned and how (configs/practice/*.yaml); left out: critics that choose among
    # the policy's own chunks.
    config: Path | None = None
    # Store of demonstrations, for --practice.demonstrations SHARE of every batch.
    demonstrations: Path | None = None
    # Instead of it: store of an earlier practice, of the simulated one while an arm practises.
    practised: Path | None = None
    # Who takes over where the policy is lost (docs/practice.md): scripted, the task's expert; with
    # --robot also a person at a device: keyboard, spacemouse, browser, ...
    takeover: str = ""
    # Its settings: a file of configs/collect/, whose device, mapping and takeover count.
    takeover_config: Path | None = None
    # Port of the page of --takeover browser (0: any free one).
    port: int = 0
    # Address of the page for a tablet; left out: this computer alone (docs/teleoperation.md).
    host: str = ""
    # Folder of a classifier ('robolearn success'), which decides on success by the last picture.
    judge: Path | None = None
    # Processes that drive, beside the one that learns; 0: one process does both by turns.
    actors: int = 0
    # What they are: processes of this machine, or Ray actors.
    executor: Literal["processes", "ray"] = "processes"
    # Ray cluster (auto, ray://HOST:10001); empty: Ray is started on this machine.
    address: str = ""
    # Another machine that learns, ws://HOST:PORT of its 'robolearn serve RUN --learn OUT' (with its
    # token in ROBOLEARN_TOKEN); left out: this one (docs/practice.md).
    learner: str = ""
    # Torch threads of the learner on this machine.
    threads: int = 1
    # With --robot: whose task, time limit and instruction; its own starts are not practised on.
    suite: Path = Path("configs/eval/pusht.yaml")
    # With --robot: start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # With --robot: seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # With --robot: the task's predicate scores, or the operator's keys alone.
    score: Literal["task", "operator"] = "task"
    # With --robot: ask for the next chunk so many control steps ahead.
    lead_ticks: int = 1
    # With --robot: tighter limits for this run.
    limits: Annotated[RunLimits, tyro.conf.arg(name="")] = field(default_factory=RunLimits)
    # With --robot: do not ask before the arm moves.
    yes: bool = False
    # Go on where a practice stopped; a finished one is reused.
    resume: bool = False
    # Print the result as JSON only.
    json: bool = False


MORE = (
    " Every value of the experiment is an option, too: --practice.*, --algorithm.*, --fit.*,"
    " --data.*, --seed (robolearn finetune RUN --help lists them)."
)
ABOUT = (
    "Let a trained policy practise, in a world or on an arm, and keep what it learned as a run"
    " directory like any other: evaluate, compare, export-policy, deploy."
)


def main(argv: list[str]) -> int:
    """Parse, practise, report."""
    run = next((Path(word) for word in argv if not word.startswith("-")), None)
    if run is None or "--help" in argv[:1] or "-h" in argv[:1]:
        parse_with(FinetuneArgs, {}, argv, "finetune", ABOUT + MORE, FinetuneArgs())
        raise ConfigError("the run that is to practise is missing: robolearn finetune RUN ...")
    on_cell = named_file(argv, "--robot") is not None
    if on_cell:
        one_thread()
    from robolearn.operations.practice.experiment import practice_experiment
    from robolearn.training.run_directory import load_run

    corrected = any(word.partition("=")[0] == "--takeover" for word in argv)
    begun = practice_experiment(
        load_run(run), named_file(argv), on_cell=on_cell, corrected=corrected
    )
    inner = begun.experiment
    names = ("data", "algorithm", "fit", "seed")
    values = {name: getattr(inner, name) for name in names} | {"practice": begun.practice}
    args, changed = parse_with(FinetuneArgs, values, argv, "finetune", ABOUT, FinetuneArgs())
    practice = changed.pop("practice")
    experiment = dataclasses.replace(
        begun, experiment=dataclasses.replace(inner, **changed), practice=practice
    )
    worlds = (*((args.world,) if args.world else ()), *args.worlds)
    if args.store is None or args.out is None:
        raise ConfigError("--store STORE and --out RUN are needed: where episodes go, and the run")
    if bool(worlds) == (args.robot is not None):
        raise ConfigError("say where it practises: --world W, or --robot CELL for an arm; not both")
    _refuse_unused(args)
    output_folder(args.out, "--out", "a run")
    place = str(args.robot) if args.robot is not None else ", ".join(worlds)
    say(
        f"practise {inner.policy} over {run} {'on' if on_cell else 'in'} {place} -> {args.out},"
        f" episodes -> {args.store}",
        quiet=args.json,
    )
    shown = _Shown(quiet=args.json)
    with contextlib.closing(shown):
        try:
            result = _practised(experiment, run, worlds, args, shown)
        except KeyboardInterrupt:
            shown.close()
            rest = ": the arm stands" if on_cell else ""
            say(
                f"stopped by {stopped_by()}{rest}; what was practised is kept in {args.store}, go"
                " on with --resume",
                quiet=args.json,
            )
            return 130
    if args.json:
        from eval.plain import plain_values

        print_json(plain_values(result))
    else:
        _report(result)
    return 0


def _practised(
    experiment: PracticeExperiment,
    run: Path,
    worlds: tuple[str, ...],
    args: FinetuneArgs,
    shown: _Shown,
) -> FinetuneResult:
    from robolearn.operations.practice.finetune import Actors, finetune
    from robolearn.operations.practice.frame import SecondStore
    from robolearn.operations.practice.listener import PracticeListener

    if args.demonstrations is not None and args.practised is not None:
        raise ConfigError("--demonstrations and --practised: one other store for a batch, not two")
    assert args.store is not None
    assert args.out is not None
    second = None
    if args.demonstrations is not None:
        second = SecondStore(args.demonstrations)
    elif args.practised is not None:
        second = SecondStore(args.practised, practised=True)
    listener = PracticeListener(shown.on_round, shown.on_test)
    elsewhere = None
    if args.learner:
        from robolearn.operations.practice.elsewhere.link import LearnerAddress

        elsewhere = LearnerAddress(args.learner, os.environ.get("ROBOLEARN_TOKEN", ""))
    if args.robot is None:
        return finetune(
            experiment,
            run,
            worlds,
            args.store,
            args.out,
            second=second,
            takeover=args.takeover,
            judge=args.judge,
            actors=Actors(args.actors, args.executor, args.address),
            elsewhere=elsewhere,
            threads=args.threads,
            resume=args.resume,
            listener=listener,
        )
    from robolearn.cli.deploy.terminal import TerminalOperator
    from robolearn.operations.deploy.options import TakeOverOptions
    from robolearn.operations.practice.on_cell import CellPractice, finetune_on_cell

    if not args.yes:
        # Told before a robot is connected, not after.
        from robolearn.cli.shared.consent import require_terminal

        require_terminal("the arm will move")
    where = CellPractice(
        robot=args.robot,
        suite=args.suite,
        start_lab=args.start_lab,
        lab_seed=args.lab_seed,
        score=args.score,
        lead_ticks=args.lead_ticks,
        takeover=TakeOverOptions(
            by=args.takeover, config=args.takeover_config, port=args.port, host=args.host
        ),
        judge=args.judge,
        limits=args.limits,
    )
    return finetune_on_cell(
        experiment,
        run,
        where,
        args.store,
        args.out,
        TerminalOperator(yes=args.yes, quiet=args.json),
        second=second,
        elsewhere=elsewhere,
        threads=args.threads,
        resume=args.resume,
        listener=listener,
        write=_write,
    )


# Options that count on an arm alone, and in worlds alone.
_ARMS = ("suite", "start_lab", "lab_seed", "score", "lead_ticks", "limits")
_DEVICES = ("takeover_config", "port", "host")
_WORLDS = ("actors", "executor", "address")


def _refuse_unused(args: FinetuneArgs) -> None:
    """:class:`ConfigError` for options that would change nothing."""
    if args.robot is None:
        why = "of an arm alone; name its cell with --robot, or leave this out"
        refuse_without_use(args, (*_ARMS, *_DEVICES), why)
    else:
        why = "for worlds; one arm has one actor, the learner is beside it"
        refuse_without_use(args, _WORLDS, why)
    if not args.takeover:
        refuse_without_use(args, _DEVICES, "of the device of --takeover, which is not given")
    if args.executor != "ray":
        refuse_without_use(args, ("address",), "of a Ray cluster; say --executor ray, too")


def _write(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


class _Shown:
    """How it goes: one line that is rewritten on a terminal, else a line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._terminal = quiet, sys.stdout.isatty()
        self._next_s, self._open = 0.0, False

    def close(self) -> None:
        """End the line that is being rewritten."""
        if self._open:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._open = False

    def on_round(self, now: RoundReport) -> None:
        """A round was taken in."""
        if self._quiet:
            return
        who = "warming up" if now.version is None else f"version {now.version}"
        shares = [
            f"{name} {share:.0%}"
            for name, share in (("parent", now.parent), ("practised", now.explorer))
            if share is not None
        ]
        text = (
            f"{now.episodes} episodes, {now.updates} updates, {who}; successes of late:"
            f" {', '.join(shares)}; {_driven(now)}{now.seconds / 60:.1f} min"
            f" ({now.cpu_seconds / 60:.1f} CPU-min)"
        )
        if self._terminal:
            sys.stdout.write(f"\r\x1b[2K  {text}")
            sys.stdout.flush()
            self._open = True
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_EVERY_S
            say(f"  {text}")

    def on_test(self, found: VersionTest) -> None:
        """A version was tried."""
        self.close()
        say(f"  test: {_tested(found)}", quiet=self._quiet)


def _driven(now: RoundReport) -> str:
    person = f", {now.person:.0%} of late by a person" if now.person else ""
    return f"{now.robot_seconds / 60:.1f} robot-min{person}; "


def _tested(found: VersionTest) -> str:
    scores = (
        ""
        if found.parent_score is None
        else f"; score {found.score:.3f}, parent {found.parent_score:.3f}, p = {found.score_p:.2g}"
    )
    return (
        f"version {found.version} solves {found.successes} of {found.starts} held-out starts"
        f" [{found.low:.2f}, {found.high:.2f}], its parent {found.parent_successes}"
        f" (only it {found.gained}, only the parent {found.lost}, p = {found.p:.2g}){scores}"
    )


def _report(result: FinetuneResult) -> None:
    from eval.report.text import switch_words, wear_words
    from robolearn.operations.practice.records import KEPT

    what = "reused" if result.reused else "practised"
    say(
        f"{what}: {result.episodes} episodes ({result.decisions:,} decisions), {result.updates}"
        f" updates, {result.seconds / 60:.1f} min ({result.cpu_seconds / 60:.1f} CPU-min)"
        + (f", {result.late_ticks} late tick(s)" if result.late_ticks else "")
    )
    say(f"  {wear_words(result.wear)}")
    say(f"  {switch_words(result.regret, result.dip)}")
    say(f"  over because {result.ended}")
    say(f"run {result.run_dir} policy {result.policy_hash}: {KEPT[result.kept]}")
