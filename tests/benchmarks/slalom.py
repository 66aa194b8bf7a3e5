"""A task that inference delays hurt: past three posts, each on either side, both equally often.

    python -m tests.benchmarks.slalom RUNS [RATE,...] [SEED,...] [STARTS]

Made for the question of ``docs/deploy.md``: a chunk that changes its mind about a side half-way
drives into the post. The tool follows its target by Push-T's law (``robolearn/arms/limiter.py``);
touching a post ends the episode. Demonstrations drive along a smooth path at 0.12 to 0.18 m/s and
choose every side by a coin; before a post there is no sign of the choice. Policies are trained here
(``robolearn.training.experiment.train``), one per rate and seed, into RUNS/slalom_<rate>hz_<seed>.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from eval.statistics.clusters import mean_two_way
from eval.statistics.intervals import Estimate
from policies.chunks.guidance import GuidanceConfig
from policies.chunks.policy import FieldChunkPolicy
from policies.imitation.flow import FlowConfig
from policies.registry import load_policy
from robolearn.contracts import Env
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.decoded import FramePart
from robolearn.errors import DataError
from robolearn.pusht import TOOL, target_action, tool_signal
from robolearn.spec import EmbodimentSpec, TaskSpace
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    Sample,
    SampleBatch,
    SampleBlock,
    SentBlock,
)

START_X, END_X, MIDDLE_Y = 0.04, 0.47, 0.256
POSTS_X, RADIUS_M, DETOUR_M = (0.15, 0.27, 0.39), 0.028, 0.06
# The path leaves the middle this far before a post and is beside it after _BEND_M [m].
_BEFORE_M, _BEND_M = 0.055, 0.035
_LAW_S, _KP, _KV, _SPEED, _ACCELERATION = 0.01, 100.0, 20.0, 0.5, 6.0
DURATION_S = 8.0
DELAYS_S = (0.0, 0.1, 0.2, 0.3, 0.4)
# The paper asks for delay <= execution <= horizon - delay.
HORIZON_S, EXECUTE_S = 1.2, 0.4


def law(x: np.ndarray, v: np.ndarray, target: np.ndarray, period_s: float) -> list[np.ndarray]:
    """Positions of the tool during one control period, every 10 ms; ``v`` is changed."""
    path = [x]
    for _ in range(round(period_s / _LAW_S)):
        a = _KP * (target - path[-1]) - _KV * v
        a *= min(1.0, _ACCELERATION / max(float(np.hypot(*a)), 1e-9))
        v += a * _LAW_S
        v *= min(1.0, _SPEED / max(float(np.hypot(*v)), 1e-9))
        path.append(path[-1] + v * _LAW_S)
    return path[1:]


def touches(path: Sequence[np.ndarray]) -> bool:
    """Whether a post is touched on the way."""
    posts = np.array([(x, MIDDLE_Y) for x in POSTS_X])
    gaps = np.linalg.norm(np.array(path)[:, None] - posts, axis=2)
    return bool((gaps < RADIUS_M).any())


class SlalomEnv:
    """The tool between the posts; progress is the share of the way."""

    def __init__(self, rate_hz: float) -> None:
        low, high = (0.0, 0.0), (0.512, 0.512)
        action = target_action(low, high, rate_hz)
        self.spec = EmbodimentSpec("slalom", (tool_signal(rate_hz),), (action,), rate_hz)
        self.capabilities = Capabilities(
            settable_poses=True, true_state=True, faster_than_real_time=True
        )
        self._period_ns = round(1e9 / rate_hz)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """At the start of the condition, at rest."""
        del rng
        self.x, self.v = np.array(condition.poses[TOOL]), np.zeros(2)
        self.t_ns, self.hit, self._commands = 0, False, list[Command]()
        return ResetReport(condition, {TOOL: self.x.copy()})

    def now_ns(self) -> int:
        """Simulated time."""
        return self.t_ns

    def observe(self) -> Observation:
        """Where the tool is."""
        self._shown = Sample(self.t_ns, self.x.copy())
        return Observation(self.t_ns, {TOOL: self._shown})

    def apply(self, command: Command) -> None:
        """The next target."""
        self._target = np.asarray(command.action[TOOL], dtype=np.float64)

    def advance(self) -> None:
        """One control period."""
        path = law(self.x, self.v, self._target, self._period_ns * 1e-9)
        self.x, self.hit = path[-1], touches(path)
        self.t_ns += self._period_ns

    def drain(self) -> SampleBatch:
        """What was shown."""
        t_ns = np.array([self._shown.t_ns])
        block = SampleBlock(t_ns, self._shown.value[None], np.ones(1, np.bool_))
        empty = np.zeros(0, dtype=np.int64)
        return SampleBatch({TOOL: block}, SentBlock(empty, empty, {TOOL: np.zeros((0, 2))}))

    def outcome(self) -> Outcome:
        """The share of the way to the end, over when a post is touched."""
        share = float(np.clip((self.x[0] - START_X) / (END_X - START_X), 0.0, 1.0))
        done = share >= 1.0
        reason = "success" if done else "hit" if self.hit else ""
        return Outcome(done, share, share, terminal=done or self.hit, reason=reason)

    def close(self) -> None:
        """Nothing."""


def side_path(x: float, sides: Sequence[int]) -> float:
    """The y of a demonstration at ``x`` [m]."""
    y = MIDDLE_Y
    for post, side in zip(POSTS_X, sides, strict=True):
        near = np.clip((_BEFORE_M - abs(x - post)) / _BEND_M, 0.0, 1.0)
        y += side * DETOUR_M * near * near * (3.0 - 2.0 * near)
    return float(y)


@functools.cache
def demonstration(seed: int, rate_hz: float) -> tuple[np.ndarray, np.ndarray]:
    """Observed positions and commanded targets ``[T, 2]`` of one drive that touches nothing."""
    rng = np.random.default_rng(seed)
    sides = rng.choice((-1, 1), len(POSTS_X)).tolist()
    speed = rng.uniform(0.12, 0.18)
    x, v = np.array(start(seed)), np.zeros(2)
    ahead, offset = x[0], x[1] - MIDDLE_Y
    seen, asked = list[np.ndarray](), list[np.ndarray]()
    drift = np.zeros(2)
    for _ in range(round(DURATION_S * rate_hz)):
        ahead += speed / rate_hz
        offset *= 1.0 - 1.0 / rate_hz
        drift += -drift / (0.3 * rate_hz) + rng.normal(0.0, 0.002, 2) / np.sqrt(0.3 * rate_hz)
        target = np.array([ahead, side_path(ahead, sides) + offset]) + drift
        seen.append(x)
        asked.append(np.clip(target, 0.0, 0.512))
        path = law(x, v, asked[-1], 1.0 / rate_hz)
        if touches(path):
            raise DataError(f"demonstration {seed} touches a post")
        x = path[-1]
        if x[0] >= END_X:
            return np.array(seen), np.array(asked)
    raise DataError(f"demonstration {seed} does not arrive")


def start(seed: int) -> tuple[float, float]:
    """Where an episode starts."""
    rng = np.random.default_rng([seed, 7])
    return (START_X + float(rng.uniform(-0.01, 0.01)), MIDDLE_Y + float(rng.uniform(-0.01, 0.01)))


@dataclass(frozen=True)
class Drives:
    """Demonstrations as a source of training data."""

    rate_hz: float
    count: int = 400

    @property
    def content_hash(self) -> str:
        """Changes with the demonstrations."""
        return f"slalom-{self.rate_hz:g}-{self.count}-3"

    @property
    def task_space(self) -> TaskSpace:
        """The tool, observed and commanded."""
        return SlalomEnv(self.rate_hz).spec.task_space([TOOL])

    @property
    def steps(self) -> tuple[int, ...]:
        """Ticks of every drive."""
        return tuple(len(demonstration(k, self.rate_hz)[0]) for k in range(self.count))

    def episodes(self, images: bool = True) -> Iterable[EpisodeArrays]:
        """All drives."""
        del images
        for k in range(self.count):
            seen, asked = demonstration(k, self.rate_hz)
            last = np.arange(len(seen)) == len(seen) - 1
            yield EpisodeArrays(str(k), {TOOL: seen}, asked, np.zeros(len(seen)), last)

    def frames(self, name: str) -> Sequence[FramePart]:
        """None."""
        raise DataError(f"no pictures of {name}")


def policy_at(runs: Path, rate_hz: float, seed: int) -> FieldChunkPolicy:
    """The policy of a rate; trained first if it is not there (a minute of a free core)."""
    algorithm = FlowConfig(
        n_obs=3,
        horizon=round(HORIZON_S * rate_hz),
        execute=round(EXECUTE_S * rate_hz),
        width=128,
        octaves=3,
        relative=(),
        anchor=1.0,
        batch_size=64,
        observation_noise=0.0005,
        time_shift=1.0,
        sampler_steps=10,
        max_prefix=round(DELAYS_S[-1] * rate_hz) + 1,
    )
    fit = FitConfig(steps=6000, warmup=100, log_every=200, checkpoint_every=6000)
    experiment = Experiment("flow", DataConfig((TOOL,)), algorithm, fit, seed)
    out = runs / f"slalom_{rate_hz:g}hz_{seed}"
    with tempfile.TemporaryDirectory() as cache:
        train(experiment, Drives(rate_hz), out, resume=True, cache_dir=Path(cache))
    return cast("FieldChunkPolicy", load_policy(out, 1))


def conditions(count: int, first: int = 10_000) -> list[Condition]:
    """Starts that no demonstration has."""
    return [Condition(f"s{k}", k, {TOOL: start(k)}) for k in range(first, first + count)]


@dataclass(frozen=True, slots=True)
class Method:
    """How chunks are executed, and how a request with a prefix is answered."""

    agent: str
    guidance: GuidanceConfig = GuidanceConfig()  # noqa: RUF009 (frozen)


METHODS = {
    "wait": Method("wait"),
    "naive": Method("async"),
    "guided": Method("rtc", GuidanceConfig(trained=False)),
    "trained": Method("rtc"),
    "stiff": Method("rtc", GuidanceConfig(max_weight=10.0, deviation=0.5, trained=False)),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of the table: progress, how many of ``n`` drives arrive, and the share of the progress
    without a delay (naive; the same drives), with 95 % intervals over training seeds and starts.
    """

    rate_hz: float
    delay_s: float
    method: str
    progress: Estimate
    share: Estimate
    arrived: int
    n: int

    @property
    def line(self) -> str:
        """For the docs."""
        p, s = self.progress, self.share
        return (
            f"| {self.rate_hz:g} Hz | {1e3 * self.delay_s:.0f} ms | {self.method}"
            f" | {p.value:.3f} [{p.low:.2f}, {p.high:.2f}] | {s.value:.3f} [{s.low:.2f},"
            f" {s.high:.2f}] | {self.arrived} of {self.n} |"
        )


