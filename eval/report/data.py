"""Builds what a report is made of, once and typed, from a results folder; each part is optional.

<folder>/import/store/            episodes people recorded          -> recordings
         collect/store/           episodes of the collect command   -> recordings
         identify/identify.json   robolearn identify --json         -> physics
         identify/replay_*.json   robolearn replay --json           -> physics
         train/*/metrics.jsonl    run directories                   -> training
         evaluate/trials.sqlite   robolearn evaluate                -> every figure about policies
         evaluate/evaluation.json what it was asked to do           -> which trials, and their words
         deploy/                  store/, trials.sqlite, deploy.json -> deployment
         demo.json                stages and their times            -> provenance

``summary.json`` is written from this and never read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eval.blinded.unblinded import require_open
from eval.breakdown import Failure, VariantEffect, failures, variant_effects
from eval.compare import Comparison, compare_policies
from eval.evaluation import Evaluation, read_evaluation
from eval.filming import choose
from eval.generalisation import Generalisation, generalisation
from eval.plain import read_mapping
from eval.preregistration import Preregistration, declared, kept_plans
from eval.report.deployment import DeployFacts, deploy_facts
from eval.report.physics import Identification, Replay, identification, replay
from eval.report.recordings import StoreFacts, store_facts
from eval.report.tasks.base import TaskPage
from eval.report.tasks.table import task_page
from eval.report.training import RunFacts, run_facts
from eval.rule import Rule, ScoreInterval
from eval.standing import standings
from eval.statistics.intervals import Estimate
from eval.summary import (
    Agreement,
    AgreementKind,
    Result,
    again_words,
    agree,
    first_of_each_start,
    starts,
    summarize,
)
from eval.trials.rows import FILE_NAME as TRIALS_FILE
from eval.trials.table import read_trials
from robolearn.errors import ConfigError, DataError
from robolearn.training.log import JOURNAL
from robolearn.types import TrialRecord

SUMMARY_FILE = "summary.json"
Groups = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Clip:
    """A filmed episode of an evaluation and why it was chosen. ``file``: in the results folder."""

    file: str
    policy: str
    world: str
    condition: str
    seed: int
    success: bool
    reason: str
    score: float
    duration_s: float
    why: str


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """What a classifier's verdicts say about the true success of a policy in a world."""

    policy: str
    world: str
    successes: int
    n: int
    success: Estimate


@dataclass(frozen=True, slots=True)
class EvaluationData:
    """One evaluation: what was asked, and what its trials say.

    ``missing``: trials that were asked for and are not there (yet).
    """

    asked: Evaluation
    folder: Path
    results: tuple[Result, ...]
    judged: tuple[JudgedResult, ...]
    comparison: Comparison | None
    agreement: tuple[Agreement, ...]
    # Of which worlds, or of which trials beside these, that cannot be said, and why.
    not_agreed: tuple[str, ...]
    variants: tuple[VariantEffect, ...]
    failures: tuple[Failure, ...]
    clips: tuple[Clip, ...]
    missing: int
    # Trials of these policies and worlds that do not count, and why.
    apart: tuple[str, ...]
    # What is lost on starts that were not trained on, and of whom that cannot be said.
    generalisation: tuple[Generalisation, ...]
    not_generalised: tuple[str, ...]
    # The plans that its trials name, by hash; of one that cannot be believed, why not.
    plans: Mapping[str, Preregistration | str]

    def in_world(self, world: str) -> tuple[Result, ...]:
        """The results in one world, in the order of the policies."""
        return tuple(r for r in self.results if r.world == world)

    @property
    def first_world(self) -> str:
        """The world whose figures stand at the top of the page."""
        return self.results[0].world


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the demonstration."""

    name: str
    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report may show; what is absent leaves its section out."""

    folder: str
    stores: tuple[StoreFacts, ...] = ()
    identification: Identification | None = None
    replays: tuple[Replay, ...] = ()
    runs: tuple[RunFacts, ...] = ()
    evaluation: EvaluationData | None = None
    deploy: DeployFacts | None = None
    stages: tuple[Stage, ...] = ()
    task: str = ""

    @property
    def words(self) -> TaskPage:
        """What there is to say about the task."""
        return task_page(self.task)


