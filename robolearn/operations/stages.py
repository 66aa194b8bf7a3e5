"""Runs stages one after the other, each in a folder of its own, and reuses what nothing changed.

    OUT/demo.json   keys, states and times of the stages
    OUT/NAME/       what the stage NAME left

A stage is reused only when its configuration, its data (the stages before it) and the code are the
same; what is resumable goes on where it stopped, everything else starts over.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robolearn.errors import ConfigError, did_you_mean
from robolearn.files import write_atomic
from robolearn.operations.code_hash import source_hash

# Makes a folder one of stages; the report reads it.
RECORD = "demo.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a chain."""

    # Of its folder.
    name: str
    # For a person.
    title: str
    # Does the work, given the folder of all stages; its results go into the folder of its name.
    run: Callable[[Path], None]
    # Names of the stages before it whose results it reads.
    needs: tuple[str, ...] = ()
    # Files that say what it does.
    configs: tuple[Path, ...] = ()
    # Whether it goes on where it stopped.
    resumable: bool = False


@dataclass(frozen=True, slots=True)
class StageRun:
    """A stage whose results are there: how long it took [s], then or now."""

    stage: Stage
    seconds: float
    reused: bool


@dataclass(frozen=True, slots=True)
class StageListener:
    """Who wants to know how far it is."""

    # A stage begins; whether it goes on where it stopped.
    on_begin: Callable[[Stage, bool], None] | None = None
    # Its results are there.
    on_done: Callable[[StageRun], None] | None = None


def run_stages(
    stages: Sequence[Stage],
    out: Path,
    *,
    only: str = "",
    fresh: bool = False,
    listener: StageListener = StageListener(),
) -> tuple[StageRun, ...]:
    """Run ``stages`` in the folder ``out``, or reuse what an earlier call left there.

    ``only``: the name of one stage, for which those that it needs must be done; ``fresh``: nothing
    is reused. Ctrl-C keeps what was done, and the same call goes on.

    Errors: :class:`ConfigError` for a name that no stage has, a stage that must be run before, and
    a record that does not read; those of the stages.
    """
    names = [s.name for s in stages]
    if only and only not in names:
        raise ConfigError(
            f"no stage '{only}'.{did_you_mean(only, names)} Stages: {', '.join(names)}"
        )
    if fresh and not only:
        _start_over(stages, out)
    out.mkdir(parents=True, exist_ok=True)
    record = _Record.load(out)
    return tuple(
        _run(stage, stages, out, record, fresh, listener)
        for stage in stages
        if not only or stage.name == only
    )


def finished(stages: Sequence[Stage], out: Path) -> tuple[str, ...]:
    """Names of the stages whose results are in ``out``, with the present code or an earlier one."""
    record = _Record.load(out)
    return tuple(s.name for s in stages if record.entry(s.name).get("status") == "done")


def stage_keys(stages: Sequence[Stage]) -> dict[str, str]:
    """By stage, what decides its results: the code, its configs, the keys of what it needs."""
    code = source_hash()
    keys: dict[str, str] = {}
    for stage in stages:
        digest = hashlib.sha256(f"{stage.name} {code}".encode())
        for config in stage.configs:
            digest.update(config.read_bytes())
        for need in stage.needs:
            digest.update(keys[need].encode())
        keys[stage.name] = digest.hexdigest()[:16]
    return keys


def _start_over(stages: Sequence[Stage], out: Path) -> None:
    """Delete what earlier stages left, and nothing else."""
    (out / RECORD).unlink(missing_ok=True)
    for stage in stages:
        shutil.rmtree(out / stage.name, ignore_errors=True)


def _run(
    stage: Stage,
    stages: Sequence[Stage],
    out: Path,
    record: _Record,
    fresh: bool,
    listener: StageListener,
) -> StageRun:
    # At every stage anew: somebody may have changed the code meanwhile.
    keys = stage_keys(stages)
    key, folder = keys[stage.name], out / stage.name
    before = record.entry(stage.name)
    same = before.get("key") == key and folder.is_dir()
    if same and before.get("status") == "done" and not fresh:
        return _told(StageRun(stage, float(before["seconds"]), reused=True), listener)
    for need in stage.needs:
        entry = record.entry(need)
        if entry.get("key") != keys[need] or entry.get("status") != "done":
            raise ConfigError(
                f"stage '{stage.name}' needs '{need}', which is not done with this code and"
                f" configuration; run the stage '{need}' first, or all of them"
            )
    going_on = same and stage.resumable
    if not going_on:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if listener.on_begin is not None:
        listener.on_begin(stage, going_on)
    start_s = time.monotonic()
    record.set(stage.name, {"key": key, "status": "running"})
    stage.run(out)
    seconds = time.monotonic() - start_s
    record.set(stage.name, {"key": key, "status": "done", "seconds": round(seconds, 1)})
    return _told(StageRun(stage, seconds, reused=False), listener)


def _told(done: StageRun, listener: StageListener) -> StageRun:
    if listener.on_done is not None:
        listener.on_done(done)
    return done


@dataclass(slots=True)
class _Record:
    """The file ``demo.json``, replaced atomically at every change."""

    file: Path
    stages: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    @classmethod
    def load(cls, out: Path) -> _Record:
        file = out / RECORD
        try:
            return cls(file, dict(json.loads(file.read_text(encoding="utf-8"))["stages"]))
        except FileNotFoundError:
            return cls(file)
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"'{file}' does not read as a record of stages ({error}); delete it to start over"
            ) from error

    def entry(self, stage: str) -> dict[str, Any]:
        """What is known of a stage; empty for one that was never begun."""
        return self.stages.get(stage, {})

    def set(self, stage: str, entry: dict[str, Any]) -> None:
        self.stages[stage] = entry
        write_atomic(self.file, json.dumps({"stages": self.stages}, indent=2) + "\n")
