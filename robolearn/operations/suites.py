"""Opens suites together with what their tasks know of where episodes start."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from eval.trials.suites import Poses, Suite, SuiteConfig, load_suite
from robolearn.errors import ConfigError
from robolearn.operations.builders import env_builder
from robolearn.types import Condition
from sim.tasks.pusht import PushT
from sim.tasks.starts import draw_start, start_problem
from sim.worlds import make_world


@dataclass(frozen=True, slots=True)
class TaskStarts:
    """The starts of ``task`` as ``world`` has it."""

    task: str
    world: str

    @staticmethod
    def of(config: SuiteConfig) -> TaskStarts:
        """Those of a suite's task in its source world."""
        return TaskStarts(config.task, config.source_world)

    def draw(self, seed: int, indices: Sequence[int]) -> Sequence[Condition]:
        """Those of the list that belongs to ``seed``, from the task's reset distribution."""
        with self._distribution() as sample:
            return [draw_start(self.task, sample, seed, i) for i in indices]

    def problem(self, poses: Poses) -> str:
        """Why a start is not feasible; empty if it is."""
        return start_problem(self.task, poses)

    @contextmanager
    def _distribution(self) -> Generator[Callable[[int], Condition]]:
        # Push-T starts alike in all its worlds, and a robot's computer may have none of them.
        if self.task == PushT.name:
            yield PushT().sample_condition
            return
        env = make_world(env_builder(self.world).world)
        try:
            if env.task != self.task:
                raise ConfigError(
                    f"starts of the task '{self.task}' cannot be drawn from '{self.world}', which"
                    f" has the task '{env.task}'; mend the suite's source_world"
                )
            yield env.sample_condition
        finally:
            env.close()


def open_suite(path: Path) -> Suite:
    """Read and check a suite; beyond its list it goes on with its task's starts."""
    return load_suite(path, TaskStarts.of)
