"""Measures rows about practice: how much of it should be real, and which algorithm is worth it.

    python -m tests.benchmarks.practice_rows FOLDER mixing [REAL]
    python -m tests.benchmarks.practice_rows FOLDER algorithms [MINUTES]

Both practise the demo's flow policy (its recipe, 2,920 updates, trained where FOLDER has none).
``mixing``: 100 episodes of its own in the world REAL, which stands for reality, beside an earlier
practice in ``pusht_reference``; what differs is the share of every batch that is real. With a share
of 0 the 100 are simulated, too: as many episodes and updates. ``algorithms``: so many minutes of
computing in ``pusht_reference`` for each, one seed. Everything is tried from the same starts of the
suite in gym-pusht. Whatever is there is not done again; the same command goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval.statistics.exact_tests import mcnemar_exact
from eval.statistics.intervals import wilson
from eval.sweep import Value
from eval.trials.table import read_trials
from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main as command
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.practice.experiment import practice_experiment
from robolearn.operations.practice.finetune import finetune
from robolearn.operations.practice.frame import SecondStore
from robolearn.operations.practice.result import FinetuneResult
from robolearn.training.run_directory import load_run

RECIPES = {
    "flow": ("configs/train/pusht_flow_demo.yaml", 2920),
    "diffusion": ("configs/train/pusht_diffusion.yaml", 2920),
}
SUITE = Path("configs/eval/pusht.yaml")
SIM, JUDGED = "pusht_reference", "gym_pusht"
SHARES = (0.0, 0.1, 0.25, 0.5, 1.0)
STARTS, BATCH = 100, 50
MINUTES = 4.0


@dataclass(frozen=True, slots=True)
class Size:
    """How large: episodes of the simulated practice, and of the real one."""

    simulated: int = 500
    real: int = 100
    starts: int = STARTS
    # Of all practices: those of results.md for few episodes, and of the simulated one.
    few: Mapping[str, Value] = field(
        default_factory=lambda: {
            "practice.lanes": 10,
            "practice.warmup_episodes": 50,
            "practice.critic_updates": 4000,
            "practice.updates_per_decision": 1.0,
            "practice.parent_share": 0.2,
        }
    )
    usual: Mapping[str, Value] = field(default_factory=dict[str, Value])


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row: what is learned, over which parent, with what of the settings."""

    policy: str
    parent: str = "flow"
    demonstrations: float = 0.0
    settings: Mapping[str, Value] = field(default_factory=dict[str, Value])


ALGORITHMS = {
    "re-ranking": Algorithm("idql"),
    "residual": Algorithm("residual"),
    "filtered BC": Algorithm("filtered_bc"),
    "DSRL": Algorithm("dsrl"),
    "RLPD": Algorithm("rlpd", demonstrations=0.5),
    "ReinFlow": Algorithm("reinflow"),
    "DPPO": Algorithm("dppo", parent="diffusion"),
}


def parent_of(folder: Path, name: str) -> Path:
    """A parent by its recipe; trained where it is not there, gone on with where it stopped."""
    recipe, steps = RECIPES[name]
    store, out = demonstrations_in(folder), folder / name
    argv = ["train", "--config", recipe, "--store", str(store), "--out", str(out), "--resume"]
    command([*argv, "--fit.max-minutes", "None", "--fit.steps", str(steps)])
    return out


def demonstrations_in(folder: Path) -> Path:
    """The recordings that come with the package, as a store."""
    store = folder / "store"
    if not store.is_dir():
        command(["data", "import", str(pusht_demonstrations_path()), "--out", str(store)])
    return store


