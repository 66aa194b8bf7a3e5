"""Writes H.264 videos that browsers play, and grids of pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np

from robolearn.data.episode import Episode
from robolearn.data.view.cameras import coloured
from robolearn.errors import DataError, MissingDependencyError
from robolearn.files import replacing
from robolearn.shapes import AnyArray
from robolearn.spec import EmbodimentSpec
from robolearn.types import EpisodeHeader, Outcome, Tick
from sim.shapes import AnyPicture


def write_mp4(path: Path, frames: Iterable[AnyArray], fps: float, *, crf: int = 23) -> int:
    """Write ``frames`` (``[h, w, 3]`` RGB, one size) and return how many; yuv420p, fast start.

    Odd sizes lose their last row or column, as H.264 needs even ones. The file appears only when
    complete. Raises :class:`DataError` for no frames or frames of different sizes.
    """
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    count, size = 0, (0, 0)
    options = {"movflags": "faststart"}
    with replacing(path) as building, av.open(str(building), "w", options=options) as container:
        try:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        except ValueError as error:
            raise MissingDependencyError(
                f"this build of PyAV has no H.264 encoder ({error}); reinstall av"
            ) from error
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": str(crf), "preset": "veryfast"}
        for frame in frames:
            image = _even(frame)
            if count == 0:
                size = image.shape[:2]
                stream.height, stream.width = size
            elif image.shape[:2] != size:
                raise DataError(f"frame {count} is {image.shape[:2]}, the first was {size}")
            picture = av.VideoFrame.from_ndarray(image, format="rgb24")
            container.mux(stream.encode(picture))
            count += 1
        if count == 0:
            raise DataError(f"'{path}': a video needs at least one frame")
        container.mux(stream.encode(None))
    return count


def grid(frames: Sequence[AnyPicture], columns: int | None = None, gap: int = 2) -> AnyPicture:
    """Put pictures of one size beside each other on white, row by row."""
    if not frames:
        raise DataError("a grid needs at least one picture")
    shapes = {f.shape for f in frames}
    if len(shapes) != 1:
        raise DataError(f"pictures of a grid must have one size, got {sorted(shapes)}")
    height, width, _ = frames[0].shape
    across = columns or math.ceil(math.sqrt(len(frames)))
    down = math.ceil(len(frames) / across)
    canvas = np.full(
        (down * height + (down - 1) * gap, across * width + (across - 1) * gap, 3), 255, np.uint8
    )
    for i, frame in enumerate(frames):
        top, left = (i // across) * (height + gap), (i % across) * (width + gap)
        canvas[top : top + height, left : left + width] = frame
    return canvas


def grid_video(
    videos: Sequence[Sequence[AnyPicture]], columns: int | None = None
) -> Iterable[AnyPicture]:
    """Frames of a grid of videos; one that is over shows its last frame."""
    for k in range(max((len(v) for v in videos), default=0)):
        yield grid([v[min(k, len(v) - 1)] for v in videos], columns)


def _even(frame: AnyArray) -> AnyPicture:
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or 0 in frame.shape:
        raise DataError(f"a frame is uint8 [h, w, 3], got {frame.dtype} {frame.shape}")
    if min(frame.shape[:2]) < 2:
        raise DataError(f"a frame has at least 2 x 2 pixels, got {frame.shape[:2]}")
    return np.ascontiguousarray(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2])


def side_by_side(
    pictures: Sequence[AnyPicture], height: int | None = None, gap: int = 2
) -> AnyPicture:
    """Pictures of any sizes in one row on white, all ``height`` [px] high (the tallest's)."""
    if not pictures:
        raise DataError("side by side needs at least one picture")
    tall = height or max(p.shape[0] for p in pictures)
    if len(pictures) == 1 and pictures[0].shape[0] == tall:
        return pictures[0]
    row: list[AnyPicture] = []
    for picture in pictures:
        width = max(1, round(picture.shape[1] * tall / picture.shape[0]))
        kind = cv2.INTER_AREA if tall < picture.shape[0] else cv2.INTER_NEAREST
        scaled = cv2.resize(picture, (width, tall), interpolation=kind)
        row += [np.asarray(scaled, dtype=np.uint8), np.full((tall, gap, 3), 255, np.uint8)]
    return np.concatenate(row[:-1], axis=1)


def image_signals(spec: EmbodimentSpec) -> tuple[str, ...]:
    """Names of the signals that are colour pictures."""
    return tuple(s.name for s in spec.signals if s.is_image and not s.is_depth)


def episode_frames(
    episode: Episode, cameras: Sequence[str] = (), height: int | None = None
) -> Iterator[AnyPicture]:
    """What the cameras of a stored episode showed at each tick, side by side; default: all of them
    that see colours (depth that is asked for is shown in colours).

    Raises :class:`DataError` for an episode without pictures.
    """
    names = tuple(cameras) or image_signals(episode.meta.embodiment)
    if not names:
        raise DataError(
            f"episode {episode.id or '(new)'} has no pictures; record with a world like"
            " 'pick_place,camera=agent+wrist', or draw it in a world"
        )
    films = [np.asarray(episode.observed(name)) for name in names]
    for k in range(episode.steps):
        rows = [film[k] for film in films]
        yield side_by_side([coloured(row) if row.ndim == 2 else row for row in rows], height)


class Film:
    """A subscriber that keeps what the cameras of a running episode show, side by side.

    ``cameras`` are image signals (default: all that the observations have).
    """

    def __init__(self, cameras: Sequence[str] = (), height: int | None = None) -> None:
        self._cameras, self._height = tuple(cameras), height
        self.frames: list[AnyPicture] = []

    def on_start(self, episode: EpisodeHeader) -> None:
        """Forget the last episode."""
        del episode
        self.frames = []

    def on_tick(self, tick: Tick) -> None:
        """One frame."""
        samples = tick.observation.samples
        names = self._cameras or tuple(n for n, s in samples.items() if s.value.dtype == np.uint8)
        self.frames.append(side_by_side([samples[n].value for n in names], self._height))

    def on_end(self, outcome: Outcome) -> None:
        """Nothing to do."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""
