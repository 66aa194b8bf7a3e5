"""Makes JPEGs of the cameras' newest pictures for the page, on a thread of its own.

Only the newest picture of each camera exists; a page gets the next one when it has drawn the last,
so that none waits in a queue, however slow the network is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import cv2

from robolearn.shapes import Picture

# Enough to aim by [px], and how good.
WIDEST, QUALITY = 640, 75


class Pictures:
    """JPEGs by the cameras' order; ``made`` is called after each round."""

    def __init__(self, cameras: tuple[str, ...], made: Callable[[], None]) -> None:
        self._cameras, self._made = cameras, made
        self._changed = threading.Condition()
        self._newest: Mapping[str, Picture] | None = None
        self._jpegs: dict[int, tuple[int, bytes]] = {}
        self._closed, self._number = False, 0
        self._thread = threading.Thread(target=self._work, name="teleop-pictures", daemon=True)
        self._thread.start()

    def put(self, pictures: Mapping[str, Picture]) -> None:
        """The newest ones, instead of those before; never blocks."""
        with self._changed:
            self._newest = pictures
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
        while (pictures := self._next()) is not None:
            made = {
                camera: jpeg_of(pictures[name])
                for camera, name in enumerate(self._cameras)
                if name in pictures
            }
            with self._changed:
                self._number += 1
                self._jpegs = {c: (self._number, jpeg) for c, jpeg in made.items()}
            self._made()

    def _next(self) -> Mapping[str, Picture] | None:
        with self._changed:
            while self._newest is None and not self._closed:
                self._changed.wait()
            pictures, self._newest = self._newest, None
            return None if self._closed else pictures


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
