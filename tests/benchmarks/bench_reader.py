"""Reading for training: against numpy in the same run, and memory under a limit.

Speed: windows with padding, masks and shuffling from the mapped cache, against a bare numpy gather
of the same shapes from memory; both in turns on one thread, CPU time. Memory: a child process gets
a limit on its own memory (``RLIMIT_DATA``: what it allocates; ``RLIMIT_AS``: mapped files too) that
is a fifth of the store, and reads the store once through.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from robolearn.data.episode import Episode, episode_from_arrays
from robolearn.data.reading.cache import cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import BatchSpec
from robolearn.spec import EmbodimentSpec, SignalSpec
from tests.benchmarks.bench_store import make_episode
from tests.benchmarks.turns import interleaved
from tests.episodes import ACTION_SPEC, IMAGE, TOOL, TOOL_SPEC, small_episode

ROOT = Path(__file__).resolve().parents[2]
BATCH = 256
NOISE_STEPS = 100

CHILD = """
import json, resource, sys
from pathlib import Path
from robolearn.data.reading.cache import cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import BatchSpec
store, cache, mode, kind, room = sys.argv[1:]
names = ("tool/xy_table", "top/image")

def memory(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

source = StoreSource(EpisodeStore.open(store), DataConfig(names))
key, limit = {"data": ("VmData", resource.RLIMIT_DATA), "as": ("VmSize", resource.RLIMIT_AS)}[kind]
start = memory(key)
resource.setrlimit(limit, (start + int(room),) * 2)
flat = cached(source, Path(cache), images=mode, kept_bytes=int(room) // 4)
data = EpisodeDataset(flat, BatchSpec(2, 16, 32), 0)
own = []
for step in range(len(data) // 32):
    data.batch(step)
    own.append(memory("RssAnon"))
tenth = max(1, len(own) // 10)
print(json.dumps({"first": max(own[:tenth]), "last": max(own[-tenth:]), "peak": max(own),
                  "used": memory(key) - start, "batches": len(own)}))
"""


def rows(*, long: bool = False) -> list[dict[str, object]]:
    """All rows of this area."""
    (ROOT / "runs").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "runs") as folder:
        base = Path(folder)
        room = (192 if long else 48) * 2**20
        store = _noise(base / "noise", 5 * room)
        return [
            _windows(base / "state", 40, 400 if long else 150, images=False),
            _windows(base / "image", 40, 120 if long else 50, images=True),
            *(_memory(store, base / f"{m}-{k}", m, k, room) for m, k in
              (("cache", "data"), ("store", "data"), ("store", "as"))),
        ]  # fmt: skip


def _windows(base: Path, episodes: int, repeats: int, images: bool) -> dict[str, object]:
    store = EpisodeStore.create(base / "store")
    with store.writer() as writer:
        for k in range(episodes):
            writer.append(make_episode(k, images))
    names = (TOOL, IMAGE) if images else (TOOL,)
    flat = cached(StoreSource(store, DataConfig(names)), base / "cache", images="cache")
    dataset = EpisodeDataset(flat, BatchSpec(2, 16, BATCH), 0)
    rng = np.random.default_rng(0)
    memory = {name: np.array(flat.observations[name][:]) for name in names}
    actions, total, step = np.array(flat.actions), len(flat.actions), 0

    def ours() -> None:
        nonlocal step
        dataset.batch(step)
        step += 1

    def plain() -> None:
        t = rng.integers(1, total - 16, BATCH)
        for values in memory.values():
            values[t[:, None] + np.arange(-1, 1)]
        actions[t[:, None] + np.arange(16)]

    mine, reference = interleaved(ours, plain, repeats)
    what = "2 frames of 96x96, state" if images else "state only"
    return row(
        f"windows from the mapped cache ({what}; 2 obs, 16 actions), against numpy from memory",
        "windows/s",
        BATCH / mine,
        BATCH / reference,
        reference / mine,
        "at least 0.5x",
        reference / mine >= 0.5,
        f"{episodes} episodes of 125 steps, batches of {BATCH}, one thread, median of {repeats}"
        " batches in turns, CPU time",
    )


def _noise(path: Path, size: int) -> EpisodeStore:
    """A store of at least ``size`` bytes: pictures of noise do not get smaller."""
    store = EpisodeStore.create(path)
    seed = written = 0
    with store.writer() as writer:
        while written < size:
            written += store.info(writer.append(_noise_episode(seed))).size_bytes
            seed += 1
    return store


def _noise_episode(seed: int) -> Episode:
    rng = np.random.default_rng(seed)
    spec = SignalSpec(IMAGE, (96, 96, 3), rate_hz=10.0, dtype="uint8")
    base = small_episode(seed).meta
    meta = type(base)(
        kind="demonstration",
        task="noise",
        embodiment=EmbodimentSpec("noise", (TOOL_SPEC, spec), (ACTION_SPEC,), 10.0),
        condition=base.condition,
        outcome=base.outcome,
    )
    observations = {
        TOOL: rng.random((NOISE_STEPS, 2)),
        IMAGE: rng.integers(0, 256, (NOISE_STEPS, *spec.shape), dtype=np.uint8),
    }
    actions = {TOOL: rng.random((NOISE_STEPS, 2))}
    return episode_from_arrays(meta, observations, actions, progress=rng.random(NOISE_STEPS))


def _memory(store: EpisodeStore, cache: Path, mode: str, kind: str, room: int) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(store.path), str(cache), mode, kind, str(room)],
        cwd=ROOT,
        env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    how = {"cache": "building the cache and reading it", "store": "straight from the store"}[mode]
    limit = {"data": "allocations (ulimit -d)", "as": "address space (ulimit -v)"}[kind]
    size = sum(i.size_bytes for i in store.list())
    why = f"limit of {room / 1e6:.0f} MB beside the imports, store of {size / 1e6:.0f} MB"
    name = f"growth of memory while reading a store of 5x the limit of {limit}, {how}"
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return row(name, "MB", None, None, None, "flat", False, f"{why}; the child failed: {last}")
    found = json.loads(done.stdout)
    growth = (found["last"] - found["first"]) / 1e6
    why += f"; {found['batches']} batches, peak {found['peak'] / 1e6:.0f} MB of own memory"
    return row(
        name, "MB", growth, room / 1e6, growth / (room / 1e6), "flat (at most 10 % of the limit)",
        growth <= 0.1 * room / 1e6, why,
    )  # fmt: skip


def row(
    name: str,
    unit: str,
    ours: float | None,
    reference: float | None,
    ratio: float | None,
    floor: str,
    holds: bool | None,
    why: str,
) -> dict[str, object]:
    """One line of the benchmark's report."""

    def short(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.4g}")

    return {
        "name": name,
        "unit": unit,
        "ours": short(ours),
        "reference": short(reference),
        "ratio": short(ratio),
        "floor": floor,
        "holds": holds,
        "why": why,
    }
