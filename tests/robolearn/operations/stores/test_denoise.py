"""Rows that went wrong are found and mended, sound ones are left alone, and all of it is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from policies.data_models.options import DenoiserConfig
from policies.data_models.rows import Block, RobustScale
from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.geometry import quat_from_rotation, rotation_from_rotvec
from robolearn.operations.stores.denoise import denoise
from robolearn.spec import SignalSpec
from tests.episodes import TOOL, small_episode

SMALL = DenoiserConfig(width=32, depth=1, updates=120, batch_size=64)
RATE = 0.3
STEPS = 50


def _smooth(seed: int) -> Episode:
    """A tool that is drawn along a curve by commands ahead of it."""
    episode, rng = small_episode(seed, steps=STEPS), np.random.default_rng(seed)
    at = rng.uniform(0.5, 1.5, 2) * (0.12 * np.arange(STEPS + 1))[:, None]
    at = 0.5 + 0.3 * np.sin(at + rng.uniform(0.0, 6.0, 2))
    told = at[:-1] + 3.0 * np.diff(at, axis=0)
    stream = dataclasses.replace(episode.streams[TOOL], value=at[:-1])
    return dataclasses.replace(
        episode, streams={TOOL: stream}, action={TOOL: told}, reward=np.zeros(STEPS)
    )


def _spoilt(episode: Episode, seed: int) -> Episode:
    """30 % of what was seen and, elsewhere, of what was done is off by up to a deviation."""
    rng = np.random.default_rng(seed)
    at, told = episode.observed(TOOL).copy(), episode.action[TOOL].copy()
    for values in (at, told):
        bad = rng.random(STEPS) < RATE
        values[bad] += rng.uniform(-1, 1, (int(bad.sum()), 2)) * values.std(axis=0)
    stream = dataclasses.replace(episode.streams[TOOL], value=at)
    return dataclasses.replace(episode, streams={TOOL: stream}, action={TOOL: np.clip(told, 0, 1)})


def _store(path: Path, episodes: list[Episode]) -> Path:
    with EpisodeStore.create(path).writer() as writer:
        for episode in episodes:
            writer.append(episode)
    return path


@pytest.fixture(scope="module")
def truth() -> list[Episode]:
    return [_smooth(seed) for seed in range(10)]


def _error(found: list[Episode], truth: list[Episode], what: str) -> float:
    """Root mean square, in deviations of the truth."""
    values = [(e.observed(TOOL) if what == "seen" else e.action[TOOL]) for e in (*found, *truth)]
    found_rows, true_rows = (
        np.concatenate(v) for v in (values[: len(found)], values[len(found) :])
    )
    return float(np.sqrt(((found_rows - true_rows) ** 2).mean()) / true_rows.std())


def test_corrupted_rows_are_found_and_mended(truth: list[Episode], tmp_path: Path) -> None:
    spoilt = [_spoilt(e, 100 + k) for k, e in enumerate(truth)]
    made = denoise(_store(tmp_path / "bad", spoilt), tmp_path / "out", SMALL)
    opened = EpisodeStore.open(made.store)
    mended = [opened.read(name) for name in opened.ids()]
    for what in ("seen", "done"):
        assert _error(mended, truth, what) < 0.5 * _error(spoilt, truth, what)
    assert (made.episodes, made.rows) == (10, 10 * STEPS)
    for name in (TOOL, f"action {TOOL}"):
        assert 0.15 < made.replaced[name] / made.rows < 0.4
    assert made.replaced["reward"] == 0
    told = [e.meta.provenance["denoised"]["replaced"][TOOL] for e in mended]
    assert sum(told) == made.replaced[TOOL]
    # What was not said to be replaced is what it was, bit for bit.
    for before, after, count in zip(spoilt, mended, told, strict=True):
        changed = (before.observed(TOOL) != after.observed(TOOL)).any(axis=1)
        assert changed.sum() == count
        assert (
            after.meta.provenance["origin"][-1]["store"] == EpisodeStore.open(tmp_path / "bad").uuid
        )
        assert after.action[TOOL].min() >= 0.0
        assert after.action[TOOL].max() <= 1.0


def test_sound_rows_are_left_alone(
    truth: list[Episode], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, out = _store(tmp_path / "good", truth), tmp_path / "out"
    options = ["--width", "32", "--depth", "1", "--updates", "60", "--batch-size", "64"]
    assert main(["data", "denoise", str(store), "--out", str(out), *options]) == 0
    assert f"{TOOL}: " in capsys.readouterr().out
    opened = EpisodeStore.open(out)
    mended = [opened.read(name) for name in opened.ids()]
    assert _error(mended, truth, "seen") < 0.02
    assert _error(mended, truth, "done") < 0.02


def test_blocks_are_numbers_and_back() -> None:
    rng = np.random.default_rng(0)
    pose = Block("cube/pose", SignalSpec("cube/pose", (7,), "m, quaternion wxyz"))
    turns = [quat_from_rotation(rotation_from_rotvec(rng.normal(size=3))) for _ in range(6)]
    values = np.concatenate([rng.normal(size=(6, 3)), np.stack(turns)], axis=1)
    values[::2, 3:] *= -1.0
    assert pose.encode(values).shape == (6, pose.size)
    np.testing.assert_allclose(pose.decode(pose.encode(values), values), values, atol=1e-12)
    planar = Block("block/pose", SignalSpec("block/pose", (3,), "m, m, rad", angular=(2,)))
    flat = np.array([[0.1, 0.2, 3.0], [0.3, 0.1, -3.1]], dtype=np.float32)
    assert planar.size == 4
    back = planar.decode(planar.encode(flat), flat)
    np.testing.assert_allclose(back, flat, atol=1e-6)
    assert back.dtype == np.float32
    # A third of wild values moves neither middle nor size by much.
    rows = rng.normal(size=(900, 1))
    wild = np.where(np.arange(900)[:, None] % 3 == 0, 50.0, rows)
    assert RobustScale(wild).size[0] < 3.0
    np.testing.assert_allclose(RobustScale(rows).undo(RobustScale(rows)(rows)), rows)


def test_what_cannot_be_denoised_is_refused(truth: list[Episode], tmp_path: Path) -> None:
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(DataError, match="holds no episodes"):
        denoise(tmp_path / "empty", tmp_path / "out", SMALL)
    store = _store(tmp_path / "one", [small_episode(0, image=True)])
    with pytest.raises(SpecMismatchError, match=r"rows of numbers .*top/image"):
        denoise(store, tmp_path / "out", SMALL, observations=("top/image",))
    with pytest.raises(ConfigError, match="half"):
        DenoiserConfig(half=0)
    assert not (tmp_path / "out").exists()
