"""A whole collection that nobody attends: pick-and-place by a scripted person at the page.

    python -m tests.benchmarks.collect_by_page OUT [--episodes 50] [--world pick_place_ur5e]
    python -m tests.benchmarks.collect_by_page OUT --film 60

Without ``--world`` in the virtual lab (UR5e with a gripper, RTDE, two cameras of 640x480, 30 Hz)
under the supervisor, by the operations that ``robolearn collect`` runs; the page's own socket is
all that the person has. ``--film``: the cameras show a film of so many pictures, so that nobody
has to draw them meanwhile. Prints one JSON document: episodes kept and lost, frames lost by camera,
what became of pictures in the cameras, and how long the person waited from the key that keeps an
episode until the program went on; beside it the arm's way to the next start, and from the key until
the episode was on the disk, which goes on meanwhile. A run that is cut short (``--minutes``,
Ctrl-C, SIGTERM) prints the same of what there is until then, and every kept episode prints the
waits so far to standard error, for one that is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import yaml

from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.emulators.lab.admin import LabClient
from robolearn.contracts import Agent
from robolearn.data.insight.episode_measures import measure_episode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobotError
from robolearn.operations.cell.collect import collect_on_cell
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.lab.serve import TOKEN_VARIABLE
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions
from robolearn.operations.stores.collection import CollectListener
from robolearn.spec import EmbodimentSpec
from sim.experts.registry import build_expert
from sim.worlds import make_world
from tests.hardware.teleop.page_operator import PageOperator

ROOT = Path(__file__).parents[2]
CELL = ROOT / "configs" / "hardware" / "lab_ur5e_pick_place_camera.yaml"
SUITE = ROOT / "configs" / "eval" / "pick_place.yaml"
TEXT = "Put the red cube onto the yellow square."
# Width and height of the lab's pictures [px], and how many a second.
PICTURES = (640, 480, 30)
# The floor [s].
WAIT_S = 0.5


def lab_with(
    folder: Path, address: str, pictures: dict[str, int], drawn: float, film: int, door: int
) -> Path:
    """The lab with two cameras of such pictures, ``drawn`` at a share of their size, or showing a
    film of so many pictures; ``door``: port of its side door.
    """
    text = CELL.read_text(encoding="utf-8").replace("127.0.0.1", address)
    raw: dict[str, Any] = yaml.safe_load(text)
    for camera in raw["lab"]["cameras"]:
        camera["device"] |= pictures
        camera |= {"drawn": drawn, "quality": "fast", "film": film}
    raw["lab"]["devices"]["admin_port"] = door
    for camera in raw["robot"]["cameras"]:
        camera["stream"] |= pictures
        del camera["lens"]  # of pictures of another size
    path = folder / "cell.yaml"
    path.write_text(yaml.safe_dump(raw), encoding="utf-8")
    return path


def run(
    out: Path,
    episodes: int,
    world: str = "",
    *,
    address: str = "127.0.0.1",
    seed: int = 1,
    pictures: tuple[int, int, int] = PICTURES,
    drawn: float = 1.0,
    film: int = 0,
    minutes: float = 0.0,
) -> dict[str, Any]:
    """Collect, and count, also what there is when ``minutes`` are over (0: no limit) or somebody
    ends it.
    """
    before = EpisodeStore.open(out).ids() if out.is_dir() else []
    with tempfile.TemporaryDirectory() as folder, Cameras(address) as cameras:
        if world:
            config = CollectConfig(world, task_text=TEXT, seed=seed)
            env = make_world(world)
            spec = env.spec
            env.close()
        else:
            robot = lab_with(
                Path(folder),
                address,
                dict(zip(("width", "height", "rate_hz"), pictures, strict=True)),
                drawn,
                film,
                cameras.port,
            )
            config = CollectConfig(robot=str(robot), suite=str(SUITE), task_text=TEXT, seed=seed)
            spec = cell_spec(load_cell(robot))
        person = PageOperator(lambda number: _expert(spec, number), spec.rate_hz)
        seated: list[threading.Thread] = []

        def sit_down(url: str) -> None:
            thread = threading.Thread(target=_sit, args=(person, url), daemon=True)
            seated.append(thread)
            thread.start()

        def so_far(name: str) -> None:
            person.saved.append(time.monotonic())
            print(json.dumps({"saved": name, **waited(person)}), file=sys.stderr, flush=True)

        listener = CollectListener(on_page=sit_down, on_saved=so_far)
        wanted = CollectOptions(agent="browser", episodes=episodes)
        cut = False
        with cut_short(minutes):
            try:
                if world:
                    collect(config, out, wanted, listener=listener)
                else:
                    collect_on_cell(
                        config,
                        out,
                        CellOptions(start_lab=True, lab_seed=seed),
                        Unattended(agreed=True),
                        wanted,
                        listener=listener,
                    )
            except KeyboardInterrupt:
                cut = True
        person.done.set()
        for thread in seated:
            thread.join(10.0)
    saved = (
        [name for name in EpisodeStore.open(out).ids() if name not in before]
        if out.is_dir()
        else []
    )
    return figures(out, saved, person, cut=cut) | {"cameras": cameras.counts}


@contextlib.contextmanager
def cut_short(minutes: float) -> Generator[None]:
    """SIGTERM, and the end of ``minutes`` (0: none), act as Ctrl-C does."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    kept = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_REAL, 60.0 * minutes)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in kept.items():
            signal.signal(number, handler)


