"""Tries versions of a practised policy on held-out starts, beside its parent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.statistics.exact_tests import bounded_difference_p, mcnemar_exact
from eval.statistics.intervals import wilson
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.table import TrialStore
from policies.registry import policy_of
from robolearn.contracts import Policy
from robolearn.operations.builders import EnvBuilder, PolicyBuilder
from robolearn.operations.code_hash import code_hash, deciding_libraries
from robolearn.operations.practice.experiment import PracticeExperiment
from robolearn.operations.practice.records import VersionTest
from robolearn.operations.reality.worlds import make_world
from robolearn.seeding import child_seed
from robolearn.training.run_directory import Run, load_again
from robolearn.training.versions import load_version
from robolearn.types import Condition
from sim.tasks.starts import draw_start

TABLE = "evaluation"


@dataclass(frozen=True, slots=True)
class VersionBuilder:
    """Builds the policy of one version, as it would be deployed. Picklable."""

    run_dir: Path
    version: int

    def __call__(self) -> Policy:
        """Load the version's weights."""
        return policy_of(load_version(self.run_dir, self.version))


@dataclass(frozen=True, slots=True)
class Validation:
    """Held-out starts of ``world``, ``count`` of them: those of a seed of their own, which practice
    never draws from. Trials are kept in ``run_dir/evaluation``.
    """

    run_dir: Path
    parent: Path
    world: EnvBuilder
    seed: int
    count: int
    batch: int
    # Time limit [control steps]; 0: that of the task.
    max_steps: int = 0
    # Of the parent when practice began.
    parent_hash: str = ""

    @classmethod
    def of(
        cls, experiment: PracticeExperiment, parent: Run, run_dir: Path, world: EnvBuilder
    ) -> Validation:
        """As the settings of a practice say."""
        practice = experiment.practice
        return cls(
            run_dir,
            parent.path,
            world,
            experiment.experiment.seed,
            practice.test_starts,
            practice.lanes,
            practice.max_steps,
            parent.policy_hash,
        )

    def test(self, version: int, *, updates: int, episodes: int, cpu_minutes: float) -> VersionTest:
        """Roll out ``version`` and, the first time, the parent. Errors: :class:`CheckpointError`
        where another policy lies in its place.
        """
        info = self.world.info()
        world = WorldEntry(info.name, info.hash, info.engine, self.world)
        own = load_again(self.parent, self.parent_hash).policy_hash
        # Weights of a version do not change: its trials are found again by its number.
        tried = f"{own}-practice-{self.seed}-{version}-{updates}"
        entries = (
            PolicyEntry("parent", own, PolicyBuilder(self.parent)),
            PolicyEntry(f"version {version}", tried, VersionBuilder(self.run_dir, version)),
        )
        options = Options(
            suite=f"held-out starts {self.seed}",
            task=info.task,
            max_steps=self.max_steps or info.max_steps,
            batch=min(self.batch, self.count),
            code=code_hash(),
            libraries=deciding_libraries(),
        )
        with TrialStore(self.run_dir / TABLE) as store:
            records = evaluate(entries, (world,), {info.name: self._starts()}, store, options)
        before = [r.success for r in records if r.policy == "parent"]
        after = [r.success for r in records if r.policy != "parent"]
        theirs = [r.score for r in records if r.policy == "parent"]
        scores = [r.score for r in records if r.policy != "parent"]
        rate = wilson(sum(after), len(after))
        return VersionTest(
            version=version,
            updates=updates,
            episodes=episodes,
            cpu_minutes=cpu_minutes,
            starts=len(after),
            successes=sum(after),
            low=rate.low,
            high=rate.high,
            score=sum(scores) / len(scores),
            parent_successes=sum(before),
            gained=sum(a and not b for a, b in zip(after, before, strict=True)),
            lost=sum(b and not a for a, b in zip(after, before, strict=True)),
            p=mcnemar_exact(before, after),
            parent_score=sum(theirs) / len(theirs),
            score_p=bounded_difference_p(theirs, scores),
        )

    def _starts(self) -> tuple[Condition, ...]:
        env = make_world(self.world.world)
        try:
            seed = child_seed(self.seed, "practice validation")
            draws = (draw_start(env.task, env.sample_condition, seed, i) for i in range(self.count))
            return tuple(draws)
        finally:
            env.close()
