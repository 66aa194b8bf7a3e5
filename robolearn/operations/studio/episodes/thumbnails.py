"""Draws small pictures of episodes, by sheets of up to 64: one request for a screen of them.

An episode is shown as its first camera saw it last, when what was wanted is done or not; one
without pictures by the curves of what was commanded.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import time

import cv2
import numpy as np
from jaxtyping import UInt8
from numpy.typing import NDArray

from robolearn.data.episode import EpisodeInfo
from robolearn.data.view.cameras import open_camera
from robolearn.errors import DataError, RobolearnError
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.episodes.likeness import commanded
from robolearn.operations.studio.episodes.shelf import OpenStore, Row, open_store
from robolearn.shapes import Picture as Pixels

WIDTH, HEIGHT, COLUMNS, MOST = 128, 96, 8, 64
QUALITY = 80
ENOUGH_S = 0.15
"""What is not drawn by then is left blank; whoever asks again gets more."""
KEPT_S = 7 * 86_400
"""Episodes never change, nor do their pictures."""
_GROUND = (38, 33, 29)
_INKS = ((110, 195, 222), (111, 155, 242), (114, 207, 147), (245, 163, 196), (94, 190, 232))

Thumbnail = UInt8[NDArray[np.uint8], "96 128 3"]


def sheet(ask: Ask) -> Picture:
    """``?rows=3,7,12``: the thumbnails of these episodes by number, eight in a row, as one JPEG."""
    numbers = _numbers(ask.query("rows"))
    opened = open_store(ask)
    rows = [_row(opened, n) for n in numbers]
    kept = opened.cache.get("thumbnail", [r.hash for r in rows if r is not None])
    fresh: list[tuple[str, bytes]] = []
    until, partial = time.monotonic() + ENOUGH_S, False
    lines = -(-len(rows) // COLUMNS)
    page = np.full((HEIGHT * lines, WIDTH * COLUMNS, 3), _GROUND, dtype=np.uint8)
    for k, row in enumerate(rows):
        if row is None:
            continue
        data = kept.get(row.hash)
        picture = None if data is None else _decoded(data)
        if picture is None:
            partial = time.monotonic() > until
            picture = None if partial else thumbnail(opened, row)
            if picture is None:
                continue
            fresh.append((row.hash, _encoded(picture, QUALITY + 8)))
        y, x = k // COLUMNS * HEIGHT, k % COLUMNS * WIDTH
        page[y : y + HEIGHT, x : x + WIDTH] = picture
    opened.cache.put("thumbnail", fresh)
    data = _encoded(page, QUALITY)
    return Picture(data, "image/jpeg", 0 if partial else KEPT_S, partial=partial)


def thumbnail(opened: OpenStore, row: Row) -> Thumbnail | None:
    """BGR pixels ``[HEIGHT, WIDTH, 3]``; None where the episode cannot be read."""
    if row.info is None:
        return None
    try:
        last = _last_frame(opened, row.info)
        return _curves(opened, row.info) if last is None else _fitted(last)
    except (RobolearnError, OSError):
        # The episode's own view says what is wrong with it.
        return None


def _last_frame(opened: OpenStore, info: EpisodeInfo) -> Pixels | None:
    """RGB, of the first camera that has one."""
    specs = opened.store.meta(info.id).embodiment.signals
    cameras = [s for s in specs if s.is_image and s.name in info.signals]
    for spec in sorted(cameras, key=lambda s: s.is_depth):
        camera = open_camera(opened.store, info.id, spec.name)
        rows = camera.view[camera.valid[camera.view]]
        if len(rows):
            frame = np.asarray(next(camera.seen(rows[-1:])), dtype=np.uint8)
            return frame if frame.shape[-1] == 3 else np.repeat(frame[..., :1], 3, axis=-1)
    return None


def _fitted(rgb: Pixels) -> Thumbnail:
    """The whole picture in the middle of a thumbnail."""
    bgr = rgb[..., ::-1]
    height, width = bgr.shape[:2]
    scale = min(WIDTH / width, HEIGHT / height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    small = cv2.resize(np.ascontiguousarray(bgr), size, interpolation=way)
    out = np.full((HEIGHT, WIDTH, 3), _GROUND, dtype=np.uint8)
    y, x = (HEIGHT - size[1]) // 2, (WIDTH - size[0]) // 2
    out[y : y + size[1], x : x + size[0]] = small
    return out


def _curves(opened: OpenStore, info: EpisodeInfo) -> Thumbnail:
    """Each number of the first command over time."""
    out = np.full((HEIGHT, WIDTH, 3), _GROUND, dtype=np.uint8)
    values = commanded(opened, info.id)
    if not values.size:
        return out
    low, high = values.min(axis=0), values.max(axis=0)
    share = (values - low) / np.where(high > low, high - low, 1.0)
    xs = np.linspace(4, WIDTH - 5, len(values))
    for k in range(min(values.shape[1], len(_INKS))):
        ys = HEIGHT - 6 - share[:, k] * (HEIGHT - 12)
        points = np.stack([xs, ys], axis=1).round().astype(np.int32)
        cv2.polylines(out, [points[:, None]], False, _INKS[k], 1, cv2.LINE_AA)
    return out


def _row(opened: OpenStore, number: int) -> Row | None:
    try:
        return opened.row(number)
    except NotHere:
        return None


def _numbers(text: str) -> list[int]:
    words = text.split(",") if text else []
    good = all(w.isascii() and w.isdecimal() and len(w) <= 9 for w in words)
    if not good or not 0 < len(words) <= MOST:
        raise DataError(f"rows: expected 1 to {MOST} numbers of episodes, got '{text[:60]}'")
    return [int(w) for w in words]


def _encoded(bgr: Pixels, quality: int) -> bytes:
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def _decoded(data: bytes) -> Thumbnail | None:
    # What OpenCV cannot decode is no array.
    found = np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
    return found.astype(np.uint8) if found.shape == (HEIGHT, WIDTH, 3) else None
