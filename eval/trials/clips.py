"""Says how trials are filmed, and keeps what they commanded until their clips are made.

trial --commands--> FOLDER/<chunk>.npz --> the trial once more, alone, with a camera

A policy answers a whole batch at once, and the shape of a batch is part of its bits: to have one
trial's commands again, all of its chunk would have to be flown. A world depends on nothing but the
start and the commands.
"""

from __future__ import annotations

import io
import logging
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eval.trials.table import key_of
from robolearn.config import config_hash
from robolearn.files import replacing
from robolearn.shapes import Picture
from robolearn.types import (
    Command,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    Tick,
    TrialRecord,
)

log = logging.getLogger(__name__)

SOURCE = "replay"


# Writes the clip of an episode; the last number is frames per second. Picklable.
VideoWriter = Callable[[Path, Sequence[Picture], float], None]


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """Film at most ``clips`` episodes of every policy and world (:mod:`eval.filming`).

    ``flown``: where the commands of trials are kept until then, so that those that are filmed are
    flown alone; None: nowhere, the others of their chunks are flown with them.
    """

    folder: Path
    write: VideoWriter
    clips: int = 4
    size: int = 192
    every: int = 2
    flown: Path | None = None

    def name(self, record: TrialRecord) -> str:
        """The file name of a trial's clip; no other trial has it."""
        words = re.sub(r"[^\w.,=~+-]", "_", f"{record.policy}-{record.env}-{record.condition}")
        return f"{words}-{config_hash(key_of(record))[:8]}.mp4"


@dataclass(slots=True)
class CommandLog:
    """Writes down every command of an episode."""

    commands: list[Command] = field(default_factory=list[Command])

    def on_start(self, episode: EpisodeHeader) -> None:
        """Forget the last episode."""
        del episode
        self.commands = []

    def on_tick(self, tick: Tick) -> None:
        """One more."""
        self.commands.append(tick.command)

    def on_end(self, outcome: Outcome) -> None:
        """Nothing to do."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""


@dataclass(slots=True)
class Again:
    """An agent that commands what was commanded before, bit for bit, and then holds the last."""

    commands: Sequence[Command]
    name: str = "again"
    _tick: int = 0

    def reset(self, seed: int) -> None:
        """Back to the first command."""
        del seed
        self._tick = 0

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next command."""
        del observation, reply
        tick, self._tick = self._tick, self._tick + 1
        return self.commands[min(tick, len(self.commands) - 1)]


def keep(folder: Path, chunk: Sequence[Any], logs: Mapping[int, CommandLog]) -> None:
    """Write the commands of the trials of the keys ``chunk``, a log per lane. Where there is no
    room for them that is told: trials count without.
    """
    values: dict[str, Any] = {}
    for lane, flown in logs.items():
        commands = flown.commands
        values[f"{lane}/when"] = np.array([(c.seq, c.due_ns) for c in commands], np.int64)
        for name in commands[0].action if commands else ():
            values[f"{lane}/action/{name}"] = np.stack([c.action[name] for c in commands])
    buffer = io.BytesIO()
    np.savez(buffer, **values)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(_file(folder, chunk)) as fresh:
            fresh.write_bytes(buffer.getvalue())
    except OSError as error:
        log.warning("commands are not kept (%s): filming flies whole batches again", error)


def kept(folder: Path, chunk: Sequence[Any], lanes: Sequence[int]) -> dict[int, Again]:
    """What the trials ``lanes`` of the keys ``chunk`` commanded; empty where it is not there, such
    as on another machine.
    """
    try:
        # Not by its path: numpy leaves a file open that it cannot read.
        data = io.BytesIO(_file(folder, chunk).read_bytes())
        with np.load(data, allow_pickle=False) as found:
            return {lane: _again(found, lane) for lane in lanes}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return {}


def _again(found: Mapping[str, Any], lane: int) -> Again:
    when = found[f"{lane}/when"].tolist()
    prefix = f"{lane}/action/"
    actions = {key[len(prefix) :]: found[key] for key in found if key.startswith(prefix)}
    commands = [
        Command(seq, {name: rows[tick] for name, rows in actions.items()}, due_ns, SOURCE)
        for tick, (seq, due_ns) in enumerate(when)
    ]
    return Again(commands)


def _file(folder: Path, chunk: Sequence[Any]) -> Path:
    return folder / f"{config_hash(*chunk)}.npz"
