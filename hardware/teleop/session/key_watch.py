"""Reads a device's keys while the program is busy, so that a stop never waits for it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection
from types import TracebackType

from hardware.teleop.device import Key, TeleopDevice

log = logging.getLogger(__name__)


class KeyWatch:
    """While entered, ``stop`` is called for the key of that name, on a thread of its own; the other
    keys wait for :meth:`wait`. Nobody else may read the device's keys meanwhile.
    """

    def __init__(self, device: TeleopDevice, stop: Callable[[], None], poll_s: float) -> None:
        self._device, self._stop, self._poll_s = device, stop, poll_s
        self._keys: queue.SimpleQueue[Key] = queue.SimpleQueue()
        self._over = threading.Event()
        # Whether the end was asked for: by the person, or by a terminal that is gone.
        self.quitting = False
        # Whether a stop was.
        self.stopping = False
        self._thread = threading.Thread(target=self._read, name="stop-key", daemon=True)

    def __enter__(self) -> KeyWatch:  # noqa: PYI034 - beartype cannot check Self
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def forget(self) -> None:
        """Keys of before the person could see what is asked are not meant."""
        while not self._keys.empty():
            self._keys.get()

    def pressed(self) -> tuple[Key, ...]:
        """Those that nobody took yet, oldest first; never blocks."""
        found: list[Key] = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._keys.get_nowait())
        return tuple(found)

    def wait(self, allowed: Collection[Key], meanwhile: Callable[[], None], every_s: float) -> Key:
        """The first key of ``allowed`` that was pressed since :meth:`forget`, or ``stop``;
        ``meanwhile`` is called every so often.
        """
        while True:
            try:
                key = self._keys.get(timeout=every_s)
            except queue.Empty:
                meanwhile()
                continue
            if key == "stop" or key in allowed:
                return key

    def _read(self) -> None:
        while not self._over.wait(self._poll_s):
            for key in self._device.pressed():
                if key == "stop":
                    log.warning("emergency stop by key")
                    self.stopping = True
                    try:
                        self._stop()
                    except Exception:
                        # Whatever it was, the next press must be read.
                        log.exception("the emergency stop could not be asked for")
                self.quitting = self.quitting or key == "quit"
                self._keys.put(key)