class Cameras:
    """Asks a lab again and again what became of its cameras' pictures, until the lab has ended."""

    def __init__(self, address: str) -> None:
        self._address, self._ended = address, threading.Event()
        with socket.create_server((address, 0)) as free:
            self.port = int(free.getsockname()[1])
        # By camera what the lab said last.
        self.counts: dict[str, dict[str, int]] = {}
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._token = os.environ.setdefault(TOKEN_VARIABLE, secrets.token_hex(16))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _ask(self) -> None:
        # Before the lab serves, and once it has ended, nobody answers.
        while not self._ended.wait(1.0):
            with (
                contextlib.suppress(RobotError, OSError),
                LabClient(self._address, self.port, self._token) as door,
            ):
                while not self._ended.wait(1.0):
                    self.counts = door.call("stats")["cameras"]


def _sit(person: PageOperator, url: str) -> None:
    with person.at(url):
        person.done.wait()


def _expert(spec: EmbodimentSpec, number: int) -> Agent:
    expert = build_expert("pick_place", spec)
    expert.reset(number)
    return expert


def figures(out: Path, saved: Sequence[str], person: PageOperator, *, cut: bool) -> dict[str, Any]:
    """What became of the episodes that were kept, and of the person's time; ``cut``: before the end
    of the collection, so that the episode of the last key may be about to be saved.
    """
    kept = sum(key == "keep" for _, key in person.pressed)
    lost: dict[str, int] = {}
    successes = 0
    for name in saved:
        episode = EpisodeStore.open(out).read(name)
        successes += episode.meta.outcome.success
        for camera in measure_episode(episode).cameras:
            lost[camera.name] = lost.get(camera.name, 0) + camera.lost
    by_disk = int(person.last.get("lost_frames", 0))
    missing = kept - len(saved)
    return {
        "cut short": cut,
        "episodes kept": len(saved),
        "episodes lost": max(0, missing - 1) if cut else missing,
        "attempts": sum(phase == "running" for _, phase in person.phases),
        "successes": successes,
        "frames lost by camera": lost,
        "frames the disk lost": by_disk,
        **waited(person),
        "floor holds": not cut
        and not missing
        and not sum(lost.values())
        and not by_disk
        and max(waits(person)[0], default=0.0) <= WAIT_S,
    }


def waited(person: PageOperator) -> dict[str, Any]:
    """How long the person waited so far, for the program and for the arm."""
    saving, moving = waits(person)
    keys = [t_s for t_s, key in person.pressed if key == "keep"]
    written = [then_s - t_s for t_s, then_s in zip(keys, person.saved, strict=False)]
    return {
        "save to next [s]": _spread(saving),
        "save to disk [s]": _spread(written),
        "way to the start [s]": _spread(moving),
    }


def waits(person: PageOperator) -> tuple[list[float], list[float]]:
    """From each key that kept an episode until the program went on, and how long the arm was on
    its way then [s].
    """
    saving: list[float] = []
    moving: list[float] = []
    for t_s, key in person.pressed:
        after = next((p for p in person.phases if p[0] > t_s), None)
        if key == "keep" and after is not None:
            saving.append(after[0] - t_s)
    for (t_s, phase), (then_s, _) in itertools.pairwise(person.phases):
        if phase == "resetting":
            moving.append(then_s - t_s)
    return saving, moving


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    p50, p95, most = np.percentile(values, [50, 95, 100])
    return {"p50": round(p50, 3), "p95": round(p95, 3), "max": round(most, 3)}


def main() -> None:
    """Arguments in, JSON out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--world", default="")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pictures", type=int, nargs=3, default=PICTURES, help="W H RATE")
    parser.add_argument("--drawn", type=float, default=1.0, help="share of the size that is drawn")
    parser.add_argument("--film", type=int, default=0, help="pictures of a film to be shown")
    parser.add_argument("--minutes", type=float, default=0.0, help="then it ends; 0: no limit")
    given = parser.parse_args()
    found = run(
        given.out,
        given.episodes,
        given.world,
        address=given.address,
        seed=given.seed,
        pictures=given.pictures,
        drawn=given.drawn,
        film=given.film,
        minutes=given.minutes,
    )
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
