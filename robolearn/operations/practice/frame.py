"""Says what makes a practice the same one when it goes on; opens what it writes; its session."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.config import differences
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import CheckpointError, ConfigError
from robolearn.operations.practice.beside import Learning
from robolearn.operations.practice.experiment import (
    SECTION,
    PracticeExperiment,
    recorded_kinds,
)
from robolearn.operations.practice.judging import EpisodeJudge
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.records import Standing, read_standing, write_standing
from robolearn.operations.practice.session import Session, never, nothing
from robolearn.operations.practice.validation import Validation
from robolearn.operations.practice.watch import Drift
from robolearn.training.learner import Learner
from robolearn.training.log import Journal
from robolearn.training.run_directory import Run, load_run
from robolearn.types import Condition

LIMITS = (
    "max_minutes",
    "max_cpu_minutes",
    "max_episodes",
    "budget_minutes",
    "max_stops",
    "disk_gib",
    "max_drift",
)
"""What may change when a practice goes on."""


@dataclass(frozen=True, slots=True)
class SecondStore:
    """Where ``practice.demonstrations`` of every batch come from: ``path``, what people showed
    there, or (``practised``) what an earlier practice recorded.
    """

    path: Path
    practised: bool = False

    def source(self, data: DataConfig, parent: Run) -> StoreSource:
        """Its episodes as ``data`` says, of the kind that is meant."""
        kinds = ("online",) if self.practised else recorded_kinds(parent)
        return StoreSource(EpisodeStore.open(self.path), dataclasses.replace(data, kinds=kinds))


def require_share(
    experiment: PracticeExperiment, second: SecondStore | None, takeover: str = ""
) -> None:
    """:class:`ConfigError` for a share of a batch without a store that it comes from, and the other
    way round; where somebody takes over, what that person does is enough.
    """
    share = experiment.practice.demonstrations
    if takeover and share and second is None:
        return
    if bool(share) != (second is not None):
        raise ConfigError(
            "practice.demonstrations (a share of every batch) and the store that it comes from"
            " (demonstrations, or practised: that of an earlier practice) go together, got"
            f" {experiment.practice.demonstrations:g} and"
            f" {None if second is None else second.path}"
        )


@dataclass(frozen=True, slots=True)
class LearnerBuilder:
    """Builds the learner, once there is something to learn from; picklable."""

    experiment: PracticeExperiment
    parent: Path
    store: Path
    out: Path
    second: SecondStore | None
    threads: int
    # Somebody takes over, whose steps count as demonstrations, too.
    corrected: bool = False

    def __call__(self) -> Learner:
        """Errors of data and configuration are raised here."""
        inner, parent, second = self.experiment.experiment, load_run(self.parent), self.second
        return Learner(
            inner,
            parent,
            self.store,
            self.out,
            plain=self.experiment.plain(),
            demonstrations=None if second is None else second.source(inner.data, parent),
            share=self.experiment.practice.demonstrations,
            corrected=self.corrected,
            threads=self.threads,
            drift=Drift.off(parent),
            # That nothing is overwritten has been seen to.
            resume=True,
        )


def identity_of(
    experiment: PracticeExperiment,
    parent: Run,
    worlds: Sequence[str],
    second: SecondStore | None,
    takeover: str = "",
    judge: EpisodeJudge | None = None,
    *,
    elsewhere: bool = False,
) -> dict[str, Any]:
    """What a practice that goes on has in common with the one before: all but its limits.
    ``worlds``: hashes of where it practises; ``elsewhere``: it is learned on another machine.
    """
    values = experiment.plain()
    values[SECTION] = {k: v for k, v in values[SECTION].items() if k not in LIMITS}
    found: dict[str, Any] = {
        "experiment": values,
        "parent": parent.policy_hash,
        "worlds": list(worlds),
        "demonstrations": None if second is None else str(second.path),
    }
    found |= {"takeover": takeover} if takeover else {}
    found |= {} if judge is None else {"judge": judge.hash}
    found |= {"elsewhere": True} if elsewhere else {}
    return found if second is None or not second.practised else found | {"practised": True}


def require_correctable(experiment: PracticeExperiment, takeover: str) -> None:
    """:class:`ConfigError` for an algorithm that learns from decisions of its own alone, of which a
    person who takes over leaves nothing.
    """
    inner = experiment.experiment
    if takeover and inner.algorithm.batches().decisions is not None:
        raise ConfigError(
            f"{inner.policy} learns from decisions that it made itself; a person who takes over"
            " makes others. Choose another policy (rlpd, hil_serl, idql, residual, ...), or leave"
            " takeover out"
        )


def limits_of(experiment: PracticeExperiment) -> dict[str, Any]:
    """Its limits."""
    return {name: getattr(experiment.practice, name) for name in LIMITS}


def is_over(standing: Standing, limits: Mapping[str, Any]) -> bool:
    """Whether there is a result, by these limits; those of an earlier version were fewer."""
    known = {k: v for k, v in limits.items() if k in standing.limits}
    return standing.result is not None and standing.limits == known


def standing_of(out: Path, identity: dict[str, Any], *, resume: bool) -> Standing:
    """Where the practice in ``out`` stands, or a new one.

    Errors: :class:`CheckpointError` where ``out`` holds something else, or may not be gone on with.
    """
    found = read_standing(out)
    if found is None:
        if (out / "provenance.json").is_file() or Ledger.of(out).flights:
            raise CheckpointError(
                f"'{out}' holds a run already, and no practice that could go on; choose another out"
            )
        return Standing(identity, uuid.uuid4().hex[:16], {})
    if not resume:
        raise CheckpointError(
            f"'{out}' holds a practice already; go on with resume, or choose another out"
        )
    lines = differences(identity, found.identity, "")
    lines += [f"{k}: {v} before" for k, v in found.identity.items() if k not in identity]
    if lines:
        raise CheckpointError(
            f"'{out}' holds another practice; choose another out. Differences:"
            f" {'; '.join(lines[:6])}"
        )
    return found


@dataclass(frozen=True, slots=True)
class Books:
    """What a practice writes into: the store of its episodes, and the ledger in its run."""

    store: Path
    out: Path
    episodes: EpisodeStore
    writer: StoreWriter
    ledger: Ledger
    standing: Standing

    @staticmethod
    def opened(
        stack: contextlib.ExitStack, store: Path, out: Path, standing: Standing, execute: int
    ) -> Books:
        """Made where they are not there; what was committed without a line gets one; ``execute``:
        steps of a decision. ``stack`` closes the writer.
        """
        episodes = EpisodeStore.open_or_create(store)
        out.mkdir(parents=True, exist_ok=True)
        writer = stack.enter_context(episodes.writer())
        ledger = Ledger.of(out, standing.lines)
        ledger.recover(episodes, standing.id, execute)
        write_standing(out, standing)
        return Books(store, out, episodes, writer, ledger, standing)

    def session(
        self,
        experiment: PracticeExperiment,
        build: Callable[[], Learning],
        start: Callable[[int, int], Condition],
        worlds: tuple[str, ...],
        listener: PracticeListener,
        *,
        validation: Validation | None = None,
        judge: EpisodeJudge | None = None,
        beside: Callable[[], float] = nothing,
        stopped: Callable[[], int] = never,
        learns_on: bool = False,
    ) -> Session:
        """Of ``experiment``; the rest is as in :class:`Session`."""
        inner = experiment.experiment
        return Session(
            config=experiment.practice,
            max_updates=inner.fit.steps,
            checkpoint_every=inner.fit.checkpoint_every,
            run_dir=self.out,
            store=self.store,
            writer=self.writer,
            ledger=self.ledger,
            standing=self.standing,
            build=build,
            start=start,
            worlds=worlds,
            validation=validation,
            listener=listener,
            journal=Journal(self.out, None, writes=True),
            only_successes=inner.data.success is True,
            beside=beside,
            judge=judge,
            stopped=stopped,
            learns_on=learns_on,
        )
