"""Ticks for tests and benchmarks of the recorder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import (
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    ResetReport,
    Sample,
    SampleBatch,
    SampleBlock,
    SentBlock,
    Tick,
)
from tests.episodes import ACTION_SPEC, IMAGE, IMAGE_SPEC, TOOL, TOOL_SPEC

FORCE = "tool/force"
PERIOD = 100_000_000
SPEC = EmbodimentSpec(
    "rig",
    (TOOL_SPEC, SignalSpec(FORCE, (1,), "N", 50.0), IMAGE_SPEC),
    (ACTION_SPEC,),
    10.0,
)
HEADER = EpisodeHeader(
    task="push",
    agent="tester",
    env="rig",
    reset=ResetReport(Condition("c0", 3, {TOOL: (0.1, 0.2)}), {TOOL: np.array([0.1, 0.21])}),
    start_wall_ns=5,
    provenance={"config": "x.yaml"},
)
RUNNING = Outcome(False, 0.2, 0.1)
END = Outcome(True, 1.0, 1.0, terminal=True, reason="success")


def picture(k: int) -> np.ndarray:
    """One value everywhere."""
    return np.full(IMAGE_SPEC.shape, k % 250, dtype=np.uint8)


def samples(times: list[int], make: Callable[[int], Any]) -> SampleBlock:
    """A block of ``make(t)`` at each time."""
    return SampleBlock(
        np.array(times, dtype=np.int64),
        np.stack([np.asarray(make(t)) for t in times]),
        np.ones(len(times), dtype=np.bool_),
    )


def make_tick(k: int, last: bool = False, **drop: bool) -> Tick:
    """At tick k the tool is sampled at the tick, the force at 50 Hz, the picture 30 ms before."""
    now = (k + 1) * PERIOD
    force_times = [now + j * PERIOD // 5 for j in range(5)]
    seen_image = Sample(now - 30_000_000, picture(k))
    drained = {
        TOOL: samples([now], lambda t: [t * 1e-9, 0.5]),
        FORCE: samples(force_times, lambda t: [t * 1e-9]),
        IMAGE: samples([now - 30_000_000], lambda _: picture(k)),
    }
    observed = {
        TOOL: Sample(now, np.array([now * 1e-9, 0.5])),
        FORCE: Sample(now, np.array([now * 1e-9])),
        IMAGE: seen_image,
    }
    for name in drop:
        drained.pop(name.replace("__", "/"))
    action = {TOOL: np.array([0.01 * k, 0.3])}
    return Tick(
        index=k,
        observation=Observation(now, observed),
        command=Command(k, action, now, "scripted" if k % 2 else "human:browser"),
        drained=SampleBatch(
            drained,
            SentBlock(
                np.array([k, k]),
                np.array([now, now + 5]),
                {TOOL: np.array([[0.0, k], [1.0, k]], dtype=np.float64)},
            ),
        ),
        outcome=END if last else RUNNING,
        inference_ns=7,
        overrun_ns=k,
    )


def record(recorder: EpisodeRecorder, ticks: int = 20) -> None:
    """A whole episode."""
    recorder.on_start(HEADER)
    for k in range(ticks):
        recorder.on_tick(make_tick(k, last=k == ticks - 1))
    recorder.on_end(END)


def block(times: np.ndarray, value: np.ndarray) -> SampleBlock:
    """Samples that are all there."""
    return SampleBlock(times, value, np.ones(len(times), dtype=np.bool_))


def tick_of(k: int, now: int, signals: Mapping[str, SampleBlock], action: str) -> Tick:
    """A tick whose observation shows the first sample of each block; nothing was sent."""
    nothing = np.zeros(0, dtype=np.int64)
    return Tick(
        index=k,
        observation=Observation(
            now, {name: Sample(int(b.t_ns[0]), b.value[0]) for name, b in signals.items()}
        ),
        command=Command(k, {action: np.zeros(2)}, now, "bench"),
        drained=SampleBatch(signals, SentBlock(nothing, nothing, {action: np.zeros((0, 2))})),
        outcome=Outcome(False, 0.0, 0.0),
    )
