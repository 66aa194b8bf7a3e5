"""Sizes and speeds of picture codecs, on drawn and on real frames; AV1 as LeRobot sets it.

    python -m tests.benchmarks.bench_codecs        prints the table of docs/formats.md

Reference: raw pixels. One thread. Decoding is whole episodes in order; video cannot do better than
that at random places. Frames: Push-T (96 x 96, drawn), a real camera (640 x 480, an AV1 recording:
its noise is partly gone already, which flatters every codec), the same with sensor noise of
standard deviation 3 put back.
"""

from __future__ import annotations

import importlib
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robolearn.data.importers.recording import optional_module
from robolearn.data.importers.video import video_blocks, video_info
from robolearn.data.store.picture_codec import FrameCodec, decode_frame

av: Any = optional_module("av", "av", "AV1")  # its stubs do not export everything
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PUSHT = DATA / "pusht" / "pusht_cchi_v7_replay.zarr"
CAMERA = DATA / "g1" / "videos" / "chunk-000" / "observation.images.cam_high"
ZSTD_ROWS = {96: 16, 480: 4}
# LeRobot 0.6.1, configs/video.py: libsvtav1, yuv420p, GOP 2, CRF 30, preset 12.
AV1 = {"g": "2", "crf": "30", "preset": "12"}


@dataclass(frozen=True)
class Measured:
    """One codec on one kind of frames."""

    codec: str
    kib_per_frame: float
    ratio: float
    encode_ms: float
    decode_ms: float
    mae: float
    psnr_db: float


def rows(*, long: bool = False) -> list[dict[str, Any]]:
    """One row per codec and kind of frames: KiB per frame against raw pixels."""
    if not DATA.is_dir():
        return []
    found: list[dict[str, Any]] = []
    for kind, frames in kinds(200 if long else 60).items():
        raw = frames[0].nbytes / 1024
        found += [
            {
                "name": f"codec {m.codec}, {kind}",
                "unit": "KiB/frame",
                "ours": round(m.kib_per_frame, 2),
                "reference": raw,
                "ratio": m.kib_per_frame / raw,
                "floor": "reported",
                "holds": True,
                "why": f"encode {m.encode_ms:.2f} ms, decode {m.decode_ms:.2f} ms,"
                f" error {m.mae:.2f}, {m.psnr_db:.1f} dB",
            }
            for m in measure(frames)
        ]
    return found


def kinds(count: int) -> dict[str, np.ndarray]:
    """Frames ``[n, height, width, 3]`` by kind."""
    import zarr

    drawn: Any = zarr.open_array(str(PUSHT / "data" / "img"), mode="r", zarr_format=2)
    path = min(CAMERA.glob("*.mp4"))
    real = np.concatenate(list(video_blocks(video_info(path), count=count)))
    noise = np.random.default_rng(0).normal(0.0, 3.0, real.shape)
    noisy = np.clip(np.round(real + noise), 0, 255).astype(np.uint8)
    return {
        "drawn 96x96": np.asarray(drawn[: 2 * count]).astype(np.uint8),
        "camera 640x480": real,
        "camera 640x480 with noise": noisy,
    }


def measure(frames: np.ndarray) -> list[Measured]:
    """All codecs on the same frames."""
    cv2.setNumThreads(1)
    av.logging.set_level(av.logging.ERROR)
    found = [_pictures("raw", frames, lambda f: f.tobytes(), _raw(frames)), _zstd(frames)]
    ours = (FrameCodec("png"), *(FrameCodec("jpeg", q) for q in (75, 90, 95)))
    found += [_pictures(str(codec), frames, codec.encode, _decoder(frames)) for codec in ours]
    found.append(_pictures("webp lossless", frames, _webp(101), _decoder(frames)))
    found.append(_pictures("webp:90", frames, _webp(90), _decoder(frames)))
    try:
        found.append(_video("AV1 (LeRobot's settings)", frames, "libsvtav1", AV1))
    except (av.FFmpegError, ValueError):
        found.append(Measured("AV1: no encoder here", *(float("nan"),) * 6))
    return found


