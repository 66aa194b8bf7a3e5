"""The recorder under load: two 640x480 cameras at 30 Hz, signals at 100 Hz, policy at 10 Hz.

Reference: the same loop with the same samples and no subscriber, just before in the same process.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, EpisodeHeader, Outcome, ResetReport, Tick
from tests.recording import block, tick_of
from tests.waiting import pass_time

PERIOD_NS = 100_000_000
CAMERAS = ("left/image", "right/image")
JOINTS, TARGET = "arm/joint_position", "tool/xy_table"
SPEC = EmbodimentSpec(
    "load",
    (
        SignalSpec(JOINTS, (6,), "rad", 100.0),
        *(SignalSpec(name, (480, 640, 3), rate_hz=30.0, dtype="uint8") for name in CAMERAS),
    ),
    (ActionSpec(TARGET, (2,), "m", 10.0),),
    10.0,
)
HEADER = EpisodeHeader("load", "none", "load", ResetReport(Condition("c", 0, {}), {}), 0, {})


@dataclass(frozen=True)
class Load:
    """What one run of the loop measured; ``frames`` were delivered."""

    late_p99_ms: float
    frames: int


def rows(*, long: bool = False) -> list[dict[str, Any]]:
    """All rows of this area: with the codec that large cameras have by default, and lossless."""
    seconds = 60 if long else 10
    return [*_recorded("jpeg:95", seconds), *_recorded("zstd", seconds)]


def _recorded(codec: str, seconds: int) -> list[dict[str, Any]]:
    runs = Path(__file__).resolve().parents[2] / "runs"
    runs.mkdir(exist_ok=True)
    frames = _frames()
    empty = _loop(None, frames, seconds)
    with tempfile.TemporaryDirectory(dir=runs) as folder:
        path = Path(folder) / "store"
        store = EpisodeStore.create(path)
        codecs: dict[str, str] = dict.fromkeys(CAMERAS, codec)
        with EpisodeRecorder(store, spec=SPEC, kind="rollout", codecs=codecs) as recorder:
            recorder.on_start(HEADER)
            load = _loop(recorder, frames, seconds)
            start = time.perf_counter()
            recorder.on_end(Outcome(False, 0.0, 0.0, truncated=True))
            saved_s = time.perf_counter() - start
        info = store.info("ep_000000")
        valid = path / "episodes" / info.id / "signals"
        kept = sum(int(np.asarray(zarr.open_array(valid / n / "valid")).sum()) for n in CAMERAS)
    lost = load.frames - kept
    extra_ms = load.late_p99_ms - empty.late_p99_ms
    name = f"recorder, 2 x 640x480 at 30 Hz as {codec}"
    late = f"{name}: p99 of the loop's lateness, against an empty loop"
    return [
        _row(f"{name}: frames lost", "frames", lost, 0, "none", lost == 0),
        _row(
            late, "ms", load.late_p99_ms, empty.late_p99_ms, "at most 10 ms above", extra_ms <= 10.0
        ),
        _row(
            f"{name}: from the last step to saved", "s", saved_s, 0.3, "under 0.3 s", saved_s < 0.3
        ),
    ]


def _row(
    name: str, unit: str, ours: float, reference: float, floor: str, holds: bool
) -> dict[str, Any]:
    ratio = ours / reference if reference else None
    return {
        "name": name,
        "unit": unit,
        "ours": ours,
        "reference": reference,
        "ratio": ratio,
        "floor": floor,
        "holds": holds,
        "why": "",
    }


def _frames() -> np.ndarray:
    """Eight pictures with smooth areas and sensor noise."""
    rng = np.random.default_rng(0)
    smooth = np.linspace(0, 200, 640)[None, None, :, None] + np.zeros((8, 480, 640, 3))
    return (smooth + rng.integers(0, 4, smooth.shape)).astype(np.uint8)


def _loop(recorder: EpisodeRecorder | None, frames: np.ndarray, seconds: int) -> Load:
    """The loop in real time; lateness is measured at each absolute deadline."""
    late: list[float] = []
    start = time.monotonic()
    for k in range(seconds * 10):
        deadline = start + k * 0.1
        pass_time(deadline - time.monotonic(), "until the tick is due")
        late.append((time.monotonic() - deadline) * 1e3)
        tick = _tick(k, frames)
        if recorder is not None:
            recorder.on_tick(tick)
    return Load(float(np.percentile(late, 99)), seconds * 30 * len(CAMERAS))


def _tick(k: int, frames: np.ndarray) -> Tick:
    now = (k + 1) * PERIOD_NS
    thirds = now + np.arange(3, dtype=np.int64) * (PERIOD_NS // 3)
    tenths = now + np.arange(10, dtype=np.int64) * (PERIOD_NS // 10)
    signals = {JOINTS: block(tenths, np.full((10, 6), 0.1 * k))}
    for name in CAMERAS:
        signals[name] = block(thirds, frames[(3 * k + np.arange(3)) % len(frames)])
    return tick_of(k, now, signals, TARGET)
