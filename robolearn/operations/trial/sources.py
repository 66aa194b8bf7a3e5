"""Finds the policies of blinded trials, and refuses those that are not what was planned.

What is said about a policy once it has an alias does not say which: errors name the run, or
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval.blinded.key import SealedKey, SealedPolicy
from eval.trials.suites import SuiteConfig
from robolearn.errors import ConfigError
from robolearn.operations.builders import executed_as, is_server, policy_builder, policy_labels
from robolearn.operations.deploy.policy import open_policy
from robolearn.operations.suites import aside
from robolearn.operations.trial.options import DesignOptions

_SHOWN = 6


@dataclass(frozen=True, slots=True)
class GivenPolicy:
    """A policy that takes part: see :class:`SealedPolicy`."""

    name: str
    hash: str
    source: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def given_policies(design: DesignOptions, suite: SuiteConfig) -> tuple[GivenPolicy, ...]:
    """Everything that decides what the given policies do; :class:`ConfigError` for one that is
    given twice.
    """
    labels = policy_labels(design.policies)
    apart = aside(
        suite, design.max_steps or suite.max_steps, design.instruction or suite.instruction
    )
    found = tuple(
        _given(source, label, design, apart)
        for source, label in zip(design.policies, labels, strict=True)
    )
    for what, values in (("name", [p.name for p in found]), ("content", [p.hash for p in found])):
        double = sorted({v for v in values if values.count(v) > 1})
        if double:
            raise ConfigError(f"policies: the same {what} stands twice: {double}")
    return found


def located_sources(key: SealedKey, given: Sequence[str]) -> Mapping[str, str]:
    """Where the policy of each alias is: where it was, or where ``given`` says, which may have been
    moved or renamed since. :class:`ConfigError` for one that is not what was planned.
    """
    moved = {_files_hash(source): source for source in given if not is_server(source)}
    known = {_digest(p): p for p in key.policies if p.files}
    foreign = [source for digest, source in moved.items() if digest not in known]
    servers = [s for s in given if is_server(s) and s not in {p.source for p in key.policies}]
    if servers or (foreign and not _changed_in_place(key, foreign)):
        raise ConfigError(
            f"policies: {[*foreign, *servers]} is none of those that were planned, or was changed"
            " since; leave policies out to go on with the plan's"
        )
    sources = {p.alias: moved.get(_digest(p), p.source) for p in key.policies}
    # Whoever knows which run was touched would know its alias: neither that is said nor an order
    # from which it follows.
    wrong = sorted(filter(None, (_changed(p, sources[p.alias]) for p in key.policies if p.files)))
    if wrong:
        raise ConfigError("; ".join(wrong))
    return sources


def _changed(policy: SealedPolicy, source: str) -> str:
    """What is wrong with a run, without its alias; "": nothing."""
    if not Path(source).is_dir():
        return (
            f"the run '{source}' is not where it was; put it back, or say with policies where all"
            " runs are now"
        )
    now = _files(source)
    lines = [f"{name} changed" for name in now if policy.files.get(name, now[name]) != now[name]]
    lines += [f"{name} is new" for name in now if name not in policy.files]
    lines += [f"{name} is gone" for name in policy.files if name not in now]
    if not lines:
        return ""
    more = f" and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return (
        f"the run '{source}' is not the one that was planned: {', '.join(lines[:_SHOWN])}{more};"
        " restore it, or plan further trials in another folder"
    )


def _changed_in_place(key: SealedKey, foreign: Sequence[str]) -> bool:
    """Whether these are planned runs whose files are others now, of which more can be said."""
    planned = {str(Path(p.source).resolve()) for p in key.policies}
    return all(str(Path(source).resolve()) in planned for source in foreign)


def _given(source: str, label: str, design: DesignOptions, apart: str) -> GivenPolicy:
    if is_server(source):
        server = open_policy(None, source)
        server.inference.close()
        name, digest = executed_as(
            server.name, server.hash, execution=design.execution, aside=apart
        )
        return GivenPolicy(name, digest, source)
    # Imported here because it imports torch, which a server's policy does not need.
    from robolearn.training.run_directory import checked_hash

    run = policy_builder(Path(source)).run_dir
    name, digest = executed_as(
        label,
        checked_hash(run),
        execution=design.execution,
        runtime=design.runtime,
        guidance=design.guidance,
        aside=apart,
    )
    return GivenPolicy(name, digest, str(run), _files(str(run)))


def _files(source: str) -> dict[str, str]:
    from robolearn.training.run_directory import file_digests

    return dict(sorted(file_digests(Path(source)).items()))


def _files_hash(source: str) -> str:
    run = policy_builder(Path(source)).run_dir
    return str(sorted(_files(str(run)).items()))


def _digest(policy: SealedPolicy) -> str:
    return str(sorted(policy.files.items()))