def _raw(frames: np.ndarray) -> Callable[[bytes], np.ndarray]:
    return lambda data: np.frombuffer(data, dtype=np.uint8).reshape(frames.shape[1:]).copy()


def _decoder(frames: np.ndarray) -> Callable[[bytes], np.ndarray]:
    return lambda data: decode_frame(np.frombuffer(data, dtype=np.uint8), frames.shape[1:])


def _webp(quality: int) -> Callable[[np.ndarray], bytes]:
    options = [cv2.IMWRITE_WEBP_QUALITY, quality]
    return lambda f: cv2.imencode(".webp", f[..., ::-1], options)[1].tobytes()


def _pictures(
    name: str,
    frames: np.ndarray,
    encode: Callable[[np.ndarray], bytes],
    decode: Callable[[bytes], np.ndarray],
) -> Measured:
    start = time.perf_counter()
    packed = [encode(frame) for frame in frames]
    middle = time.perf_counter()
    back = np.stack([decode(data) for data in packed])
    end = time.perf_counter()
    return _result(name, frames, back, sum(map(len, packed)), middle - start, end - middle)


def _zstd(frames: np.ndarray) -> Measured:
    zstd: Any = importlib.import_module("numcodecs.zstd")
    per_chunk = ZSTD_ROWS[frames.shape[1]]
    start = time.perf_counter()
    blocks = [frames[i : i + per_chunk] for i in range(0, len(frames), per_chunk)]
    packed = [bytes(zstd.compress(block.tobytes(), 1)) for block in blocks]
    middle = time.perf_counter()
    joined = b"".join(bytes(zstd.decompress(data)) for data in packed)
    back = np.frombuffer(joined, dtype=np.uint8).reshape(frames.shape)
    end = time.perf_counter()
    size = sum(map(len, packed))
    return _result("zstd", frames, back, size, middle - start, end - middle)


def _video(name: str, frames: np.ndarray, encoder: str, options: dict[str, str]) -> Measured:
    start = time.perf_counter()
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream: Any = out.add_stream(encoder, rate=30, options=options)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for picture in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())
    middle = time.perf_counter()
    data = file.getvalue()
    with av.open(io.BytesIO(data)) as container:
        video = container.streams.video[0]
        video.codec_context.thread_count = 1
        back = np.stack([f.to_ndarray(format="rgb24") for f in container.decode(video)])
    end = time.perf_counter()
    return _result(name, frames, back, len(data), middle - start, end - middle)


def _result(
    name: str, frames: np.ndarray, back: np.ndarray, size: int, encode_s: float, decode_s: float
) -> Measured:
    error = back.astype(np.int16) - frames
    mse = float((error.astype(np.float64) ** 2).mean())
    return Measured(
        codec=name,
        kib_per_frame=size / len(frames) / 1024,
        ratio=frames.nbytes / size,
        encode_ms=encode_s / len(frames) * 1e3,
        decode_ms=decode_s / len(frames) * 1e3,
        mae=float(np.abs(error).mean()),
        psnr_db=float("inf") if mse == 0 else 10 * float(np.log10(255.0**2 / mse)),
    )


def main() -> None:
    """Print the table in Markdown."""
    for kind, frames in kinds(60).items():
        print(f"\n{kind} ({len(frames)} frames, {frames[0].nbytes / 1024:.0f} KiB raw)\n")
        print("| codec | KiB/frame | smaller by | encode [ms] | decode [ms] | mean error | PSNR |")
        print("|---|---|---|---|---|---|---|")
        for m in measure(frames):
            psnr = "exact" if m.psnr_db == float("inf") else f"{m.psnr_db:.1f} dB"
            print(
                f"| {m.codec} | {m.kib_per_frame:.1f} | {m.ratio:.1f}x | {m.encode_ms:.2f} |"
                f" {m.decode_ms:.2f} | {m.mae:.2f} | {psnr} |"
            )


if __name__ == "__main__":
    main()
