"""Measures what studio does beside a training: how late curves are, what it costs the training."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.imitation.flow import FlowConfig
from robolearn.data.reading.selection import DataConfig
from robolearn.training.experiment import Experiment, train
from robolearn.training.log import JOURNAL
from robolearn.training.loop import FitConfig, Hooks
from tests.benchmarks.floors import at_most
from tests.browser import chromium
from tests.learning_mocks import random_source
from tests.waiting import pass_time

Row = dict[str, object]
SETTINGS = "policy: flow\nseed: 0\nfit: {steps: 100000}\n"
POLL_S = 0.4
"""As often as the page asks."""
BLOCK, SETTLED = 400, 40
"""Updates that are watched or not watched in a row, and how many of them do not count: what was
asked before may still be under way."""


def rows(*, long: bool = False) -> list[Row]:
    """Both rows; ``long``: more lines and pairs."""
    lines, pairs = (120, 60) if long else (40, 24)
    with tempfile.TemporaryDirectory() as name:
        late = curve_lateness(Path(name) / "late", lines)
        ratios = step_time_ratios(Path(name) / "cost", pairs)
    words = f"step time watched over not watched, median of {pairs} pairs of {BLOCK} updates"
    return [
        at_most(f"curve behind its training, worst of {lines} lines", "s", max(late), 1.0),
        at_most(words, "", statistics.median(ratios), 1.01),
    ]


def curve_lateness(lab: Path, lines: int) -> list[float]:
    """From the moment a line is in the log until the page of the run says its step [s]."""
    run = lab / "run"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(SETTINGS)
    (run / JOURNAL).write_text("")
    with _served(lab) as studio, chromium(1400, 900) as tab:
        tab.open(studio.url)
        tab.evaluate(f"location.hash = '#/run/{studio.ids()[0]}'")
        tab.wait_for("!!document.querySelector('.run-line')")
        late: list[float] = []
        for step in range(1, lines + 1):
            with (run / JOURNAL).open("a") as stream:
                stream.write(json.dumps({"step": step * 7919, "loss": 1.0 / step}) + "\n")
            began, words = time.monotonic(), f"{step * 7919:,} of"
            tab.wait_for(f"document.querySelector('.run-line').textContent.includes('{words}')")
            late.append(time.monotonic() - began)
            pass_time(0.13 + 0.037 * (step % 7), "lines come at any moment between two questions")
    return late


def step_time_ratios(lab: Path, pairs: int) -> list[float]:
    """Of neighbouring blocks of one training: step time while studio runs and its run's page is
    asked for, over that while both stand still.
    """
    config = FlowConfig(n_obs=2, horizon=8, execute=4, width=128, blocks=3, batch_size=64)
    # The first two blocks warm up.
    fit = FitConfig(steps=BLOCK * (2 * pairs + 3), warmup=1, log_every=10, checkpoint_every=10**6)
    lab.mkdir(parents=True)
    times: dict[int, float] = {}
    with _served(lab) as studio, _asking(studio) as asker:

        def on_log(step: int, _: object) -> None:
            times[step] = time.perf_counter()
            if step % BLOCK == 0:
                go = signal.SIGCONT if _watched(step // BLOCK) else signal.SIGSTOP
                for pid in (studio.pid, asker.pid):
                    os.kill(pid, go)

        try:
            train(
                Experiment("flow", DataConfig(("tool/xy_table", "block/pose")), config, fit),
                random_source(),
                lab / "run",
                cache_dir=lab / "cache",
                hooks=Hooks(on_log=on_log),
            )
        finally:
            for pid in (studio.pid, asker.pid):
                os.kill(pid, signal.SIGCONT)
        assert asker.poll() is None, "what asked for the page has ended"
    span = [times[(k + 1) * BLOCK] - times[k * BLOCK + SETTLED] for k in range(2 * pairs + 2)]
    found: list[float] = []
    for first in range(2, 2 * pairs + 2, 2):
        watched, still = (first, first + 1) if _watched(first) else (first + 1, first)
        found.append(span[watched] / span[still])
    return found


def _watched(block: int) -> bool:
    """Watched first in every other pair, so that a machine that slows down favours neither."""
    return block % 4 in (1, 2)


@dataclass(frozen=True)
class _Served:
    """A studio in a process of its own, as people run it."""

    url: str
    token: str
    pid: int = 0

    def get(self, path: str) -> Any:
        """A document."""
        request = urllib.request.Request(
            self.url.partition("/?")[0] + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def ids(self) -> list[str]:
        """Of the runs."""
        things = self.get("/api/things")["things"]
        return [t["id"] for t in things if t["kind"] == "run"]


@contextmanager
def _served(folder: Path) -> Generator[_Served]:
    words = [sys.executable, "-m", "robolearn.cli.main", "studio", str(folder), "--port", "0"]
    with subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        told = json.loads(text)
        try:
            yield _Served(told["url"], told["token"], process.pid)
        finally:
            process.terminate()


@contextmanager
def _asking(studio: _Served) -> Generator[subprocess.Popen[bytes]]:
    """A process that asks for the curves of every run as its page does: in the training's own it
    would take turns with the training.
    """
    words = [sys.executable, "-m", "tests.benchmarks.bench_studio_live", studio.url]
    with subprocess.Popen(words, env={**os.environ, "ROBOLEARN_TOKEN": studio.token}) as process:
        try:
            yield process
        finally:
            process.kill()


def ask_for_ever(studio: _Served) -> None:
    """What :func:`_asking` runs."""
    at: dict[str, tuple[int, int]] = {}
    while True:
        for run in studio.ids():
            since, mark = at.get(run, (0, 0))
            try:
                part = studio.get(f"/api/things/{run}/curves?since={since}&mark={mark}")
            except urllib.error.HTTPError as error:
                # Nothing was logged yet.
                if error.code != 404:
                    raise
                continue
            at[run] = part["next"], part["mark"]
        pass_time(POLL_S, "a page asks so often")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ask_for_ever(_Served(sys.argv[1], os.environ["ROBOLEARN_TOKEN"]))
    sys.stdout.write(json.dumps(rows(), indent=1) + "\n")