def load_report_data(
    folder: Path, groups: Groups | None = None, interval: ScoreInterval = "bounded_mean"
) -> ReportData:
    """Read what is there; a file that is there but does not read is an error that names it.

    ``groups``: method -> the policies that are its training runs; ``interval``: of mean scores.
    """
    if not folder.is_dir():
        raise ConfigError(f"no folder '{folder}'; run 'robolearn demo' or 'robolearn evaluate'")
    stores = tuple(
        store_facts(folder / name / "store", name)
        for name in ("import", "collect")
        if (folder / name / "store").is_dir()
    )
    evaluation = _evaluation(folder, groups or {}, interval)
    identify = folder / "identify"
    data = ReportData(
        folder=folder.name,
        stores=stores,
        identification=identification(identify / "identify.json"),
        replays=tuple(replay(path) for path in sorted(identify.glob("replay_*.json"))),
        runs=_runs(folder, evaluation),
        evaluation=evaluation,
        deploy=deploy_facts(folder / "deploy"),
        stages=_stages(folder / "demo.json"),
        task=_task(stores, evaluation),
    )
    if not (data.stores or data.runs or evaluation or data.deploy or data.replays
            or data.identification):  # fmt: skip
        raise ConfigError(
            f"'{folder}' has nothing to report; expected import/, identify/, train/, evaluate/,"
            f" deploy/ or {TRIALS_FILE}, it has {sorted(p.name for p in folder.iterdir())[:10]}"
        )
    return data


def load_evaluation(
    folder: Path, groups: Groups | None = None, interval: ScoreInterval = "bounded_mean"
) -> EvaluationData:
    """The evaluation in a results folder, from its trials.

    Raises :class:`DataError` when there are none, whatever else the folder holds, when they are
    blinded, and when unblinded ones are not those that were tried.
    """
    if not (folder / TRIALS_FILE).is_file():
        held = ""
        if (folder / SUMMARY_FILE).is_file():
            held = f" Its {SUMMARY_FILE} was written from trials and is never read."
        raise DataError(
            f"'{folder}' has no {TRIALS_FILE}.{held} Copy the trials there, or run 'robolearn"
            " evaluate' again"
        )
    records = read_trials(folder)
    require_open(folder, records)
    asked = read_evaluation(folder, records)
    return evaluation_data(asked, records, folder, groups, interval=interval)


def evaluation_data(
    asked: Evaluation,
    records: Sequence[TrialRecord],
    folder: Path,
    groups: Groups | None = None,
    rule: Rule | None = None,
    interval: ScoreInterval = "bounded_mean",
) -> EvaluationData:
    """What ``records`` say about ``asked``; other trials among them are left out.

    ``groups``, ``rule``: as the plan says under which the trials were run, if there is one;
    ``interval``: that of mean scores.
    """
    mine = asked.own(records)
    ranks = {name: i for i, name in enumerate(asked.starts)}
    cells: dict[tuple[str, str], list[TrialRecord]] = {
        (w.name, p.name): [] for w in asked.worlds for p in asked.policies
    }
    for r in asked.under_starts(mine):
        cells[r.env, r.policy].append(r)
    for trials in cells.values():
        trials.sort(key=lambda r: ranks[r.condition])
    every = sum(map(len, cells.values()))
    cells = {key: first_of_each_start(trials) for key, trials in cells.items() if trials}
    again = every - sum(map(len, cells.values()))
    if not cells:
        raise DataError(
            f"'{folder}' asks for {asked.missing(())} trials of suite {asked.suite} and its table"
            " has none of them; run 'robolearn evaluate' again"
        )
    main = [r for trials in cells.values() for r in trials]
    policies = {policy for _, policy in cells}
    plans, (gaps, without) = _plans(folder, main), generalisation(asked, cells)
    agreement, not_agreed = _agreements(asked, cells, mine)
    rule = rule or declared(
        plans, frozenset(r.plan for r in main), max(map(starts, cells.values()))
    )
    return EvaluationData(
        asked=asked,
        folder=folder,
        results=tuple(summarize(trials, interval) for trials in cells.values()),
        judged=_judged(asked, cells),
        comparison=_compared(
            main, records, plans, rule, groups or _groups(plans, policies), interval
        )
        if len(policies) > 1
        else None,
        agreement=agreement,
        not_agreed=not_agreed,
        variants=variant_effects(main, rule.alpha),
        failures=failures(main),
        clips=_clips(folder, cells),
        missing=0 if asked.inferred else asked.missing(mine),
        apart=(
            *asked.pool.kept_apart(records),
            *asked.other_seeds(mine),
            *([again_words(again)] if again else []),
        ),
        generalisation=gaps,
        not_generalised=without,
        plans=plans,
    )


