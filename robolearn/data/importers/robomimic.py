"""Imports robosuite and robomimic HDF5: one group per demonstration.

    data                 attributes: env_args (robomimic) or env, env_info (robosuite), date, ...
    data/demo_N          attributes: model_file (MuJoCo XML, or the name of a file beside)
      actions [T, a]     states [T, s]     rewards, dones [T]     obs/<key> [T, ...]

robosuite 1.0 keeps ``joint_torques`` instead of observations. Formats: robosuite
``collect_human_demonstrations.py``, robomimic ``docs/datasets/overview``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.hdf5 import (
    attribute,
    frames_of,
    is_picture,
    leaves,
    names_in,
    numbers,
    opened,
    signal_name,
    subgroups,
)
from robolearn.data.importers.recording import (
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    make_episode,
)
from robolearn.data.importers.restore import restored
from robolearn.data.store.confine import confined
from robolearn.errors import DataError

DEFAULT_RATE_HZ = 20.0
"""robosuite's control frequency where the file does not say one."""
MODEL_SIGNAL = "sim/states"
ACTION = "actions"
OUTCOMES = ("rewards", "dones")
NEXT = "next_obs"
META, EXTRA = "robolearn_meta", "robolearn"
TICKS, PROGRESS = f"{EXTRA}/tick_t_ns", f"{EXTRA}/progress"


@dataclass(frozen=True, slots=True)
class RobomimicRecording:
    """An opened file."""

    path: Path
    demos: tuple[str, ...]
    rate_hz: float
    attributes: dict[str, Any]
    left_out: tuple[str, ...]
    images: bool

    @property
    def count(self) -> int:
        """Number of demonstrations."""
        return len(self.demos)

    def episode(self, index: int) -> ImportedEpisode:
        """Read one demonstration; pictures are read when they are written."""
        demo = self.demos[index]
        where = f"{self.path}: data/{demo}"
        with opened(self.path) as file:
            group = file[f"data/{demo}"]
            found = leaves(group)
            if ACTION not in found or not found[ACTION].shape:
                raise DataError(
                    f"{where}: expected 'actions' with a row per step, found {sorted(found)}"
                )
            rows = int(found[ACTION].shape[0])
            self._same_length(found, rows, where)
            signals: dict[str, NDArray[Any]] = {}
            frames: list[FrameStream] = []
            for path, dataset in found.items():
                if path in (ACTION, *OUTCOMES) or path.startswith((f"{NEXT}/", f"{EXTRA}/")):
                    continue
                name = MODEL_SIGNAL if path == "states" else signal_name(path)
                if not is_picture(dataset):
                    signals[name] = numbers(dataset, f"{where}/{path}")
                elif self.images:
                    shape, full = tuple(dataset.shape[1:]), f"data/{demo}/{path}"
                    frames.append(
                        frames_of(self.path, full, name, shape, self.rate_hz, slice(0, rows))
                    )
            actions = numbers(found[ACTION], f"{where}/{ACTION}")
            reward = None
            if "rewards" in found:
                reward = numbers(found["rewards"], where).astype(np.float64)
            dones = numbers(found["dones"], where) if "dones" in found else np.zeros(0)
            kept = {str(k): attribute(group, str(k)) for k in group.attrs}
            extra = {k: numbers(found[k], where) for k in found if k.startswith(f"{EXTRA}/")}
        sparse = reward is not None and bool(np.isin(reward, (0, 1)).all())
        source = SourceEpisode(
            source=self.path.name,
            index=index,
            rate_hz=self.rate_hz,
            signals=signals,
            actions={"obs/action": actions},
            provenance=self._provenance(demo, kept, sparse=sparse),
            frames=tuple(frames),
            reward=reward,
            terminal=bool(dones[-1:].any()),
            success=sparse and reward is not None and bool(reward.max(initial=0) == 1),
            robot=_robot(self.attributes),
            env=_env(self.attributes),
            task=_env(self.attributes).lower(),
        )
        if META not in kept:
            return make_episode(source)
        if {TICKS, PROGRESS} - set(extra):
            raise DataError(f"{where}: its robolearn arrays are missing")
        names = {f"obs/{s['name'].replace('/', '.')}": s["name"] for s in _signals(kept[META])}
        return make_episode(
            restored(
                source,
                kept[META],
                {names[n]: v for n, v in signals.items() if n in names},
                {names[f.spec.name]: f for f in frames if f.spec.name in names},
                ticks=extra[TICKS],
                progress=extra[PROGRESS],
            )
        )

    @staticmethod
    def _same_length(found: dict[str, Any], rows: int, where: str) -> None:
        for path, dataset in found.items():
            if dataset.shape[:1] != (rows,):
                raise DataError(f"{where}/{path} has shape {dataset.shape}, actions {rows} rows")

    def _provenance(self, demo: str, kept: dict[str, Any], *, sparse: bool) -> dict[str, Any]:
        model = kept.get("model_file")
        if isinstance(model, str) and not model.lstrip().startswith("<"):
            confined(model, f"{self.path}: data/{demo}, model_file")
            beside = [self.path.parent / model, self.path.parent / "models" / model]
            texts = [p.read_text("utf-8", "replace") for p in beside if p.is_file()]
            kept["model_xml"] = texts[0] if texts else None
        return {
            "importer": "robomimic",
            "demo": demo,
            "file": self.attributes,
            "attributes": kept,
            "success": "a sparse reward of 1" if sparse else "unknown",
            "left_out": list(self.left_out),
        }


