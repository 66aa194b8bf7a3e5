"""Says what makes a practice the same one when it goes on; opens what it writes; its session."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.config import differences
from robolearn.data.episode import EpisodeKind
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.learning import require_threads
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
from robolearn.spec import diff_task_spaces
from robolearn.training.collected.second import shown_data, shown_of
from robolearn.training.learner import Learner
from robolearn.training.log import Journal
from robolearn.training.run_directory import Run, load_again
from robolearn.training.run_start import let_in, require_room
from robolearn.training.versions import VERSIONS
from robolearn.training.watching.probe import watched
from robolearn.types import Condition

log = logging.getLogger(__name__)

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

    def kinds(self, parent: Run) -> tuple[EpisodeKind, ...]:
        """Which of its episodes are meant."""
        return ("online",) if self.practised else recorded_kinds(parent)

    @property
    def number(self) -> str:
        """What the store is known by, however its path is spelled; of one that is not here (that of
        a machine that learns) its path.
        """
        return store_number(str(self.path))

    def source(self, data: DataConfig, parent: Run) -> StoreSource:
        """Its episodes as ``data`` says, of the kind that is meant."""
        chosen = dataclasses.replace(data, kinds=self.kinds(parent))
        return StoreSource(EpisodeStore.open(self.path), chosen)


def store_number(path: str) -> str:
    """The number of the store at ``path``; ``path`` itself where there is none."""
    return EpisodeStore.open(path).uuid if Path(path).is_dir() else path


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


def require_apart(run: Path, store: Path, out: Path) -> None:
    """:class:`ConfigError` where a practice would write into ``run``, which stays as it is, or its
    run into its store.
    """
    places = (
        ("out", out, "the run that practises", run),
        ("store", store, "the run that practises", run),
        ("out", out, "the store of its episodes", store),
    )
    for name, inner, what, outer in places:
        if inner.resolve().is_relative_to(outer.resolve()):
            raise ConfigError(
                f"{name} '{inner}' is {what} '{outer}', or lies inside it; choose a folder beside"
                " it"
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
    # Of the parent when practice began; empty: as it is found.
    parent_hash: str = ""

    def __post_init__(self) -> None:
        require_threads(self.threads)

    def require_second(self) -> None:
        """Errors of the second store that would be raised after the warm-up; :class:`ConfigError`
        where it would hold what this practice records.
        """
        inner, parent, second = self.experiment.experiment, self._run(), self.second
        own = second is not None and second.path.resolve() == self.store.resolve()
        if second is not None and own and "online" in second.kinds(parent):
            raise ConfigError(
                f"'{second.path}' is the store of this practice, all of which is learned from"
                " anyway; name that of an earlier one, or leave practised (demonstrations) and"
                " practice.demonstrations out"
            )
        source = None if second is None else second.source(inner.data, parent)
        spec = watched(inner.algorithm.batches())
        shown = shown_of(spec, self.experiment.practice.demonstrations, source)
        if source is not None:
            shown_data(inner, spec, parent.spec.task_space, source, shown)

    def __call__(self) -> Learner:
        """Errors of data and configuration are raised here."""
        inner, parent, second = self.experiment.experiment, self._run(), self.second
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

    def _run(self) -> Run:
        return load_again(self.parent, self.parent_hash)


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
        "demonstrations": None if second is None else second.number,
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


def require_alike(
    experiment: PracticeExperiment, parent: Run, store: Path, task: str, practice: str
) -> None:
    """Look at what ``store`` holds already of the kinds that are learned from, before a practice of
    ``task`` flies into it.

    Errors: :class:`SpecMismatchError` for episodes of another task space than the parent's,
    :class:`ConfigError` for those of another task.
    """
    if not store.exists():
        return
    episodes, others = EpisodeStore.open(store), 0
    for info in episodes.list():
        if info.kind not in experiment.experiment.data.kinds:
            continue
        meta = episodes.meta(info.id)
        lines = diff_task_spaces(parent.spec.task_space, meta.embodiment)
        if lines:
            raise SpecMismatchError(
                f"episode {info.id} of '{store}' ('{meta.embodiment.name}') has another task space"
                " than the policy that is to learn from it; name another store:\n"
                + "\n".join(lines)
            )
        if info.task != task:
            raise ConfigError(
                f"episode {info.id} of '{store}' is of the task '{info.task}', and all of kind"
                f" {info.kind} would be learned from to do '{task}'; name another store"
            )
        others += meta.provenance.get("practice", {}).get("id") != practice
    if others:
        log.warning("%d episodes of '%s' that others recorded are learned from, too", others, store)


def limits_of(experiment: PracticeExperiment) -> dict[str, Any]:
    """Its limits."""
    return {name: getattr(experiment.practice, name) for name in LIMITS}


def is_over(standing: Standing, limits: Mapping[str, Any]) -> bool:
    """Whether there is a result, by these limits; those of an earlier version were fewer. What was
    ended by something that may have been mended since is not over.
    """
    known = {k: v for k, v in limits.items() if k in standing.limits}
    found = standing.result
    return found is not None and not found.get("goes_on", False) and standing.limits == known


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
        require_room(out)
        return Standing(identity, uuid.uuid4().hex[:16], {})
    if not resume:
        raise CheckpointError(
            f"'{out}' holds a practice already; go on with resume, or choose another out"
        )
    before = found.identity
    if before.get("demonstrations") is not None:
        # Earlier versions kept a path.
        before = before | {"demonstrations": store_number(before["demonstrations"])}
    lines = differences(identity, before, "")
    lines += [f"{k}: {v} before" for k, v in before.items() if k not in identity]
    if lines:
        raise CheckpointError(
            f"'{out}' holds another practice; choose another out. Differences:"
            f" {'; '.join(lines[:6])}"
        )
    return found


def _store_of(path: Path, standing: Standing, out: Path) -> EpisodeStore:
    """The store of a practice, made where it begins.

    Errors: :class:`CheckpointError` where it has its episodes in another one.
    """
    if not standing.store:
        return EpisodeStore.open_or_create(path)
    if path.exists():
        found = EpisodeStore.open(path)
        if found.uuid == standing.store:
            return found
    raise CheckpointError(
        f"the episodes of the practice in '{out}' are in the store {standing.store}, which was"
        f" '{standing.store_path}', not in '{path}'; name that one, or choose another out"
    )


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
        stack: contextlib.ExitStack,
        store: Path,
        out: Path,
        standing: Standing,
        execute: int,
        judge: EpisodeJudge | None = None,
    ) -> Books:
        """Made where they are not there; what was committed without a line gets one, by what
        ``judge`` says of it; ``execute``: steps of a decision. ``stack`` closes the writer.
        """
        episodes = _store_of(store, standing, out)
        writer = stack.enter_context(episodes.writer())
        # From its first episode on, whatever the store of a second one; a learner comes later.
        (out / VERSIONS).mkdir(parents=True, exist_ok=True)
        let_in(stack, out / VERSIONS, out)
        found = read_standing(out)
        if found is not None and found.id != standing.id:
            raise CheckpointError(f"another practice began in '{out}'; choose another out")
        standing = dataclasses.replace(standing, store=episodes.uuid, store_path=str(store))
        ledger = Ledger.of(out, standing.lines)
        said = None if judge is None else functools.partial(judge, writer)
        ledger.recover(episodes, standing.id, execute, said)
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
        inner, config = experiment.experiment, experiment.practice
        if lacking := config.lacking(len(self.ledger.flights)):
            log.warning(
                "practice.max_episodes (%d) ends this %d episodes before the warm-up is over"
                " (practice.warmup_episodes: %d): episodes are recorded and nothing is learned from"
                " them. Raise it, now or when it goes on with resume, or lower the"
                " warm-up, which is another practice",
                config.max_episodes,
                lacking,
                config.warmup_episodes,
            )
        return Session(
            config=config,
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
