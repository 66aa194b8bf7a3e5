"""Serves the pictures of an episode one by one: JPEG and PNG as stored, others encoded once."""

from __future__ import annotations

import cv2
import numpy as np

from robolearn.data.store.picture_codec import StoredFrames
from robolearn.data.view.cameras import Camera, coloured, open_camera
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.episodes.shelf import open_store
from robolearn.shapes import AnyArray

QUALITY = 90
KEPT_S = 86_400


def frame(ask: Ask) -> Picture:
    """Frame ``{row}`` of camera ``{camera}`` (by its place) of an episode."""
    number, place = ask.number("number"), ask.number("camera")
    opened = open_store(ask)
    row = opened.row(number)

    def build() -> Camera:
        meta, info = opened.store.meta(row.id), row.info
        names = info.signals if info is not None else ()
        cameras = [s.name for s in meta.embodiment.signals if s.is_image and s.name in names]
        if place >= len(cameras):
            raise NotHere(f"{row.id} has {len(cameras)} cameras, and no number {place}")
        return open_camera(opened.store, row.id, cameras[place])

    camera = ask.library.keep(("camera", ask.thing.id, number, place), build, row.hash)
    index = ask.number("row")
    if index >= len(camera.valid):
        raise NotHere(f"{camera.name} of {row.id} has {len(camera.valid)} frames")
    if not camera.valid[index]:
        raise NotHere(f"frame {index} of {camera.name} is missing: it never came")
    stored = camera.frames
    if isinstance(stored, StoredFrames):
        data = stored.encoded_frame(index)
        if data[:2] == b"\xff\xd8":
            return Picture(data, "image/jpeg", KEPT_S)
        return _encoded(stored.frame(index))
    # A chunk holds a few frames, and the next one is asked for next.
    chunk = index // stored.rows_per_chunk
    kept = ("frames", ask.thing.id, number, place)
    rows = ask.library.keep(kept, lambda: stored.chunk(chunk), (row.hash, chunk))
    return _encoded(rows[index % stored.rows_per_chunk])


def _encoded(pixels: AnyArray) -> Picture:
    shown = coloured(pixels) if pixels.ndim == 2 else pixels
    bgr = np.ascontiguousarray(shown[..., ::-1])
    data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1]
    return Picture(data.tobytes(), "image/jpeg", KEPT_S)
