"""Shows an episode in rerun (https://rerun.io): signals, commands, pictures at their own times."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeInfo
from robolearn.data.store.picture_codec import LARGE_FRAME_BYTES, FrameCodec
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.cameras import Camera, open_camera
from robolearn.errors import DataError, StoreError

APPLICATION = "robolearn"
TIMELINE = "time"
_LARGE, _SMALL = FrameCodec("jpeg", 90), FrameCodec("png")


def show_episode(store: EpisodeStore, episode_id: str, save: Path | None = None) -> None:
    """Write ``save`` (``.rrd``), or open the viewer. Pictures pass one chunk at a time.

    Times are seconds since the first tick. Paths: ``cameras/<name>``, ``signals/<name>``,
    ``action/<name>`` (commanded), ``sent/<name>``, ``task/progress``, ``task/reward``, ``source``
    (who decides, where it changes) and ``about`` (metadata, outcome, annotations).
    """
    if save is not None and save.suffix != ".rrd":
        raise DataError(f"rerun's files end in .rrd; name it {save.with_suffix('.rrd').name}")
    info, meta = store.info(episode_id), store.meta(episode_id)
    cameras = [s.name for s in meta.embodiment.signals if s.is_image and s.name in info.signals]
    episode = store.read(episode_id, [n for n in info.signals if n not in cameras])
    rr: Any = importlib.import_module("rerun")
    recording = rr.RecordingStream(APPLICATION, recording_id=f"{store.uuid}-{episode_id}")
    try:
        if save is None:
            recording.spawn()
        else:
            save.parent.mkdir(parents=True, exist_ok=True)
            recording.save(str(save))
    except (OSError, RuntimeError) as error:
        raise StoreError(f"rerun cannot start here: {error}; use --strip out.png") from error
    recording.send_blueprint(_blueprint(episode, cameras))
    _about(rr, recording, episode, info)
    _curves(rr, recording, episode)
    start = int(episode.tick_t_ns[0])
    for name in cameras:
        _pictures(rr, recording, open_camera(store, episode_id, name), start)
    recording.flush(blocking=True)
    recording.disconnect()


def _blueprint(episode: Episode, cameras: list[str]) -> Any:
    rrb: Any = importlib.import_module("rerun.blueprint")
    both = [n for n in episode.streams if n in episode.action]
    alone = [n for n in episode.streams if n not in episode.action]
    curves = [
        *(
            rrb.TimeSeriesView(name=n, contents=[f"/signals/{n}", f"/action/{n}", f"/sent/{n}"])
            for n in both
        ),
        *(
            rrb.TimeSeriesView(name=f"action {n}", contents=[f"/action/{n}", f"/sent/{n}"])
            for n in episode.action
            if n not in both
        ),
        *(rrb.TimeSeriesView(name=n, origin=f"/signals/{n}") for n in alone),
        rrb.TimeSeriesView(name="task", origin="/task"),
    ]
    about = rrb.Tabs(
        rrb.TextDocumentView(name="about", origin="/about"),
        rrb.TextLogView(name="source", origin="/source"),
    )
    pictures = [rrb.Spatial2DView(name=n, origin=f"/cameras/{n}") for n in cameras]
    return rrb.Blueprint(
        rrb.Horizontal(rrb.Vertical(*pictures, about), rrb.Grid(*curves)), collapse_panels=True
    )


def _about(rr: Any, recording: Any, episode: Episode, info: EpisodeInfo) -> None:
    meta = episode.meta
    result = "success" if episode.success else "no success"
    reason = meta.outcome.reason or "no reason given"
    lines = [
        f"# {info.id}",
        f"**{result}**, best progress {episode.score:.3f}, {reason}",
        f"{meta.kind}; task {meta.task}: {meta.task_text}",
        f"agent {meta.agent}; operator {meta.operator or '-'}; {meta.env}",
        f"{episode.steps} steps, {episode.duration_s:.1f} s at {meta.embodiment.rate_hz:g} Hz",
        f"labels: {', '.join(info.labels) or '-'}; split: {info.split or '-'}",
        *(f"note: {note}" for note in info.notes),
        *(f"{key}: {value}" for key, value in meta.provenance.items()),
    ]
    text = rr.TextDocument("\n\n".join(lines), media_type=rr.MediaType.MARKDOWN)
    recording.log("about", text, static=True)
    start = int(episode.tick_t_ns[0])
    for k, source in enumerate(episode.source):
        if k == 0 or source != episode.source[k - 1]:
            recording.set_time(TIMELINE, duration=(int(episode.tick_t_ns[k]) - start) * 1e-9)
            recording.log("source", rr.TextLog(source))


def _curves(rr: Any, recording: Any, episode: Episode) -> None:
    specs = {s.name: s for s in episode.meta.embodiment.signals}
    ticks = episode.tick_t_ns
    for name, block in episode.streams.items():
        # Samples that are missing leave a gap: rerun draws nothing at NaN.
        value = block.value.reshape(len(block.t_ns), -1).astype(np.float64)
        value[~block.valid] = np.nan
        names = specs[name].components or _numbers(value)
        _curve(rr, recording, f"signals/{name}", block.t_ns, value, names, ticks)
    for base, times, action in (
        ("action", ticks, episode.action),
        ("sent", episode.sent.t_ns, episode.sent.action),
    ):
        for name, rows in action.items():
            if not len(rows):
                continue
            value = np.asarray(rows, dtype=np.float64).reshape(len(rows), -1)
            given = specs[name].components if name in specs else ()
            names = given if len(given) == value.shape[1] else _numbers(value)
            labels = tuple(f"{base} {n}" for n in names)
            _curve(rr, recording, f"{base}/{name}", times, value, labels, ticks)
    for name, rows in (("progress", episode.progress), ("reward", episode.reward)):
        _curve(rr, recording, f"task/{name}", ticks, rows[:, None], (name,), ticks)


def _numbers(value: NDArray[np.float64]) -> tuple[str, ...]:
    return tuple(str(k) for k in range(value.shape[1]))


def _curve(
    rr: Any,
    recording: Any,
    path: str,
    t_ns: NDArray[np.int64],
    value: NDArray[np.float64],
    names: tuple[str, ...],
    ticks: NDArray[np.int64],
) -> None:
    recording.log(path, rr.SeriesLines(names=list(names)), static=True)
    times = rr.TimeColumn(TIMELINE, duration=(t_ns - ticks[0]) * 1e-9)
    columns = rr.Scalars.columns(scalars=value.reshape(-1)).partition([value.shape[1]] * len(value))
    rr.send_columns(path, indexes=[times], columns=columns, recording=recording)


def _pictures(rr: Any, recording: Any, camera: Camera, start_ns: int) -> None:
    """A missing frame clears the picture: the viewer would go on showing the one before."""
    path = f"cameras/{camera.name}"
    large = int(np.prod(camera.frames.shape[1:], dtype=np.int64)) > LARGE_FRAME_BYTES
    codec, kind = (_LARGE, "image/jpeg") if large else (_SMALL, "image/png")
    frames = camera.at(np.arange(len(camera.t_ns), dtype=np.int64))
    for t_ns, valid, frame in zip(camera.t_ns, camera.valid, frames, strict=True):
        recording.set_time(TIMELINE, duration=(int(t_ns) - start_ns) * 1e-9)
        if not valid:
            recording.log(path, rr.Clear(recursive=False))
        elif frame.ndim == 2:
            recording.log(path, rr.DepthImage(frame, meter=1000.0, colormap="turbo"))
        elif frame.shape[-1] == 3:
            recording.log(path, rr.EncodedImage(contents=codec.encode(frame), media_type=kind))
        else:
            recording.log(path, rr.Image(frame))