def _plans(folder: Path, records: Sequence[TrialRecord]) -> dict[str, Preregistration | str]:
    named = {r.plan for r in records}
    return {k: plan for k, plan in kept_plans([folder]).items() if k in named}


def _groups(plans: Mapping[str, Preregistration | str], policies: set[str]) -> Groups:
    """The groups of the one plan, as far as their runs are here."""
    found = list(plans.values())
    if len(found) != 1 or isinstance(found[0], str):
        return {}
    return {name: runs for name, runs in found[0].groups.items() if policies >= set(runs)}


def _compared(
    counted: Sequence[TrialRecord],
    every: Sequence[TrialRecord],
    plans: Mapping[str, Preregistration | str],
    rule: Rule,
    groups: Groups,
    interval: ScoreInterval,
) -> Comparison:
    kept, odd = _with_shared_starts(counted)
    here = {r.policy for r in kept}
    groups = {name: runs for name, runs in groups.items() if here.issuperset(runs)}
    found = compare_policies(kept, rule, groups=groups, common=True, least=1, interval=interval)
    worlds = tuple(replace(w, notes=(*w.notes, *odd.get(w.world, ()))) for w in found.worlds)
    return replace(found, worlds=worlds, standings=standings(found, kept, every, plans))


def _with_shared_starts(
    records: Sequence[TrialRecord],
) -> tuple[list[TrialRecord], Mapping[str, Sequence[str]]]:
    """The trials of policies that share a start in each world, and in words by world whose trials
    share none: one that was tried under other starts takes no comparison from the others.
    """
    cells: dict[str, dict[str, set[tuple[str, int]]]] = {}
    for r in records:
        cells.setdefault(r.env, {}).setdefault(r.policy, set()).add((r.condition, r.seed))
    odd: dict[str, list[str]] = {}
    for world, policies in cells.items():
        if set.intersection(*policies.values()):
            continue
        had = Counter(start for starts in policies.values() for start in starts)
        start = max(had, key=lambda s: had[s])
        names = [p for p, starts in policies.items() if start in starts]
        left_out = [p for p in policies if p not in names]
        odd[world] = [
            f"'{p}' is not compared here: no start was tried with it and all of {', '.join(names)}"
            for p in left_out
        ]
        for p in left_out:
            del policies[p]
    return [r for r in records if r.policy in cells[r.env]], odd


_Cells = Mapping[tuple[str, str], Sequence[TrialRecord]]


def _judged(asked: Evaluation, cells: _Cells) -> tuple[JudgedResult, ...]:
    counts = asked.judge_counts
    if counts is None:
        return ()
    found: list[JudgedResult] = []
    for (world, policy), trials in cells.items():
        yes, n = sum(r.success for r in trials), len(trials)
        found.append(JudgedResult(policy, world, yes, n, counts.corrected(yes, n)))
    return tuple(found)


