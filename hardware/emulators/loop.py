"""Runs the one thread of a virtual lab: sockets and fixed-rate ticks under absolute deadlines.

``select`` is used on purpose: ``epoll`` and ``poll`` round their timeout up to a millisecond, half
a tick of a 500 Hz controller.
"""

from __future__ import annotations

import errno
import heapq
import logging
import selectors
import socket
import time
from collections.abc import Callable

from robolearn.errors import RobotConnectionError

log = logging.getLogger(__name__)

# A flood is taken in small portions, so that one client cannot hold up many ticks.
READ_BYTES = 8192


class Connection:
    """A non-blocking TCP connection with a bounded send buffer.

    ``on_bytes(connection, data)`` gets what arrived. A peer that stops reading loses what does not
    fit into ``buffer_limit`` [bytes]; it never blocks the loop.
    """

    def __init__(
        self,
        loop: EmulatorLoop,
        sock: socket.socket,
        on_bytes: Callable[[Connection, bytes], None],
        buffer_limit: int = 1 << 18,
    ) -> None:
        self.open = True
        self.paused = False
        self.lost = 0
        self.inbox = bytearray()
        self.buffer_limit = buffer_limit
        self._loop, self._socket, self._on_bytes = loop, sock, on_bytes
        self._outbox = bytearray()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.selector.register(sock, selectors.EVENT_READ, self._ready)

    @property
    def unsent(self) -> int:
        """How much waits for a peer that does not read [bytes]."""
        return len(self._outbox)

    def send(self, data: bytes) -> bool:
        """Send or buffer; False when it was dropped: the peer does not read, or it is paused."""
        if not self.open or self.paused:
            return False
        if not self._outbox:
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError:
                self.close()
                return False
            if sent == len(data):
                return True
            data = data[sent:]
        if len(self._outbox) + len(data) > self.buffer_limit:
            self.lost += 1
            return False
        self._outbox += data
        self._loop.selector.modify(
            self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self._ready
        )
        return True

    def close(self) -> None:
        """Close at once; safe to call twice."""
        if self.open:
            self.open = False
            if not self.paused:
                self._loop.selector.unregister(self._socket)
            self._socket.close()

    def pause(self) -> None:
        """Neither read nor send until :meth:`resume`; what arrives waits in the kernel."""
        if self.open and not self.paused:
            self.paused = True
            self._loop.selector.unregister(self._socket)

    def resume(self) -> None:
        """End a pause."""
        if self.open and self.paused:
            self.paused = False
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
            self._loop.selector.register(self._socket, events, self._ready)

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        if mask & selectors.EVENT_READ and self.open:
            try:
                data = self._socket.recv(READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if data:
                self._on_bytes(self, data)
            else:
                self.close()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outbox)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        del self._outbox[:sent]
        if not self._outbox:
            self._loop.selector.modify(self._socket, selectors.EVENT_READ, self._ready)


class EmulatorLoop:
    """Serves sockets and calls ticks every ``period_ns``.

    A late loop hands the ticks the number of periods that passed, at most ``max_catch_up``:
    physics does not stop because the host does. What is beyond that is counted in ``skipped``.
    """

    def __init__(self, period_s: float = 0.002, max_catch_up: int = 25) -> None:
        self.period_ns = round(period_s * 1e9)
        self.max_catch_up = max_catch_up
        self.selector = selectors.SelectSelector()
        self.ticks = self.late = self.skipped = 0
        self._ticks: list[Callable[[int, int], None]] = []
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timer_count = 0
        self._listeners: list[socket.socket] = []
        self._slow_s, self._slow_until_ns = 0.0, 0

    def slow(self, tick_s: float, seconds: float) -> None:
        """Fault: a slow host. For ``seconds`` every round of the loop takes ``tick_s`` [s] more."""
        self._slow_s, self._slow_until_ns = tick_s, time.monotonic_ns() + round(seconds * 1e9)

    def add_tick(self, tick: Callable[[int, int], None]) -> None:
        """Call ``tick(now_ns, periods)`` every period, in order of registration."""
        self._ticks.append(tick)

    def call_at(self, t_ns: int, callback: Callable[[], None]) -> None:
        """Call once at ``t_ns`` of the monotonic clock; calls of the same time keep their order."""
        self._timer_count += 1
        heapq.heappush(self._timers, (t_ns, self._timer_count, callback))

    def listen(
        self, address: str, port: int, accept: Callable[[socket.socket], None], what: str
    ) -> int:
        """Serve a TCP port (0: any free one); returns the port.

        Raises :class:`RobotConnectionError` when the port is taken or the address is not ours.
        """
        try:
            server = socket.create_server((address, port), backlog=16)
        except OSError as error:
            raise RobotConnectionError(_bind_problem(error, address, port, what)) from error
        server.setblocking(False)
        self._listeners.append(server)

        def ready(_mask: int) -> None:
            try:
                accept(server.accept()[0])
            except OSError as error:
                log.warning("accept on port %d: %s", port, error)

        self.selector.register(server, selectors.EVENT_READ, ready)
        return int(server.getsockname()[1])

    def run(self, stopped: Callable[[], bool]) -> None:
        """Serve until ``stopped()``; it is asked once per wake-up."""
        next_ns = time.monotonic_ns() + self.period_ns
        while not stopped():
            until_ns = min(next_ns, self._timers[0][0]) if self._timers else next_ns
            wait_ns = until_ns - time.monotonic_ns()
            for key, mask in self.selector.select(max(0.0, wait_ns * 1e-9)):
                key.data(mask)
            now_ns = time.monotonic_ns()
            while self._timers and self._timers[0][0] <= now_ns:
                heapq.heappop(self._timers)[2]()
            if now_ns < next_ns:
                continue
            passed = (now_ns - next_ns) // self.period_ns + 1
            next_ns += passed * self.period_ns
            periods = min(passed, self.max_catch_up)
            self.ticks += passed
            self.late += passed - 1
            self.skipped += passed - periods
            for tick in self._ticks:
                tick(now_ns, periods)
            if now_ns < self._slow_until_ns:
                time.sleep(self._slow_s)

    def close(self) -> None:
        """Close every socket; safe to call twice."""
        for key in list((self.selector.get_map() or {}).values()):
            self.selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        for server in self._listeners:
            server.close()
        self.selector.close()


def _bind_problem(error: OSError, address: str, port: int, what: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{what}: port {port} on {address} is in use by another process;"
            f" \"ss -ltnp 'sport = :{port}'\" shows which. Stop it, or pass another --address"
            " (127.0.0.2, 127.0.0.3, ... are free of each other)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{what}: {address} is not an address of this machine; loopback is 127.0.0.1"
    return f"{what}: cannot listen on {address}:{port}: {error.strerror}"
