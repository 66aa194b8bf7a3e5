"""Says in words what is wrong with an episode, and what to do, against the episodes before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from robolearn.arms.slowing import Slowed
from robolearn.data.episode import Episode
from robolearn.data.insight.episode_measures import EpisodeMeasures, measure_episode
from robolearn.errors import ConfigError

# What to do about what slowed the arm.
_UNSLOWED = {
    Slowed.SINGULARITY: "go around it, start with the joints bent further, or move the table",
    Slowed.JOINT_LIMIT: "turn the tool the other way round, or start further from the limit",
    Slowed.JOINT_SPEED: "move more slowly there",
}
_SLOWING = {int(slowed) for slowed in Slowed}
# Tasks without an end that could be reached, and what an import says where nobody judged.
UNJUDGED = ("", "free")
_UNSAID = "end_of_recording"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on an operator is warned. Shares are of an episode's ticks, in [0, 1]."""

    # An episode that is shorter teaches nothing [s]; a shortest reach of a person takes about that.
    shortest_s: float = 1.0
    # A commanded number that changes at most so fast stands, in its own unit per second; openpi's
    # filter of DROID takes 1e-3 per step of 15 Hz, a tremor of 5 mm/s in metres.
    idle_speed: float = 0.005
    # Shorter pauses are part of a motion, not standing [s].
    idle_least_s: float = 0.5
    # Share of standing still; an audit of DROID-100 found 71 % (droid-dataset/droid#82), and
    # policies that learn it stay where they start (Physical-Intelligence/openpi#605).
    idle: float = 0.4
    # A single pause [s]: a policy that sees one frame cannot tell when to go on.
    longest_idle_s: float = 4.0
    # Share of the time in which nobody held the device.
    held: float = 0.5
    # Share at a declared limit, of one number of the action; where `data report` warns, too.
    saturated: float = 0.2
    # Share of late ticks, and of missing frames of a camera: LeRobot calls 2 % expected; here
    # nothing is dropped in silence, so that half of it is worth a word.
    late: float = 0.01
    lost_frames: float = 0.01
    # How old a signal may be when it is seen (95th percentile) [s]; people notice .1 to .2 s.
    age_s: float = 0.2
    # For how long the arm may have been slowed by something else than its limits of speed [s].
    slowed_s: float = 1.0
    # Progress lost between the best moment and the end.
    undone: float = 0.2
    # Longer than so many times what nine of ten earlier episodes took, or shorter than the same
    # part of what nine of ten took at least.
    unusual: float = 2.0
    # Earlier episodes of the task that it takes to say what is usual.
    earlier: int = 8

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"quality: {name} must be at least 0, got {value}")
        if self.unusual <= 1.0:
            raise ConfigError(f"quality: unusual must be above 1, got {self.unusual}")


USUAL = Thresholds()


