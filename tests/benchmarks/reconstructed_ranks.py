"""Does a reconstructed scene put policies into their real order, where the default scene does not?

    python -m tests.benchmarks.reconstructed_ranks FOLDER [REAL [ROLLOUTS [SEED]]]

The workcell, its capture and its scene are those of ``reconstructed_scene``; what is judged are
twelve policies such as a lab has them: eight learned from demonstrations in the cell itself, four
from demonstrations in the default scene, of several ages, algorithms and amounts of data, which
were chosen before any was run. They act in the reality from the first REAL starts of the suite
(50), and from where those trials really began, ROLLOUTS times each (4), in the default and in the
reconstructed scene. The same command goes on where it stopped.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.reconstructed_scene import SEED, TASK, compared
from tests.benchmarks.two_scenes import Task, collecting, policies

# Ages of the trainings of ``two_scenes pick_place``: of the default scene's, and of the cell's.
DEFAULT = {"flow": (900, 2200), "bc": (1500,), "bc_few": (1000,)}
OWN = {"flow": (200, 500, 900, 1500, 2200), "bc": (400, 1500), "bc_few": (1000,)}
# Episodes in the cell, and what their starts are drawn from; no other use has it.
EPISODES, STARTS_SEED = 60, 20260103


def _of(ages: dict[str, tuple[int, ...]], prefix: str = "") -> Task:
    trainings = {prefix + n: replace(TASK.trainings[n], ages=ages[n]) for n in ages}
    return replace(TASK, trainings=trainings)


def twelve(folder: Path, world: str) -> list[Path]:
    """The runs; the cell is recorded and they are trained where they are not there yet."""
    own = folder / "own"
    own.mkdir(exist_ok=True)
    told = (*collecting(world, own, STARTS_SEED), "--episodes", str(EPISODES))
    task = replace(_of(OWN, "own_"), demonstrations=told)
    return [*policies(_of(DEFAULT), folder), *policies(task, own)]


def main(folder: Path, real: int = 50, rollouts: int = 4, seed: int = SEED) -> None:
    """Compare the two scenes by the twelve policies."""
    compared(folder, lambda world: twelve(folder, world), real, rollouts, seed)


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    main(Path(where).resolve(), *(int(word) for word in numbers))
