"""The studio over ten thousand generated episodes, in headless Chromium: first paint, scrolling,
memory, scrubbing of two cameras; annotations while the server is killed; random requests (long).
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from starlette.testclient import TestClient

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.store.manifest import (
    LOG_FILE,
    manifest_bytes,
    next_entry,
    parse_manifest,
    record_name,
    sha256,
)
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.server.app import studio_app
from robolearn.operations.studio.server.guard import Guard
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome
from tests.benchmarks.floors import at_most
from tests.browser import Tab, chromium, chromium_path
from tests.episodes import small_episode
from tests.studio_fuzz import OWN, SERVED, TOKEN, fuzz
from tests.waiting import pass_time, wait_until

Row = dict[str, object]
EPISODES = 10_000
CAMERAS = ("top/image", "wrist/image")
PAINTED = """
(() => { const look = () => {
  const tiles = [...document.querySelectorAll(".tile .picture")];
  const there = tiles.some((p) => p.style.backgroundImage);
  if (there) window.painted = performance.now(); else requestAnimationFrame(look); };
  look(); })()
"""


def rows(long: bool = False) -> list[Row]:
    """All rows; ``long``: more kills, and a hundred thousand random requests."""
    with tempfile.TemporaryDirectory() as name:
        lab = Path(name) / "lab"
        grow(lab / "many", EPISODES)
        _two_cameras(lab / "cameras")
        found = [*_seen(lab, Path(name)), _killed(Path(name), 40 if long else 8)]
        return [*found, *([_fuzzed()] if long else [])]


def grow(path: Path, count: int) -> None:
    """A store of ``count`` episodes of which eight differ: files are links, manifests their own."""
    with EpisodeStore.create(path).writer() as writer:
        for seed in range(8):
            writer.append(small_episode(seed, 20, image=True))
    store = EpisodeStore.open(path)
    log = list(store.log())
    models = [parse_manifest((path / record_name(i)).read_bytes(), i) for i in store.ids()]
    rng = np.random.default_rng(0)
    lines: list[bytes] = []
    for number in range(8, count):
        model, name = models[number % 8], f"ep_{number:06d}"
        info = dataclasses.replace(
            model.info, id=name, score=float(rng.random()), success=bool(rng.random() < 0.7)
        )
        data = manifest_bytes(dataclasses.replace(model, info=info))
        (path / record_name(name)).write_bytes(data)
        # A link to the folder would be refused; its files are links of the file system.
        source = path / "episodes" / model.info.id
        _linked(source, path / "episodes" / name)
        log.append(next_entry(log[-1], name, {record_name(name): sha256(data)}))
        lines.append(log[-1].line())
    with (path / LOG_FILE).open("ab") as file:
        file.writelines(lines)


def _linked(source: Path, target: Path) -> None:
    target.mkdir()
    for entry in os.scandir(source):
        if entry.is_dir():
            _linked(Path(entry.path), target / entry.name)
        else:
            os.link(entry.path, target / entry.name)


def _two_cameras(path: Path, ticks: int = 120) -> None:
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 255, (ticks, 12, 16, 3), dtype=np.uint8)
    frames = rough.repeat(40, axis=1).repeat(40, axis=2)
    signals = tuple(SignalSpec(n, (480, 640, 3), rate_hz=30.0, dtype="uint8") for n in CAMERAS)
    tool = SignalSpec("tool/xy_table", (2,), "m", 30.0, components=("x", "y"))
    action = ActionSpec("tool/xy_table", (2,), "m", 30.0)
    meta = EpisodeMeta(
        kind="demonstration",
        task="two cameras",
        embodiment=EmbodimentSpec("point", (tool, *signals), (action,), 30.0),
        condition=Condition("c", 0, {}),
        outcome=Outcome(True, 1.0, 0.0, terminal=True),
    )
    shown = {"tool/xy_table": rng.random((ticks, 2)), **dict.fromkeys(CAMERAS, frames)}
    actions = {"tool/xy_table": rng.random((ticks, 2))}
    episode: Episode = episode_from_arrays(meta, shown, actions, progress=rng.random(ticks))
    with EpisodeStore.create(path).writer() as writer:
        writer.append(episode)


@contextmanager
def serving(
    lab: Path, cache: Path, port: int = 0, token: str = ""
) -> Generator[tuple[psutil.Process, str, str]]:
    """A studio in a process of its own: the process, its address to open, and its token."""
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "ROBOLEARN_TOKEN": token}
    command = [sys.executable, "-m", "robolearn.cli.main", "studio", str(lab), "--json"]
    with subprocess.Popen(
        [*command, "--port", str(port)], env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, f"the studio ended: {process.poll()}"
            text += line
        told = json.loads(text)
        try:
            yield psutil.Process(process.pid), told["url"], told["token"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def _seen(lab: Path, folder: Path) -> list[Row]:
    if chromium_path() is None:
        return [_unmeasured("studio in a browser", "no Chromium is installed")]
    with serving(lab, folder / "cache") as (process, url, token):
        address = url.partition("/?")[0]
        things = json.loads(_get(f"{address}/api/things", token))["things"]
        ids = {t["name"]: t["id"] for t in things}
        with chromium(1400, 900) as tab:
            tab.open(url)
            tab.call("Page.addScriptToEvaluateOnNewDocument", source=PAINTED)
            cold = _paint(tab, f"{address}/#/store/{ids['many']}")
            _until_read(f"{address}/api/things/{ids['many']}/episodes", token)
            warm = sorted(_paint(tab, f"{address}/#/store/{ids['many']}") for _ in range(5))[2]
            frames = _scrolled(tab)
            scrubbed = _scrubbed(tab, f"{address}/#/store/{ids['cameras']}/episode/0")
        memory = process.memory_info().rss / 1e6
    return [
        at_most("first useful paint over 10,000 episodes, never read before", "s", cold, 1.5),
        at_most("first useful paint over 10,000 episodes, read before", "s", warm, 1.5),
        _rate("scrolling the wall of 10,000 episodes", frames, 50.0),
        at_most("memory of the server with 10,000 episodes", "MB", memory, 300.0),
        at_most("scrubbing two 640x480 cameras, next frame, p95", "ms", scrubbed, 50.0),
    ]


def _paint(tab: Tab, url: str) -> float:
    """Seconds from opening an address to the first tile with a picture."""
    tab.call("Page.navigate", url="about:blank")
    tab.open(url)
    return float(tab.wait_for("window.painted", timeout_s=60.0)) / 1e3


def _scrolled(tab: Tab) -> float:
    """Frames a second while the wall moves by 60 px a frame, for 5 s."""
    return float(
        tab.evaluate(
            """new Promise((done) => { const host = document.querySelector(".viewport");
            host.scrollTop = 0; let n = 0; const began = performance.now();
            const step = (now) => { host.scrollTop += 60; n++;
              if (now - began < 5000) requestAnimationFrame(step);
              else done(n / ((now - began) / 1000)); };
            requestAnimationFrame(step); })"""
        )
    )


def _scrubbed(tab: Tab, url: str) -> float:
    """95th percentile of the time from a step of the slider to both pictures [ms]."""
    tab.call("Page.navigate", url="about:blank")
    tab.open(url)
    tab.wait_for("document.querySelectorAll('.camera figcaption').length === 2")
    tab.wait_for(
        "[...document.querySelectorAll('.camera figcaption')]"
        ".every((c) => c.textContent.includes('frame 0 of'))"
    )
    times = tab.evaluate(
        """(async () => { const slider = document.querySelector(".transport input"), out = [];
        const words = [...document.querySelectorAll(".camera figcaption span:last-child")];
        for (let k = 1; k < 120; k++) { const began = performance.now();
          slider.value = k; slider.dispatchEvent(new Event("input"));
          while (!words.every((w) => w.textContent.startsWith(`frame ${k} of`)))
            await new Promise((go) => { const c = new MessageChannel();
              c.port1.onmessage = go; c.port2.postMessage(0); });
          out.push(performance.now() - began);
          await new Promise((go) => setTimeout(go, 33)); }
        return out; })()"""
    )
    return float(np.quantile(times, 0.95))


def _killed(folder: Path, kills: int) -> Row:
    """Annotations that are lost or doubled while the server is killed at random moments."""
    lab, token, rng = folder / "killed", secrets.token_urlsafe(12), random.Random(0)
    with EpisodeStore.create(lab / "store").writer() as writer:
        for seed in range(4):
            writer.append(small_episode(seed))
    port, number = _free_port(), 0
    for kill in range(kills + 1):
        with serving(lab, folder / "cache", port, token) as (process, url, _):
            address = url.partition("/?")[0]
            store = json.loads(_get(f"{address}/api/things", token))["things"][0]["id"]
            # In the middle of one of the next posts; what it cuts off is posted again.
            fatal, deadly = number + rng.randrange(8), rng.uniform(0.0, 0.02)
            with ThreadPoolExecutor(1) as killer:
                while number <= fatal:
                    if number == fatal and kill < kills:
                        killer.submit(_kill_at, process, time.monotonic() + deadly)
                        fatal = sys.maxsize
                    body = {"key": f"bench-{number:06d}", "episodes": [number % 4], "note": "a"}
                    try:
                        _get(f"{address}/api/things/{store}/annotations", token, body)
                    except OSError:
                        break
                    number += 1
    records = EpisodeStore.open(lab / "store").annotations()
    wrong = abs(len(records) - number) + len(records) - len({r.key for r in records})
    return at_most(f"annotations lost or doubled, of {number} over {kills} kills", "", wrong, 0.5)


def _kill_at(process: psutil.Process, until: float) -> None:
    pass_time(until - time.monotonic(), "the server is killed at a random moment")
    process.kill()


def _fuzzed(count: int = 100_000) -> Row:
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        with EpisodeStore.create(Path(name) / "store").writer() as writer:
            writer.append(small_episode(0, image=True))
        app = Guard(studio_app(Library([Path(name)]), pool), SERVED, TOKEN)
        client = TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)
        assert client.get("/api/things", headers=OWN).status_code == 200
        fuzz(client, count, seed=1)
    return at_most(f"crashes and foreign files in {count} random requests", "", 0, 0.5)


def _until_read(url: str, token: str) -> None:
    def read() -> bool:
        table = json.loads(_get(url, token))
        return table["number"]["shape"][0] == table["total"]

    wait_until(read, 120.0, what="the list of all episodes")


def _get(url: str, token: str, body: object = None) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    request.data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        raise RuntimeError(error.read().decode()) from error


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _rate(name: str, frames: float, least: float) -> Row:
    ratio = round(frames / least, 3)
    return {
        "name": name,
        "unit": "frames/s",
        "ours": round(frames, 1),
        "reference": least,
        "ratio": ratio,
        "floor": 1.0,
        "holds": ratio >= 1.0,
        "why": "the reference is the least that is allowed",
    }


def _unmeasured(name: str, why: str) -> Row:
    return {"name": name, "unit": "", "ours": None, "reference": None, "ratio": None,
            "floor": 1.0, "holds": None, "why": why}  # fmt: skip
