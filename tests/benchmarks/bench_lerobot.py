"""Reading for training against LeRobot 0.6.1 on the same episodes, both in turns in one run.

LeRobot runs in an environment of its own (``docs/reading.md`` has the recipe) that
``LEROBOT_PYTHON`` names; without it the rows say that they were skipped. It reads the export of the
same store (pictures as AV1 video, its own default) through ``delta_timestamps``, with torchcodec
where it loads (``LEROBOT_LIBRARY_PATH``: where FFmpeg's libraries are), item by item and in a
``DataLoader`` with two workers: the faster of the two counts. It hands pictures out as floats, we
as bytes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

import numpy as np

from robolearn.data.exporters.common import ExportOptions
from robolearn.data.exporters.registry import export_store
from robolearn.data.reading.cache import cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import BatchSpec
from tests.benchmarks.bench_reader import ROOT, row
from tests.benchmarks.bench_store import make_episode
from tests.episodes import IMAGE, TOOL

BATCH = 256
EPISODES = 20
STATE, WARM, COLD, DIRECT = (
    "windows/s against LeRobot: state only (2 obs, 16 actions), warm cache",
    "windows/s against LeRobot: 2 frames of 96x96 and state, warm cache",
    "windows/s against LeRobot: 2 frames of 96x96 and state, first epoch with building the cache",
    "windows/s against LeRobot: 2 frames of 96x96 and state, straight from the store, no cache",
)
FLOORS = {STATE: 1000.0, WARM: 200.0, COLD: 5.0, DIRECT: 5.0}

PEER = """
import random, sys, time
import torch
torch.set_num_threads(1)
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root, images = sys.argv[1], sys.argv[2] == "1"
times = {"action": [k / 10 for k in range(16)], "observation.state": [-0.1, 0.0]}
backend = "torchcodec"
try:
    import torchcodec.decoders
except Exception:
    backend = "pyav"
data = LeRobotDataset("local/x", root=root, video_backend=backend)
for camera in data.meta.camera_keys:
    times[camera] = [-0.1, 0.0]
