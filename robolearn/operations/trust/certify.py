"""Certifies a policy: reads off trials what was shown of it, and binds that to what was tried."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.plain import write_text
from eval.report.certificate_page import certificate_page
from eval.summary import own_trials
from eval.trials.suites import Suite
from eval.trials.table import has_trials, is_written
from eval.trust.certificate import (
    Certificate,
    CertifiedPolicy,
    CertifiedScene,
    CertifiedTrust,
    CertifiedWorld,
    Counted,
    Issued,
    Limits,
    Rule,
    StartRange,
    digest_of,
    lacking,
    write_certificate,
)
from eval.trust.report import TaskTrust, TrustReport
from eval.trust.signature import key_notes, sign
from robolearn.config import to_dict
from robolearn.data.names import shown
from robolearn.data.provenance import git_revision
from robolearn.errors import ConfigError, DataError
from robolearn.operations.builders import run_hash_of
from robolearn.operations.code_hash import code_hash, deciding_libraries
from robolearn.operations.compare import pooled
from robolearn.operations.goals import world_for
from robolearn.operations.suites import open_suite, world_label
from robolearn.operations.trust.certified_scene import beside, drift_of, known_scene
from robolearn.operations.trust.driving_hash import driving_hash
from robolearn.operations.trust.trials import trust_of_trials
from robolearn.operations.trust.worlds import of_world
from robolearn.training.run_directory import checked_hash, deciding_digests
from robolearn.types import TrialRecord

USUAL = Rule()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyOptions:
    """Which policy, and the trials that speak for it."""

    # Run directory of the policy.
    run: Path
    # Results folders of simulated trials of this policy and of others (robolearn evaluate).
    evaluation: tuple[Path, ...]
    # Results folders of real trials of several of them.
    real: tuple[Path, ...]
    # Its name in the trials, where it was executed in several ways; "": the only one.
    policy: str = ""
    # The simulated world's name, or its folder; "": the only one in the trials.
    scene: str = ""
    # The world that stands for reality, where there are several.
    real_world: str = ""
    # The suite; None: configs/eval/NAME.yaml of the trials' suite.
    suite: Path | None = None
    # What is enough.
    rule: Rule = USUAL
    # Private key (Ed25519, PEM); None: not signed.
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate, where it was written, and its page."""

    issued: Issued
    path: Path
    page: Path
    # What to know of its key, in words.
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tried:
    """The trials that count, and what they were made of."""

    simulated: tuple[TrialRecord, ...]
    real: tuple[TrialRecord, ...]
    suite: Suite
    # The scene's name or folder, with the goal that the policy learned.
    where: str


def certify(options: CertifyOptions, out: Path, now: dt.datetime | None = None) -> Certified:
    """Write the certificate ``out``, and its page beside it (``.html``).

    It is written also where it is not enough by its rule, and says so then. ``now``: aware of its
    zone.

    Errors: :class:`CheckpointError` for an edited run, :class:`DataError` for trials that say
    nothing of this policy, of the scene and suite as they are, or of this code; nothing written.
    """
    begun = now or dt.datetime.now(dt.UTC)
    run_hash = checked_hash(options.run)
    tried = _tried(options, run_hash)
    report, task = _trust_report(options, tried)
    own, real = tried.simulated[0], _counted_real(tried)
    names = {r.condition for r in tried.simulated}
    limits = Limits(tuple(sorted(names)), _ranges(tried.suite, names), *drift_of(tried.where))
    certificate = Certificate(
        issued=begun.isoformat(timespec="seconds"),
        expires=(begun + dt.timedelta(days=options.rule.valid_days)).isoformat(timespec="seconds"),
        policy=CertifiedPolicy(
            own.policy, own.policy_hash, run_hash, deciding_digests(options.run)
        ),
        scene=CertifiedScene(_world(own), beside(tried.where, out)),
        suite=tried.suite.label,
        code=code_hash(),
        driving=driving_hash(),
        libraries=deciding_libraries(),
        commit=git_revision(),
        simulated=_counted(tried.simulated),
        real=real,
        trust=_trust(task, tried),
        limits=limits,
        rule=options.rule,
        simulated_rows=_rows_digest(tried.simulated),
        real_rows=_rows_digest(tried.real),
        remarks=_remarks(report.notes_of(task.task), limits, options.rule, begun, tried.real),
        passes=True,
        lacking=(),
    )
    missing = lacking(certificate)
    certificate = dataclasses.replace(certificate, passes=not missing, lacking=missing)
    digest = digest_of(to_dict(certificate))
    signature = None if options.key is None else sign(digest, options.key)
    issued, page = Issued(certificate, digest, signature), out.with_suffix(".html")
    write_certificate(out, issued)
    write_text(page, certificate_page(issued))
    return Certified(issued, out, page, () if options.key is None else key_notes(options.key))


