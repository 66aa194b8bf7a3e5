"""Says where an emulated camera's pictures come from: drawn when they are exposed, or of a film.

A film was taken by that camera before, and is played in a loop, so that nobody has to draw: what
comes is as large as its other pictures and as often, and a session that takes it can be measured
on a machine that cannot draw so much. It does not show what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.emulators.sensor import Exposure, Sensor, Taken, png
from robolearn.errors import ConfigError

# A single picture would be a frozen camera.
LEAST = 2


@dataclass(frozen=True, slots=True)
class Shot:
    """What the sensor made of the light at ``t_ns`` [ns, monotonic], and files of it, where they
    are there already: a JPEG, and the depth's PNG.
    """

    t_ns: int
    taken: Taken
    picture: bytes = b""
    depth: bytes = b""


@runtime_checkable
class Shots(Protocol):
    """Exposes what one camera sees."""

    @property
    def late_s(self) -> float:
        """How late a picture may be asked for that is still of its time [s]."""
        ...

    def take(self, due_ns: int, *, depth: bool) -> Shot:
        """The picture that is due at ``due_ns``; ``depth``: somebody asks for it, too."""
        ...


class Drawn:
    """Pictures of what ``draw`` sees when they are taken: never late, as it sees no past."""

    late_s = 0.0

    def __init__(self, sensor: Sensor, draw: Callable[[], Exposure]) -> None:
        self._sensor, self._draw = sensor, draw

    def take(self, due_ns: int, *, depth: bool) -> Shot:
        """The picture that is drawn now."""
        del due_ns
        exposure = self._draw()
        return Shot(exposure.t_ns, self._sensor.taken(exposure, depth=depth))


class Film:
    """Pictures in a loop. Each is exposed when it is due, as by a sensor with a clock of its own,
    also where the processor comes up to a second late.
    """

    late_s = 1.0

    def __init__(self, name: str, shots: Sequence[Shot]) -> None:
        """Of camera ``name``. ConfigError for a film in which a picture follows the same one, which
        whoever looks takes for a frozen camera.
        """
        if len(shots) < LEAST:
            raise ConfigError(f"camera '{name}': a film has at least {LEAST} pictures")
        for k, now in enumerate(shots):
            if np.array_equal(now.taken.image, shots[k - 1].taken.image):
                raise ConfigError(
                    f"camera '{name}': pictures {(k - 1) % len(shots)} and {k} of its film are the"
                    " same, and it would be taken for frozen; give the sensor noise, or let"
                    " something move"
                )
        self._shots, self._next = tuple(shots), 0

    @classmethod
    def of(cls, sensor: Sensor, draw: Callable[[int], Exposure], count: int) -> Film:
        """``count`` pictures by the camera that shows them; ``draw(k)``: the light of each."""
        shots: list[Shot] = []
        for k in range(count):
            taken = sensor.taken(draw(k))
            depth = b"" if taken.depth is None else png(taken.depth, sensor.config.name)
            shots.append(Shot(0, taken, sensor.jpeg(taken.image), depth))
        return cls(sensor.config.name, shots)

    def take(self, due_ns: int, *, depth: bool) -> Shot:
        """The next picture; after the last one the first."""
        found = self._shots[self._next]
        self._next = (self._next + 1) % len(self._shots)
        taken = found.taken if depth else Taken(found.taken.image, None)
        return Shot(due_ns, taken, found.picture, found.depth if depth else b"")