def practised(
    folder: Path,
    name: str,
    parent: Path,
    world: str,
    settings: Mapping[str, Value],
    second: SecondStore | None = None,
    policy: str = "idql",
) -> FinetuneResult:
    """One practice; reused where it is finished, gone on with where it stopped."""
    # Tested from the suite's starts afterwards, together.
    tests: Mapping[str, Value] = {"practice.test_every": 0, "practice.test_starts": 1}
    config = folder / f"{policy}.yaml"
    config.write_text(f"policy: {policy}\n", encoding="utf-8")
    experiment = practice_experiment(load_run(parent), config, {**tests, **settings})
    store, out = folder / f"{name}_store", folder / name
    result = finetune(experiment, parent, (world,), store, out, second=second, resume=True)
    print(
        f"{name}: {result.episodes} episodes, {result.decisions} decisions, {result.updates}"
        f" updates, {result.cpu_seconds / 60:.1f} CPU-minutes ({result.ended})",
        flush=True,
    )
    return result


def compare(folder: Path, parent: Path, runs: Sequence[Path], starts: int, world: str) -> None:
    """Try the parent and ``runs`` from the same starts of ``world``; print a line for each."""
    out = folder / f"{parent.name}_{world.replace('/', '_')}_results"
    options = EvaluateOptions(
        suite=SUITE, worlds=(world,), conditions=starts, workers=0, batch=BATCH, videos=0
    )
    evaluate([parent, *runs], out, options)
    found: dict[str, dict[str, bool]] = {}
    for trial in read_trials(out):
        found.setdefault(trial.policy, {})[trial.condition] = trial.success
    before = found[parent.name]
    for name, trials in found.items():
        rate = wilson(sum(trials.values()), len(trials))
        both = [(before[c], after) for c, after in trials.items() if c in before]
        gained, lost = (sum(pair == one for pair in both) for one in ((False, True), (True, False)))
        p = mcnemar_exact([a for a, _ in both], [b for _, b in both])
        print(
            f"{name}: {sum(trials.values())}/{len(trials)} = {rate.text()} in {world};"
            f" {gained} gained, {lost} lost beside {parent.name}, p = {p:.3g}",
            flush=True,
        )


def mixing(folder: Path, real: str = JUDGED, size: Size = Size()) -> None:
    """Practise with every share, and compare."""
    parent = parent_of(folder, "flow")
    usual = {**size.usual, "practice.max_episodes": size.simulated}
    practised(folder, "simulated", parent, SIM, usual)
    few = {**size.few, "practice.max_episodes": size.real}
    store = SecondStore(folder / "simulated_store", practised=True)
    runs: list[Path] = []
    for share in SHARES:
        # Nothing real: the batch is filled with simulated episodes of its own.
        world, other = (SIM, 0.5) if share == 0.0 else (real, 1.0 - share)
        settings = {**few, "practice.demonstrations": other}
        name = f"real_{share:g}_of_{real.replace('/', '_')}"
        practised(folder, name, parent, world, settings, store if other else None)
        runs.append(folder / name)
    compare(folder, parent, [folder / "simulated", *runs], size.starts, real)


def algorithms(folder: Path, minutes: float = MINUTES, size: Size = Size()) -> None:
    """Practise with every algorithm for so many minutes of computing, and compare."""
    by_parent: dict[Path, list[Path]] = {}
    for title, one in ALGORITHMS.items():
        parent = parent_of(folder, one.parent)
        shown = one.demonstrations
        settings = {
            **size.usual,
            **one.settings,
            "practice.max_cpu_minutes": minutes,
            "practice.demonstrations": shown,
        }
        second = SecondStore(demonstrations_in(folder)) if shown else None
        name = f"{one.policy}_{minutes:g}"
        print(title, end=" ")
        practised(folder, name, parent, SIM, settings, second, one.policy)
        by_parent.setdefault(parent, []).append(folder / name)
    for parent, runs in by_parent.items():
        compare(folder, parent, runs, size.starts, JUDGED)


if __name__ == "__main__":
    _folder, _what, *_more = sys.argv[1:]
    _option = _more[0] if _more else ""
    if _what == "mixing":
        mixing(Path(_folder), _option or JUDGED)
    else:
        algorithms(Path(_folder), float(_option or MINUTES))
