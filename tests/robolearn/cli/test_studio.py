"""``robolearn studio`` and ``data view --page``: served until somebody ends them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from robolearn.cli.main import main
from robolearn.data.store.store import EpisodeStore
from tests.episodes import small_episode


@contextmanager
def serving(*words: str) -> Generator[list[str]]:
    """What the command has said by the time that its page can be opened."""
    argv = [sys.executable, "-m", "robolearn.cli.main", *words]
    with subprocess.Popen(argv, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("open "):
                    break
            yield said
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "stopped\n"
    assert process.returncode == 0


def browser() -> urllib.request.OpenerDirector:
    """It keeps the cookie that the first address sets, and sends nothing by a proxy."""
    proxies = urllib.request.ProxyHandler({})
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), proxies)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with EpisodeStore.create(path).writer() as writer:
        for seed in range(3):
            writer.append(small_episode(seed, 12, image=False))
        writer.remove(("ep_000000",), "me")
    return path


def test_the_studio_is_served_until_it_is_ended(store: Path) -> None:
    with serving("studio", str(store.parent), "--port", "0") as said:
        assert said[0] == "found: 1 store\n"
        with browser().open(said[-1].split()[1]) as page:
            assert b"<script" in page.read()


@pytest.mark.parametrize("name", ["ep_9", "2", "ep_000000", "../x"])
def test_a_page_of_an_episode_that_is_not_there(store, capsys, name) -> None:
    assert main(["data", "view", str(store), name, "--page"]) == 2
    assert name in capsys.readouterr().err


def test_the_page_of_an_episode(store: Path) -> None:
    with serving("data", "view", str(store), "ep_000002", "--page") as said:
        url = said[-1].split()[1]
        address, _, view = url.partition("#/store/")
        thing, _, number = view.partition("/episode/")
        tab = browser()
        tab.open(address).close()
        place = f"api/things/{thing}/episodes/{number}"
        with tab.open(urllib.parse.urljoin(address, place)) as answer:
            assert json.load(answer)["id"] == "ep_000002"