data = LeRobotDataset("local/x", root=root, delta_timestamps=times, video_backend=backend)
random.seed(0)
print("ready", backend, flush=True)
for line in sys.stdin:
    how, count = line.split()
    if how == "items":
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(int(count)):
            data[random.randrange(len(data))]
        print(time.perf_counter() - begin, time.process_time() - cpu, flush=True)
        continue
    # The workers end with the round, or they would work on while others are measured; what they
    # had ready when the clock starts is taken first.
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    batches = iter(loader)
    for _ in range(6):
        next(batches)
    begin = time.perf_counter()
    for _ in range(int(count) // 16):
        next(batches)
    print(time.perf_counter() - begin, 0.0, flush=True)
    del batches
"""


def rows(*, long: bool = False) -> list[dict[str, object]]:
    """All rows of this area; skipped without ``LEROBOT_PYTHON``."""
    python = os.environ.get("LEROBOT_PYTHON", "")
    if not python:
        why = "skipped: LEROBOT_PYTHON names no environment with LeRobot 0.6.1"
        return [
            row(name, "windows/s", None, None, None, f"at least {floor:g}x", None, why)
            for name, floor in FLOORS.items()
        ]
    rounds = 9 if long else 4
    (ROOT / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "runs") as folder:
        base = Path(folder)
        return [
            *_compare(base / "state", python, rounds, images=False),
            *_compare(base / "image", python, rounds, images=True),
        ]


class Peer:
    """LeRobot in its own process; answers how long so many windows took it."""

    def __init__(self, python: str, root: Path, images: bool) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        # Its video decoder wants the shared libraries of FFmpeg, which this process must not see.
        environment |= {"LD_LIBRARY_PATH": os.environ.get("LEROBOT_LIBRARY_PATH", "")}
        self._process = subprocess.Popen(
            [python, "-c", PEER, str(root), str(int(images))],
            env=environment | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.backend = self._line().split()[1]
        self.cpu_rates: list[float] = []

    def rate(self, how: str, count: int) -> float:
        """Windows per second; item by item also per second of CPU time, in ``cpu_rates``."""
        pipe: IO[str] = self._pipe(self._process.stdin)
        pipe.write(f"{how} {count}\n")
        pipe.flush()
        wall, cpu = (float(word) for word in self._line().split())
        if cpu > 0:
            self.cpu_rates.append(count / cpu)
        return count / wall

    def _line(self) -> str:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"LeRobot ended with exit code {self._process.wait()}")
        return line

    def _pipe(self, pipe: IO[str] | None) -> IO[str]:
        if pipe is None:
            raise RuntimeError("the peer has no pipe")
        return pipe

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _compare(base: Path, python: str, rounds: int, images: bool) -> list[dict[str, object]]:
    store = EpisodeStore.create(base / "store")
    with store.writer() as writer:
        for k in range(EPISODES):
            writer.append(make_episode(k, images))
    export_store(store, base / "export", "lerobot", ExportOptions())
    source = StoreSource(store, DataConfig((TOOL, IMAGE) if images else (TOOL,)))
    spec = BatchSpec(2, 16, BATCH)
    mapped = EpisodeDataset(cached(source, base / "cache", images="cache"), spec, 0)
    direct = EpisodeDataset(cached(source, base / "cache", images="store"), spec, 0)
    step, fresh = 0, 0
    own_cpu: list[float] = []

    def warm(dataset: EpisodeDataset, batches: int) -> float:
        nonlocal step
        begin, cpu = time.perf_counter(), time.process_time()
        for _ in range(batches):
            dataset.batch(step)
            step += 1
        if dataset is mapped:
            own_cpu.append(batches * BATCH / (time.process_time() - cpu))
        return batches * BATCH / (time.perf_counter() - begin)

    def cold() -> float:
        nonlocal fresh
        fresh += 1
        begin = time.perf_counter()
        flat = cached(source, base / f"fresh{fresh}", images="cache")
        dataset = EpisodeDataset(flat, spec, 0)
        batches = len(dataset) // BATCH
        for k in range(batches):
            dataset.batch(k)
        return batches * BATCH / (time.perf_counter() - begin)

    ours: dict[str, Callable[[], float]] = {STATE: lambda: warm(mapped, 400)}
    if images:
        ours = {WARM: lambda: warm(mapped, 30), COLD: cold, DIRECT: lambda: warm(direct, 4)}
    found: dict[str, list[float]] = {name: [] for name in (*ours, "items", "loader")}
    count = 96 if images else 256
    with Peer(python, base / "export", images) as peer:
        for how in ("items", "loader"):
            peer.rate(how, 32)
        for work in ours.values():
            work()
        for _ in range(rounds):
            for how in ("items", "loader"):
                found[how].append(peer.rate(how, count))
            for name, work in ours.items():
                found[name].append(work())
        backend, peer_cpu = peer.backend, float(np.median(peer.cpu_rates))
    items, loader = (float(np.median(found[how])) for how in ("items", "loader"))
    peak = max(items, loader)
    why = (
        f"{EPISODES} episodes of 125 steps, wall time, median of {rounds} rounds in turns; LeRobot"
        f" 0.6.1 ({backend if images else 'no video'}): item by item {items:.0f}/s, DataLoader with"
        f" 2 workers {loader:.0f}/s, the faster counts; warm cache against item by item in CPU"
        f" time: {np.median(own_cpu) / peer_cpu:.0f}x"
    )
    made: list[dict[str, object]] = []
    for name in ours:
        mine, floor = float(np.median(found[name])), FLOORS[name]
        holds = mine >= floor * peak
        made.append(
            row(name, "windows/s", mine, peak, mine / peak, f"at least {floor:g}x", holds, why)
        )
    return made