def progress(
    policies: Sequence[FieldChunkPolicy], method: Method, delay_s: float, count: int
) -> np.ndarray:
    """Progress ``[policies, count]``."""
    # Here, because the benchmark itself uses this module.
    from tests.benchmarks.bench_rtc import roll

    scores = list[list[float]]()
    for policy in policies:
        rate_hz = policy.spec.task_space.rate_hz
        policy.guidance = method.guidance
        envs: list[Env] = [SlalomEnv(rate_hz) for _ in range(count)]
        told = (envs, method.agent, delay_s, conditions(count), [()] * count, DURATION_S)
        scores.append([r.score for r in roll(policy, *told)])
    return np.array(scores)


def two_way(values: np.ndarray) -> Estimate:
    """Mean of ``values [seeds, starts]``."""
    seeds, starts = np.indices(values.shape)
    return mean_two_way(values.ravel(), seeds.ravel().tolist(), starts.ravel().tolist())


def share(values: np.ndarray, reference: np.ndarray) -> Estimate:
    """Ratio of the means of two arrays ``[seeds, starts]`` over the same drives; its interval by
    the delta method.
    """
    ratio = values.mean() / reference.mean()
    return two_way(ratio + (values - ratio * reference) / reference.mean())


def table(runs: Path, seeds: Sequence[int], count: int, rate_hz: float) -> list[Row]:
    """All delays and methods at one rate, printed as they come."""
    policies = [policy_at(runs, rate_hz, seed) for seed in seeds]
    reference = progress(policies, METHODS["naive"], 0.0, count)
    out = list[Row]()
    for delay_s in DELAYS_S:
        for name, method in METHODS.items():
            # Another weight of the guidance is compared where it has most to do.
            if name in {0.0: ("wait", "stiff"), DELAYS_S[-1]: ()}.get(delay_s, ("stiff",)):
                continue
            found = progress(policies, method, delay_s, count)
            told = (two_way(found), share(found, reference), int((found >= 1.0).sum()), found.size)
            out.append(Row(rate_hz, delay_s, name, *told))
            print(out[-1].line, flush=True)
    return out


if __name__ == "__main__":
    given = [*sys.argv[1:], *("", "", "", "")][:4]
    for rate in (given[1] or "10,20,50").split(","):
        wanted = [int(seed) for seed in (given[2] or "0,1,2").split(",")]
        table(Path(given[0] or "runs/rtc"), wanted, int(given[3] or 100), float(rate))
