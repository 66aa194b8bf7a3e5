"""What a report is made of: files of a results folder, each optional.

<folder>/import/store/            episodes people recorded          -> "data"
         collect/store/           episodes of the collect command   -> "data"
         identify/identify.json   robolearn identify --json         -> "physics"
         identify/replay_*.json   robolearn replay --json           -> "physics"
         train/*/metrics.jsonl    run directories                   -> "training"
         evaluate/summary.json    robolearn evaluate                -> "results", "agreement"
         deploy/                  store/, trials.sqlite, deploy.json -> "deployment"
         demo.json                stages and their times            -> "provenance"
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from eval.trials.export import to_json
from eval.trials.table import SCORED, has_trials, read_trials
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, RobolearnError
from robolearn.pusht import BLOCK, TOOL, coverage
from robolearn.types import TrialRecord

log = logging.getLogger(__name__)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """An episode store in figures. ``paths``: tool positions [m] ``[k, 2]`` per episode."""

    name: str
    kinds: Mapping[str, int]
    steps: int
    lengths_s: tuple[float, ...]
    final_coverage: tuple[float, ...]
    successes: int
    paths: tuple[NDArray[np.float64], ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A training run: its name, provenance, configuration text and log lines."""

    name: str
    metrics: tuple[Json, ...]
    provenance: Json
    config: str
    settings: Json = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """A filmed episode of an evaluation and why it was chosen."""

    path: Path
    policy: str
    world: str
    condition: str
    success: bool
    reason: str
    score: float
    duration_s: float
    why: str


@dataclass(frozen=True, slots=True)
class DeployFacts:
    """Deployed trials (one mapping per trial), times of their ticks, interventions by cause."""

    trials: tuple[Json, ...]
    figures: Json
    inference_ms: tuple[float, ...]
    late_ms: tuple[float, ...]
    interval_ms: tuple[float, ...]
    setpoint_ms: tuple[float, ...]
    period_ms: float
    interventions: Mapping[str, int]
    videos: tuple[Path, ...]

    @property
    def virtual(self) -> bool:
        """Whether the robot was emulated."""
        return any(t["kind"] == "lab" for t in self.trials)


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report may show; what is absent leaves its section out."""

    stores: tuple[StoreFacts, ...] = ()
    identify: Json | None = None
    replays: Mapping[str, Json] = field(default_factory=dict[str, Json])
    runs: tuple[RunFacts, ...] = ()
    evaluation: Json | None = None
    clips: tuple[ClipFacts, ...] = ()
    # The trials behind ``evaluation``, and which policies are training runs of one method.
    trials: tuple[TrialRecord, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    deploy: DeployFacts | None = None
    stages: Json = field(default_factory=dict[str, Any])
    folder: str = ""

    @property
    def planar(self) -> bool:
        """Whether this is about Push-T, whose words the page then uses."""
        return (self.evaluation or {}).get("task", "pusht") == "pusht"


def load_report_data(
    folder: Path, groups: Mapping[str, tuple[str, ...]] | None = None
) -> ReportData:
    """Read what is there; a file that is there but does not read is an error that names it.

    ``groups``: method -> the policies that are its training runs.
    """
    if not folder.is_dir():
        raise ConfigError(f"no folder '{folder}'; run 'robolearn demo' or 'robolearn evaluate'")
    evaluation_folder = folder / "evaluate" if (folder / "evaluate").is_dir() else folder
    evaluation = _json(evaluation_folder / "summary.json")
    replays: dict[str, Json] = {}
    for file in sorted((folder / "identify").glob("replay_*.json")):
        document = _json(file)
        if document is not None:
            replays[file.stem.removeprefix("replay_")] = document
    data = ReportData(
        stores=tuple(
            facts
            for name in ("import", "collect")
            if (folder / name / "store").is_dir()
            for facts in [store_facts(folder / name / "store", name)]
        ),
        identify=_json(folder / "identify" / "identify.json"),
        replays=replays,
        runs=_runs(folder, evaluation),
        evaluation=evaluation,
        clips=_clips(evaluation_folder, evaluation),
        trials=_trials(evaluation_folder, evaluation),
        groups=dict(groups or {}),
        deploy=_deploy(folder / "deploy"),
        stages=(_json(folder / "demo.json") or {}).get("stages", {}),
        folder=folder.name,
    )
    if not (data.stores or data.runs or data.evaluation or data.deploy or data.replays):
        raise ConfigError(
            f"'{folder}' has nothing to report; expected import/, identify/, train/, evaluate/,"
            f" deploy/ or summary.json, it has {sorted(p.name for p in folder.iterdir())[:10]}"
        )
    return data


def store_facts(path: Path, name: str, max_paths: int = 300) -> StoreFacts:
    """Read every episode of a store once."""
    store = EpisodeStore.open(path)
    infos = store.list()
    final: list[float] = []
    paths: list[NDArray[np.float64]] = []
    sources: dict[str, None] = {}
    kinds: dict[str, int] = {}
    for info in infos:
        kinds[info.kind] = kinds.get(info.kind, 0) + 1
        episode = store.read(info.id)
        sources.setdefault(str(episode.meta.provenance.get("source", "")), None)
        if BLOCK in info.signals and info.steps:
            # The last observation is a tick older than the verdict on the last command.
            seen = coverage(episode.observed(BLOCK)[-1])
            final.append(float(episode.meta.outcome.metrics.get("coverage", seen)))
        if TOOL in info.signals and len(paths) < max_paths:
            paths.append(np.asarray(episode.observed(TOOL)[:, :2], dtype=np.float64))
    return StoreFacts(
        name=name,
        kinds=kinds,
        steps=sum(i.steps for i in infos),
        lengths_s=tuple(i.duration_s for i in infos),
        final_coverage=tuple(final),
        successes=sum(i.success for i in infos),
        paths=tuple(paths),
        sources=tuple(s for s in sources if s),
    )


def _runs(folder: Path, evaluation: Json | None) -> tuple[RunFacts, ...]:
    """Those of the folder, else those that the evaluation names and that are (still) there."""
    here = sorted((folder / "train").glob("*/metrics.jsonl"))
    named = [Path(str(p.get("run", ""))) for p in (evaluation or {}).get("policies", ())]
    there = [run / "metrics.jsonl" for run in named if (run / "metrics.jsonl").is_file()]
    return tuple(run_facts(p.parent) for p in here or there)


def _trials(folder: Path, evaluation: Json | None) -> tuple[TrialRecord, ...]:
    """The trials that the summary was made of; those of other suites or code are not its."""
    if evaluation is None or not has_trials(folder):
        return ()
    # Older releases wrote the judge behind the suite.
    suite, _, judge = str(evaluation.get("suite")).partition("+judge=")
    judge, code = evaluation.get("judge", judge), evaluation.get("code")
    batch = evaluation.get("batch")
    worlds = {(w["name"], w["hash"]) for w in evaluation.get("worlds", ())}
    policies = {p["hash"] for p in evaluation.get("policies", ())}
    return tuple(
        r
        for r in read_trials(folder)
        if (r.suite, r.judge, r.code, r.batch) == (suite, judge, code, batch)
        and (r.env, r.env_hash) in worlds
        and r.policy_hash in policies
    )


def run_facts(folder: Path) -> RunFacts:
    """A run directory's log, provenance and configuration."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics: list[Json] = []
    for number, line in enumerate(lines, 1):
        try:
            metrics.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise DataError(f"'{folder}/metrics.jsonl', line {number}: {error}") from error
            log.warning("'%s/metrics.jsonl' ends in half a line; it is left out", folder)
    config = folder / "config.yaml"
    written = config.read_text(encoding="utf-8") if config.is_file() else ""
    settings: Any = yaml.safe_load(written)
    return RunFacts(
        name=folder.name,
        metrics=tuple(metrics),
        provenance=_json(folder / "provenance.json") or {},
        config=written,
        settings=cast("Json", settings) if isinstance(settings, dict) else {},
    )


