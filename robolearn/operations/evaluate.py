"""Evaluates policies: paired rollouts over a suite's conditions, their trials, what they say."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.evaluation import (
    Evaluation,
    PolicyIdentity,
    WorldIdentity,
    write_evaluation,
)
from eval.filming import film
from eval.plain import write_mapping, write_text
from eval.preregistration import Registered, keep_plan, read_plan
from eval.report.data import SUMMARY_FILE, EvaluationData, evaluation_data
from eval.report.markdown import evaluation_document
from eval.trials import rollouts
from eval.trials.clips import VideoPlan
from eval.trials.export import to_csv, write_parquet
from eval.trials.planned import counts_by_plan, require_one_plan, require_planned
from eval.trials.progress import Progress
from eval.trials.rollouts import Options, Plan, PolicyEntry, WorldEntry
from eval.trials.suites import Suite, moved, repeated
from eval.trials.table import TrialStore, key_of
from robolearn.agents.execution import Execution
from robolearn.config import config_hash, load_yaml, shipped_configs
from robolearn.data.provenance import library_versions
from robolearn.errors import ConfigError, InferenceError
from robolearn.inference.client import RemoteInference
from robolearn.instructions import require_understood
from robolearn.operations.builders import (
    SERVER_VARIABLE,
    ClipWriter,
    ExpertBuilder,
    ServerBuilder,
    env_builder,
    executed_as,
    expert_noise,
    is_server,
    policy_builder,
    policy_labels,
)
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.goals import world_for
from robolearn.operations.reality.worlds import described_worlds, make_world, said_goal
from robolearn.operations.suites import open_suite, trial_options, world_label
from robolearn.spec import TaskSpace, require_compatible
from robolearn.types import Condition, TrialRecord
from sim.tasks.pusht import PushT
from sim.world_name import WorldName

USUAL = EvaluateOptions()
FLOWN = ".flown"
# Chunks as the policy says, one after the other.
AS_TRAINED = Execution()


@dataclass(frozen=True, slots=True)
class EvaluateBegin:
    """What is about to run: ``there`` of ``wanted`` trials are kept from an earlier call.

    ``unplaced``: the starts follow from their seeds alone, so none can be moved or repeated.
    ``apart``: trials in the results folder that do not count here, and why; ``again``: how many of
    the wanted trials are moved or repeated starts; ``plan``: under which it runs.
    """

    suite: Suite
    there: int
    wanted: int
    unplaced: bool
    apart: tuple[str, ...]
    again: int
    plan: Registered | None


@dataclass(frozen=True, slots=True)
class EvaluateListener:
    """Who wants to know how far an evaluation is."""

    # Before the first trial.
    on_begin: Callable[[EvaluateBegin], None] | None = None
    # After every chunk of trials.
    on_trials: Callable[[Progress], None] | None = None
    # All trials are there; the ones worth a look are filmed.
    on_film: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class EvaluateResult:
    """What the trials say (``data``), all trials of the folder, and whose of them are not in it."""

    data: EvaluationData
    trials: tuple[TrialRecord, ...]
    others: tuple[str, ...]


def evaluate(
    runs: Sequence[str | Path],
    out: Path,
    options: EvaluateOptions = USUAL,
    execution: Execution = AS_TRAINED,
    *,
    command: str = "",
    listener: EvaluateListener = EvaluateListener(),
) -> EvaluateResult:
    """Roll every policy out in every world under the same conditions; resumes where it stopped.

    ``runs``: run directories, ``scripted[:NOISE]`` for the expert of the suite's task, or addresses
    of policy servers (``ws://HOST:PORT``; their token in ROBOLEARN_TOKEN); ``out``:
    results folder (trials.sqlite, evaluation.json, trials.csv, trials.parquet, summary.json,
    videos/); ``execution``: how their chunks are executed; ``command``: how to do this again.

    Errors: :class:`ConfigError` and :class:`SpecMismatchError` before anything is written,
    :class:`StoreLockedError` while another evaluation writes into ``out``.
    """
    if not runs:
        raise ConfigError("give at least one run directory: robolearn evaluate RUN [RUN ...]")
    options.check(execution)
    registered = None if options.plan is None else read_plan(options.plan)
    planned = () if registered is None else registered.plan.worlds
    suite = open_suite(options.suite or _suite_of(options.worlds or planned))
    env_builder(suite.config.source_world)
    names = options.worlds or planned or (suite.config.source_world,)
    at_goal = worlds_at_goals(runs, names, suite)
    policies = policy_entries(runs, options, execution, suite, at_goal)
    require_planned(registered, suite, [p.name for p in policies])
    worlds = world_entries(runs, at_goal, suite)
    counts = counts_by_plan(registered, suite, [w.name for w in worlds], options.conditions)
    first = {w.name: suite.select(counts[w.name]) for w in worlds}
    again = repeats(suite, first) if options.repeat else {}
    conditions = {name: (*first[name], *again.get(name, ())) for name in first}
    digest = "" if registered is None else registered.hash
    plan = Plan(policies, worlds, rollout_options(options, out, suite, digest))
    asked = _asked(runs, command, suite, first, plan)
    with TrialStore(out) as store:
        known = {key_of(r): r for r in store.all()}
        wanted = rollouts.wanted_keys(plan, conditions)
        require_one_plan(digest, wanted, known, out)
        # Before the first trial, so that what a killed evaluation left can be read, too.
        if options.plan is not None:
            keep_plan(out, options.plan)
        write_evaluation(out, asked)
        if listener.on_begin is not None:
            unplaced = options.repeat and suite.config.source_world in first and not again
            more = len(policies) * sum(map(len, again.values()))
            known_trials = sum(key in known for key in wanted)
            apart = asked.pool.kept_apart(tuple(known.values()))
            listener.on_begin(
                EvaluateBegin(suite, known_trials, len(wanted), unplaced, apart, more, registered)
            )
        rollouts.evaluate(policies, worlds, conditions, store, plan.options, listener.on_trials)
        if options.videos and listener.on_film is not None:
            listener.on_film()
        film(plan, conditions, store)
        trials = store.all()
    write_text(out / "trials.csv", to_csv(trials))
    write_parquet(trials, out / "trials.parquet")
    data = evaluation_data(asked, trials, out, interval=options.interval)
    write_mapping(out / SUMMARY_FILE, evaluation_document(data))
    others = sorted({r.policy for r in trials} - {p.name for p in policies})
    return EvaluateResult(data, trials, tuple(others))


def repeats(
    suite: Suite, first: Mapping[str, tuple[Condition, ...]]
) -> dict[str, tuple[Condition, ...]]:
    """The source world's starts moved a little, and again with other noise; nothing when it is not
    among the worlds, or when only seeds name the starts.
    """
    source = suite.config.source_world
    chosen = first.get(source, ())[: suite.config.subset]
    if not chosen or not _placed(chosen):
        return {}
    return {source: (*moved(suite, chosen), *repeated(chosen))}


def trained_policy(
    run: Path,
    name: str,
    options: EvaluateOptions = USUAL,
    execution: Execution = AS_TRAINED,
    aside: str = "",
) -> PolicyEntry:
    """A run directory as a policy under test; whatever changes its trials is in name and hash."""
    # Imported here because it imports torch, which an expert alone does not need.
    from robolearn.training.run_directory import load_run, policy_hash

    builder = policy_builder(run, runtime=options.runtime, guidance=options.guidance)
    load_run(run)  # Before a graph of it is written.
    builder()  # Whether it loads, and continues plans so, is said before anything runs.
    delay = options.delay_ticks
    name, digest = executed_as(
        *(name, policy_hash(run)),
        execution=execution,
        runtime=options.runtime,
        guidance=options.guidance,
        delay_ticks=delay,
        aside=aside,
    )
    return PolicyEntry(name, digest, builder, execution=execution, delay_ticks=delay)


def _suite_of(worlds: Sequence[str]) -> Path:
    """The suite that comes with the task of the first world."""
    task = env_builder(worlds[0]).info().task if worlds else "pusht"
    folder, shown = shipped_configs() / "eval", Path("configs/eval")
    if (folder / f"{task}.yaml").is_file():
        return shown / f"{task}.yaml"
    files = sorted(folder.glob("*.yaml"))
    # Some are named after their robot (so101_reach has the task reach).
    # A suite that forbids something is one that somebody asks for.
    asked = {path.name: load_yaml(path) for path in files}
    fitting = [name for name, v in asked.items() if v.get("task") == task and "forbidden" not in v]
    if len(fitting) != 1:
        raise ConfigError(
            f"no suite comes with the task '{task}' of '{worlds[0]}'; there are suites for"
            f" {[p.stem for p in files]}. Draw one (robolearn suite draw {worlds[0]} ...) and"
            " give it"
        )
    return shown / fitting[0]


def _placed(conditions: Sequence[Condition]) -> bool:
    """Whether the starts are poses, which other worlds can have, too; else only seeds name them."""
    return all(c.poses for c in conditions)


def worlds_at_goals(
    runs: Sequence[str | Path], names: Sequence[str], suite: Suite
) -> Mapping[str, str]:
    """Every world, by the name that was asked for, with the goal that the policies learned."""
    trained = [Path(run) for run in runs if _is_trained(run)]
    for name in names:
        env_builder(name)  # Which worlds there are is said first.
    return {name: world_for(name, suite.config.task, trained) for name in names}


def _expert_params(worlds: Sequence[str], task: str) -> dict[str, Any]:
    """What an expert must know of the task: Push-T's goal, where it is not the usual one."""
    if task != PushT.name:
        return {}
    goals = {said_goal(world) for world in worlds}
    if len(goals) > 1:
        raise ConfigError(
            f"the expert pushes to one goal, the worlds {list(worlds)} have several; evaluate it"
            " in them one after the other"
        )
    goal = next(iter(goals), None)
    return {} if goal is None else {"goal": list(goal)}


def policy_entries(
    runs: Sequence[str | Path],
    options: EvaluateOptions,
    execution: Execution,
    suite: Suite,
    worlds: Mapping[str, str],
    aside: str = "",
) -> tuple[PolicyEntry, ...]:
    """The policies of ``runs`` (as :func:`evaluate` takes them), checked to load; ``aside``: see
    :func:`robolearn.operations.builders.executed_as`.
    """
    task = suite.config.task
    entries: list[PolicyEntry] = []
    for run, label in zip(runs, policy_labels(runs), strict=True):
        noise = expert_noise(str(run))
        if noise is not None:
            params = _expert_params(list(worlds.values()), task)
            expert = ExpertBuilder(task, noise, params)
            name = f"scripted-{noise:g}" if noise else "scripted"
            digest = config_hash("scripted", task, noise, *([params] if params else []))
            entries.append(PolicyEntry(name, digest, None, expert))
            continue
        if is_server(run):
            entries.append(served_policy(str(run), options, execution, aside))
            continue
        entries.append(trained_policy(Path(run), label, options, execution, aside))
    return tuple(entries)


def served_policy(
    url: str,
    options: EvaluateOptions = USUAL,
    execution: Execution = AS_TRAINED,
    aside: str = "",
) -> PolicyEntry:
    """A policy on a server, as it says it is called; :class:`InferenceError` for a server that is
    not there, or does not say which policy it serves.
    """
    if options.runtime != "torch" or options.guidance != "auto":
        raise ConfigError("runtime and guidance are the server's: tell it, and leave them out here")
    with contextlib.closing(_connected(url)) as remote:
        name, digest = remote.name, remote.policy_hash
    if not (name.strip() and digest.strip()):
        raise InferenceError(
            f"{url} says no name or hash of its policy; trials of two policies could not be told"
            " apart. Give the server both (PolicyServer(policy, config, name, hash))"
        )
    delay = options.delay_ticks
    called, executed = executed_as(
        name, digest, execution=execution, delay_ticks=delay, aside=aside
    )
    builder = ServerBuilder(url, digest)
    return PolicyEntry(called, executed, builder, execution=execution, delay_ticks=delay)


def _connected(url: str) -> RemoteInference:
    return RemoteInference(url, os.environ.get(SERVER_VARIABLE, ""))


def _is_trained(run: str | Path) -> bool:
    """Whether it is a run directory."""
    return expert_noise(str(run)) is None and not is_server(run)


def policy_task_space(run: str | Path) -> TaskSpace:
    """What the policy of a run directory, or of a server, reads and writes."""
    if is_server(run):
        with contextlib.closing(_connected(str(run))) as remote:
            return remote.spec.task_space
    from robolearn.training.run_directory import load_run

    return load_run(Path(run)).spec.task_space


def world_entries(
    runs: Sequence[str | Path], names: Mapping[str, str], suite: Suite
) -> tuple[WorldEntry, ...]:
    """Every world as it is, perturbed, and told in other words, checked to fit all policies."""
    entries: list[WorldEntry] = []
    dials = [expert_noise(str(run)) for run in runs]
    spaces = [policy_task_space(run) for run, dial in zip(runs, dials, strict=True) if dial is None]
    variants = suite.config.perturbations.variants()
    instruction = suite.config.instruction
    for space in spaces:
        require_understood(space, (instruction, *suite.config.instructions.values()))
    for asked, variant in itertools.product(names, variants):
        world, builder = asked + variant, env_builder(names[asked] + variant)
        env = make_world(builder.world)
        try:
            if env.task != suite.config.task:
                raise ConfigError(
                    f"suite '{suite.config.name}' has starts of the task '{suite.config.task}',"
                    f" but '{world}' has the task '{env.task}'; give the suite that belongs to it"
                )
            for space in spaces:
                require_compatible(space, env.spec)
            for noise in (dial for dial in dials if dial is not None):
                ExpertBuilder(suite.config.task, noise)(env.spec)
            name = world_label(asked) + variant
            entries.append(WorldEntry(name, env.scene_hash, env.engine, builder, instruction))
            if not variant:
                entries += [
                    WorldEntry(
                        name + suffix, config_hash(env.scene_hash, text), env.engine, builder, text
                    )
                    for suffix, text in suite.spoken()
                ]
        finally:
            env.close()
    return tuple(entries)


def rollout_options(options: EvaluateOptions, out: Path, suite: Suite, plan: str) -> Options:
    """How rollouts over a suite are run; ``plan``: its hash."""
    judge = None
    if options.judge is not None:
        # Imported here because it imports torch.
        from robolearn.operations.judge import load_judge

        judge = load_judge(options.judge)
    return dataclasses.replace(
        trial_options(suite),
        workers=options.workers,
        executor=options.executor,
        address=options.address,
        batch=options.batch,
        plan=plan,
        video=_videos(options, out),
        judge=judge,
    )


def _videos(options: EvaluateOptions, out: Path) -> VideoPlan | None:
    if not options.videos:
        return None
    folder = out / "videos"
    # Machines of a Ray cluster would keep what nobody reads.
    flown = folder / FLOWN if options.executor == "processes" else None
    return VideoPlan(folder, ClipWriter(), options.videos, flown=flown)


def _world_words(name: str) -> str:
    """What a world is: a sentence about it as it is, and how this one is changed."""
    base, changed, how = name.partition("~")
    words = described_worlds().get(WorldName.parse(base).base, "")
    how = how.replace("~", ", ")
    return f"{words.rstrip('.') or base}, changed: {how}" if changed else words


def _policy_words(run: str | Path) -> str:
    """What a policy is: the first line about its algorithm."""
    noise = expert_noise(str(run))
    if noise is not None:
        return "the scripted expert of the task" + (f" with noise {noise:g}" if noise else "")
    if is_server(run):
        return f"a policy on a server, {run}"
    from policies.registry import policy_config
    from robolearn.training.run_directory import load_run

    kind = policy_config(str(load_run(Path(run)).config["policy"]))
    return (inspect.getdoc(inspect.getmodule(kind)) or "").partition("\n")[0]


def _trained_on(run: str | Path, plan: Plan) -> tuple[str, dict[str, bool]]:
    """Hash of the starts that a policy was trained on, and which of the worlds it was trained in,
    as far as it says.
    """
    if not _is_trained(run):
        return "", {}
    from robolearn.training.run_directory import run_provenance
    from robolearn.training.trained_starts import starts_hash, worlds_seen

    provenance = run_provenance(Path(run))
    return starts_hash(provenance), worlds_seen(provenance, {w.name: w.hash for w in plan.worlds})


def _asked(
    runs: Sequence[str | Path],
    command: str,
    suite: Suite,
    first: Mapping[str, tuple[Condition, ...]],
    plan: Plan,
) -> Evaluation:
    """What is about to be evaluated, as ``evaluation.json`` says it."""
    options = plan.options
    judge = options.judge
    judgement = "" if judge is None else f"; {judge.counts.words(judge.hash)}"
    longest = max(first.values(), key=len)
    return Evaluation(
        suite=options.suite,
        protocol=suite.config.protocol + judgement,
        task=suite.config.task,
        max_steps=suite.config.max_steps,
        source_world=suite.config.source_world,
        starts={c.id: c.seed for c in longest},
        conditions={w.name: len(first[w.name]) for w in plan.worlds},
        worlds=tuple(
            WorldIdentity(w.name, w.hash, w.engine, _world_words(w.name)) for w in plan.worlds
        ),
        policies=tuple(
            PolicyIdentity(p.name, p.hash, str(run), _policy_words(run), *_trained_on(run, plan))
            for p, run in zip(plan.policies, runs, strict=True)
        ),
        placed=_placed(longest),
        batch=options.batch,
        code=options.code,
        libraries=options.libraries,
        commit=options.commit,
        versions=library_versions(),
        command=command,
        judge="" if judge is None else judge.hash,
        judge_counts=None if judge is None else judge.counts,
        seen=suite.seen,
        trained_on=suite.config.trained_on,
    )
