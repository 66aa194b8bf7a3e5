"""Makes JPEGs of the cameras' newest pictures for the page, on a thread of its own.

Only the newest picture of each camera exists; a page gets the next one when it has drawn the last,
so that none waits in a queue, however slow the network is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

import cv2

from robolearn.shapes import Picture

# Enough to aim by [px], and how good.
WIDEST, QUALITY = 640, 75
# A camera's own file that is longer is compressed again: a tablet in a wireless network gets some
# forty pictures a second.
LONGEST = 96 * 2**10


NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class Pictures:
    """JPEGs by the cameras' order; ``made`` is called after each round."""

    def __init__(self, cameras: tuple[str, ...], made: Callable[[], None]) -> None:
        self._cameras, self._made = cameras, made
        self._changed = threading.Condition()
        self._newest: tuple[Mapping[str, Picture], Mapping[str, bytes]] | None = None
        self._jpegs: dict[int, tuple[int, bytes]] = {}
        self._closed, self._number = False, 0
        self._thread = threading.Thread(target=self._work, name="teleop-pictures", daemon=True)
        self._thread.start()

    def put(self, pictures: Mapping[str, Picture], files: Mapping[str, bytes] = NO_FILES) -> None:
        """The newest ones, instead of those before; never blocks. ``files``: the plain JPEGs of
        which some of them were decoded.
        """
        with self._changed:
            self._newest = pictures, files
            self._changed.notify_all()

    def newer(self, camera: int, number: int) -> tuple[int, bytes] | None:
        """Number and JPEG of a camera's picture if it is newer than ``number``."""
        with self._changed:
            found = self._jpegs.get(camera)
        return found if found is not None and found[0] > number else None

    def close(self) -> None:
        """Stop; safe to call twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while (newest := self._next()) is not None:
            pictures, files = newest
            made = {
                camera: shown_as(pictures[name], files.get(name, b""))
                for camera, name in enumerate(self._cameras)
                if name in pictures
            }
            with self._changed:
                self._number += 1
                self._jpegs = {c: (self._number, jpeg) for c, jpeg in made.items()}
            self._made()

    def _next(self) -> tuple[Mapping[str, Picture], Mapping[str, bytes]] | None:
        with self._changed:
            while self._newest is None and not self._closed:
                self._changed.wait()
            newest, self._newest = self._newest, None
            return None if self._closed else newest


def shown_as(picture: Picture, file: bytes) -> bytes:
    """The camera's own ``file`` where that is small enough, else a JPEG of the picture."""
    if file and picture.shape[1] <= WIDEST and len(file) <= LONGEST:
        return file
    return jpeg_of(picture)


def jpeg_of(picture: Picture) -> bytes:
    """A JPEG of a picture (RGB), at most ``WIDEST`` wide."""
    if picture.shape[1] > WIDEST:
        height = max(1, round(picture.shape[0] * WIDEST / picture.shape[1]))
        smaller = cv2.resize(picture, (WIDEST, height), interpolation=cv2.INTER_AREA)
    else:
        smaller = picture
    bgr = cv2.cvtColor(smaller, cv2.COLOR_RGB2BGR)
    done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return data.tobytes() if done else b""
