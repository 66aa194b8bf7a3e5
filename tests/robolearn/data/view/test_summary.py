"""What ``data show`` tells, against an episode worked out by hand; imports that fail."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.data.commands import main
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.view.summary import episode_summary, store_summary
from robolearn.types import SampleBlock
from tests.episodes import TOOL, small_episode


def by_hand() -> Episode:
    """Four ticks; four samples 100, 110 and 90 ms apart, one of them missing."""
    made = small_episode(0, steps=4)
    t_ns = np.array([0, 100, 210, 300], dtype=np.int64) * 1_000_000
    block = SampleBlock(t_ns, made.streams[TOOL].value, np.array([True, True, False, True]))
    return dataclasses.replace(
        made,
        tick_t_ns=t_ns,
        streams={TOOL: block},
        # The range of the action is [0, 1] for each of two components.
        action={TOOL: np.array([[0.0, 0.5], [0.5, 1.0], [0.5, 0.5], [0.2, 0.8]])},
        source=("policy:flow", "policy:flow", "human:keyboard", "policy:flow"),
        overrun_ns=np.array([0, 5, 0, 0], dtype=np.int64),
    )


def test_every_figure_of_an_episode(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "s")
    with store.writer() as writer:
        writer.append(by_hand())
    shown = episode_summary(store, "ep_000000")
    assert (shown.steps, shown.duration_s, shown.overruns) == (4, pytest.approx(0.4), 1)
    assert (shown.success, shown.interventions) == (True, 1)
    assert shown.sources == {"policy:flow": 3, "human:keyboard": 1}
    (signal,) = shown.signals
    assert (signal.samples, signal.missing) == (4, 1)
    assert signal.rate_hz == pytest.approx(3 / 0.3)
    # Intervals 0.10, 0.11, 0.09 s around 0.10 s: sqrt((0 + 1e-4 + 1e-4) / 3) s.
    assert signal.jitter_ms == pytest.approx(1e3 * math.sqrt(2e-4 / 3))
    (action,) = shown.actions
    assert (action.low, action.high, action.saturated) == (0.0, 1.0, 0.5)


def test_every_figure_of_a_store(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "s")
    with store.writer() as writer:
        writer.append(by_hand())
        writer.append(small_episode(1, steps=20))
        writer.append(small_episode(2, steps=12))
        writer.remove(("ep_000002",), "me")
    shown = store_summary(store)
    assert (shown.episodes, shown.steps, shown.trash, shown.successes) == (2, 24, 1, 2)
    assert shown.hours == pytest.approx(2.4 / 3600)
    scores = [by_hand().progress.max(), small_episode(1, steps=20).progress.max()]
    assert shown.mean_score == pytest.approx(np.mean(scores))
    files = [p for e in store.ids() for p in (store.path / "episodes" / e).rglob("*")]
    size = sum(p.stat().st_size for p in files if p.is_file())
    assert shown.megabytes == pytest.approx(size / 1e6)


def table(folder: Path, bad: bool) -> Path:
    """An npz as of OGBench whose second episode is bad."""
    folder.mkdir()
    values = np.linspace(0, 1, 20, dtype=np.float32).reshape(10, 2)
    values[7] = np.nan if bad else values[7]
    end = np.array([0, 0, 0, 0, 1] * 2, dtype=np.float32)
    path = folder / "cube-v0.npz"
    np.savez(path, observations=values, actions=values, terminals=end)
    return path


def test_a_failed_import_leaves_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = table(tmp_path / "good", bad=False), table(tmp_path / "bad", bad=True)
    from robolearn.errors import RobolearnError

    out = str(tmp_path / "out")
    with pytest.raises(RobolearnError, match=r"(?i)nan|finite"):
        main(["import", str(bad), "--rate-hz", "10", "--out", out])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "good"]
    assert main(["import", str(good), "--rate-hz", "10", "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"] == 2
    with pytest.raises(RobolearnError, match=r"(?i)nan|finite"):
        main(["import", str(bad), "--rate-hz", "10", "--out", out])
    assert EpisodeStore.open(out).ids() == ("ep_000000", "ep_000001")


def test_an_episode_shows_its_devices_and_everything_about_its_origin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episode = small_episode(0, 6)
    said = {"devices": {"robot": {"kind": "ur", "serial_number": "2023"}}, "lab_seed": 3}
    meta = dataclasses.replace(episode.meta, provenance=said, git_revision="abc")
    store = EpisodeStore.create(tmp_path / "s")
    with store.writer() as writer:
        writer.append(dataclasses.replace(episode, meta=meta))
    assert main(["show", str(store.path), "ep_000000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "devices       robot: kind ur, serial_number 2023" in lines
    assert "git_revision  abc" in lines
    assert main(["show", str(store.path), "ep_000000", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["provenance"] == said
    assert "versions" in shown


def test_check_says_how_far_it_is(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "s")
    with store.writer() as writer:
        for k in range(3):
            writer.append(small_episode(k, 6))
    told: list[tuple[int, int]] = []
    check_store(store.path, on_episode=lambda done, of: told.append((done, of)))
    assert told == [(1, 3), (2, 3), (3, 3)]