@dataclass(frozen=True, slots=True)
class Remark:
    """What is wrong (one word for programs, a sentence for people), and what to do about it."""

    kind: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``ranks``: share of the earlier episodes of the task that lie below this one, by figure;
    empty where there are too few. ``cameras``, signals and events stand in ``measures``.
    """

    measures: EpisodeMeasures
    remarks: tuple[Remark, ...]
    earlier: int = 0
    ranks: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def sound(self) -> bool:
        """Nothing is wrong with it."""
        return not self.remarks


FIGURES: Mapping[str, Callable[[EpisodeMeasures], float]] = {
    "duration_s": lambda m: m.duration_s,
    "score": lambda m: m.score,
    "idle": lambda m: m.idle,
    "held": lambda m: m.held,
    "saturated": lambda m: m.saturated,
    "late": lambda m: m.late,
    "lost_frames": lambda m: m.lost_frames,
    "age_s": lambda m: m.age_s,
}
"""What episodes of a task are compared by."""


def measure_for(episode: Episode, limits: Thresholds) -> EpisodeMeasures:
    """The measures of an episode, idle as ``limits`` say."""
    return measure_episode(episode, idle_speed=limits.idle_speed, idle_least_s=limits.idle_least_s)


def judge_episode(
    measured: EpisodeMeasures,
    earlier: Sequence[EpisodeMeasures] = (),
    limits: Thresholds = USUAL,
    causes: Mapping[int, str] | None = None,
) -> Verdict:
    """What is wrong with an episode. ``earlier``: those before it, of which the ones of its task
    count; ``causes``: names of the supervisor's causes.
    """
    same = [e for e in earlier if e.task == measured.task and e.steps]
    remarks: list[Remark] = []
    if measured.steps == 0:
        remarks.append(Remark("empty", "it has no ticks", "discard it"))
        return Verdict(measured, tuple(remarks), len(same))
    remarks += _motion(measured, limits)
    remarks += _length(measured, same, limits)
    remarks += _streams(measured, limits)
    remarks += _outcome(measured, limits)
    remarks += _slowed(measured, limits)
    remarks += _interventions(measured, causes or {})
    ranks: dict[str, float] = {}
    if len(same) >= max(1, limits.earlier):
        for name, figure in FIGURES.items():
            ranks[name] = float(np.mean([figure(e) < figure(measured) for e in same]))
    return Verdict(measured, tuple(remarks), len(same), ranks)


def _motion(m: EpisodeMeasures, limits: Thresholds) -> list[Remark]:
    found: list[Remark] = []
    # 'data cut' leaves the pauses of play out, and its lengths say nothing.
    if m.kind == "play":
        pass
    elif m.idle > limits.idle:
        found.append(
            Remark(
                "idle",
                f"it stood still for {m.idle_s:.1f} of {m.duration_s:.1f} s",
                "record it again without waiting, or leave such steps out (data.idle)",
            )
        )
    elif m.longest_idle_s > limits.longest_idle_s:
        found.append(
            Remark(
                "pause",
                f"it stood still for {m.longest_idle_s:.1f} s in a row",
                "record it again without the pause, or leave such steps out (data.idle)",
            )
        )
    if m.held > limits.held:
        found.append(
            Remark(
                "held",
                f"nobody held the device for {m.held:.0%} of the time",
                "start when the hand is on the device; was it gripped the whole time?",
            )
        )
    worst = max((s for s in m.saturation if s.declared), key=lambda s: s.at_limit, default=None)
    if worst is not None and worst.at_limit > limits.saturated:
        found.append(
            Remark(
                "saturated",
                f"'{worst.name}' stood at its limit for {worst.at_limit:.0%} of the steps",
                "move more slowly, or away from the edge; widen the limits if it must go there",
            )
        )
    return found


def _length(
    m: EpisodeMeasures, same: Sequence[EpisodeMeasures], limits: Thresholds
) -> list[Remark]:
    if m.duration_s < limits.shortest_s:
        text = f"it lasts {m.duration_s:.1f} s only"
        return [Remark("short", text, "discard it: it was ended too early")]
    if len(same) < max(1, limits.earlier) or m.kind == "play":
        return []
    low, high = np.quantile([e.duration_s for e in same], [0.1, 0.9]).tolist()
    usual = f"{m.duration_s:.1f} s; {len(same)} earlier ones took {low:.1f} to {high:.1f} s"
    if m.duration_s > limits.unusual * high:
        return [Remark("long", f"it lasts long: {usual}", "record it again if it went astray")]
    if m.duration_s * limits.unusual < low:
        return [Remark("short", f"it is short: {usual}", "was it ended too early?")]
    return []


def _streams(m: EpisodeMeasures, limits: Thresholds) -> list[Remark]:
    found: list[Remark] = []
    if m.late > limits.late:
        found.append(
            Remark(
                "late",
                f"{m.late:.1%} of the ticks came late (jitter {1e3 * m.jitter_s:.0f} ms)",
                "stop other programs, take fewer or smaller pictures, or a lower rate",
            )
        )
    for camera in m.cameras:
        if camera.share > limits.lost_frames:
            came = "no picture came" if not camera.frames else f"{camera.share:.1%} are missing"
            found.append(
                Remark(
                    "frames",
                    f"'{camera.name}': {camera.lost} frames lost, {came}",
                    "look at its cable, its own USB controller, and at the disk's speed",
                )
            )
    found += [
        Remark(
            "age",
            f"'{age.name}' was {1e3 * age.p95_s:.0f} ms old when it was seen"
            f" (at most {1e3 * age.most_s:.0f} ms)",
            "the stream stalls: look at its device and its network",
        )
        for age in m.ages
        if age.p95_s > limits.age_s
    ]
    return found


def _outcome(m: EpisodeMeasures, limits: Thresholds) -> list[Remark]:
    if m.success and m.score - m.final > limits.undone:
        text = f"it was solved, and undone at the end (progress {m.score:.0%}, then {m.final:.0%})"
        return [Remark("undone", text, "record it again; end it when the task is done")]
    shown = m.kind in ("demonstration", "scripted") and m.task not in UNJUDGED
    if shown and not m.success and m.reason != _UNSAID:
        text = f"the task was not solved (best progress {m.score:.0%})"
        advice = "discard it; a failure that is kept is left out by data.success: true"
        return [Remark("unsolved", text, advice)]
    return []


def _slowed(m: EpisodeMeasures, limits: Thresholds) -> list[Remark]:
    return [
        Remark("slowed", f"it was slowed for {s:.1f} s: {Slowed(c).words}", _UNSLOWED[Slowed(c)])
        for c, s in m.slowed_s.items()
        if s > limits.slowed_s
    ]


def _interventions(m: EpisodeMeasures, causes: Mapping[int, str]) -> list[Remark]:
    events = {c: n for c, n in m.events.items() if c not in _SLOWING}
    total = sum(events.values())
    if not total:
        return []
    named = ", ".join(f"{causes.get(c, f'cause {c}')} {count}x" for c, count in events.items())
    times = "once" if total == 1 else f"{total} times"
    advice = "what was done is not what was commanded: discard it, or move within the limits"
    return [Remark("supervisor", f"the supervisor stepped in {times} ({named})", advice)]
