"""Measures one episode: what an operator should know of it while still standing there.

Nothing here looks at pictures, only at when they came: an episode that is not saved yet has
measures, too (``EpisodeRecorder.waiting``).
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from robolearn.arms.slowing import Slowed, slowed_spans
from robolearn.data.episode import Episode, EpisodeKind
from robolearn.data.insight.missed_frames import LATE, missed_between, missed_beyond
from robolearn.data.insight.saturation import Saturation, saturation
from robolearn.data.standing import flat_actions, standing, stretches

EVENT = "supervisor/event"
"""Rows of cause, value, limit, seq; cause 0 is the start of an episode (``RealEnv``)."""
HOLD = "hold"
"""Source of a command while nobody holds the device."""


@dataclass(frozen=True, slots=True)
class CameraLoss:
    """Frames of a camera that came, and those that did not: marked as missing, or a gap in time,
    also before the first one and after the last.
    """

    name: str
    frames: int
    lost: int

    @property
    def share(self) -> float:
        """Of the frames that should be there."""
        wanted = self.frames + self.lost
        return self.lost / wanted if wanted else 0.0


@dataclass(frozen=True, slots=True)
class SignalAge:
    """How old [s] what was shown of a signal was at the ticks: 95th percentile and most."""

    name: str
    p95_s: float
    most_s: float


@dataclass(frozen=True, slots=True)
class EpisodeMeasures:
    """One episode. ``id`` is empty where it is not saved. Shares are of its ticks, in [0, 1].

    ``final`` is the progress at the end, ``score`` the highest; ``idle_s``: in stretches (of at
    least ``idle_least_s``) in which nothing was commanded to move, ``longest_idle_s`` the longest
    of them; ``held``: nobody held the device; ``late``: ticks that came late, ``jitter_s``: how far
    intervals between ticks were from the period (99th percentile); ``events``: interventions of the
    supervisor, by number of their cause; ``slowed_s``: for how long what slowed the arm, likewise.
    """

    id: str
    kind: EpisodeKind
    task: str
    success: bool
    reason: str
    score: float
    final: float
    steps: int
    duration_s: float
    idle_s: float
    longest_idle_s: float
    held: float
    taken_over: float
    late: float
    jitter_s: float
    saturation: tuple[Saturation, ...] = ()
    cameras: tuple[CameraLoss, ...] = ()
    ages: tuple[SignalAge, ...] = ()
    events: Mapping[int, int] = field(default_factory=dict[int, int])
    slowed_s: Mapping[int, float] = field(default_factory=dict[int, float])

    @property
    def idle(self) -> float:
        """Share of the time in which nothing was commanded to move."""
        return self.idle_s / self.duration_s if self.duration_s else 0.0

    @property
    def saturated(self) -> float:
        """Share of ticks at a declared limit, of the number that is there most."""
        return max((s.at_limit for s in self.saturation if s.declared), default=0.0)

    @property
    def lost_frames(self) -> float:
        """Share of missing frames of the camera that lost most."""
        return max((c.share for c in self.cameras), default=0.0)

    @property
    def age_s(self) -> float:
        """Of the signal that was shown oldest, 95th percentile."""
        return max((a.p95_s for a in self.ages), default=0.0)


def measure_episode(
    episode: Episode, *, idle_speed: float = 0.005, idle_least_s: float = 0.5
) -> EpisodeMeasures:
    """Everything there is to measure; of an episode without ticks all is 0.

    ``idle_speed``: a commanded number that changes at most so fast stands, in its own unit per
    second (a relative one: that is so small, per second); ``idle_least_s``: shorter pauses are
    part of a motion.
    """
    meta, steps = episode.meta, episode.steps
    rate_hz = meta.embodiment.rate_hz
    stands = standing(episode, idle_speed)
    pauses = [e - b for b, e in stretches(stands, max(1, round(idle_least_s * rate_hz)))]
    intervals = np.diff(episode.tick_t_ns) * 1e-9 * rate_hz
    return EpisodeMeasures(
        id=episode.id,
        kind=meta.kind,
        task=meta.task,
        success=episode.success,
        reason=meta.outcome.reason,
        score=episode.score,
        final=float(episode.progress[-1]) if steps else 0.0,
        steps=steps,
        duration_s=episode.duration_s,
        idle_s=sum(pauses) / rate_hz,
        longest_idle_s=max(pauses, default=0) / rate_hz,
        held=sum(s == HOLD for s in episode.source) / max(1, steps),
        taken_over=float(episode.intervention.sum()) / max(1, steps),
        late=float((intervals > LATE).mean()) if len(intervals) else 0.0,
        jitter_s=_quantile(np.abs(intervals - 1.0), 0.99) / rate_hz,
        saturation=saturation(flat_actions(episode), meta.embodiment.actions) if steps else (),
        cameras=_cameras(episode),
        ages=_ages(episode),
        events=dict(sorted(Counter(c for c, _ in supervised(episode)).items())),
        slowed_s=_slowed_s(episode),
    )


def _cameras(episode: Episode) -> tuple[CameraLoss, ...]:
    found: list[CameraLoss] = []
    for spec in episode.meta.embodiment.signals:
        if not spec.is_image:
            continue
        block = episode.streams.get(spec.name)
        if block is None:
            # A camera that never delivered has no stream.
            wanted = round(episode.duration_s * spec.rate_hz) if spec.rate_hz > 0 else episode.steps
            found.append(CameraLoss(spec.name, 0, max(1, wanted)))
            continue
        marked = int((~block.valid).sum())
        lost = marked + missed_between(block.t_ns, spec.rate_hz)
        if episode.steps and spec.rate_hz > 0:
            ticks = episode.tick_t_ns
            # What is as late as they all are is not missed.
            late_ns = max(0, int((ticks - episode.observed_t_ns(spec.name)).min()))
            begin_ns, end_ns = int(ticks[0]), int(ticks[-1]) - late_ns
            lost += missed_beyond(block.t_ns, spec.rate_hz, begin_ns, end_ns)
        found.append(CameraLoss(spec.name, len(block.t_ns) - marked, lost))
    return tuple(found)


def _ages(episode: Episode) -> tuple[SignalAge, ...]:
    found: list[SignalAge] = []
    for spec in episode.meta.embodiment.signals:
        block = episode.streams.get(spec.name)
        # What is told once, or when it happens, does not age: goals, events.
        if block is None or spec.rate_hz <= 0 or not episode.steps:
            continue
        age_s = (episode.tick_t_ns - episode.observed_t_ns(spec.name)) * 1e-9
        found.append(SignalAge(spec.name, _quantile(age_s, 0.95), float(age_s.max())))
    return tuple(found)


def _slowed_s(episode: Episode) -> dict[int, float]:
    found: Counter[int] = Counter()
    for slowed, begin, end in slowed_in(episode):
        found[int(slowed)] += end - begin
    return {cause: 1e-9 * ns for cause, ns in sorted(found.items())}


def supervised(episode: Episode) -> list[tuple[int, int]]:
    """What the supervisor told: the number of the cause, and when [ns]."""
    block = episode.streams.get(EVENT)
    if block is None:
        return []
    causes = block.value.reshape(len(block.value), -1)[:, 0].astype(np.int64).tolist()
    return [(c, t) for c, t in zip(causes, block.t_ns.tolist(), strict=True) if c]


def slowed_in(episode: Episode) -> list[tuple[Slowed, int, int]]:
    """What slowed the arm, from when and until when [ns]."""
    told = supervised(episode)
    if not (told and episode.steps):
        return []
    until_ns = int(episode.tick_t_ns[-1])
    return slowed_spans([c for c, _ in told], [t for _, t in told], until_ns)


def _quantile(values: np.ndarray[tuple[int], np.dtype[np.float64]], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else 0.0
