"""Compares the lockstep loop of two states of this repository, in turns, and its bits.

    git worktree add ../before 0ab2fbb5
    python -m tests.benchmarks.lockstep_between ../before [ROUNDS]

Each state flies the same rounds (16 lanes of ``pusht_reference`` by a flow policy of the demo's
size, its weights at random) in a process of its own; who is measured first changes from round to
round. CPU time of one thread. Networks may be computed otherwise since then: whether the loop has
the same bits is seen in a round that is not counted, by a policy that pushes the block in plain
numbers; the areas that scores come from may be added up in another order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
WORLD, LANES, STEPS = "pusht_reference", 16, 300
FLOOR = 1.5


@dataclass(frozen=True, slots=True)
class Round:
    """What one state made of a round: its steps, their CPU seconds, a hash of where everything was
    in the end, and the scores. Round 0 is flown by :func:`pushing`.
    """

    steps: int
    cpu_s: float
    bits: str
    scores: list[float]


class State:
    """A checkout, whose process flies a round when it is asked to."""

    def __init__(self, checkout: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE), "--fly"],
            cwd=checkout,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fly(self, number: int) -> Round:
        """Round ``number``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        return Round(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30.0)


@contextlib.contextmanager
def states(checkouts: tuple[Path, Path]) -> Generator[tuple[State, State]]:
    """Both, as they are in their folders."""
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(contextlib.closing(State(c))) for c in checkouts]
        yield made[0], made[1]


def main(before: str, rounds: int = 5) -> None:
    """Print the rates, their ratio, and whether the bits are the same."""
    found: list[tuple[Round, Round]] = []
    with states((Path(before).resolve(), HERE.parents[2])) as (old, new):
        for number in range(rounds + 1):
            if number % 2:
                now = new.fly(number)
                found.append((old.fly(number), now))
            else:
                then = old.fly(number)
                found.append((then, new.fly(number)))
    one, other = found[0]
    same = one.bits == other.bits and one.steps == other.steps
    off = max(abs(a - b) for a, b in zip(one.scores, other.scores, strict=True))
    rates = [sorted(pair[k].steps / pair[k].cpu_s for pair in found[1:]) for k in (0, 1)]
    then, now = (r[len(r) // 2] for r in rates)
    print(
        f"{then:.0f} -> {now:.0f} env steps per CPU s (medians of {rounds} rounds):"
        f" {now / then:.2f} times, floor {FLOOR}; the bits {'are the same' if same else 'DIFFER'},"
        f" scores are off by at most {off:.1g}"
    )


def pushing(spec: Any) -> Any:
    """A policy of ``spec`` that goes to the block and through it."""
    import numpy as np

    from robolearn.pusht import BLOCK, TOOL
    from robolearn.types import PolicyOutput

    (action,) = spec.task_space.actions

    class Pushing:
        def __init__(self) -> None:
            self.spec = spec

        def sample(self, request: Any, n: int = 1) -> Any:
            tool = request.observations[TOOL][:, -1, None, :2]
            block = request.observations[BLOCK][:, -1, None, :2]
            share = np.linspace(0.0, 2.0, spec.horizon)[:, None]
            chunk = np.clip(tool + share * (block - tool), action.low, action.high)
            actions = np.repeat(chunk[:, None], n, axis=1)
            return PolicyOutput(actions, np.zeros((len(tool), n)), request.t_ns)

    return Pushing()


def fly() -> None:
    """The process of a state: what it imports is what its folder holds."""
    import torch

    from eval.trials.lanes import Drive, Lanes
    from policies.imitation.flow import FlowConfig
    from policies.registry import load_policy
    from robolearn.agents.execution import Execution
    from robolearn.data.reading.selection import DataConfig
    from robolearn.inference.local import BatchedInference
    from robolearn.pusht import BLOCK, TOOL
    from robolearn.training.experiment import Experiment, train
    from robolearn.training.trainer import FitConfig
    from sim.worlds import make_world
    from tests.learning_mocks import random_source

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        run, data = Path(name) / "run", DataConfig(observations=(TOOL, BLOCK))
        experiment = Experiment("flow", data, FlowConfig(), FitConfig(steps=1, warmup=0))
        train(experiment, random_source((40, 40)), run, cache_dir=Path(name) / "cache")
        flow = load_policy(run)
    lanes = Lanes([lambda: make_world(WORLD)])
    envs: list[Any] = lanes.envs(0, LANES)
    period_ns = round(1e9 / envs[0].spec.rate_hz)
    for line in sys.stdin:
        first, policy = LANES * int(line), flow if int(line) else pushing(flow.spec)
        starts = [envs[0].sample_condition(first + lane) for lane in range(LANES)]
        inference = BatchedInference(policy, 0, period_ns)
        agents = [Execution().agent(policy.spec, envs[0].spec, "bench") for _ in starts]
        drives = [Drive(s, a, inference) for s, a in zip(starts, agents, strict=True)]
        begin = time.process_time()
        results = lanes.fly(0, drives, max_steps=STEPS, task="pusht", env_name=WORLD)
        spent = time.process_time() - begin
        bits = hashlib.sha256(b"".join(env.data.qpos.tobytes() for env in envs))
        told = Round(
            sum(result.steps for result in results),
            spent,
            bits.hexdigest(),
            [result.score for result in results],
        )
        print(json.dumps(dataclasses.asdict(told)), flush=True)
    lanes.close()


if __name__ == "__main__":
    if sys.argv[1] == "--fly":
        fly()
    else:
        main(sys.argv[1], *(int(word) for word in sys.argv[2:]))