def _agreements(
    asked: Evaluation, cells: _Cells, records: Sequence[TrialRecord]
) -> tuple[tuple[Agreement, ...], tuple[str, ...]]:
    """How far the source world agrees with itself and with the other worlds, per policy; and in
    words where no start was tried on both sides.
    """
    source = asked.source_world
    if not asked.placed:
        return (), ()
    found: list[Agreement] = []
    without: list[str] = []
    for policy in dict.fromkeys(p for w, p in cells if w == source):
        own = cells[source, policy]
        mine = [r for r in records if (r.env, r.policy) == (source, policy)]
        # A perturbed world is not meant to agree.
        others = [t for (w, p), t in cells.items() if p == policy and w != source and "~" not in w]
        compared: list[tuple[AgreementKind, Sequence[TrialRecord]]] = [
            ("moved", [r for r in mine if r.variant == "moved"]),
            *(("world", trials) for trials in others),
            ("noise", [r for r in mine if r.variant == "noise"]),
        ]
        starts = {r.condition for r in own}
        for kind, trials in (c for c in compared if c[1]):
            alone = [r for r in trials if r.condition not in starts]
            if len(alone) < len(trials):
                found.append(agree(own, trials, kind))
            if alone and (kind != "world" or len(alone) == len(trials)):
                without.append(_unpaired(policy, source, kind, alone, len(trials)))
    return tuple(found), tuple(without)


def _unpaired(
    policy: str, source: str, kind: AgreementKind, alone: Sequence[TrialRecord], of: int
) -> str:
    if kind == "world":
        return (
            f"how far {alone[0].env} agrees with {source} about '{policy}' cannot be said: no start"
            " was tried in both"
        )
    what = "with a moved start" if kind == "moved" else "with other noise"
    return (
        f"{len(alone)} of {of} trials of '{policy}' {what} agree with nothing: {source} has no"
        f" trial of the start itself, for example {alone[0].condition}"
    )


def _clips(folder: Path, cells: _Cells) -> tuple[Clip, ...]:
    """Those that were filmed and are (still) there, in the order in which they were chosen."""
    return tuple(
        Clip(
            file=f"videos/{c.trial.video}",
            policy=c.trial.policy,
            world=c.trial.env,
            condition=c.trial.condition,
            seed=c.trial.seed,
            success=c.trial.success,
            reason=c.trial.reason,
            score=c.trial.score,
            duration_s=c.trial.duration_s,
            why=c.why,
        )
        for trials in cells.values()
        for c in choose(trials, len(trials))
        if c.trial.video and (folder / "videos" / c.trial.video).is_file()
    )


def _evaluation(folder: Path, groups: Groups, interval: ScoreInterval) -> EvaluationData | None:
    """That of ``evaluate/`` or of the folder itself, if there was one."""
    place = folder / "evaluate" if (folder / "evaluate").is_dir() else folder
    if not any((place / name).is_file() for name in (TRIALS_FILE, SUMMARY_FILE)):
        return None
    return load_evaluation(place, groups, interval)


def _runs(folder: Path, evaluation: EvaluationData | None) -> tuple[RunFacts, ...]:
    """Those of the folder, else those that the evaluation names and that are (still) there."""
    here = [
        path.parent
        for stage in ("train", "practise")
        for path in sorted((folder / stage).glob(f"*/{JOURNAL}"))
    ]
    named = [Path(p.run) for p in evaluation.asked.policies if p.run] if evaluation else []
    runs = [run for run in named if (run / JOURNAL).is_file()]
    return tuple(run_facts(run) for run in here or runs)


def _task(stores: Sequence[StoreFacts], evaluation: EvaluationData | None) -> str:
    if evaluation is not None:
        return evaluation.asked.task
    return next((s.task for s in stores if s.task), "")


def _stages(path: Path) -> tuple[Stage, ...]:
    if not path.is_file():
        return ()
    stages: Mapping[str, Mapping[str, object]] = read_mapping(path).get("stages", {})
    return tuple(
        Stage(name, str(s.get("status", "–")), float(str(s.get("seconds", 0.0))))
        for name, s in stages.items()
    )
