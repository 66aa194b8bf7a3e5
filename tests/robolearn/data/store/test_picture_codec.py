"""Cameras with a codec: what is stored, what plain zarr reads, what a kill leaves."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import zarr
from PIL import Image

from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.picture_codec import (
    FRAME_CODECS,
    LOSSLESS,
    StoredFrames,
    camera_codecs,
    default_codec,
    is_plain_jpeg,
    open_values,
    parse_codec,
)
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import merge_stores
from robolearn.data.upkeep.repair import find_recoverable, recover
from robolearn.errors import DataError, StoreCorruptError
from robolearn.spec import SignalSpec
from robolearn.types import SampleBatch, SampleBlock, Tick
from tests.episodes import IMAGE, IMAGE_SPEC
from tests.recording import END, HEADER, SPEC, make_tick


def gradient(k: int) -> np.ndarray:
    """A smooth picture that differs from frame to frame."""
    height, width, _ = IMAGE_SPEC.shape
    y, x = np.mgrid[:height, :width]
    return np.stack([2 * x + k, 3 * y, 2 * x + y], axis=2).astype(np.uint8)


def tick(k: int, *, valid: bool = True) -> Tick:
    made = make_tick(k)
    seen = made.drained.signals[IMAGE]
    shown = SampleBlock(seen.t_ns, gradient(k)[None], np.array([valid]))
    signals = dict(made.drained.signals) | {IMAGE: shown}
    return Tick(
        made.index,
        made.observation,
        made.command,
        SampleBatch(signals, made.drained.sent),
        made.outcome,
    )


def recorded(path: Path, codec: str, ticks: int = 20, missing: int = -1) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with EpisodeRecorder(store, spec=SPEC, kind="rollout", codecs={IMAGE: codec}) as recorder:
        recorder.on_start(HEADER)
        for k in range(ticks):
            recorder.on_tick(tick(k, valid=k != missing))
        recorder.on_end(END)
    return store


@pytest.mark.parametrize(("codec", "worst"), [("zstd", 0), ("png", 0), ("jpeg:95", 8)])
def test_frames_come_back(tmp_path: Path, codec: str, worst: int) -> None:
    store = recorded(tmp_path / "s", codec)
    episode = store.read("ep_000000")
    frames = episode.streams[IMAGE].value
    assert (frames.shape, frames.dtype) == ((20, *IMAGE_SPEC.shape), np.uint8)
    for k in range(20):
        error = np.abs(frames[k].astype(np.int16) - gradient(k))
        assert error.max() <= worst
    assert episode.meta.provenance[FRAME_CODECS] == {IMAGE: codec}
    assert check_store(store.path, deep=True).findings == ()


def test_plain_zarr_and_any_picture_library_read_encoded_frames(tmp_path: Path) -> None:
    store = recorded(tmp_path / "s", "jpeg:90")
    camera = zarr.open_group(str(store.path / "episodes/ep_000000/signals" / IMAGE), mode="r")
    encoded: Any = camera["encoded"]
    offset = np.asarray(camera["offset"])
    assert dict(encoded.attrs) == {
        "codec": "jpeg",
        "quality": 90,
        "frame_shape": list(IMAGE_SPEC.shape),
    }
    ours = store.read("ep_000000").streams[IMAGE].value
    for i in (0, 7, 19):
        data = np.asarray(encoded[offset[i] : offset[i + 1]]).tobytes()
        theirs = np.asarray(Image.open(io.BytesIO(data)))
        np.testing.assert_allclose(theirs.astype(int), ours[i], atol=1)


def test_a_missing_frame_takes_no_bytes(tmp_path: Path) -> None:
    episode = recorded(tmp_path / "s", "jpeg", missing=4).read("ep_000000")
    block = episode.streams[IMAGE]
    assert block.valid.tolist() == [k != 4 for k in range(20)]
    assert not block.value[4].any()
    assert block.value[5].any()


def test_frames_are_read_a_chunk_or_one_at_a_time(tmp_path: Path) -> None:
    for codec in ("jpeg", "zstd"):
        store = recorded(tmp_path / codec, codec)
        files = store.manifest("ep_000000").by_path()
        stored = open_values(store.path / "episodes/ep_000000", f"signals/{IMAGE}", files)
        whole = store.read("ep_000000").streams[IMAGE].value
        assert (stored.shape, stored.dtype, stored.chunks) == (whole.shape, whole.dtype, 2)
        np.testing.assert_array_equal(stored.chunk(1), whole[stored.rows_per_chunk :])
        if codec == "jpeg":
            assert isinstance(stored, StoredFrames)
            for row in (0, 7, 19):
                np.testing.assert_array_equal(stored.frame(row), whole[row])


@pytest.mark.parametrize("codec", ["png", "jpeg:80"])
def test_a_killed_recording_is_recovered_without_encoding_again(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recorded(tmp_path / "whole", codec).read("ep_000000").streams[IMAGE].value
    store = EpisodeStore.create(tmp_path / "killed")
    # Small chunks, as if the pictures were large.
    monkeypatch.setattr("robolearn.data.store.picture_codec.ENCODED_CHUNK", 1000)
    options = {"codecs": {IMAGE: codec}, "flush_s": 0.0}
    recorder = EpisodeRecorder(store, spec=SPEC, kind="rollout", **options)
    recorder.on_start(HEADER)
    for k in range(20):
        recorder.on_tick(tick(k))
    recorder.flush()
    recorder.on_abort(RuntimeError("the power went"))
    recorder.close()
    (found,) = find_recoverable(store)
    assert 0 < found.steps < 20
    (episode_id,) = recover(store).saved
    episode = store.read(episode_id)
    assert episode.steps == found.steps
    np.testing.assert_array_equal(episode.streams[IMAGE].value, whole[: found.steps])
    assert check_store(store.path, deep=True).sound


def test_merge_copies_encoded_frames_bit_for_bit(tmp_path: Path) -> None:
    a, b = recorded(tmp_path / "a", "jpeg"), recorded(tmp_path / "b", "zstd")
    merge_stores([a, b], tmp_path / "both")
    both = EpisodeStore.open(tmp_path / "both")
    for index, source in enumerate((a, b)):
        np.testing.assert_array_equal(
            both.read(f"ep_{index:06d}").streams[IMAGE].value,
            source.read("ep_000000").streams[IMAGE].value,
        )


def test_an_altered_picture_is_found(tmp_path: Path) -> None:
    store = recorded(tmp_path / "s", "jpeg")
    chunk = tmp_path / "s/episodes/ep_000000/signals" / IMAGE / "encoded/c.0"
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(bytes(data))
    assert not check_store(store.path).sound
    with pytest.raises(StoreCorruptError, match="crc32c"):
        store.read("ep_000000")


def test_large_colour_pictures_are_jpeg_by_default_and_nothing_else() -> None:
    def codec(*shape: int) -> str:
        return str(default_codec(SignalSpec("a/image", shape, dtype="uint8")))

    assert codec(96, 96, 3) == "zstd"
    assert codec(480, 640, 3) == "jpeg"
    assert codec(480, 640, 1) == "zstd"
    assert camera_codecs(SPEC, {}) == {IMAGE: LOSSLESS}


@pytest.mark.parametrize("text", ["jpg", "jpeg:0", "jpeg:101", "png:3", "zstd:1", "", "av1"])
def test_a_codec_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="codec"):
        parse_codec(text)


def test_a_codec_for_something_else_than_a_camera_is_refused() -> None:
    with pytest.raises(DataError, match="no camera"):
        camera_codecs(SPEC, {"tool/force": "jpeg"})


def test_the_snippet_of_the_docs_reads_a_camera(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path / "s", "jpeg", missing=4)
    page = (Path(__file__).parents[4] / "docs" / "data_format.md").read_text(encoding="utf-8")
    (code,) = (c for c in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "offset" in c)
    exec(code.replace("STORE", str(tmp_path / "s")), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 19
    assert lines[4] == f"5 {IMAGE_SPEC.shape} uint8"


def jpeg_of(picture: np.ndarray, *options: int) -> bytes:
    done, data = cv2.imencode(".jpg", picture[..., ::-1], options)
    assert done
    return data.tobytes()


def with_segment(data: bytes, marker: int, body: bytes) -> bytes:
    """``data`` with one segment more, right after its start."""
    return data[:2] + bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body + data[2:]


PLAIN = jpeg_of(gradient(0))
ODD = {
    "cut off": PLAIN[:-40],
    "longer than it says": PLAIN + b"\0",
    "nothing": b"",
    "no scan": PLAIN[: PLAIN.index(b"\xff\xda")] + b"\xff\xd9",
    "progressive": jpeg_of(gradient(0), cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "of one colour": cv2.imencode(".jpg", gradient(0)[..., 0])[1].tobytes(),
    "of another size": jpeg_of(gradient(0)[:-8]),
    "turned (Exif)": with_segment(PLAIN, 0xE1, b"Exif\0\0MM\0*\0\0\0\x08\0\0"),
    "with a remark": with_segment(PLAIN, 0xFE, b"hello"),
    "with a colour profile": with_segment(PLAIN, 0xE2, b"ICC_PROFILE\0\x01\x01"),
    "longer than its pixels": with_segment(PLAIN, 0xE0, bytes(60000)),
    "without tables": PLAIN.replace(b"\xff\xc4", b"\xff\xdd"),
    "another file": b"\x89PNG\r\n\x1a\n" + bytes(100),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_file_of_a_camera_is_not_kept(tmp_path: Path, what: str) -> None:
    assert is_plain_jpeg(PLAIN, IMAGE_SPEC.shape)
    assert not is_plain_jpeg(PLAIN, (*IMAGE_SPEC.shape, 1))
    assert not is_plain_jpeg(ODD[what], IMAGE_SPEC.shape)
    store, kept = filmed(tmp_path / "s", [PLAIN, ODD[what], PLAIN])
    assert kept == 2
    found = store.read("ep_000000").streams[IMAGE].value.astype(np.int16)
    assert len(found) == 3
    assert np.abs(found - gradient(0)).max() <= 8
    assert check_store(store.path, deep=True).findings == ()


def test_a_damaged_file_of_a_camera_never_spoils_a_store(tmp_path: Path) -> None:
    rng, files, values = np.random.default_rng(0), list[bytes](), list[np.ndarray]()
    for _ in range(300):
        data = bytearray(PLAIN)
        for at in rng.integers(0, len(data), rng.integers(1, 6)):
            data[at] = rng.integers(0, 256)
        # What a driver decodes, it hands on; what it cannot, it refuses.
        image: Any = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR_RGB)
        if image is not None and image.shape == IMAGE_SPEC.shape:
            files.append(bytes(data))
            values.append(image)
    store, kept = filmed(tmp_path / "s", files, values)
    assert 50 < kept <= len(files)
    found = store.read("ep_000000").streams[IMAGE].value
    for file, value, read in zip(files, values, found, strict=True):
        if is_plain_jpeg(file, IMAGE_SPEC.shape):
            np.testing.assert_array_equal(read, value)
    assert check_store(store.path, deep=True).findings == ()


def filmed(
    path: Path, files: list[bytes], values: list[np.ndarray] | None = None
) -> tuple[EpisodeStore, int]:
    """A store with an episode of these frames, and how many were kept as they came."""
    store = EpisodeStore.create(path)
    values = values or [gradient(0)] * len(files)
    with EpisodeRecorder(store, spec=SPEC, kind="rollout", codecs={IMAGE: "jpeg"}) as recorder:
        recorder.on_start(HEADER)
        for k, (file, value) in enumerate(zip(files, values, strict=True)):
            made = make_tick(k)
            t_ns = made.drained.signals[IMAGE].t_ns
            shown = SampleBlock(t_ns, value[None], np.array([True]), (file,))
            signals = dict(made.drained.signals) | {IMAGE: shown}
            drained = SampleBatch(signals, made.drained.sent)
            recorder.on_tick(
                Tick(made.index, made.observation, made.command, drained, made.outcome)
            )
        recorder.on_end(END)
    told = store.read("ep_000000").meta.provenance
    return store, told["recorder"].get("frames_as_sent", {}).get(IMAGE, 0)
