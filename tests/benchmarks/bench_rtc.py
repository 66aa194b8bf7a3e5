"""Progress under inference delays: stop and wait, asynchronous chunks, real-time chunking.

    make bench ONLY=rtc                                    # 10 Hz, if a trained run is there
    python -m tests.benchmarks.bench_rtc RUN [EPISODES] [RATE,...] [METHOD,...]

The table of Push-T in docs/deploy.md comes from the second form: ``pusht_reference``; the policy's
actions last 100 ms each at every control rate, delays are exact on the simulated clock. A task that
delays hurt: ``tests/benchmarks/slalom.py``.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import yaml

from eval.statistics.intervals import mean_t
from eval.trials.suites import load_suite
from policies.chunks.guidance import GuidanceConfig
from policies.chunks.policy import FieldChunkPolicy
from policies.registry import load_policy
from robolearn.agents.actions import clip_action, hold_action
from robolearn.agents.chunk import ChunkAgent, policy_input, ticks_per_action
from robolearn.contracts import Agent, Env, Policy, Subscriber
from robolearn.inference.local import BatchedInference
from robolearn.pusht import TOOL
from robolearn.runtime import EpisodeResult, EpisodeRun, run_lockstep
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    Signals,
    Tick,
)
from sim.scene.load import SCENES
from sim.worlds import make_world

ROOT = Path(__file__).parents[2]
RUN = ROOT / "runs" / "full" / "pusht_flow"
METHODS = ("wait", "async", "rtc")
DELAYS_S = (0.0, 0.1, 0.2, 0.3, 0.4)
DURATION_S = 30.0


class StopAndWait:
    """Asks when the chunk is used up, holds its last action until the answer, starts at its 0."""

    name = "wait"

    def __init__(self, policy: Policy, embodiment: EmbodimentSpec) -> None:
        self._spec = policy.spec
        self._ratio = ticks_per_action(policy.spec.task_space, embodiment)
        self._actions = embodiment.actions
        self._history: deque[Observation] = deque(maxlen=(policy.spec.n_obs - 1) * self._ratio + 1)
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Forget the last episode."""
        self._seed, self._requests, self._seq = seed, 0, 0
        self._history.clear()
        self._plan = np.zeros((0, 2))
        self._used, self._waiting = 0, False
        self._last: Signals | None = None

    def request(self, observation: Observation) -> PolicyInput | None:
        """Ask when nothing is left to execute."""
        self._history.append(observation)
        left = self._spec.execute * self._ratio - self._used
        if self._waiting or (len(self._plan) and left > 0):
            return None
        self._waiting, self._requests = True, self._requests + 1
        seed = child_seed(self._seed, self._requests - 1)
        return policy_input(list(self._history), self._spec, seed, self._ratio)

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next action of the chunk, or the last one again."""
        if reply is not None:
            self._plan, self._used, self._waiting = reply.actions[0, 0], 0, False
        source, action = "hold", self._last or hold_action(self._actions, observation)
        if not self._waiting:
            at = self._plan[self._used // self._ratio]
            action = clip_action(self._actions, self._spec.task_space.split(at))
            self._used, source = self._used + 1, "policy"
        self._last, self._seq = action, self._seq + 1
        return Command(self._seq - 1, action, observation.t_ns, source)


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table: mean score with its 95 % interval, mean progress after 12 s, and how
    rough the commands are: RMS change of the target's step from action to action [mm].
    """

    method: str
    rate_hz: float
    delay_s: float
    n: int
    score: float
    low: float
    high: float
    successes: int
    early: float
    rough_mm: float


class Watch:
    """Remembers the commands and the progress."""

    def __init__(self) -> None:
        self.targets: list[np.ndarray] = []
        self.progress: list[float] = []

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing."""

    def on_tick(self, tick: Tick) -> None:
        """One more."""
        self.targets.append(np.asarray(tick.command.action[TOOL]))
        self.progress.append(tick.outcome.progress)

    def on_end(self, outcome: Outcome) -> None:
        """Nothing."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing."""

    def early(self, rate_hz: float) -> float:
        """Largest progress within 12 s."""
        return max(self.progress[: round(12.0 * rate_hz)])

    def rough_mm(self, ratio: int) -> float:
        """RMS second difference of the commanded target, one value per action."""
        path = 1e3 * np.array(self.targets[::ratio])
        return float(np.sqrt((np.diff(path, n=2, axis=0) ** 2).sum(axis=1).mean()))


def world_at(rate_hz: float, folder: Path) -> str:
    """``pusht_reference`` at another control rate."""
    if rate_hz == 10.0:
        return "pusht_reference"
    out = folder / f"pusht_{rate_hz:g}hz"
    if not out.exists():
        shutil.copytree(SCENES / "pusht_reference", out)
        scene = yaml.safe_load((out / "scene.yaml").read_text())
        scene["rate_hz"] = rate_hz
        for signal in scene["signals"]:
            signal["rate_hz"] = rate_hz
        (out / "scene.yaml").write_text(yaml.safe_dump(scene))
    return str(out)


def pusht_starts(count: int) -> Sequence[Condition]:
    """The first of the suite."""
    return load_suite(ROOT / "configs/eval/pusht.yaml").select(count)


