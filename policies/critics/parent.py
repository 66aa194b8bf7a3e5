"""Loads the trained policy whose chunks critics judge (``--parent``), as it sees the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np

from policies.chunks.eyes import Eyes, eyes_of, told
from policies.registry import policy_of
from robolearn.contracts import Policy
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.inference.blank import blank_request
from robolearn.representation import RepresentedPolicy
from robolearn.spec import SignalSpec, TaskSpace
from robolearn.training.run_directory import PARENT, Run, nested_run

CHUNKS_ASKED = 4
"""So many chunks tell whether a policy's noise has a say."""
SAME = 1e-5
"""Chunks that differ by less than this share of the largest action are the same; a sum in another
order is an error of 1e-7."""


def inner_policy(run: Run) -> Policy:
    """The policy of ``run`` in the signals that its network sees (``data.representation``)."""
    outer = policy_of(run)
    return outer.inner if isinstance(outer, RepresentedPolicy) else outer


def policy_for(run: Run, space: TaskSpace) -> Policy:
    """:func:`inner_policy` as whoever sees ``space`` meets it: without pictures there it observes
    what it tells of them instead (:mod:`policies.chunks.eyes`).
    """
    return _met(run, space)[0]


def _met(run: Run, space: TaskSpace) -> tuple[Policy, Eyes | None]:
    """:func:`policy_for`, and the eyes that it is told by."""
    policy = inner_policy(run)
    eyes = None if any(s.is_image for s in space.observations) else eyes_of(policy)
    return (policy if eyes is None else told(policy)), eyes


def judged_policy(
    parent: Run | None, name: str, space: TaskSpace, n_obs: int, horizon: int
) -> Policy:
    """What the critics ``name`` choose from.

    Errors: :class:`ConfigError` without a parent, or for one of another length or that chooses
    itself; :class:`SpecMismatchError` for one that sees or does something else.
    """
    if parent is None:
        raise ConfigError(f"{name} needs a parent run: --parent RUN (a trained policy)")
    if parent.config.get("policy") == name:
        raise ConfigError(
            f"the parent '{parent.path}' improves on another run itself; give the policy that it"
            " builds on"
        )
    policy, eyes = _met(parent, space)
    if not _alike(policy.spec.task_space, space, () if eyes is None else eyes.told):
        raise SpecMismatchError(
            f"the parent '{parent.path}' reads and writes another task space than the data:"
            f" {policy.spec.task_space} against {space}"
        )
    if (policy.spec.n_obs, policy.spec.horizon) != (n_obs, horizon):
        raise ConfigError(
            f"n_obs and horizon must be the parent's ({policy.spec.n_obs},"
            f" {policy.spec.horizon}), got ({n_obs}, {horizon})"
        )
    return policy


def require_varied(policy: Policy, stats: DatasetStats, name: str, where: str | Path) -> None:
    """:class:`ConfigError` for a policy that answers an observation by one chunk, whatever its
    noise: ``name`` could choose nothing. It is asked in the middle of nowhere, and where the
    recordings of ``stats`` are in the mean.
    """
    nowhere = dataclasses.replace(blank_request(policy.spec), prefix=None, prefix_weight=None)
    usual = {
        signal: np.broadcast_to(
            np.reshape(stats.observations[signal].mean, value.shape[2:]), value.shape
        ).astype(value.dtype)
        for signal, value in nowhere.observations.items()
        if signal in stats.observations and value.dtype != np.uint8
    }
    there = dataclasses.replace(nowhere, observations={**nowhere.observations, **usual})
    for request in (nowhere, there):
        actions = policy.sample(request, CHUNKS_ASKED).actions
        if np.ptp(actions, axis=1).max() > SAME * np.abs(actions).max():
            return
    raise ConfigError(
        f"noise has no say in what '{where}' answers: all of its chunks at an observation are the"
        f" same, and {name} can do nothing but choose among them. Set 'policy' to residual, expo,"
        " dice_rl or pa_rl, which make other chunks of them, or to filtered_bc, which goes on"
        " imitating what succeeded"
    )


def _alike(sees: TaskSpace, space: TaskSpace, told_of: Collection[str]) -> bool:
    """Whether they are the same; of the signals ``told_of`` in pictures nothing but their shape and
    their angles is known.
    """
    recorded = {s.name: s for s in space.observations if s.name in told_of}
    observations = [
        recorded.get(s.name, s) if s == _known(recorded.get(s.name, s)) else s
        for s in sees.observations
    ]
    return dataclasses.replace(sees, observations=tuple(observations)) == space


def _known(signal: SignalSpec) -> SignalSpec:
    return SignalSpec(signal.name, signal.shape, angular=signal.angular)


def judged_run(parent: Run, name: str) -> Run:
    """The run whose chunks the critics ``name`` judge: ``parent``; where that has such critics
    itself, which go on, the one that it builds on.
    """
    while parent.config.get("policy") == name:
        parent = kept_parent(parent)
    return parent


def kept_parent(run: Run) -> Run:
    """The run that ``run`` builds on and keeps inside; :class:`CheckpointError` without one."""
    if not (run.path / PARENT).is_dir():
        raise CheckpointError(
            f"'{run.path}' lacks the folder 'parent' with the policy it builds on"
        )
    return nested_run(run, PARENT)


def differing_keys(theirs: object, ours: object, keys: Iterable[str]) -> list[str]:
    """Of two configurations, the keys that are not the same, with both values."""
    return [
        f"{key}: {getattr(theirs, key)!r} there, {getattr(ours, key)!r} here"
        for key in keys
        if getattr(theirs, key) != getattr(ours, key)
    ]
