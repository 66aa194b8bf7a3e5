"""Depth of 16 bits in a store: without loss by every codec, seen in colours, read by no policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from robolearn.cli.data.commands import main
from robolearn.contracts import PolicySpec
from robolearn.data.exporters.common import ExportOptions, make_plan
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.picture_codec import camera_codecs, default_codec
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.view.cameras import coloured
from robolearn.data.view.summary import store_stats
from robolearn.errors import DataError, SpecMismatchError
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import SampleBatch, Tick
from sim.rendering.video import episode_frames
from tests.episodes import TOOL, TOOL_SPEC
from tests.recording import END, HEADER, SPEC, make_tick, samples

DEPTH = "top/depth"
DEPTH_SPEC = SignalSpec(DEPTH, (64, 48), "mm", 10.0, "uint16")
RIG: EmbodimentSpec = dataclasses.replace(SPEC, signals=(*SPEC.signals, DEPTH_SPEC))


def depth(k: int) -> np.ndarray:
    """A slanted plane with noise of its last bits, and a hole."""
    rng = np.random.default_rng(k)
    plane = 400 + 20 * np.arange(48) + 40 * k + rng.integers(0, 9, (64, 48))
    plane[10:20, 5:9] = 0
    return plane.astype(np.uint16)


def tick(k: int) -> Tick:
    made = make_tick(k)
    at_ns = int(made.drained.signals["top/image"].t_ns[0])
    signals = dict(made.drained.signals) | {DEPTH: samples([at_ns], lambda _: depth(k))}
    return dataclasses.replace(made, drained=SampleBatch(signals, made.drained.sent))


def recorded(path: Path, codecs: dict[str, str]) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with EpisodeRecorder(store, spec=RIG, kind="rollout", codecs=codecs) as recorder:
        recorder.on_start(HEADER)
        for k in range(12):
            recorder.on_tick(tick(k))
        recorder.on_end(END)
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    return recorded(tmp_path_factory.mktemp("depth") / "s", {DEPTH: "png"})


def assert_kept(store: EpisodeStore) -> None:
    block = store.read("ep_000000").streams[DEPTH]
    assert block.value.dtype == np.uint16
    np.testing.assert_array_equal(block.value, np.stack([depth(k) for k in range(12)]))
    assert check_store(store.path, deep=True).findings == ()


def test_depth_comes_back_bit_for_bit(store: EpisodeStore, tmp_path: Path) -> None:
    assert_kept(store)
    assert_kept(recorded(tmp_path / "z", {}))


def test_statistics_leave_depth_out_as_written_and_from_the_data(store: EpisodeStore) -> None:
    for recompute in (False, True):
        names = {row.name for row in store_stats(store, recompute=recompute)}
        assert "top/image" in names
        assert DEPTH not in names


def test_depth_is_stored_without_loss_by_itself_and_never_as_jpeg() -> None:
    assert str(default_codec(DEPTH_SPEC)) == "zstd"
    assert str(default_codec(dataclasses.replace(DEPTH_SPEC, shape=(480, 640)))) == "png"
    with pytest.raises(DataError, match="would change depth; store it as png or zstd"):
        camera_codecs(RIG, {DEPTH: "jpeg:95"})


def test_a_person_sees_depth_in_colours(store: EpisodeStore, tmp_path: Path) -> None:
    shown = coloured(np.array([[300, 1900, 0]], dtype=np.uint16)).astype(int)
    near, far, hole = shown[0]
    assert near[0] > near[2]
    assert far[2] > far[0]
    assert (hole == 0).all()
    for suffix, option in ((".png", "--strip"), (".rrd", "--save")):
        out = tmp_path / f"view{suffix}"
        assert main(["view", str(store.path), "ep_000000", option, str(out)]) == 0
        assert out.stat().st_size > 1000
    (frame, *_) = episode_frames(store.read("ep_000000"), [DEPTH, "top/image"], 64)
    assert frame.dtype == np.uint8
    assert frame.shape[2] == 3
    colours = np.asarray(Image.open(tmp_path / "view.png").convert("RGB")).astype(int)
    assert (np.ptp(colours, axis=2) > 100).mean() > 0.01


def test_what_cannot_take_depth_says_so(store: EpisodeStore) -> None:
    with pytest.raises(SpecMismatchError, match=r"\['top/depth'\] is depth.*observations: \['tool"):
        PolicySpec(RIG.task_space([TOOL, DEPTH]), 1, 4, 4)
    plan = make_plan(store, ["ep_000000"], ExportOptions(images=True))
    assert [c.name for c in plan.cameras] == ["top/image"]
    assert "top/depth (depth of 16 bits)" in plan.not_held
    assert (DEPTH_SPEC.is_image, DEPTH_SPEC.is_depth, TOOL_SPEC.is_image) == (True, True, False)