def cell(
    policy: Policy,
    envs: list[Env],
    method: str,
    delay_s: float,
    conditions: Sequence[Condition],
    duration_s: float = DURATION_S,
) -> Cell:
    """Roll one cell out."""
    rate_hz = envs[0].spec.rate_hz
    watches = [Watch() for _ in envs]
    told = [[watch] for watch in watches]
    results = roll(policy, envs, method, delay_s, conditions, told, duration_s)
    scores = [min(1.0, r.score) for r in results]
    mean = mean_t(scores)
    wins = sum(r.outcome.success for r in results)
    early = float(np.mean([w.early(rate_hz) for w in watches]))
    ratio = round(rate_hz / policy.spec.task_space.rate_hz)
    rough = float(np.nanmean([w.rough_mm(ratio) for w in watches]))
    figures = (mean.value, mean.low, mean.high, wins, early, rough)
    return Cell(method, rate_hz, delay_s, len(envs), *figures)


def roll(
    policy: Policy,
    envs: list[Env],
    method: str,
    delay_s: float,
    conditions: Sequence[Condition],
    subscribers: Sequence[Sequence[Subscriber]],
    duration_s: float,
) -> list[EpisodeResult]:
    """One episode in every env, in lockstep; answers come ``delay_s`` after they were asked for."""
    rate_hz = envs[0].spec.rate_hz
    ticks = round(delay_s * rate_hz)
    inference = BatchedInference(policy, ticks, round(1e9 / rate_hz))
    runs = [
        EpisodeRun(
            env,
            _agent(method, policy, env, ticks),
            inference,
            told,
            condition,
            max_steps=round(duration_s * rate_hz),
            task="rtc",
            env_name="rtc",
            env_id=i,
        )
        for i, (env, condition, told) in enumerate(zip(envs, conditions, subscribers, strict=True))
    ]
    return run_lockstep(runs)


def _agent(method: str, policy: Policy, env: Env, ticks: int) -> Agent:
    if method == "wait":
        return StopAndWait(policy, env.spec)
    continued = method.startswith("rtc")
    return ChunkAgent(policy.spec, env.spec, name=method, lead_ticks=ticks, realtime=continued)


def sweep(
    policy: FieldChunkPolicy,
    envs: list[Env],
    methods: Sequence[str],
    conditions: Sequence[Condition],
    duration_s: float = DURATION_S,
) -> list[Cell]:
    """All delays and methods, printed as they come; without a delay only one naive method."""
    cells = list[Cell]()
    for delay_s in DELAYS_S:
        for method in methods:
            if delay_s == 0.0 and method == "wait":
                continue
            policy.guidance = GuidanceConfig(jacobian=method != "rtc-identity")
            start = time.monotonic()
            cells.append(cell(policy, envs, method, delay_s, conditions, duration_s))
            print(cells[-1], f"{time.monotonic() - start:.0f} s", flush=True)
    return cells


def table(run: Path, episodes: int, rates: list[float], methods: list[str]) -> list[Cell]:
    """All cells of Push-T."""
    policy, cells = cast("FieldChunkPolicy", load_policy(run, 1)), list[Cell]()
    with tempfile.TemporaryDirectory() as folder:
        for rate_hz in rates:
            envs: list[Env] = [make_world(world_at(rate_hz, Path(folder))) for _ in range(episodes)]
            cells += sweep(policy, envs, methods, pusht_starts(episodes))
            for env in envs:
                env.close()
    return cells


def rows(long: bool = False) -> list[dict[str, object]]:
    """See ``tests/benchmarks/run.py``: 10 Hz, no delay against the longest."""
    if not RUN.is_dir():
        why = f"no trained run in {RUN.relative_to(ROOT)}; train configs/train/pusht_flow.yaml"
        return [_row("real-time chunking at 400 ms", None, None, None, why)]
    policy = load_policy(RUN, 1)
    envs: list[Env] = [make_world("pusht_reference") for _ in range(25 if long else 10)]
    starts = pusht_starts(len(envs))
    best = cell(policy, envs, "async", 0.0, starts).score
    out = [cell(policy, envs, method, 0.4, starts) for method in METHODS]
    for env in envs:
        env.close()
    holds = {"wait": None, "async": None, "rtc": out[-1].score >= 0.9 * best}
    names = {"wait": "stop and wait", "async": "naive chunking", "rtc": "real-time chunking"}
    told = f"{len(envs)} episodes, 10 Hz"
    return [_row(f"{names[c.method]} at 400 ms", c.score, best, holds[c.method], told) for c in out]


def _row(
    name: str, ours: float | None, reference: float | None, holds: bool | None, why: str
) -> dict[str, object]:
    ratio = None if ours is None or not reference else round(ours / reference, 3)
    shown = [None if v is None else round(v, 3) for v in (ours, reference)]
    return {
        "name": f"{name}, against no delay",
        "unit": "score",
        "ours": shown[0],
        "reference": shown[1],
        "ratio": ratio,
        "floor": ">= 0.9 (real-time chunking)",
        "holds": holds,
        "why": why,
    }


if __name__ == "__main__":
    given = [*sys.argv[1:], *("", "", "", "")][:4]
    done = table(
        Path(given[0] or RUN),
        int(given[1] or 25),
        [float(r) for r in (given[2] or "10").split(",")],
        [str(name) for name in (given[3] or ",".join(METHODS)).split(",")],
    )
    print(json.dumps([dataclasses.asdict(c) for c in done]))
