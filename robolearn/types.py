"""Defines the data that crosses packages: frozen, slotted dataclasses with numpy arrays.

Times are nanoseconds on the clock of the env (``Env.now_ns``): simulated time in simulation,
``time.monotonic_ns`` on hardware.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from robolearn.shapes import (
    AnyArray,
    FloatRows,
    OwnFlags,
    OwnIndex,
    OwnRows,
    OwnTimes,
)

Signals = Mapping[str, AnyArray]
# b: requests, n: candidates, h: horizon, k: actions to continue, a: numbers of an action
RequestNumbers = Int64[NDArray[np.int64], " b"]
# The policy compares these sizes with the request's, and says what it expected.
Prefixes = Float64[NDArray[np.float64], "_ _ a"]
PrefixWeights = Float64[NDArray[np.float64], "_ _"]
Candidates = Float64[NDArray[np.float64], "b n h a"]
Scores = Float64[NDArray[np.float64], "b n"]

# Why an episode ended that a supervisor stopped.
SAFETY_STOP = "safety_stop"


def no_signals() -> Signals:
    """The empty named collection (a default factory)."""
    return {}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one signal with its own capture time."""

    t_ns: int
    value: AnyArray
    # Of a picture: the plain JPEG of which ``value`` was decoded, as its camera sent it; empty for
    # none. Whoever changes a value leaves it out.
    file: bytes = b""


@dataclass(frozen=True, slots=True)
class Observation:
    """The newest aligned view at a tick: for every signal the newest sample, with its time."""

    t_ns: int
    samples: Mapping[str, Sample]

    def value(self, name: str) -> AnyArray:
        """The newest value of a signal."""
        return self.samples[name].value


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Consecutive samples of one signal: ``t_ns [n]``, ``value [n, *shape]``, ``valid [n]``."""

    # Lengths are compared when an episode is validated. Pictures that are written as they come have
    # times here and no rows.
    t_ns: OwnTimes
    value: OwnRows
    valid: OwnFlags
    # As :attr:`Sample.file`, of every row; empty: of none of them.
    files: tuple[bytes, ...] = ()

    def then(self, later: SampleBlock) -> SampleBlock:
        """Both, one after the other."""
        files = ()
        if self.files or later.files:
            files = tuple(file for b in (self, later) for file in b.files or (b"",) * len(b.t_ns))
        return SampleBlock(
            np.concatenate([self.t_ns, later.t_ns]),
            np.concatenate([self.value, later.value]),
            np.concatenate([self.valid, later.valid]),
            files,
        )


@dataclass(frozen=True, slots=True)
class SentBlock:
    """What was really sent since the last tick, by command: ``seq [n]``, ``t_ns [n]`` and, for
    each action signal, ``action[name] [n, *shape]``.
    """

    seq: OwnIndex
    t_ns: OwnTimes
    action: Signals

    def then(self, later: SentBlock) -> SentBlock:
        """Both, one after the other."""
        action = {n: np.concatenate([v, later.action[n]]) for n, v in self.action.items()}
        seq, t_ns = (self.seq, later.seq), (self.t_ns, later.t_ns)
        return SentBlock(np.concatenate(seq), np.concatenate(t_ns), action)


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """All samples since the last ``drain``, at their own rates, and what was sent."""

    signals: Mapping[str, SampleBlock]
    sent: SentBlock

    def then(self, later: SampleBatch) -> SampleBatch:
        """Both, of the same signals, one after the other."""
        signals = {name: block.then(later.signals[name]) for name, block in self.signals.items()}
        return SampleBatch(signals, self.sent.then(later.sent))


@dataclass(frozen=True, slots=True)
class Command:
    """A decision for one tick.

    ``action`` has one array per action signal; ``due_ns`` is when it should take effect; ``plan``
    ``[k, action_size]`` are the following actions if known, flat in the order of the embodiment's
    actions (a supervisor decelerates along them);
    ``source`` says who decided (``policy``, ``scripted``, ``replay``, ``human:browser``, ...).
    """

    seq: int
    action: Signals
    due_ns: int
    source: str
    plan: FloatRows | None = None


Variant = Literal["", "moved", "noise"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Where an episode starts: a seed and explicit values of settable signals.

    ``poses`` maps signal names (``tool/xy_table``, ``block/pose``) to values in SI units.
    ``variant``: empty as a suite lists it; ``moved``: the start moved a little; ``noise``: the same
    start with another seed.
    """

    id: str
    seed: int
    poses: Mapping[str, tuple[float, ...]]
    variant: Variant = ""


@dataclass(frozen=True, slots=True)
class ResetReport:
    """Requested and achieved start of an episode.

    ``standard_errors``: how far off ``achieved`` may be, by signal, of the position [m] and of the
    rotation [rad]; what is not in it is exact, or nobody knows.
    """

    requested: Condition
    achieved: Signals
    note: str = ""
    standard_errors: Mapping[str, tuple[float, float]] = field(
        default_factory=dict[str, tuple[float, float]]
    )