def _remarks(
    of_trust: Sequence[str],
    limits: Limits,
    rule: Rule,
    now: dt.datetime,
    real: Sequence[TrialRecord],
) -> tuple[str, ...]:
    """What to know of the trials, also of the other policies', that decides nothing."""
    found = (*of_trust, *_old_look(limits, rule, now), *_other_commits(real))
    # Folders may be called anything, and a certificate that steers a terminal is none.
    return tuple(" ".join(shown(words).split()) for words in found)


def _other_commits(real: Sequence[TrialRecord]) -> tuple[str, ...]:
    """Says where real trials were run by another version than the one that is bound."""
    now = git_revision()
    others = sorted({r.commit or "not known" for r in real if r.kind != "sim"} - {now})
    if not others:
        return ()
    said = (
        "the code that drives the arm is bound as it is here"
        f" ({driving_hash()}, commit {now or 'not known'}); real trials were run at commit"
        f" {', '.join(others)}: see what was changed since, or try again"
    )
    return (said,)


def _old_look(limits: Limits, rule: Rule, now: dt.datetime) -> tuple[str, ...]:
    """Says where the last look at the real table is older than a certificate may be."""
    when = limits.drift_measured.partition(": ")[0]
    try:
        looked = dt.datetime.fromisoformat(when)
    except ValueError:
        return ()
    looked = looked if looked.tzinfo else looked.replace(tzinfo=dt.UTC)
    if looked >= now - dt.timedelta(days=rule.valid_days):
        return ()
    said = (
        f"whether the real table is still as its scene says was looked at last on {when}, more than"
        f" {rule.valid_days:g} days ago ({limits.drift}): look again (robolearn scene drift)"
    )
    return (said,)


def _tried(options: CertifyOptions, run_hash: str) -> _Tried:
    if not options.evaluation or not options.real:
        raise ConfigError("a certificate takes trials of both worlds: simulated and real results")
    for folder in (*options.evaluation, *options.real):
        # The tables are read more than once, and must be the same ones each time.
        if has_trials(folder) and is_written(folder):
            raise DataError(f"trials are being written into '{folder}': certify when they are done")
    simulated = own_trials(pooled(options.evaluation).kept)[0]
    mine = [r for r in simulated if r.kind == "sim" and _is_of(r, run_hash, options.policy)]
    if not mine:
        there = sorted({r.policy for r in simulated})
        raise DataError(
            f"no simulated trials of the policy in '{options.run}' (hash {run_hash}): the trials"
            f" are of {', '.join(there)}; evaluate this run as it is now"
        )
    _one("ways to execute the policy", {r.policy for r in mine}, "name one as the policy")
    label = world_label(options.scene) if options.scene else ""
    mine = [r for r in mine if r.env == (label or r.env)]
    _one("simulated worlds", {r.env for r in mine}, "name one as the scene")
    suite = _suite(options.suite, {r.suite for r in mine})
    mine = [r for r in mine if r.suite == suite.label]
    if {r.code for r in mine} != {code_hash()}:
        raise DataError(
            "the simulated trials were made by other code than this: evaluate again, then certify"
        )
    where = world_for(options.scene or mine[0].env, suite.config.task, [options.run])
    info = known_scene(where)
    if (info.hash, info.engine) != (mine[0].env_hash, mine[0].engine):
        raise DataError(
            f"the scene '{where}' was changed since it was tried ({mine[0].env_hash}, now"
            f" {info.hash}): evaluate again, then certify"
        )
    # The world that the trust is about, without the changed ones beside it.
    real = of_world(pooled(options.real).kept, options.real_world, "real")
    real = [r for r in own_trials(real)[0] if r.suite == suite.label]
    return _Tried(tuple(mine), tuple(real), suite, where)


def _one(what: str, found: set[str], hint: str) -> None:
    if len(found) != 1:
        named = ", ".join(sorted(found)) or "none of them"
        raise DataError(f"the simulated trials of the policy are of several {what}: {named}; {hint}"
                        if found else f"no trials are left among the {what}: {hint}")  # fmt: skip


def _is_of(record: TrialRecord, run_hash: str, name: str) -> bool:
    return run_hash_of(record.policy_hash) == run_hash and record.policy == (name or record.policy)


def _suite(given: Path | None, labels: set[str]) -> Suite:
    if given is None:
        _one("suites", labels, "name its file")
        given = Path("configs/eval") / f"{min(labels).partition('@')[0]}.yaml"
    suite = open_suite(given)
    if suite.label not in labels:
        raise DataError(
            f"the trials are of the suite {', '.join(sorted(labels))}, '{given}' is {suite.label}:"
            " it was changed since, or is another one"
        )
    return suite


def _trust_report(options: CertifyOptions, tried: _Tried) -> tuple[TrustReport, TaskTrust]:
    """The report over all tasks of the folders, and the one of the certificate's suite."""
    trust = trust_of_trials(
        options.real,
        options.evaluation,
        real_world=options.real_world,
        sim_world=tried.simulated[0].env,
    )
    task = tried.suite.config.name
    found = [t for t in trust.report.tasks if t.task == task]
    if len(found) != 1 or not tried.real:
        raise DataError(f"no real trials under the suite {tried.suite.label}")
    return trust.report, found[0]


def _trust(task: TaskTrust, tried: _Tried) -> CertifiedTrust:
    table = task.table
    flattered = table.sim - table.real
    most = int(np.argmax(flattered))
    worst = float(flattered[most])
    fewest = [min(found or (0, 0)) for found in (table.real_trials, table.sim_trials)]
    return CertifiedTrust(
        verdict=task.judgement.verdict,
        why=task.judgement.why,
        real=_world(tried.real[0]),
        policies=table.k,
        real_trials=fewest[0],
        sim_trials=fewest[1],
        spearman=task.measures["spearman"].value,
        overrated=max(0.0, worst),
        most_overrated=table.pairs[most].policy if worst > 0 else "",
    )


def _counted_real(tried: _Tried) -> Counted | None:
    own = [r for r in tried.real if r.policy_hash == tried.simulated[0].policy_hash]
    return _counted(own) if own else None


def _counted(rows: Sequence[TrialRecord]) -> Counted:
    starts: dict[str, list[bool]] = {}
    for r in rows:
        starts.setdefault(r.condition, []).append(r.success)
    return Counted.of(tuple(starts.values()))


def _world(record: TrialRecord) -> CertifiedWorld:
    return CertifiedWorld(record.env, record.env_hash, record.engine, record.kind)


def _ranges(suite: Suite, names: set[str]) -> dict[str, StartRange]:
    """Smallest and largest of every component that the starts ``names`` say."""
    most = len(suite.config.conditions)
    while len(found := [c for c in suite.select(most) if c.id in names]) < len(names):
        # Trials beyond the suite's list are of starts that it goes on with.
        if most > len(suite.config.conditions) + 10 * len(names):
            raise DataError(f"the suite {suite.label} has no starts {sorted(names)[:3]}, ...")
        most += len(names)
    values: dict[str, list[tuple[float, ...]]] = {}
    for condition in found:
        for signal, pose in condition.poses.items():
            values.setdefault(signal, []).append(pose)
    columns = {signal: list(zip(*v, strict=True)) for signal, v in values.items()}
    return {
        signal: StartRange(tuple(map(min, c)), tuple(map(max, c))) for signal, c in columns.items()
    }


def _rows_digest(rows: Sequence[TrialRecord]) -> str:
    kept = sorted(
        (
            *(r.policy_hash, r.env_hash, r.suite, r.condition, r.variant, r.seed, r.success),
            *(r.score, r.status, r.episode, r.started if r.kind != "sim" else ""),
        )
        for r in rows
    )
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()
