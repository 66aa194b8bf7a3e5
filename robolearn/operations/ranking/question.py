"""Opens what policies are judged by, recordings alone: their runs, and a store that fits all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from eval.statistics.intervals import Estimate
from policies.registry import load_policy
from robolearn.contracts import Policy
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import use_threads
from robolearn.spec import TaskSpace, require_compatible
from robolearn.training.loop import Hooks


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What one policy is said to be worth."""

    name: str
    run: Path
    policy_hash: str
    # Mean over the episodes' starts; the interval is over starts, not over what fitting may err.
    value: Estimate
    # Standard deviation of the members' means: how far the networks disagree.
    spread: float
    # Mean return of the worst tenth of episodes; None for the method 'expected'.
    worst: float | None
    # Root of the last squared TD error; None for distributions.
    td_error: float | None
    reused: bool


@dataclass(frozen=True, slots=True)
class Question:
    """Which ``runs`` (by name) are judged, by the recordings of ``store``; what comes of it is kept
    in ``out``.
    """

    runs: Mapping[str, Path]
    store: Path
    out: Path
    threads: int = 1
    # Told of every value at once; asked, by name, what wants to hear of a fit.
    on_value: Callable[[PolicyValue], None] = lambda _: None
    hooks: Callable[[str], Hooks] = lambda _: Hooks()


@runtime_checkable
class Judging(Protocol):
    """What policies are judged by; its settings are the same for all of them."""

    def values(self, question: Question) -> tuple[PolicyValue, ...]:
        """Every run's, in their order; more is better."""
        ...


def opened(
    question: Question, data: Callable[[TaskSpace], DataConfig]
) -> tuple[dict[str, Policy], StoreSource]:
    """The policies by name, and what ``data`` takes of the store for the task space of all.

    Errors: :class:`SpecMismatchError` for policies of different task spaces, or that the store does
    not fit; :class:`ConfigError` for fewer than two, or for ones that read instructions.
    """
    use_threads(question.threads)
    policies = {name: load_policy(run, threads=None) for name, run in question.runs.items()}
    space = _one_space(policies)
    store = EpisodeStore.open(question.store)
    for info in store.list()[:1]:
        require_compatible(space, store.meta(info.id).embodiment)
    return policies, StoreSource(store, data(space))


def _one_space(policies: Mapping[str, Policy]) -> TaskSpace:
    """The task space that all have; :class:`ConfigError` for fewer than two policies, or for ones
    that read instructions, :class:`SpecMismatchError` for different ones.
    """
    if len(policies) < 2:
        raise ConfigError(
            f"a ranking takes two policies or more, got {list(policies)}: values are estimates"
            " whose order means more than their size"
        )
    (first, one), *others = policies.items()
    space = one.spec.task_space
    for name, policy in others:
        if policy.spec.task_space != space:
            raise SpecMismatchError(
                f"'{name}' and '{first}' have different task spaces, {policy.spec.task_space}"
                f" against {space}: values of evaluators that see or judge different signals are"
                " not comparable; rank them apart"
            )
    if space.texts:
        raise ConfigError(f"'{first}' is told instructions, which evaluators do not read yet")
    return space
