"""Evaluation: what the framework adds to a bare loop, workers, Ray, and bytes per trial.

The framework's share in CPU seconds, because wall clock on a shared machine says little; workers by
the wall clock, on a quiet machine only (``python -m tests.benchmarks.run eval --long``). The policy
is a cheap one, so that the share of the framework is at its largest.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np

from eval.trials.progress import Progress
from eval.trials.rollouts import Chunk, Options, Plan, PolicyEntry, WorldEntry, evaluate
from eval.trials.suites import load_suite
from eval.trials.table import TrialStore, read_trials
from robolearn.operations.builders import env_builder
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, PolicyInput
from tests.eval.mocks import BuildPolicy

WORLD = "pusht_ur5e"
STEPS = 300
SUITE = Path(__file__).parents[2] / "configs" / "eval" / "pusht.yaml"


def rows(long: bool = False) -> list[dict[str, object]]:
    """CPU time of the framework over a bare loop; with ``long`` (six minutes on a quiet machine)
    two workers against one and Ray against processes by the wall clock; bytes per trial.
    """
    few, many = load_suite(SUITE).select(30 if long else 6), load_suite(SUITE).select(100)
    bare, framed = _paired(lambda: _bare(few), lambda: _framed(few, 1, 0), turns=3 if long else 1)
    found = [_row("the framework against a bare loop", "CPU s", framed, bare, most=1.10)]
    found[0]["why"] = f"{len(few)} episodes, batch 1, in process"
    if long:
        found += _spread(many)
    return found + _bytes()


def _spread(conditions) -> list[dict[str, object]]:
    """Seconds per trial after the first result, so that starting the workers is told apart."""
    runs: dict[tuple[int, str], list[tuple[float, float, float]]] = {}
    for _ in range(2):
        for workers, executor in ((1, "processes"), (2, "processes"), (2, "ray")):
            found = _timed(conditions, workers, executor)
            runs.setdefault((workers, executor), []).append(found)
    start, pace, wall = ({k: min(r[i] for r in rows) for k, rows in runs.items()} for i in range(3))
    one, two, ray = (1, "processes"), (2, "processes"), (2, "ray")
    why = f"{len(conditions)} episodes, batch 2; the better of two turns"
    rows = [
        _row("two workers against one, start included", "s", wall[two], wall[one], 1 / 1.7),
        _row("two workers against one, after start", "s per trial", pace[two], pace[one], 1 / 1.7),
        _row("Ray against two processes, after start", "s per trial", pace[ray], pace[two], 1.15),
        _row("until the first result, Ray against processes", "s", start[ray], start[two]),
    ]
    return [row | {"why": why} for row in rows]


def _timed(conditions, workers: int, executor: str) -> tuple[float, float, float]:
    """Time to the first result, time per trial after it, time for everything [s]."""
    at: list[tuple[float, int]] = []
    begin = time.perf_counter()
    _framed(conditions, 2, workers, executor, lambda p: at.append((time.perf_counter(), p.added)))
    end = time.perf_counter()
    rest = sum(added for _, added in at[1:])
    return at[0][0] - begin, (at[-1][0] - at[0][0]) / rest, end - begin


def _row(
    name: str, unit: str, ours: float, reference: float | None = None, most: float | None = None
) -> dict[str, object]:
    ratio = None if reference is None else round(ours / reference, 3)
    return {
        "name": f"evaluation in {WORLD}: {name}",
        "unit": unit,
        "ours": round(ours, 4),
        "reference": reference,
        "ratio": ratio,
        "floor": "" if most is None else f"at most {most:.2f}",
        "holds": None if most is None or ratio is None else ratio <= most,
        "why": "",
    }


def _paired(a: Callable[[], object], b: Callable[[], object], turns: int) -> tuple[float, float]:
    """The least CPU time of each over alternating turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for kept, run in zip(times, (a, b), strict=True):
            before = _cpu()
            run()
            kept.append(_cpu() - before)
    return min(times[0]), min(times[1])


def _cpu() -> float:
    own, children = (
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _bare(conditions) -> list[float]:
    """What a script would do: reset, ask the policy every eighth step, step, keep the best."""
    env, policy = env_builder(WORLD)(), BuildPolicy()()
    best: list[float] = []
    for condition in conditions:
        env.reset(condition, np.random.default_rng(condition.seed))
        top, plan = 0.0, np.zeros((0, 2))
        last = env.observe()
        for step in range(STEPS):
            now = env.observe()
            if step % 8 == 0:
                pair = {
                    name: np.stack([last.value(name), now.value(name)])[None]
                    for name in (TOOL, BLOCK)
                }
                seed = np.array([condition.seed + step])
                reply = policy.sample(PolicyInput(pair, np.array([now.t_ns]), seed))
                plan = reply.actions[0, 0]
            env.apply(Command(step, {TOOL: plan[step % 8]}, now.t_ns, "policy"))
            env.advance()
            env.drain()
            last, outcome = now, env.outcome()
            top = max(top, outcome.progress)
            if outcome.terminal:
                break
        best.append(top)
    return best


def _framed(
    conditions,
    batch: int,
    workers: int,
    executor: str = "processes",
    told: Callable[[Progress], None] | None = None,
) -> None:
    builder = env_builder(WORLD)
    world = WorldEntry(WORLD, "bench", "mujoco", builder)
    policy = PolicyEntry("p", "bench", BuildPolicy())
    options = Options(
        suite="bench@1", task="pusht", max_steps=STEPS, batch=batch, workers=workers,
        executor="ray" if executor == "ray" else "processes",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, TrialStore(Path(folder)) as store:
        evaluate([policy], [world], {WORLD: conditions}, store, options, told)


def _bytes() -> list[dict[str, object]]:
    """What crosses between head and worker, and what a trial takes on disk."""
    world = WorldEntry(WORLD, "bench", "mujoco", env_builder(WORLD))
    policy = PolicyEntry("p", "bench", BuildPolicy())
    options = Options(suite="bench@1", task="pusht", max_steps=5, batch=10)
    plan = Plan((policy,), (world,), options)
    conditions = load_suite(SUITE).select(10)
    chunk = Chunk(0, 0, conditions)
    with tempfile.TemporaryDirectory() as folder:
        with TrialStore(Path(folder)) as store:
            evaluate([policy], [world], {WORLD: conditions}, store, options)
        records = read_trials(Path(folder))
        begin = _cpu()
        with TrialStore(Path(folder) / "again") as store:
            for i in range(100):
                store.add([_renamed(r, i) for r in records])
        commit = (_cpu() - begin) / 100
        size = sum(p.stat().st_size for p in (Path(folder) / "again").iterdir()) / 1000
    return [
        _row("a task of 10 trials", "B", len(ForkingPickler.dumps(chunk))),
        _row("its result", "B", len(ForkingPickler.dumps(records))),
        _row("the plan, once per worker", "B", len(ForkingPickler.dumps(plan))),
        _row("a trial on disk", "B", round(size)),
        _row("commit of 10 trials", "ms", round(1e3 * commit, 2)),
    ]


def _renamed(record, i: int):
    import dataclasses

    return dataclasses.replace(record, condition=f"{record.condition}-{i}")
