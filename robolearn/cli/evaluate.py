"""``robolearn evaluate RUN [RUN ...]``: paired rollouts of policies over a suite's conditions.

Instead of a run directory, ``scripted`` (or ``scripted:NOISE``) is the expert of the suite's task.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError
from robolearn.operations.builders import GuidanceName, require_continued
from robolearn.operations.code_hash import code_hash

if TYPE_CHECKING:
    from eval.evaluation import Evaluation
    from eval.trials.rollouts import Options, PolicyEntry, WorldEntry
    from eval.trials.suites import Suite
    from robolearn.spec import TaskSpace
    from robolearn.types import Condition


@dataclass(frozen=True, slots=True)
class Args:
    """Roll policies out, paired, over the fixed conditions of a suite; resumes where it stopped."""

    # Run directories of the policies, or 'scripted[:NOISE]' for the task's expert.
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    # The conditions and the protocol; default: the suite that comes with the task of the worlds.
    suite: Path | None = None
    # Worlds: gym_pusht, packaged scenes, or scene folders; perturbed ones as NAME~mass=1. The suite
    # may add variants to each. Default: the suite's own world (without a suite: gym_pusht).
    worlds: tuple[str, ...] = ()
    # Results folder: trials.sqlite, trials.csv, trials.parquet, summary.json, videos/.
    out: Path = Path("results/evaluation")
    # Conditions in every world; default: what the suite says. Beyond the suite's list more are
    # drawn, always the same ones.
    conditions: int | None = None
    # Worker processes; 0: in this process.
    workers: int = 1
    # Where the workers run: processes of this machine, or Ray actors.
    executor: Literal["processes", "ray"] = "processes"
    # Ray cluster (auto, ray://HOST:10001); empty: Ray is started on this machine.
    address: str = ""
    # What computes the policies: torch, or ONNX Runtime (exports the run first if need be).
    runtime: Literal["torch", "onnx"] = "torch"
    # Actions executed per chunk; default: what the policy says, and 1 with --ensemble.
    execute: int | None = None
    # Ask for the next chunk so many control steps ahead.
    lead_ticks: int = 0
    # Let each chunk continue the one before it (real-time chunking).
    realtime_chunking: bool = False
    # How: guided with the Jacobian, with the identity instead, by a hard mask, or as the policy was
    # trained to (algorithm.known); auto: as trained if it was, else jacobian.
    guidance: GuidanceName = "auto"
    # Temporal ensembling: weights exp(-M i) of all chunks for a time, the oldest first; ACT: 0.01.
    ensemble: float | None = None
    # Show the policy one wanted sub-goal at a time, each for at most so many seconds; default: all.
    goal_s: float | None = None
    # With --goal-s: whose turn is first, counted from 0; the others follow as they are numbered.
    goal_order: tuple[int, ...] = ()
    # Control steps that an answer of the policy takes, exactly, in simulated time.
    delay_ticks: int = 0
    # Environments per forward pass of a policy. More are faster, and round differently: the batch
    # belongs to a trial's identity.
    batch: int = 1
    # At most so many clips per policy and world (one of a perturbed one), chosen by rule: a failure
    # of each kind, the median, longest and shortest success, the worst and the nearest miss.
    videos: int = 4
    # Run the source world again with starts moved by 0.3 mm, and with other noise of the policy,
    # to know how far a world agrees with itself.
    repeat: bool = True
    # Folder of 'robolearn success': its classifier decides on success, not the world; the worlds
    # need the camera (WORLD,camera=top). Results are corrected by its held-out errors.
    judge: Path | None = None
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class ClipWriter:
    """Writes the clip of one episode, small enough that a page of them can be mailed."""

    def __call__(self, path: Path, frames: Sequence[Any], fps: float) -> None:
        """Write one mp4."""
        from sim.rendering.video import write_mp4

        write_mp4(path, frames, fps, crf=27)


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "evaluate", Args.__doc__ or "")
    if not args.runs:
        raise ConfigError("give at least one run directory: robolearn evaluate RUN [RUN ...]")
    _check(args)
    from eval.evaluation import write_evaluation
    from eval.filming import film
    from eval.plain import write_mapping
    from eval.report.data import SUMMARY_FILE, evaluation_data
    from eval.report.lines import evaluation_lines
    from eval.report.markdown import evaluation_document
    from eval.statistics.intervals import mean_t
    from eval.trials.export import to_csv, write_parquet
    from eval.trials.rollouts import Plan as RolloutPlan
    from eval.trials.rollouts import Progress, evaluate, wanted_keys
    from eval.trials.suites import load_suite
    from eval.trials.table import TrialStore, key_of
    from robolearn.operations.builders import env_builder

    suite = load_suite(args.suite or _suite_of(args.worlds))
    env_builder(suite.config.source_world)
    args = dataclasses.replace(args, worlds=args.worlds or (suite.config.source_world,))
    policies, worlds = _policies(args, suite), _worlds(args, suite)
    counts = {w.name: suite.count_for(w.name) for w in worlds}
    if args.conditions is not None:
        counts = dict.fromkeys(counts, args.conditions)
    first = {w.name: suite.select(counts[w.name]) for w in worlds}
    again = _repeats(args, suite, first)
    conditions = {name: (*first[name], *again.get(name, ())) for name in first}
    options = _options(args, suite)
    say(f"{suite.label}: {suite.config.protocol}", quiet=args.json)
    with TrialStore(args.out) as store:
        # Before the first trial, so that what a killed evaluation left can be read, too.
        asked = _asked(argv, args, suite, first, policies, worlds, options)
        write_evaluation(args.out, asked)
        plan = RolloutPlan(policies, worlds, options)
        wanted = wanted_keys(plan, conditions)
        there = {key_of(r) for r in store.all()}
        todo = sum(key not in there for key in wanted)
        if todo < len(wanted):
            say(f"{len(wanted) - todo} of {len(wanted)} trials are there already", quiet=args.json)
        with progress("evaluate", todo, quiet=args.json) as advance:

            def show(p: Progress) -> None:
                mean = mean_t([r.score for r in p.records])
                advance(p.added, f"{p.policy} in {p.world}: {mean.text(2)}")

            evaluate(policies, worlds, conditions, store, options, show)
        if args.videos:
            say("filming what is worth a look", quiet=args.json)
        film(plan, conditions, store)
        trials = store.all()
    (args.out / "trials.csv").write_text(to_csv(trials), encoding="utf-8")
    write_parquet(trials, args.out / "trials.parquet")
    evaluation = evaluation_data(asked, trials, args.out)
    document = evaluation_document(evaluation)
    write_mapping(args.out / SUMMARY_FILE, document)
    if args.json:
        print_json(document)
        return 0
    for line in evaluation_lines(evaluation):
        say(line)
    say(f"results: {args.out}")
    others = sorted({r.policy for r in trials} - {p.name for p in policies})
    if others:
        say(f"there are trials of {', '.join(others)}, too: name all in one command for one")
        say("summary and report (nothing is run twice); 'robolearn compare' reads them all")
    return 0


def _check(args: Args) -> None:
    for option, value, least in (
        ("--workers", args.workers, 0),
        ("--batch", args.batch, 1),
        ("--videos", args.videos, 0),
        ("--delay-ticks", args.delay_ticks, 0),
    ):
        if value < least:
            raise ConfigError(f"{option} must be at least {least}, got {value}")
    require_continued(args.guidance, args.realtime_chunking and args.runtime == "torch")
    output_folder(args.out, "--out", "results of 'robolearn evaluate'")


def _suite_of(worlds: Sequence[str]) -> Path:
    """The suite that comes with the task of the first world."""
    from robolearn.config import shipped_configs
    from robolearn.operations.builders import env_builder

    task = env_builder(worlds[0]).info().task if worlds else "pusht"
    folder = shipped_configs() / "eval"
    if not (folder / f"{task}.yaml").is_file():
        raise ConfigError(
            f"no suite comes with the task '{task}' of '{worlds[0]}'; there are suites for"
            f" {sorted(p.stem for p in folder.glob('*.yaml'))}. Draw one: robolearn suite draw"
            f" {worlds[0]} --out {task}.yaml, and give it with --suite"
        )
    return Path("configs/eval") / f"{task}.yaml"


def _repeats(
    args: Args, suite: Suite, first: Mapping[str, tuple[Condition, ...]]
) -> dict[str, tuple[Condition, ...]]:
    from eval.trials.suites import moved, repeated

    source = suite.config.source_world
    if not args.repeat or source not in first:
        return {}
    chosen = first[source][: suite.config.subset]
    if not _placed(chosen):
        say(
            "starts of this suite follow from their seeds alone: policies are paired, but no start"
            " can be moved or repeated, and worlds are not compared start by start",
            quiet=args.json,
        )
        return {}
    return {source: (*moved(suite, chosen), *repeated(chosen))}


def _placed(conditions: Sequence[Condition]) -> bool:
    """Whether the starts are poses, which other worlds can have, too; else only seeds name them."""
    return all(c.poses for c in conditions)


def _policies(args: Args, suite: Suite) -> tuple[PolicyEntry, ...]:
    from eval.trials.rollouts import PolicyEntry
    from robolearn.config import config_hash
    from robolearn.operations.builders import ExpertBuilder, expert_noise

    names = [r.resolve().name for r in args.runs]
    entries: list[PolicyEntry] = []
    for run, name in zip(args.runs, names, strict=True):
        noise = expert_noise(str(run))
        if noise is not None:
            expert = ExpertBuilder(suite.config.task, noise)
            label = f"scripted-{noise:g}" if noise else "scripted"
            digest = config_hash("scripted", suite.config.task, noise)
            entries.append(PolicyEntry(label, digest, None, expert))
            continue
        label = name if names.count(name) == 1 else f"{run.resolve().parent.name}-{name}"
        entries.append(_trained(run, label, args))
    return tuple(entries)


def _trained(run: Path, label: str, args: Args) -> PolicyEntry:
    # Imported here because it imports torch, which an expert alone does not need.
    from eval.trials.rollouts import PolicyEntry
    from robolearn.agents.execution import Execution
    from robolearn.operations.builders import policy_builder
    from robolearn.training.run_directory import load_run, policy_hash

    realtime, turns = args.realtime_chunking, (args.goal_s, args.goal_order)
    execution = Execution(args.execute, args.lead_ticks, realtime, args.ensemble, *turns)
    builder = policy_builder(run, runtime=args.runtime, guidance=args.guidance)
    load_run(run)  # Before a graph of it is written.
    builder()  # Whether it loads, and continues plans so, is said before anything runs.
    # The two round differently, and trials of one do not count for the other.
    suffix = "" if args.runtime == "torch" else f"-{args.runtime}"
    delay = f"delay={args.delay_ticks}" if args.delay_ticks else ""
    way = "" if args.guidance == "auto" else f"guidance={args.guidance}"
    how = ",".join(part for part in (execution.label, way, delay) if part)
    if how:
        label, suffix = f"{label}+{how}", f"{suffix}+{how}"
    return PolicyEntry(
        label,
        policy_hash(run) + suffix,
        builder,
        execution=execution,
        delay_ticks=args.delay_ticks,
    )


def _task_space(run: Path) -> TaskSpace:
    from robolearn.training.run_directory import load_run

    return load_run(run).spec.task_space


def _worlds(args: Args, suite: Suite) -> tuple[WorldEntry, ...]:
    from eval.trials.rollouts import WorldEntry
    from robolearn.config import config_hash
    from robolearn.instructions import require_understood
    from robolearn.operations.builders import ExpertBuilder, env_builder, expert_noise
    from robolearn.spec import require_compatible
    from sim.world_name import WorldName
    from sim.worlds import is_scene, make_world

    entries: list[WorldEntry] = []
    dials = [expert_noise(str(run)) for run in args.runs]
    spaces = [_task_space(run) for run, dial in zip(args.runs, dials, strict=True) if dial is None]
    variants = suite.config.perturbations.variants()
    told = suite.config.instruction
    for space in spaces:
        require_understood(space, (told, *suite.config.instructions.values()))
    for world in (world + variant for world in args.worlds for variant in variants):
        builder = env_builder(world)
        env = make_world(builder.world)
        try:
            if env.task != suite.config.task:
                raise ConfigError(
                    f"suite '{suite.config.name}' has starts of the task '{suite.config.task}',"
                    f" but '{world}' has the task '{env.task}'; give the suite that belongs to it"
                    " (--suite)"
                )
            for space in spaces:
                require_compatible(space, env.spec)
            for noise in (dial for dial in dials if dial is not None):
                ExpertBuilder(suite.config.task, noise)(env.spec)
            # A scene's folder is not part of its name; a family is (robosuite/Lift).
            scene = is_scene(WorldName.parse(builder.world))
            name = Path(builder.world).name if scene else builder.world
            entries.append(WorldEntry(name, env.scene_hash, env.engine, builder, told))
            if world in args.worlds:
                entries += [
                    WorldEntry(
                        name + said, config_hash(env.scene_hash, text), env.engine, builder, text
                    )
                    for said, text in suite.spoken()
                ]
        finally:
            env.close()
    return tuple(entries)


def _options(args: Args, suite: Suite) -> Options:
    from eval.trials.rollouts import Options, VideoPlan
    from robolearn.data.provenance import git_revision

    video = None
    if args.videos:
        video = VideoPlan(args.out / "videos", ClipWriter(), args.videos)
    from robolearn.cli.success import judge

    judged = None if args.judge is None else judge(args.judge)
    return Options(
        suite=suite.label,
        task=suite.config.task,
        max_steps=suite.config.max_steps,
        workers=args.workers,
        executor=args.executor,
        address=args.address,
        batch=args.batch,
        code=code_hash(),
        commit=git_revision(),
        video=video,
        judge=judged,
    )


def _asked(
    argv: Sequence[str],
    args: Args,
    suite: Suite,
    first: Mapping[str, tuple[Condition, ...]],
    policies: Sequence[PolicyEntry],
    worlds: Sequence[WorldEntry],
    options: Options,
) -> Evaluation:
    from eval.evaluation import Evaluation, PolicyIdentity, WorldIdentity
    from robolearn.data.provenance import library_versions

    judge = options.judge
    said = "" if judge is None else f"; {judge.counts.words(judge.hash)}"
    longest = max(first.values(), key=len)
    return Evaluation(
        suite=options.suite,
        protocol=suite.config.protocol + said,
        task=suite.config.task,
        max_steps=suite.config.max_steps,
        source_world=suite.config.source_world,
        starts={c.id: c.seed for c in longest},
        conditions={w.name: len(first[w.name]) for w in worlds},
        worlds=tuple(WorldIdentity(w.name, w.hash, w.engine) for w in worlds),
        policies=tuple(
            PolicyIdentity(p.name, p.hash, str(run))
            for p, run in zip(policies, args.runs, strict=True)
        ),
        placed=_placed(longest),
        batch=options.batch,
        code=options.code,
        commit=options.commit,
        versions=library_versions(),
        command="robolearn evaluate " + shlex.join(argv),
        judge="" if judge is None else judge.hash,
        judge_counts=None if judge is None else judge.counts,
    )
