"""Measures how late the curves of a running training are on the page of studio."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.training.log import JOURNAL
from tests.benchmarks.floors import at_most
from tests.browser import chromium
from tests.waiting import pass_time

Row = dict[str, object]
SETTINGS = "policy: flow\nseed: 0\nfit: {steps: 100000}\n"


def rows(lines: int = 40) -> list[Row]:
    """How late the curve of a training is on its page."""
    with tempfile.TemporaryDirectory() as name:
        late = curve_lateness(Path(name) / "late", lines)
    return [
        at_most(f"curve behind its training, worst of {lines} lines", "s", max(late), 1.0),
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


@dataclass(frozen=True)
class _Served:
    """A studio in a process of its own, as people run it."""

    url: str
    token: str

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
            yield _Served(told["url"], told["token"])
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(rows(), indent=1) + "\n")
