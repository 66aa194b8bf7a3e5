"""Evaluation: what the framework adds to a bare loop, workers, Ray, and bytes per trial.

CPU seconds (this process and its children), because wall clock on a shared machine says little; the
policy is a cheap one, so that the share of the framework is at its largest.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np

from eval.rollouts import Chunk, Options, Plan, PolicyEntry, WorldEntry, evaluate
from eval.suites import load_suite
from eval.trials import TrialStore, read_trials
from robolearn.cli.build import env_builder
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, PolicyInput
from tests.eval.mocks import BuildPolicy

WORLD = "pusht_ur5e"
STEPS = 300
SUITE = Path(__file__).parents[2] / "configs" / "eval" / "pusht.yaml"


def rows(long: bool = False) -> list[dict[str, object]]:
    """CPU time of the framework over a bare loop, of two workers over one; bytes per trial."""
    n = 500 if long else 20
    conditions = load_suite(SUITE).select(n)
    bare, framed = _paired(lambda: _bare(conditions), lambda: _framed(conditions, 1, 0), turns=3)
    found = [_row("the framework against a bare loop", "CPU s", framed, bare, most=1.10)]
    one, two = _paired(
        lambda: _framed(conditions, 10, 1), lambda: _framed(conditions, 10, 2), turns=1
    )
    found.append(_row("two workers against one, start included", "CPU s", two, one))
    if long:
        walls = [_wall(lambda w=w: _framed(conditions, 10, w)) for w in (1, 2)]
        found.append(_row("two workers against one", "s", walls[1], walls[0], most=1 / 1.7))
        ray = _wall(lambda: _framed(conditions, 10, 2, "ray"))
        found.append(_row("Ray against two processes, its start included", "s", ray, walls[1]))
    return [row | {"why": f"{n} episodes"} for row in found] + _bytes(conditions)


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


def _wall(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


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


def _framed(conditions, batch: int, workers: int, executor: str = "processes") -> None:
    builder = env_builder(WORLD)
    world = WorldEntry(WORLD, "bench", "mujoco", builder)
    policy = PolicyEntry("p", "bench", BuildPolicy())
    options = Options(
        suite="bench@1", task="pusht", max_steps=STEPS, batch=batch, workers=workers,
        executor="ray" if executor == "ray" else "processes",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, TrialStore(Path(folder)) as store:
        evaluate([policy], [world], {WORLD: conditions}, store, options)


def _bytes(conditions) -> list[dict[str, object]]:
    """What crosses between head and worker, and what a trial takes on disk."""
    world = WorldEntry(WORLD, "bench", "mujoco", env_builder(WORLD))
    policy = PolicyEntry("p", "bench", BuildPolicy())
    options = Options(suite="bench@1", task="pusht", max_steps=5, batch=10)
    plan = Plan((policy,), (world,), options)
    chunk = Chunk(0, 0, tuple(conditions[:10]))
    with tempfile.TemporaryDirectory() as folder:
        with TrialStore(Path(folder)) as store:
            evaluate([policy], [world], {WORLD: conditions[:10]}, store, options)
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
