"""Knows at which addresses the page may be served, and which requests are its own."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from robolearn.errors import ConfigError

LOOPBACK = "127.0.0.1"
LAST_PORT = 65535
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Served:
    """Where the page is: ``host`` as the browser names it; ``secure`` with TLS."""

    host: str
    port: int
    secure: bool

    def url(self, token: str) -> str:
        """The address to open."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.secure}://{host}:{self.port}/?token={token}"

    def names(self) -> tuple[str, ...]:
        """By which a browser may ask for it. On loopback the port may be another one, as a tunnel
        has it.
        """
        return (_as_browsers_have_it(self.host),) if self.secure else _LOOPBACK_NAMES

    def asked_by_name(self, host_header: str) -> bool:
        """Whether a request means this page: a name that somebody else's server gave for this
        address (DNS rebinding) is none of :meth:`names`.
        """
        try:
            name = urlsplit(f"//{host_header}").hostname
        except ValueError:
            return False
        return name in self.names()

    def own_origin(self, origin: str, host_header: str) -> bool:
        """Whether a page that connects was served here."""
        return origin == f"http{'s' * self.secure}://{host_header}"

    def socket(self, host_header: str) -> str:
        """Where the page's own socket is, for its policy."""
        return f"ws{'s' * self.secure}://{host_header}"


def _as_browsers_have_it(host: str) -> str:
    """Names in small letters, addresses in their shortest form."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that listens there, at any free port for 0; :class:`ConfigError` where none can."""
    try:
        if not 0 <= port <= LAST_PORT:
            raise ValueError("there is no such port")
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    # A name that can be none is no error of the system.
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise ConfigError(
            f"cannot serve on {host[:80]}:{port}: {reason or error}; choose another port (0"
            f" to {LAST_PORT}, 0: any free one), and as host an address that this computer has"
        ) from error


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this computer for itself alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_one_address(host: str) -> None:
    """:class:`ConfigError` for "all addresses": the page has one, which its certificate names."""
    try:
        every = not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        every = False
    if every:
        own = ", ".join(_own_addresses()) or "none but loopback"
        raise ConfigError(
            f"--host needs one address of this computer, got '{host}'; it has: {own}. The page is"
            " served there alone, and its certificate names it"
        )


def _own_addresses() -> list[str]:
    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET and not is_loopback(entry.address)
    ]
