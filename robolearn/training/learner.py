"""Learns from episodes while they are being collected: the learner of a practice.

    store (somebody else appends) --take_in--> rows, windows, the parent's chunks
                                                     |  batches: so much of them, so much of
    OUT/versions/000012.safetensors <--hand_over--   |  demonstrations
                                        trainer <----+

What is updated and how is that of :func:`~robolearn.training.loop.fit`, by the same class; a batch
holds the numbers that training on the finished store would have seen. Statistics of signals are the
parent's, so that its chunks mean the same; those of rewards are of what was there at the beginning.

Everything is a function of seed, step and the number of windows, and a checkpoint says how many
episodes it has seen: a learner that was killed takes in the same ones, and goes on with the same
state. What was learned since the checkpoint is lost, of the store nothing.
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from robolearn.config import from_dict
from robolearn.data.decisions import Driven
from robolearn.data.reading.growing import GrowingEpisodes
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, DataError, TrainingError
from robolearn.learning import Algorithm, Batch, Proposing, Weights, use_threads
from robolearn.machine.interrupt import held
from robolearn.machine.memory import reuse_memory
from robolearn.seeding import child_seed
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.timing.latencies import Latencies, trained_with
from robolearn.training.batch_loader import Batches, Feed, Joined
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.collected.corrections import (
    BesideCorrections,
    Corrections,
    WithCorrections,
)
from robolearn.training.collected.growing_data import GrowingData
from robolearn.training.collected.second import shown_data, shown_of
from robolearn.training.data import Described, TrainingData, TrainingSource
from robolearn.training.distributed import Ranks
from robolearn.training.experiment import (
    Experiment,
    provenance_of,
    require_same_representation,
    require_statistics,
)
from robolearn.training.loop import FitResult
from robolearn.training.run_directory import (
    HELD,
    PROVENANCE,
    WEIGHTS,
    Run,
    hold_parent,
    holding,
    load_state,
    read_json,
    release_parent,
    seal_run,
    unseal_run,
    write_json,
    write_run,
    write_tensors,
)
from robolearn.training.run_start import keep_parent, previous_run, written
from robolearn.training.task_goal import at_goal
from robolearn.training.trainer import NOTHING, Trainer
from robolearn.training.versions import load_version, remove_versions, versions, write_version
from robolearn.training.watching.probe import Probe, watched

log = logging.getLogger(__name__)

ROWS = "rows"
LEARNED = "learner"
"""What a checkpoint calls what it says of the learner, besides what every one says."""
DRIFT = "practice/drift"
"""How far the policy's answers are from its parent's."""
LAST_VERSIONS = 8
"""Versions that are kept beside those that somebody asked to keep: actors may be some behind."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken in: ``decisions`` are rows that windows begin at; of an algorithm that learns
    from its own, those that it learned from.
    """

    episodes: int = 0
    steps: int = 0
    decisions: int = 0
    successes: int = 0

    def minus(self, other: Taken) -> Taken:
        """What is there beyond ``other``."""
        names = [f.name for f in dataclasses.fields(self)]
        return Taken(**{n: getattr(self, n) - getattr(other, n) for n in names})


class Learner:
    """Updates the algorithm of ``experiment`` over ``parent`` from what ``store`` holds and will
    hold, in ``run_dir``; to be closed, or used by ``with``.

    ``demonstrations``: episodes that ``share`` of every batch is drawn from; ``corrected``: also
    from what people did who took over, as far as they did. ``plain``: what
    config.yaml says, where that is more than the experiment. ``resume``: go on with what
    ``run_dir`` holds. ``drift``: says how far an algorithm's policy is from the parent's, on a
    batch. ``taken``: all that was taken in.

    Errors: :class:`SpecMismatchError` for a store of another task space than the parent's;
    :class:`DataError` where it has no episodes yet, or lost some; :class:`ConfigError` for what
    does not fit; :class:`CheckpointError` where ``run_dir`` holds another run;
    :class:`StoreLockedError` while another training writes it.
    """

    def __init__(
        self,
        experiment: Experiment,
        parent: Run,
        store: Path,
        run_dir: Path,
        *,
        demonstrations: TrainingSource | None = None,
        share: float = 0.0,
        corrected: bool = False,
        threads: int = 1,
        resume: bool = False,
        plain: Mapping[str, Any] | None = None,
        drift: Callable[[Algorithm, Batch], float | None] | None = None,
    ) -> None:
        if demonstrations is None and share and not corrected:
            raise ConfigError(f"a share of {share:g} of every batch needs demonstrations")
        use_threads(threads)
        reuse_memory()
        require_same_representation(experiment, parent)
        self.run_dir, self._parent, self._threads = run_dir, parent, threads
        self._demonstrations, self._corrected = demonstrations, corrected
        self._drift = drift
        self.taken = Taken()
        self._version, self._handed_over, self._calls = 0, -1, 0
        self._kept: set[int] = set()
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            learned: Mapping[str, Any] = _state(run_dir) if resume else NOTHING
            space = parent.spec.task_space
            self._source = GrowingEpisodes(store, experiment.data, run_dir / ROWS, space)
            # Where a configuration refers to the goal, the episodes say where it is.
            configured = at_goal(experiment.algorithm, lambda: self._look(learned).goals)
            self._experiment = dataclasses.replace(experiment, algorithm=configured)
            self._identity = self._identified(share)
            parts = self._experiment.parts()
            previous = previous_run(run_dir, parts, self._identity, resume)
            self._stack.enter_context(written(run_dir, Ranks()))
            self._begin(learned, share, plain, goes_on=previous is not None)
            undo.pop_all()

    def _look(self, learned: Mapping[str, Any]) -> GrowingEpisodes:
        """The source, as it was when the checkpoint was written that says ``learned``; errors:
        :class:`DataError` where it has lost episodes.
        """
        count = learned.get("episodes")
        if not self._source.ids:
            self._source.refresh(count)
        found = len(self._source.ids)
        if count is not None and found < count:
            raise DataError(
                f"the store has {found} episodes to learn from, and had {count} when"
                f" '{self.run_dir}' was last written: some were removed; bring them back"
                " (robolearn data restore), or choose another --out"
            )
        return self._source

    def _begin(
        self,
        learned: Mapping[str, Any],
        share: float,
        plain: Mapping[str, Any] | None,
        *,
        goes_on: bool,
    ) -> None:
        run_dir, parent, experiment = self.run_dir, self._parent, self._experiment
        self._look(learned if goes_on else NOTHING)
        self._data, demonstrated = self._prepared(experiment, share)
        stats = self._data.with_rewards(parent.stats)
        if goes_on:
            # Of what was there when it began.
            stats = from_dict(DatasetStats, read_json(run_dir / "stats.json"), "statistics")
        require_statistics(stats, self._data.seen.representation.inner, parent)
        # Initial weights and dropout come from torch's global generator.
        torch.manual_seed(child_seed(experiment.seed, "weights"))
        inner = self._data.seen.representation.inner
        self.algorithm = experiment.algorithm.build(inner, stats, parent)
        # Limits of actions that have none.
        self._unlimited = frozenset(_not_finite(self.algorithm.policy_weights()))
        self._batches = self._fed(demonstrated)
        # Not beforehand: what is drawn depends on what has been taken in.
        fit = experiment.fit
        feed = Feed(self._batches, Ranks(), fit.device, fit.accumulate, prefetch=0)
        self._stack.enter_context(contextlib.closing(feed))
        self._trainer = Trainer(self.algorithm, feed, fit, run_dir, experiment.seed, Ranks())
        spec = self._data.seen.observed_by(self.algorithm.policy().spec, parent.spec)
        config = dict(experiment.plain() if plain is None else plain)
        # What came out before stays until something else does: at first the parent as it was.
        write_run(run_dir, config | (holding(run_dir) if goes_on else HELD), spec, stats)
        keep_parent(parent, run_dir, fresh=not goes_on)
        self._say(complete=False)
        if goes_on and learned:
            self._trainer.restore()
            self._version, self._kept = int(learned["version"]), set(learned["kept"])
            self._data.count_on(int(learned.get("decisions", 0)))
        # A number is never used twice, not even for what was handed over after the checkpoint.
        self._version = max(self._version, *versions(run_dir), 0)
        self._data.propose(self.algorithm, run_dir / ROWS)
        self._count()
        self._warn()

    def _prepared(
        self, experiment: Experiment, share: float
    ) -> tuple[GrowingData, TrainingData | None]:
        """What is collected, and the demonstrations."""
        spec, seed = watched(experiment.algorithm.batches()), experiment.seed
        source = self._demonstrations
        shown = shown_of(spec, share, source)
        own = dataclasses.replace(spec, batch_size=spec.batch_size - shown)
        device = experiment.fit.device
        data = GrowingData(experiment.data, own, seed, self._source, device)
        if source is None:
            return data, None
        space = self._parent.spec.task_space
        return data, shown_data(experiment, spec, space, source, shown)

    def _fed(self, demonstrated: TrainingData | None) -> Batches:
        own, shown = self._data.batches(), None
        if demonstrated is not None:
            if demonstrated.dataset.spec.proposed and isinstance(self.algorithm, Proposing):
                demonstrated.propose(self.algorithm)
            shown = demonstrated.batches()
        dataset = self._data.dataset
        size = self._experiment.algorithm.batches().batch_size - dataset.spec.batch_size
        if self._corrected and size:
            others = 0 if demonstrated is None else len(demonstrated.dataset)
            drawn = Corrections(dataset, size, others, self._experiment.seed)
            own = WithCorrections(own, drawn, self._data.seen.batches(drawn, varied=True))
            shown = None if shown is None else BesideCorrections(shown, drawn, size)
        return own if shown is None else Joined(own, shown)

    def __enter__(self) -> Learner:  # noqa: PYI034
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Let another training into the run directory; nothing more is written."""
        with contextlib.suppress(OSError):
            # Its files have no names.
            (self.run_dir / ROWS).rmdir()
        self._stack.close()

    @property
    def step(self) -> int:
        """Updates until now."""
        return self._trainer.clock.step

    @property
    def episodes(self) -> int:
        """Episodes taken in."""
        return self.taken.episodes

    @property
    def decisions(self) -> int:
        """Rows that windows begin at, of those."""
        return self.taken.decisions

    @property
    def version(self) -> int:
        """The newest version that was handed over; 0: none."""
        return self._version

    @property
    def informed(self) -> bool:
        """Whether the rewards of what was taken in tell anything: they differ, or a task ended."""
        return self._data.informative

    def take_in(self) -> Taken:
        """Read what was committed since the last call; the parent's chunks are drawn for it.

        Errors: those of :meth:`GrowingEpisodes.refresh`; what came before is kept.
        """
        before = self.taken
        self._source.refresh()
        self._data.extend()
        self._data.propose(self.algorithm, self.run_dir / ROWS)
        self._data.replay(self.algorithm, self._behaved)
        self._count()
        return self.taken.minus(before)

    def batch(self, number: int) -> Batch:
        """What update ``number`` learns from, or would, by what is there now."""
        return self._batches.batch(number)

    def update(
        self, count: int, left: TimeLeft = UNLIMITED, hurried: Callable[[], bool] | None = None
    ) -> Mapping[str, float]:
        """``count`` updates, or fewer once ``left`` is used up or ``hurried()``; means of the
        figures that they give, and at every so many calls (``fit.diagnose_every``) how the critic
        stands, ``critic/...``. Ctrl-C ends it between two of them.

        Errors: :class:`TrainingError` where a loss is not finite; the last checkpoint stays.
        """
        trainer, clock = self._trainer, self._trainer.clock
        begin, begin_cpu = time.perf_counter(), time.process_time()
        waited_s, used_up = trainer.feed.waited_s, left.begun()
        with held() as pressed:
            for _ in range(count):
                if pressed() or used_up() or (hurried is not None and hurried()):
                    break
                self._data.judge(self.algorithm, trainer.feed.numbers(clock.step)[0])
                trainer.meter.add(trainer.update())
        trainer.finite.look()
        clock.seconds += time.perf_counter() - begin
        clock.cpu_seconds += time.process_time() - begin_cpu
        clock.data_seconds += trainer.feed.waited_s - waited_s
        every, self._calls = self._experiment.fit.diagnose_every, self._calls + 1
        if every and self._calls % every == 0:
            drift = self.drift()
            trainer.meter.put({**self._diagnosed(), **({} if drift is None else {DRIFT: drift})})
        return trainer.meter.flush()

    def _diagnosed(self) -> Mapping[str, float]:
        """On a batch of what is there now; nothing for an algorithm without a critic."""
        fit, clock = self._experiment.fit, self._trainer.clock
        seed = self._experiment.seed
        probe = Probe(self.algorithm, self._batches, None, device=fit.device, seed=seed)
        figures = probe.figures()
        clock.diagnosis_seconds += probe.seconds
        return figures

    def drift(self) -> float | None:
        """How far what is learned answers from its parent, on a batch of what is there now; None:
        that cannot be said. Neither learning nor its random numbers notice it.
        """
        if self._drift is None:
            return None
        kept = torch.random.get_rng_state()
        self.algorithm.eval()
        found = self._drift(self.algorithm, self._batches.batch(0))
        self.algorithm.train()
        torch.random.set_rng_state(kept)
        return found

    def hand_over(self) -> int:
        """Write what is learned as a new version; returns its number.

        The last few are kept, and those of :meth:`keep`. Errors: :class:`TrainingError` for weights
        that are not finite.
        """
        self._trainer.finite.look()
        weights, bad = self.algorithm.policy_weights(), self._bad
        if bad:
            raise TrainingError(
                f"weights are not finite after update {self.step}: {bad[:4]}; the versions until"
                f" {self._version} are kept. Lower the lr"
            )
        write_version(self.run_dir, self._version + 1, weights)
        self._version, self._handed_over = self._version + 1, self.step
        newest = range(self._version - LAST_VERSIONS + 1, self._version + 1)
        remove_versions(self.run_dir, frozenset([*newest, *self._kept]))
        return self._version

    @property
    def _bad(self) -> list[str]:
        found = _not_finite(self.algorithm.policy_weights())
        return [k for k in found if k not in self._unlimited]

    def keep(self, version: int) -> None:
        """Do not delete ``version``, whatever comes after it."""
        self._kept.add(version)

    def checkpoint(self) -> None:
        """Keep everything that resuming needs; the run's weights become those of now. Where they
        are not finite, what was kept before stays.
        """
        if self._trainer.finite.failed or self._bad:
            return
        kept = sorted(self._kept)
        seen = {"episodes": self.episodes, "version": self._version, "kept": kept}
        seen |= {"decisions": self.decisions}
        self._trainer.checkpoint(logged=True, more={LEARNED: seen})

    def finish(self, version: int | None = None, *, as_parent: bool = False) -> None:
        """End: the run's weights become those of ``version`` (None: of now), and the run is
        complete; ``as_parent``: what it does is what its parent does.
        """
        if as_parent:
            # Before anything else is written: whoever is killed from here on leaves the parent.
            hold_parent(self.run_dir)
        if version is None:
            version = self._version if self._handed_over == self.step else self.hand_over()
        chosen = load_version(self.run_dir, version)
        self.keep(version)
        self.checkpoint()
        unseal_run(self.run_dir)
        metadata = {"step": str(self.step), "version": str(version)}
        write_tensors(self.run_dir / WEIGHTS, chosen.weights, metadata)
        if not as_parent:
            release_parent(self.run_dir)
        self._say(complete=True, version=version)
        seal_run(self.run_dir)

    def _identified(self, share: float) -> dict[str, Any]:
        shown = self._demonstrations
        return {
            "experiment": self._experiment.plain(),
            "parent": self._parent.policy_hash,
            "store": self._source.store_id,
            "demonstrations": None if shown is None else shown.content_hash,
            "share": share,
            **({"corrected": True} if self._corrected else {}),
        }

    def _say(self, *, complete: bool, version: int | None = None) -> None:
        """Where the run comes from, as far as it is known."""
        shown = self._demonstrations
        sources: list[Described] = [self._source, *([] if shown is None else [shown])]
        told = provenance_of(self._experiment, sources, (), self._parent, self._threads)
        # What its chunks were corrected by is what the parent was trained with.
        late = [Latencies.of(self._parent.provenance), *(s.latencies for s in sources)]
        told[LATENCIES] = trained_with(late, {}).to_json()
        said = self._identity | told | {"complete": complete, "episodes": len(self._source.ids)}
        if complete:
            clock = self._trainer.clock
            spent = (clock.seconds, clock.cpu_seconds, self._trainer.meter.last, clock.data_seconds)
            result = dataclasses.asdict(FitResult(clock.step, *spent))
            said |= {"fit": result, "data_hash": self._source.content_hash}
            said |= {"practised": dataclasses.asdict(self.taken) | {"version": version}}
        write_json(self.run_dir / PROVENANCE, said)

    def _count(self) -> None:
        flat = self._data.dataset.flat
        solved = sum(q.success for q in self._source.qualities)
        rows = int(flat.starts[-1])
        self.taken = Taken(len(flat.ids), rows, self._data.decisions, solved)

    def _behaved(self, driven: Driven) -> Weights | None:
        """Those that an episode was driven by, if it was one of the last versions of this run."""
        spec, version = self.algorithm.batch_spec.decisions, driven.version
        if spec is None or version is None or version not in versions(self.run_dir):
            return None
        if not self._version - spec.behind <= version <= self._version:
            return None
        run = load_version(self.run_dir, version)
        return run.weights if run.policy_hash == driven.policy_hash else None

    def _warn(self) -> None:
        if not self.informed:
            log.warning(
                "no reward has occurred in %d episodes: each of %d steps is worth the same and none"
                " ends the task, so there is nothing to learn from yet; practice goes on looking,"
                " but a better parent, easier starts or demonstrations would help",
                self.episodes,
                self.taken.steps,
            )


def _not_finite(weights: Weights) -> list[str]:
    return [k for k, v in weights.items() if not bool(torch.isfinite(v).all())]


def _state(run_dir: Path) -> Mapping[str, Any]:
    """What the newest checkpoint says of the learner; nothing where there is none."""
    found = load_state(run_dir)
    if found is None:
        return NOTHING
    if LEARNED not in found[2]:
        raise CheckpointError(
            f"'{run_dir}' was trained on data that was there, it did not practise; choose another"
            " --out"
        )
    return found[2][LEARNED]