@dataclass(frozen=True, slots=True)
class Outline:
    """What a thing looks like from above: ``polygons`` in its own frame [m], each filled.

    ``at``: where it stands for good (x, y, yaw), None: where the thing of this name is.
    """

    name: str
    polygons: tuple[tuple[tuple[float, float], ...], ...]
    at: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the task stands now.

    ``progress`` is in [0, 1] (Push-T: min(1, coverage / 0.95)); ``success`` is sticky within an
    episode; ``terminal``: the task is over (do not bootstrap); ``truncated``: only the recording
    stops. ``reason`` is empty while running, else one word (``success``, ``time_limit``,
    ``physics_diverged``, ``safety_stop``, ``operator``, ``aborted``, or a failure that the task
    names). ``trouble`` is what went wrong last while the task still runs (``dropped``,
    ``missed_grasp``, ``jammed``): the reason if time runs out before it is mended.
    ``metrics`` carries task figures (Push-T: ``coverage``).
    """

    success: bool
    progress: float
    reward: float
    terminal: bool = False
    truncated: bool = False
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    trouble: str = ""

    def cut_short(self, reason: str, *, success: bool = False) -> Outcome:
        """How the episode ended where something else than the task ended it now."""
        return Outcome(
            success=success,
            progress=self.progress,
            reward=self.reward,
            truncated=True,
            reason=reason,
            metrics=self.metrics,
        )


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an env can do."""

    settable_poses: bool
    true_state: bool
    faster_than_real_time: bool


@dataclass(frozen=True, slots=True)
class EpisodeHeader:
    """Told to subscribers before the first tick. ``provenance`` holds JSON values only."""

    task: str
    agent: str
    env: str
    reset: ResetReport
    start_wall_ns: int
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tick:
    """One turn of the loop, as told to subscribers after the env has advanced.

    ``drained`` holds every sample captured since the previous tick's drain, among them each
    sample that ``observation`` shows. ``outcome`` is the outcome after the command was applied.
    ``inference_ns`` is the latency of the reply used, 0 without one; ``overrun_ns`` how late the
    loop was for this tick (real time only).
    """

    index: int
    observation: Observation
    command: Command
    drained: SampleBatch
    outcome: Outcome
    inference_ns: int = 0
    overrun_ns: int = 0


@dataclass(frozen=True, slots=True)
class PolicyInput:
    """What a policy sees, batched.

    ``observations[name]`` is ``[batch, n_obs, *shape]`` in SI units, oldest first; ``t_ns [batch]``
    the time of the newest observation; ``seed [batch]`` makes sampling a pure function of the
    request (the same request gives the same actions in any batch, process or machine).
    ``prefix [batch, k, action_size]``: the actions that the chunk should continue, the first at the
    time of the newest observation, with ``prefix_weight [batch, k]`` in [0, 1]: 1 is executed
    whatever the answer is, less is a wish, 0 is free (``robolearn/agents/realtime.py``; all 1 if
    left out).
    """

    observations: Signals
    t_ns: RequestNumbers
    seed: RequestNumbers
    prefix: Prefixes | None = None
    goal: Signals = field(default_factory=no_signals)
    task: tuple[str, ...] = ()
    prefix_weight: PrefixWeights | None = None


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """``actions [batch, n, horizon, action_size]`` in SI units, best candidate first.

    Index 0 of the horizon is the action at the time of the newest observation. ``scores
    [batch, n]``: higher is better (zeros when the policy has no opinion). ``t_ns [batch]`` repeats
    the request's time; ``latency_ns`` is what the computation took. ``extras``: diagnostics per
    row, e.g. ``changed [batch]`` of a re-ranked policy.
    """

    actions: Candidates
    scores: Scores
    t_ns: RequestNumbers
    latency_ns: int = 0
    extras: Signals = field(default_factory=no_signals)


TrialKind = Literal["sim", "lab", "robot"]
TrialStatus = Literal["started", "finished", "aborted", "voided"]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """The scored result of one episode under one condition; the same schema for sim and real.

    ``kind``: a simulated env, a virtual lab behind the real wire protocols, or a robot. ``score``:
    maximum progress over the episode; ``return_``: sum of rewards; ``metrics``: JSON numbers
    (Push-T: ``max_coverage``; deployments: latency percentiles, overruns). ``code``: hash of the
    sources that decide the result; ``libraries``: their versions; ``batch``: environments per
    batched forward pass.

    ``status``: a trial that was ``aborted`` while the policy was in charge counts as a failure; one
    that is ``started`` still runs, and one that was ``voided`` (for a reason that is not its
    outcome, see ``note``) is no result: these two are in no rate.
    """

    policy: str
    policy_hash: str
    env: str
    env_hash: str
    engine: str
    kind: TrialKind
    condition: str
    seed: int
    success: bool
    score: float
    final_progress: float
    return_: float
    steps: int
    duration_s: float
    reason: str
    commit: str
    suite: str = ""
    episode: str = ""
    video: str = ""
    operator: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    code: str = ""
    batch: int = 1
    # Which start of the condition, see Condition.
    variant: Variant = ""
    # Hash of the classifier that decided on success; empty: the world did.
    judge: str = ""
    status: TrialStatus = "finished"
    # Why it was aborted or voided, and what the reset said, in words.
    note: str = ""
    # When it began, UTC, ISO 8601. Not compared: the same trial run again is the same trial.
    started: str = field(default="", compare=False)
    # Hash of the plan that it was run under, its number there, and what the policy is called while
    # people must not know which one it is.
    plan: str = ""
    slot: int | None = None
    alias: str = ""
    # Where it really began (signal -> value, as measured), and how far off it was allowed to be
    # (position_m, angle_rad, ...); empty: no tolerance was given.
    achieved: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    tolerance: Mapping[str, float] = field(default_factory=dict[str, float])
    # As "mujoco 3.8.1, numpy 1.26.4, ..."; empty: a real world, or an earlier release.
    libraries: str = ""
    # How far off ``achieved`` may be by the word of what measured it (signal -> position [m],
    # rotation [rad], standard deviations); of what is not in it nobody said.
    standard_errors: Mapping[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )
