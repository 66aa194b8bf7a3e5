"""Holds one recorded run of the loop in memory.

    ticks (control rate)   t0          t1          t2
    stream "tool/xy"      s0   s1   s2   s3   s4   s5     own capture times, own rate
    view["tool/xy"]        0           2           4      row that the observation showed
    action, reward, ...    a0          a1          a2     one row per tick

A stream keeps every sample that the env delivered; ``view`` says what the agent saw. Commands are
what was asked for, ``sent`` what really went out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from robolearn.errors import DataError, did_you_mean
from robolearn.shapes import (
    AnyRows,
    Flags,
    Floats,
    OwnFlags,
    OwnFloats,
    OwnIndex,
    OwnTimes,
    Times,
)
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Outcome, SampleBlock, SentBlock, Signals

EpisodeKind = Literal[
    "demonstration", "scripted", "rollout", "corrected", "online", "deployment", "play"
]
"""Who acted, and what for: a person showing a task, a program (an expert, also one that plays), a
policy, a policy from which somebody took over, a policy that practises, a policy on a robot;
``play``: a person without a task, in one long recording that ``robolearn data cut`` makes episodes
of.
"""


@dataclass(frozen=True, slots=True)
class EpisodeMeta:
    """Where an episode comes from and how it ended. Only ``demonstration`` enters training.

    ``condition`` is the requested start, ``achieved`` the measured one; ``outcome`` the last one of
    the episode; ``start_wall_ns`` Unix time, 0 when unknown; ``provenance`` holds JSON values
    (source of imported data, configuration, device ids, calibration, recorder statistics).
    """

    kind: EpisodeKind
    task: str
    embodiment: EmbodimentSpec
    condition: Condition
    outcome: Outcome
    agent: str = ""
    env: str = ""
    task_text: str = ""
    operator: str = ""
    start_wall_ns: int = 0
    achieved: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    reset_note: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    git_revision: str = ""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class EpisodeStart:
    """Where an episode was asked to begin: seed and poses (signal -> values), and in which world as
    it was named, with the hash of its scene; empty: not recorded.
    """

    world: str
    seed: int
    poses: dict[str, tuple[float, ...]]
    scene: str = ""

    @staticmethod
    def of(meta: EpisodeMeta) -> EpisodeStart:
        """That of a recorded episode."""
        config: object = meta.provenance.get("config")
        world = ""
        if isinstance(config, Mapping):
            world = str(cast("Mapping[str, Any]", config).get("world", ""))
        poses = {k: tuple(float(x) for x in v) for k, v in meta.condition.poses.items()}
        scene = str(meta.provenance.get("scene_hash", ""))
        return EpisodeStart(world, meta.condition.seed, poses, scene)


@dataclass(frozen=True, slots=True)
class EpisodeInfo:
    """What a listing shows, without reading arrays. ``score``: maximum progress in [0, 1].

    ``success`` is the outcome as annotated, else as recorded; ``labels``, ``split`` and ``notes``
    come from annotations alone.
    """

    id: str
    steps: int
    kind: EpisodeKind
    task: str
    success: bool
    score: float
    duration_s: float
    rate_hz: float
    agent: str
    env: str
    operator: str
    start_wall_ns: int
    signals: tuple[str, ...]
    size_bytes: int
    labels: tuple[str, ...] = ()
    split: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Episode:
    """All data of one episode of ``T`` ticks, in SI units.

    ``streams[name]``: every sample of a signal; ``view[name] [T]``: the row of that stream which
    the observation of the tick showed; ``action[name] [T, *shape]``: commanded; ``seq``,
    ``due_ns``, ``source`` ``[T]``: number, due time and author of the command; ``sent``: what was
    really sent; ``reward``, ``progress``, ``terminal``, ``truncated``, ``inference_ns``,
    ``overrun_ns`` ``[T]``: after the command of the tick was applied.
    """

    meta: EpisodeMeta
    # Lengths are compared by ``robolearn/data/store/validate.py``, which says what is wrong.
    tick_t_ns: OwnTimes
    streams: Mapping[str, SampleBlock]
    view: Mapping[str, OwnIndex]
    action: Signals
    seq: OwnIndex
    due_ns: OwnTimes
    source: tuple[str, ...]
    sent: SentBlock
    reward: OwnFloats
    progress: OwnFloats
    terminal: OwnFlags
    truncated: OwnFlags
    inference_ns: OwnTimes
    overrun_ns: OwnTimes
    id: str = ""

    @property
    def steps(self) -> int:
        """Number of ticks ``T``."""
        return int(self.tick_t_ns.shape[0])

    @property
    def duration_s(self) -> float:
        """Ticks divided by the control rate."""
        return self.steps / self.meta.embodiment.rate_hz

    @property
    def score(self) -> float:
        """Maximum progress over the episode, in [0, 1]."""
        return float(self.progress.max()) if self.steps else 0.0

    @property
    def success(self) -> bool:
        """Whether the task was solved at any time."""
        return self.meta.outcome.success

    @property
    def intervention(self) -> Flags:
        """``[T]``: ticks at which a person took over from a policy (:func:`taken_over`)."""
        return taken_over(self.source)

    @property
    def drivers(self) -> tuple[Driver, ...]:
        """``[T]``: who drove each tick (:func:`drivers`)."""
        return drivers(self.source)

    def observed(self, name: str) -> AnyRows:
        """What the observations showed: ``[T, *shape]``, one row per tick."""
        if name not in self.view:
            raise DataError(
                f"episode {self.id or '(new)'} has no signal '{name}'."
                f"{did_you_mean(name, self.view)} It has: {sorted(self.view)}"
            )
        return self.streams[name].value[self.view[name]]

    def observed_t_ns(self, name: str) -> Times:
        """Capture time ``[T]`` of what the observations showed."""
        return self.streams[name].t_ns[self.view[name]]


Driver = Literal["policy", "human", "script", "replay", "nobody", ""]
_DRIVERS: Mapping[str, Driver] = {
    "policy": "policy",
    "human": "human",
    "operator": "script",
    "scripted": "script",
    "play": "script",
    "replay": "replay",
    "hold": "nobody",
}


def drivers(source: Sequence[str]) -> tuple[Driver, ...]:
    """``[T]``: who drove each tick. ``nobody``: a policy had no plan yet, or a person had let go of
    the device (its clutch); empty: not recorded, or another program.
    """
    found: dict[str, Driver] = {
        name: _DRIVERS.get(name.split(":", 1)[0], "") for name in set(source)
    }
    return tuple(found[name] for name in source)


def taken_over(source: Sequence[str]) -> Flags:
    """``[T]``: ticks that a person drove after a policy had driven one before.

    Sources are those of commands: ``human`` and ``human:<device>`` are people, ``operator:<name>``
    is a program that stands in for one, ``policy`` and ``policy:<name>`` are policies; ``hold``,
    ``replay`` and ``scripted`` are neither. A demonstration has no intervention.
    """
    person = _driven_by(source, "human", "operator")
    return person & np.logical_or.accumulate(_driven_by(source, "policy"))


def take_overs(source: Sequence[str]) -> Flags:
    """``[T]``: the first tick of every intervention. A person who pauses does not take over anew:
    a policy has driven in between.
    """
    taken = taken_over(source)
    policy = _driven_by(source, "policy")
    ticks = np.arange(len(policy))
    last_policy = np.maximum.accumulate(np.where(policy, ticks, -1))
    last_person = np.maximum.accumulate(np.where(taken, ticks, -1))
    before = np.concatenate([[-1], last_person[:-1]]) if len(ticks) else last_person
    return taken & (last_policy > before)


def _driven_by(source: Sequence[str], *kinds: str) -> Flags:
    """``[T]``: ticks whose source is of one of these ``kinds``. An episode has few sources."""
    those = {name for name in set(source) if name.split(":", 1)[0] in kinds}
    return np.array([name in those for name in source], dtype=np.bool_)


def leading_up(source: Sequence[str], ticks: int) -> Flags:
    """``[T]``: the ``ticks`` before each take-over that no person drove: what made a person take
    over, and begins before it.
    """
    taken, begins = taken_over(source), take_overs(source)
    # How many take-overs there are up to a tick, and up to ``ticks`` later.
    count = np.concatenate([[0], np.cumsum(begins)])
    here = np.arange(len(begins))
    ahead = count[np.minimum(here + ticks, len(begins) - 1) + 1] if len(begins) else count[:0]
    return ~taken & (ahead > count[here + 1])


def no_sent(action: Signals) -> SentBlock:
    """An empty block of sent commands with the shapes of ``action`` (``[T, *shape]`` each)."""
    empty = np.zeros(0, dtype=np.int64)
    return SentBlock(
        seq=empty, t_ns=empty, action={name: values[:0] for name, values in action.items()}
    )


def episode_from_arrays(
    meta: EpisodeMeta,
    observations: Signals,
    action: Signals,
    *,
    progress: Floats,
    reward: Floats | None = None,
    source: str = "human",
) -> Episode:
    """An episode from plain arrays at the control rate: ``[T, *shape]`` each.

    Tick times are ``k / rate_hz`` from 0; every sample is captured at its tick; ``reward``
    defaults to ``progress``; the end flags of ``meta.outcome`` are put on the last tick. ``sent``
    stays empty: such data does not know it.
    """
    steps = len(progress)
    period_ns = 1e9 / meta.embodiment.rate_hz
    t_ns = np.round(np.arange(steps) * period_ns).astype(np.int64)
    rows = np.arange(steps, dtype=np.int64)
    zeros = np.zeros(steps, dtype=np.int64)
    last = np.zeros(steps, dtype=np.bool_)
    last[-1:] = True
    return Episode(
        meta=meta,
        tick_t_ns=t_ns,
        streams={
            name: SampleBlock(t_ns=t_ns, value=value, valid=np.ones(steps, dtype=np.bool_))
            for name, value in observations.items()
        },
        view=dict.fromkeys(observations, rows),
        action=dict(action),
        seq=rows,
        due_ns=t_ns,
        source=(source,) * steps,
        sent=no_sent(action),
        reward=np.asarray(progress if reward is None else reward, dtype=np.float64),
        progress=np.asarray(progress, dtype=np.float64),
        terminal=last & meta.outcome.terminal,
        truncated=last & meta.outcome.truncated,
        inference_ns=zeros,
        overrun_ns=zeros,
    )
