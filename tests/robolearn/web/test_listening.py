"""A page over TLS: who comes by it is served, who does not is told how."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from robolearn.web.address import Served
from robolearn.web.certificate import certificate_for
from robolearn.web.listening import TlsSocket

HOST = "127.0.0.2"
SERVED = b"served"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[int, ssl.SSLContext]]:
    """The port of a server that says SERVED to whoever shakes hands, and what trusts it."""
    certificate = certificate_for(HOST, tmp_path)
    plain = socket.create_server((HOST, 0))
    port = int(plain.getsockname()[1])
    listening = TlsSocket.of(plain, Served(HOST, port, secure=True))
    listening.settimeout(20)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = listening.accept()
                connection.settimeout(20)
                with certificate.context().wrap_socket(connection, server_side=True) as safe:
                    safe.sendall(SERVED)
            except OSError:  # Nobody came by TLS, or did not go on with it.
                continue

    thread = threading.Thread(target=serve)
    thread.start()
    yield port, ssl.create_default_context(cafile=str(certificate.path))
    ended.set()
    _said(port, b"GET / HTTP/1.1\r\n\r\n")
    thread.join(20)
    listening.close()
    assert not thread.is_alive()


def _said(port: int, asked: bytes) -> bytes:
    with socket.create_connection((HOST, port), 20) as connection:
        connection.sendall(asked)
        found = b""
        while part := connection.recv(4096):
            found += part
    return found


def test_who_comes_without_tls_is_told_the_address(page: tuple[int, ssl.SSLContext]):
    port, trusting = page
    for asked in (b"GET /?token=secret HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 3000, b"P"):
        head, _, body = _said(port, asked).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request")
        assert body == f"This page is served encrypted: open https://{HOST}:{port}/\n".encode()
        assert f"Content-Length: {len(body)}".encode() in head
    # And the others are served as before, also behind one that says half a handshake and leaves.
    with socket.create_connection((HOST, port), 20) as half:
        half.sendall(b"\x16\x03\x01")
    with (
        socket.create_connection((HOST, port), 20) as connection,
        trusting.wrap_socket(connection, server_hostname=HOST) as safe,
    ):
        assert safe.recv(100) == SERVED


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("LAB.Local", "lab.local:8730"),
        ("LAB.Local", "LAB.local"),
        ("2001:0DB8:0:0:0:0:0:1", "[2001:db8::1]:8730"),
    ],
)
def test_a_name_is_meant_however_it_was_written(host: str, asked: str):
    served = Served(host, 8730, secure=True)
    assert served.asked_by_name(asked)
    assert not served.asked_by_name("localhost:8730")