class RobomimicImporter:
    """``data/demo_*/actions`` in an HDF5 file."""

    looked_for = "an HDF5 file (or a folder with one *.hdf5) with data/demo_*/actions"

    def recognise(self, path: Path) -> bool:
        """Whether there are demonstrations."""
        file = _file(path)
        if "data" not in names_in(file):
            return False
        with opened(file) as root:
            return any(ACTION in root[f"data/{demo}"] for demo in subgroups(root, "data"))

    def open(self, path: Path, options: ImportOptions) -> RobomimicRecording:
        """Look at the names, shapes and attributes of the file."""
        source = _file(path)
        with opened(source) as file:
            demos = tuple(subgroups(file, "data"))
            if not demos:
                raise DataError(f"{source}: expected groups data/demo_*, found {sorted(file)}")
            data = file["data"]
            attributes = {str(k): attribute(data, str(k)) for k in data.attrs}
            found = leaves(data[demos[0]])
            models = [attribute(data[d], "model_file") for d in demos]
            pictures = [path for path, d in found.items() if is_picture(d)]
            has_next = any(path.startswith(f"{NEXT}/") for path in found)
            has_obs = any(path.startswith("obs/") for path in found)
        reasons = [] if options.images else [f"{p} (pictures: give --images)" for p in pictures]
        reasons += [f"{NEXT} (the observations of the following row)"] if has_next else []
        reasons += [] if has_obs else ["observations: the file has none (simulator states only)"]
        reasons += sorted(
            {f"model file {m}: not beside the recording" for m in _absent(source, models)}
        )
        rate = options.rate_hz if options.rate_hz is not None else _rate(attributes)
        return RobomimicRecording(source, demos, rate, attributes, tuple(reasons), options.images)


def _file(path: Path) -> Path:
    inside = sorted(path.glob("*.hdf5")) if path.is_dir() else []
    return inside[0] if len(inside) == 1 else path


def _absent(source: Path, models: list[Any]) -> list[str]:
    named = [m for m in models if isinstance(m, str) and not m.lstrip().startswith("<")]
    folders = (source.parent, source.parent / "models")
    return [m for m in named if not any((f / m).is_file() for f in folders)]


def _arguments(attributes: dict[str, Any]) -> dict[str, Any]:
    """The environment's keyword arguments, where the file has them."""
    inner = _mapping(_mapping(attributes.get("env_args")).get("env_kwargs"))
    return inner or _mapping(attributes.get("env_info"))


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _signals(raw_meta: Any) -> list[dict[str, str]]:
    found = _mapping(_mapping(raw_meta).get("embodiment")).get("signals", [])
    return [s for s in found if "name" in _mapping(s)]


def _rate(attributes: dict[str, Any]) -> float:
    return float(_arguments(attributes).get("control_freq", DEFAULT_RATE_HZ))


def _robot(attributes: dict[str, Any]) -> str:
    robots = _arguments(attributes).get("robots", "")
    return robots if isinstance(robots, str) else "+".join(str(r) for r in robots)


def _env(attributes: dict[str, Any]) -> str:
    name = _mapping(attributes.get("env_args")).get("env_name") or attributes.get("env")
    return str(name or "")
