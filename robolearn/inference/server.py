"""Serves one policy over a websocket (``robolearn serve``)."""

from __future__ import annotations

import hmac
import http
import logging
import secrets
import threading
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from robolearn.contracts import Policy
from robolearn.errors import ConfigError, RobolearnError
from robolearn.inference.checked import sample_checked
from robolearn.inference.codec import Message, encode, encode_output
from robolearn.inference.protocol import MAX_BYTES, error_message, read_request
from robolearn.spec import to_json

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

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535 or self.clients < 1:
            raise ConfigError(f"expected a port and at least 1 client, got {self}")
        if self.token and len(self.token) < 16:
            raise ConfigError("the token must have at least 16 characters")
        if self.host not in LOOPBACK and not self.token:
            raise ConfigError(
                f"listening on {self.host} lets others reach the policy: give a token of your own"
                " (ROBOLEARN_TOKEN), or listen on 127.0.0.1"
            )


class PolicyServer:
    """Answers requests one after the other; runs until :meth:`close`."""

    def __init__(self, policy: Policy, config: ServeConfig, name: str, policy_hash: str) -> None:
        self._policy, self._config = policy, config
        self.token = config.token or secrets.token_urlsafe(24)
        spec = {"kind": "spec", "spec": to_json(policy.spec), "name": name, "hash": policy_hash}
        self._spec = encode(Message(spec, {}))
        self._busy, self._count = threading.Lock(), threading.Semaphore(config.clients)
        self.answered = self.refused = 0
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
        """For ``deploy --server``."""
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
        if not self._count.acquire(blocking=False):
            connection.close(1013, "too many clients")
            return
        try:
            connection.send(self._spec)
            refused = 0
            for data in connection:
                answer, fine = self._answer(data)
                connection.send(answer)
                refused = 0 if fine else refused + 1
                if refused >= _MAX_REFUSED:
                    connection.close(1008, "too many messages that are no requests")
                    return
        except ConnectionClosed as error:
            log.info("a client left: %s", error)
        finally:
            self._count.release()

    def _answer(self, data: str | bytes) -> tuple[bytes, bool]:
        number = 0
        try:
            raw = data.encode() if isinstance(data, str) else data
            request, number = read_request(raw, self._policy.spec)
            with self._busy:
                output = sample_checked(self._policy, request)
        except RobolearnError as error:
            self.refused += 1
            log.warning("refused: %s", str(error)[:200])
            return error_message(str(error), number), False
        self.answered += 1
        return encode_output(output, {"number": number}), True
