"""Says what one evaluation was asked to do: ``evaluation.json``, written before the first trial.

It holds no result. Results are read from the trials beside it, so that they cannot disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.plain import plain_values, read_mapping, write_mapping
from eval.summary import own_trials
from eval.trials.identity import Made, Pool, apart_words, newest
from eval.trials.judge import JudgeCounts
from eval.trials.table import SCORED
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord

FILE_NAME = "evaluation.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class WorldIdentity:
    """A world by its name in the trials; ``hash`` covers its model and parameters."""

    name: str
    hash: str
    engine: str
    # What it is, for readers.
    words: str = ""


@dataclass(frozen=True, slots=True)
class PolicyIdentity:
    """A policy by its name in the trials. ``run``: the run directory as it was given."""

    name: str
    hash: str
    run: str = ""
    # What it is, for readers.
    words: str = ""
    # Hash of the starts that it was trained on; empty: not known.
    trained_on: str = ""
    # World -> whether it was trained in it; empty: not known.
    worlds_seen: dict[str, bool] = field(default_factory=dict[str, bool])


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Which trials belong together, and what they mean."""

    # As the trials name it: name@hash.
    suite: str
    # The rule by which the result is scored, in words.
    protocol: str
    task: str
    # Control ticks after which an episode was cut; 0: not known.
    max_steps: int
    # The world that the task's data come from.
    source_world: str
    # Condition -> its seed, in the suite's order; a world has the first of them.
    starts: dict[str, int]
    # World -> how many of the starts it was given.
    conditions: dict[str, int]
    worlds: tuple[WorldIdentity, ...]
    policies: tuple[PolicyIdentity, ...]
    # Whether the starts are poses, which other worlds can have, too; else only seeds name them.
    placed: bool
    # Environments per forward pass.
    batch: int
    # Hash of the sources that decide a trial.
    code: str
    # Versions of the libraries that decide a trial.
    libraries: str = ""
    commit: str = ""
    versions: dict[str, str] = field(default_factory=dict[str, str])
    command: str = ""
    # Hash of the classifier that decided on success, and how it errs; empty: the world did.
    judge: str = ""
    judge_counts: JudgeCounts | None = None
    # Condition -> whether the policies that were trained on one of ``trained_on`` have seen it.
    seen: dict[str, bool] = field(default_factory=dict[str, bool])
    trained_on: tuple[str, ...] = ()
    # Read off the trials themselves, because nothing was written down (an earlier release).
    inferred: bool = False

    def own(self, records: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
        """The simulated trials that count, of these policies in these worlds, by this code, under
        this suite's starts as they are, moved or repeated.
        """
        pool = self.pool
        return tuple(r for r in records if r.status in SCORED and pool.holds(r))

    @property
    def pool(self) -> Pool:
        """What a trial of this evaluation is."""
        return Pool(
            Made("sim", self.suite, self.judge, self.code, self.libraries, self.batch),
            {w.name: (w.hash, w.engine) for w in self.worlds},
            {p.name: p.hash for p in self.policies},
        )

    def under_starts(self, records: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
        """Those of ``records`` under the starts asked for, as the suite lists them."""
        if self.inferred:
            return tuple(r for r in records if not r.variant)
        asked = {
            (world, name, seed)
            for world, count in self.conditions.items()
            for name, seed in list(self.starts.items())[:count]
        }
        return tuple(r for r in records if not r.variant and (r.env, r.condition, r.seed) in asked)

    def other_seeds(self, records: Sequence[TrialRecord]) -> tuple[str, ...]:
        """Whose trials among ``records`` have starts of the suite with seeds that it does not say,
        and therefore count nowhere, in words.
        """
        if self.inferred:
            return ()
        odd = Counter(
            (r.policy, r.env)
            for r in records
            if not r.variant and self.starts.get(r.condition, r.seed) != r.seed
        )
        return tuple(
            apart_words(n, f"of '{policy}' in '{world}'") + ": other seeds than the suite says"
            for (policy, world), n in sorted(odd.items())
        )

    def missing(self, records: Sequence[TrialRecord]) -> int:
        """How many of the trials asked for are not among ``records``."""
        wanted = sum(self.conditions.values()) * len(self.policies)
        return wanted - len(self.under_starts(records))

    def run_of(self, policy: str) -> str:
        """The run directory of a policy, as it was given."""
        return next((p.run for p in self.policies if p.name == policy), "")


def write_evaluation(folder: Path, evaluation: Evaluation) -> None:
    """Write ``evaluation.json``, whole or not at all."""
    head = {"format": "robolearn evaluation", "version": VERSION}
    write_mapping(folder / FILE_NAME, head | plain_values(evaluation))


def read_evaluation(folder: Path, records: Sequence[TrialRecord]) -> Evaluation:
    """What the evaluation in ``folder`` was asked, read off ``records`` if it is not written down.

    Raises :class:`DataError` for a file of another format or with wrong or missing values.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return inferred(records)
    document = dict(read_mapping(path))
    version = (document.pop("format", None), document.pop("version", None))
    if version != ("robolearn evaluation", VERSION):
        raise DataError(
            f"'{path}' says {version}; this release reads version {VERSION} of 'robolearn"
            " evaluation'. Use the release that wrote it, or evaluate again"
        )
    return _decoded(document, path)


def _decoded(document: Mapping[str, Any], path: Path) -> Evaluation:
    try:
        return from_dict(Evaluation, document, str(path))
    except ConfigError as error:
        raise DataError(f"{error}; run 'robolearn evaluate' again") from error


def inferred(records: Sequence[TrialRecord]) -> Evaluation:
    """The evaluation of the newest simulated trial, with all trials that may stand beside it.

    Earlier releases wrote no ``evaluation.json``. Which trials belong together follows from the
    trials; protocol, command and the errors of a judge do not.
    """
    simulated = [r for r in records if r.kind == "sim"]
    if not simulated:
        raise DataError("no simulated trials; run 'robolearn evaluate' first")
    last = simulated[-1]
    pool = newest(simulated)
    same = [r for r in simulated if pool.holds(r)]
    mine, _ = own_trials(same)
    counts: dict[str, set[str]] = {}
    for r in mine:
        counts.setdefault(r.env, set()).add(r.condition)
    worlds = {r.env: WorldIdentity(r.env, r.env_hash, r.engine) for r in same}
    return Evaluation(
        suite=last.suite,
        protocol="",
        task=last.suite.partition("@")[0],
        max_steps=0,
        source_world=same[0].env,
        starts={r.condition: r.seed for r in mine},
        conditions={world: len(names) for world, names in counts.items()},
        worlds=tuple(worlds.values()),
        policies=tuple({r.policy: PolicyIdentity(r.policy, r.policy_hash) for r in same}.values()),
        placed=any(r.variant == "moved" for r in same),
        batch=last.batch,
        code=last.code,
        libraries=last.libraries,
        commit=last.commit,
        judge=last.judge,
        inferred=True,
    )
