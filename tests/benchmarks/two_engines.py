"""Compares two engines by policies of many ages: gym-pusht as reality, MuJoCo as its simulator.

    python -m tests.benchmarks.two_engines FOLDER [EPISODES [again | apart]]

One short training by the demo's recipe is copied at twelve ages; every copy acts under the same
starts in both engines, a few starts of all policies at a time, so that what is there is comparable
whenever it is stopped; the same command goes on. At the end (and with 0 episodes more) it prints
the agreement of rates with its noise floors, and whether means are equivalent within two points.
``again``: three of the policies act once more in gym-pusht from every start, moved by what a sensor
errs, so that how far reality repeats itself is known. ``apart``: these three alone, in gym-pusht
twice, and simulated with noise of the policy's own, as a real trial's is: start by start the
simulator is then told from its ceiling by nothing but the engine.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from eval.statistics.equivalence import equivalence
from eval.statistics.intervals import mean_t
from eval.trials.table import read_trials
from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main as command
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.trial.like import LikeOptions, evaluate_like
from robolearn.operations.trial.start_noise import StartNoise
from robolearn.operations.trust.trials import trust_of_trials
from robolearn.types import TrialRecord
from tests.benchmarks.aged_policies import aged

RECIPE = Path("configs/train/pusht_flow_demo.yaml")
SUITE = Path("configs/eval/pusht.yaml")
AGES = (200, 300, 400, 600, 800, 1000, 1200, 1500, 1800, 2200, 2600, 3000)
REAL, SIM = "gym_pusht", "pusht_reference"
# Starts of all policies between two looks; a multiple of the batch, which is in a trial's identity.
STARTS, BATCH = 20, 20
MARGIN = 0.02
# Who repeats its trials, and by how much starts are moved for it [m]: 0.05 px of gym-pusht.
REPEATING, MOVED_M = (1800, 2600, 3000), 0.05e-3


def ages(folder: Path, wanted: Sequence[int] = AGES) -> list[Path]:
    """The runs of these ages; trained where they are not there yet."""
    runs = [folder / f"updates_{age:04d}" for age in wanted]
    if all(run.is_dir() for run in runs):
        return runs
    store = folder / "demonstrations"
    if not store.is_dir():
        command(["data", "import", str(pusht_demonstrations_path()), "--out", str(store)])
    aged(RECIPE, store, wanted, runs)
    return runs


def repeated(folder: Path, out: Path, options: EvaluateOptions, world: str = REAL) -> Path:
    """Trials of gym-pusht once more, by three policies whose noise is drawn anew."""
    again = folder / ("again" if world == REAL else "apart")
    runs = [folder / f"updates_{age:04d}" for age in REPEATING]
    how = LikeOptions(rollouts=1, noise=StartNoise(MOVED_M, 0.0), real_world=REAL)
    evaluate_like(
        runs, out, again, dataclasses.replace(options, worlds=(world,), repeat=False), how=how
    )
    return again


def apart(folder: Path, episodes: int, options: EvaluateOptions) -> None:
    """The three policies in gym-pusht twice, and in its simulator; whatever there is is told."""
    out = folder / "apart_real"
    runs = ages(folder, REPEATING)
    for starts in range(5 * STARTS, episodes + 1, 5 * STARTS):
        evaluate(runs, out, dataclasses.replace(options, worlds=(REAL,), conditions=starts))
        again, simulated = (repeated(folder, out, options, world) for world in (REAL, SIM))
        print(f"{starts} starts of {len(runs)} policies", flush=True)
        for by in ("success", "score"):
            # Trials that were repeated have the noise of simulated ones: they tell the ceiling.
            for what, real in (("noise drawn apart", [out]), ("the ceiling", [out, again])):
                trust = trust_of_trials(*(real, [simulated]), real_world=REAL, sim_world=SIM, by=by)
                print(f"-- by {by}, {what}", *trust.lines, sep="\n", flush=True)


def report(found: tuple[TrialRecord, ...], out: Path, again: Sequence[Path] = ()) -> None:
    """What the trials say that both engines have."""
    trust = trust_of_trials([out, *again], [out], real_world=REAL, sim_world=SIM)
    for line in trust.lines:
        print(line)
    for name in ("success", "score"):
        values = {(r.env, r.policy, r.condition): float(getattr(r, name)) for r in found}
        gaps: dict[str, list[float]] = {}
        for (env, policy, condition), value in values.items():
            other = values.get((SIM, policy, condition))
            if env == REAL and other is not None:
                gaps.setdefault(condition, []).append(other - value)
        # A start is drawn once for all policies: it is the unit.
        per_start = mean_t(np.array([np.mean(v) for v in gaps.values()]), level=0.90)
        said = equivalence(per_start, MARGIN, (REAL, SIM))
        print(
            f"mean {name}: {SIM} less {REAL} {per_start.text()}, {len(gaps)} starts: {said.words}"
        )


def main(folder: str, episodes: int = 500, what: str = "") -> None:
    """Train, evaluate in both, report."""
    out = Path(folder) / "results"
    options = EvaluateOptions(suite=SUITE, worlds=(REAL, SIM), workers=0, batch=BATCH, videos=0)
    if what == "apart":
        apart(Path(folder), episodes, options)
        return
    runs = ages(Path(folder))
    for starts in range(STARTS, episodes + 1, STARTS):
        evaluate(runs, out, dataclasses.replace(options, conditions=starts))
        print(f"{starts} starts of {len(runs)} policies in both engines", flush=True)
    more = (repeated(Path(folder), out, options),) if what == "again" else ()
    report(read_trials(out), out, more)


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    main(where, *(int(word) for word in numbers[:1]), *numbers[1:])
