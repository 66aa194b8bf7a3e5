"""Serves the studio on one port until it is closed."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from robolearn.errors import ConfigError
from robolearn.operations.studio.found import require_folders
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.server.app import THREADS, studio_app
from robolearn.operations.studio.server.guard import Guard
from robolearn.web.address import LOOPBACK, Served, is_loopback, listen_at, require_one_address
from robolearn.web.certificate import certificate_for
from robolearn.web.listening import TlsSocket

PORT = 8730
SHORTEST_TOKEN = 12


@dataclass(frozen=True, slots=True)
class Studio:
    """A studio that is being served: open ``url``; ``fingerprint`` of its certificate, or empty."""

    url: str
    address: str
    token: str
    port: int
    fingerprint: str
    library: Library


@contextmanager
def serve_studio(
    folders: Sequence[Path], host: str = LOOPBACK, port: int = PORT, token: str = ""
) -> Generator[Studio]:
    """Serve everything under ``folders`` while the block runs; an empty ``token``: a new one.

    Errors: :class:`ConfigError` for folders, address or token that cannot be used.
    """
    if token and len(token) < SHORTEST_TOKEN:
        raise ConfigError(f"a token needs at least {SHORTEST_TOKEN} characters, got {len(token)}")
    if not token.isascii() or any(c in token for c in ' ";,\\'):
        raise ConfigError("a token is plain ASCII without spaces, quotes, commas and semicolons")
    require_one_address(host)
    library = Library(require_folders(folders))
    token = token or secrets.token_urlsafe(18)
    listening = _listen(host, port)
    try:
        certificate = None if is_loopback(host) else certificate_for(host)
        port = int(listening.getsockname()[1])
        served = Served(host, port, secure=certificate is not None)
        if served.secure:
            listening = TlsSocket.of(listening, served)
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="studio")
        config = uvicorn.Config(
            Guard(studio_app(library, pool), served, token),
            ssl_certfile=None if certificate is None else certificate.path,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            server_header=False,
            limit_concurrency=512,
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=server.run, args=([listening],), name="studio", daemon=True
        )
        thread.start()
        library.watch()
        address = served.url("").partition("?")[0]
        fingerprint = "" if certificate is None else certificate.fingerprint
        try:
            yield Studio(served.url(token), address, token, port, fingerprint, library)
        finally:
            # First: pages that listen would keep the server from its end.
            library.close()
            server.should_exit = True
            thread.join()
            pool.shutdown(cancel_futures=True)
    finally:
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    listening = listen_at(host, port)
    # Connections inherit it. Else the end of every answer waits for the acknowledgement of its
    # beginning, which the other side delays by 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
