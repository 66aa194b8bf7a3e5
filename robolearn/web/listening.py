"""Listens for browsers that come by TLS, and tells those that come without it which address to use.

A person types an address without ``https``, and a browser shows "sent no data" where nothing is
answered. What comes first on a connection tells which it is.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from robolearn.web.address import Served

# A TLS handshake record (RFC 8446, 5.1).
_HANDSHAKE = b"\x16"
# A connection is accepted when its first byte is there, or after so long without one [s].
_DEFER_S = 5
_MOST_HEARD = 65_536


class TlsSocket(socket.socket):
    """A listening socket that takes connections that begin as TLS does; others are told ``text``
    by HTTP and closed. Where the system cannot wait for the first byte (it is Linux's), those that
    are slow to speak are taken, too, and TLS refuses them.
    """

    text = ""

    @classmethod
    def of(cls, listening: socket.socket, served: Served) -> TlsSocket:
        """In place of ``listening``, which is used up."""
        family, kind, number = listening.family, listening.type, listening.proto
        made = cls(family, kind, number, fileno=listening.detach())
        made.text = f"This page is served encrypted: open {served.url('').partition('?')[0]}\n"
        with contextlib.suppress(AttributeError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_S)
        return made

    def accept(self) -> tuple[socket.socket, Any]:
        """As that of any socket; BlockingIOError where nobody comes by TLS now."""
        connection, address = super().accept()
        connection.setblocking(False)
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except OSError:
            # Nothing is there yet, or it has ended: TLS sees to it.
            return connection, address
        if not first or first == _HANDSHAKE:
            return connection, address
        with connection, contextlib.suppress(OSError):
            # What is not read would break off the answer.
            connection.recv(_MOST_HEARD)
            connection.send(self._answer())
            connection.shutdown(socket.SHUT_WR)
        raise BlockingIOError

    def _answer(self) -> bytes:
        body = self.text.encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