def _clips(folder: Path, evaluation: Json | None) -> tuple[ClipFacts, ...]:
    """Those that are (still) there."""
    found: list[ClipFacts] = []
    for number, row in enumerate((evaluation or {}).get("results", ()), 1):
        lacking = sorted({"policy", "world", "score", "success"} - set(row))
        if lacking:
            raise DataError(
                f"'{folder}/summary.json', result {number} lacks {lacking}; run"
                " 'robolearn evaluate' again"
            )
        for clip in row.get("clips", ()):
            values = {k: v for k, v in clip.items() if k not in ("file", "seed")}
            path = folder / str(clip["file"])
            if path.is_file():
                found.append(
                    ClipFacts(path=path, policy=row["policy"], world=row["world"], **values)
                )
    return tuple(found)


def _deploy(folder: Path) -> DeployFacts | None:
    if not folder.is_dir():
        return None
    records = read_trials(folder) if has_trials(folder) else ()
    trials = to_json(r for r in records if r.status in SCORED)
    figures = _json(folder / "deploy.json") or {}
    inference: list[float] = []
    late: list[float] = []
    interval: list[float] = []
    period_ms = 0.0
    if (folder / "store").is_dir():
        try:
            store = EpisodeStore.open(folder / "store")
            for info in store.list():
                episode = store.read(info.id)
                period_ms = 1e3 / info.rate_hz
                inference += [float(v) * 1e-6 for v in episode.inference_ns if v > 0]
                late += [float(v) * 1e-6 for v in episode.overrun_ns]
                interval += [float(v) * 1e-6 for v in np.diff(episode.tick_t_ns)]
        except RobolearnError as error:
            log.warning("deployed episodes are left out: %s", error)
    if not (trials or figures or inference):
        return None
    return DeployFacts(
        trials=tuple(trials),
        figures=figures,
        inference_ms=tuple(inference),
        late_ms=tuple(late),
        interval_ms=tuple(interval),
        setpoint_ms=tuple(
            float(v) for d in figures.get("trials", ()) for v in d.get("setpoint_lateness_ms", ())
        ),
        period_ms=period_ms,
        interventions=Counter(
            str(event["cause"])
            for d in figures.get("trials", ())
            for event in d.get("interventions", ())
        ),
        videos=tuple(sorted(folder.glob("**/*.mp4"))),
    )


def _json(path: Path) -> Json | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"'{path}' is not valid JSON: {error}; run its stage again") from error
    if not isinstance(value, dict):
        raise DataError(f"'{path}' must hold a JSON object, got {type(value).__name__}")
    return cast("Json", value)
