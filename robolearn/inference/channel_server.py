"""Lets clients with a token ask over a websocket: who is let in, how many, and how much of it.

What is asked and answered is the caller's: :class:`~robolearn.inference.server.PolicyServer`, and
the learner of a practice elsewhere (``robolearn/operations/practice/elsewhere``).
"""

from __future__ import annotations

import hmac
import http
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from robolearn.errors import ConfigError
from robolearn.inference.protocol import MAX_BYTES

log = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "::1", "localhost")
# A client that sends nothing but nonsense is let go.
_MAX_REFUSED = 20


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Where and to whom."""

    # Network address to listen on; others than loopback need a token of your own.
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 0
    # What clients must know; "": a new random one (loopback only).
    token: str = ""
    # At most this many at a time.
    clients: int = 4
    # Who has asked nothing for this long gives its place to a new client, when none is free [s].
    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535 or self.clients < 1 or not self.idle_s > 0.0:
            raise ConfigError(f"expected a port, at least 1 client and idle_s > 0, got {self}")
        if self.token and len(self.token) < 16:
            raise ConfigError("the token must have at least 16 characters")
        if self.host not in LOOPBACK and not self.token:
            raise ConfigError(
                f"listening on {self.host} lets others reach the policy: give a token of your own"
                " (ROBOLEARN_TOKEN), or listen on 127.0.0.1"
            )


class ChannelServer:
    """Sends ``hello`` to everybody who knows the token, then answers each message with ``answer``
    of it: the bytes to send, and whether it made sense. Runs until :meth:`close`.

    ``answer`` is called from a thread per client.
    """

    def __init__(
        self, hello: bytes, answer: Callable[[bytes], tuple[bytes, bool]], config: ServeConfig
    ) -> None:
        self._hello, self._answer, self._config = hello, answer, config
        self.token = config.token or secrets.token_urlsafe(24)
        self._places = _Places(config)
        self._server: Server = serve(
            self._talk,
            config.host,
            config.port,
            process_request=self._admit,
            compression=None,
            max_size=MAX_BYTES,
            max_queue=2,
        )
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="serve", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """For clients."""
        return f"ws://{self._config.host}:{self.port}"

    def close(self) -> None:
        """Let everybody go; safe to call twice."""
        self._server.shutdown()
        self._thread.join(5.0)

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "")
        if hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return None
        log.warning("a client without the token was refused")
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "token missing or wrong\n")

    def _talk(self, connection: ServerConnection) -> None:
        if not self._places.take(connection):
            connection.close(1013, "too many clients")
            return
        try:
            connection.send(self._hello)
            refused = 0
            for data in connection:
                self._places.seen(connection)
                answer, fine = self._answer(data.encode() if isinstance(data, str) else data)
                connection.send(answer)
                refused = 0 if fine else refused + 1
                if refused >= _MAX_REFUSED:
                    connection.close(1008, "too many messages that are no requests")
                    return
        except ConnectionClosed as error:
            log.info("a client left: %s", error)
        finally:
            self._places.leave(connection)


class _Places:
    """Who is connected, and since when each has asked nothing."""

    def __init__(self, config: ServeConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._heard: dict[ServerConnection, float] = {}

    def take(self, connection: ServerConnection) -> bool:
        """A place for a new client, if need be that of the one idle longest; False without any."""
        with self._lock:
            given_up = None
            if len(self._heard) >= self._config.clients:
                longest = min(self._heard, key=self._heard.__getitem__)
                if time.monotonic() - self._heard[longest] < self._config.idle_s:
                    return False
                given_up = longest
                del self._heard[longest]
            self._heard[connection] = time.monotonic()
        if given_up is not None:
            log.warning("a client that was idle made room for a new one")
            # Closing waits for the other side's answer, which may never come.
            threading.Thread(
                target=given_up.close, args=(1008, "idle, and others wait"), daemon=True
            ).start()
        return True

    def seen(self, connection: ServerConnection) -> None:
        """A client asks."""
        with self._lock:
            if connection in self._heard:
                self._heard[connection] = time.monotonic()

    def leave(self, connection: ServerConnection) -> None:
        """A client is gone."""
        with self._lock:
            self._heard.pop(connection, None)
