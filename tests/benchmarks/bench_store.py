"""The episode store against plain zarr: appending with fsync, reading; kills and damage.

Reference: ``zarr`` writing and reading the same arrays as one group per episode, its default
codecs, the same chunks, no fsync, no checksums of files, no commit. Both take turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from robolearn.data.episode import Episode, episode_from_arrays
from robolearn.data.store.chunks import rows_per_chunk
from robolearn.data.store.layout import TICK_ARRAYS, meta_to_json
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.spec import EmbodimentSpec, SignalSpec
from tests.episodes import ACTION_SPEC, IMAGE, TOOL, TOOL_SPEC, small_episode
from tests.robolearn.data.store.test_store_damage import MODES, damage
from tests.robolearn.data.store.test_store_kill import run_killed

APPEND_FLOOR = 2.0
STEPS = 125  # the mean length of a Push-T demonstration


def rows(*, long: bool = False) -> list[dict[str, Any]]:
    """All rows of this area."""
    runs = Path(__file__).resolve().parents[2] / "runs"
    runs.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=runs) as folder:
        base = Path(folder)
        return [
            *_append_and_read(base / "state", images=False, rounds=60 if long else 25),
            *_append_and_read(base / "image", images=True, rounds=60 if long else 25),
            _kills(base / "kills", 200 if long else 15),
            _damage(base / "damage", 500 if long else 80),
        ]


def make_episode(seed: int, images: bool) -> Episode:
    """125 steps at 10 Hz; pictures are drawn ones (large plain areas), as in Push-T."""
    rng = np.random.default_rng(seed)
    observations: dict[str, np.ndarray] = {TOOL: rng.random((STEPS, 2))}
    signals = [TOOL_SPEC]
    if images:
        spec = SignalSpec(IMAGE, (96, 96, 3), rate_hz=10.0, dtype="uint8")
        signals.append(spec)
        frames = np.full((STEPS, *spec.shape), 250, dtype=np.uint8)
        for k in range(STEPS):
            x, y = rng.integers(0, 70, 2)
            frames[k, y : y + 25, x : x + 12] = rng.integers(0, 255, 3)
        observations[IMAGE] = frames
    base = small_episode(seed).meta
    meta = type(base)(
        kind="demonstration",
        task="bench",
        embodiment=EmbodimentSpec("bench", tuple(signals), (ACTION_SPEC,), 10.0),
        condition=base.condition,
        outcome=base.outcome,
    )
    actions = {TOOL: rng.random((STEPS, 2))}
    return episode_from_arrays(meta, observations, actions, progress=rng.random(STEPS))


def arrays_of(episode: Episode) -> dict[str, np.ndarray]:
    """Every array that the store writes, by its path in the group."""
    found: dict[str, np.ndarray] = {"ticks/t_ns": episode.tick_t_ns}
    found |= {f"ticks/{name}": getattr(episode, name) for name in TICK_ARRAYS}
    found["ticks/source"] = np.zeros(episode.steps, dtype=np.int16)
    for name, block in episode.streams.items():
        parts = {"t_ns": block.t_ns, "value": block.value, "valid": block.valid}
        found |= {f"signals/{name}/{key}": values for key, values in parts.items()}
        found[f"signals/{name}/view"] = episode.view[name]
    found |= {f"action/{name}": values for name, values in episode.action.items()}
    found |= {"sent/seq": episode.sent.seq, "sent/t_ns": episode.sent.t_ns}
    found |= {f"sent/action/{name}": v for name, v in episode.sent.action.items()}
    return found


def zarr_write(folder: Path, episode: Episode) -> None:
    """One plain zarr group with the same arrays."""
    root = zarr.create_group(str(folder), attributes=meta_to_json(episode.meta))
    for path, values in arrays_of(episode).items():
        chunk = rows_per_chunk(values.shape[1:], values.dtype, len(values))
        array = root.create_array(
            path, shape=values.shape, dtype=values.dtype, chunks=(chunk, *values.shape[1:])
        )
        array[:] = values


def zarr_read(folder: Path, paths: list[str]) -> list[Any]:
    """Every array of such a group."""
    root: Any = zarr.open_group(str(folder), mode="r")
    return [root[path][:] for path in paths]


def _timed(work: Callable[..., object], *args: object) -> float:
    start = time.perf_counter()
    work(*args)
    return (time.perf_counter() - start) * 1e3


def _append_and_read(base: Path, images: bool, rounds: int) -> list[dict[str, Any]]:
    store = EpisodeStore.create(base / "store")
    times: dict[str, list[float]] = {"append": [], "write": [], "read": [], "zarr_read": []}
    with store.writer() as writer:
        for k in range(rounds):
            episode = make_episode(k, images)
            plain = base / f"plain_{k}"
            paths = list(arrays_of(episode))
            times["append"].append(_timed(writer.append, episode))
            times["write"].append(_timed(zarr_write, plain, episode))
            times["read"].append(_timed(store.read, f"ep_{k:06d}"))
            times["zarr_read"].append(_timed(zarr_read, plain, paths))
    middle = {key: statistics.median(values) for key, values in times.items()}
    what = "state and 96x96 pictures" if images else "state"
    why = f"median of {rounds} episodes of {STEPS} steps, taking turns; reference: zarr "
    why += f"{zarr.__version__}, same arrays and chunks, no fsync"
    return [
        _row(
            f"append of an episode with fsync ({what})",
            "ms",
            middle["append"],
            middle["write"],
            APPEND_FLOOR,
            why,
        ),
        _row(
            f"read of an episode, checksums verified ({what})",
            "ms",
            middle["read"],
            middle["zarr_read"],
            1.0,
            why,
        ),
    ]


def _row(
    name: str, unit: str, ours: float, reference: float, floor: float, why: str
) -> dict[str, Any]:
    ratio = ours / reference
    return {
        "name": name,
        "unit": unit,
        "ours": ours,
        "reference": reference,
        "ratio": ratio,
        "floor": f"at most {floor:g}x",
        "holds": ratio <= floor,
        "why": why,
    }


def _kills(base: Path, kills: int) -> dict[str, Any]:
    base.mkdir()
    path = base / "store"
    rng = np.random.default_rng(0)
    acknowledged: list[str] = []
    lost = unsound = 0
    for _ in range(kills):
        acknowledged += run_killed(path, float(rng.uniform(0.0, 0.2)))
        if path.exists():
            unsound += not check_store(path).sound
            lost += len(set(acknowledged) - set(EpisodeStore.open(path).ids()))
    store = EpisodeStore.open(path)
    readable = sum(store.read(i).steps > 0 for i in store.ids())
    bad = lost + unsound + len(store.ids()) - readable
    return {
        "name": "committed episodes lost or unreadable after SIGKILL at random instants",
        "unit": "episodes",
        "ours": bad,
        "reference": None,
        "ratio": None,
        "floor": "0",
        "holds": bad == 0,
        "why": f"{kills} kills, {len(acknowledged)} episodes acknowledged, {readable} read back",
    }


def _damage(base: Path, places: int) -> dict[str, Any]:
    path = base / "store"
    with EpisodeStore.create(path).writer() as writer:
        for k in range(3):
            writer.append(small_episode(k))
    rng = np.random.default_rng(0)
    everything = sorted(p for p in path.rglob("*") if p.is_file())
    found = 0
    for k in range(places):
        file = everything[int(rng.integers(len(everything)))]
        original = file.read_bytes()
        damage(file, MODES[k % len(MODES)], rng)
        found += not check_store(path).sound
        file.write_bytes(original)
    return {
        "name": "damage at random places found by check",
        "unit": "%",
        "ours": 100.0 * found / places,
        "reference": None,
        "ratio": None,
        "floor": "100",
        "holds": found == places,
        "why": f"{places} places: a bit flipped, a file shortened, removed, or made longer",
    }
