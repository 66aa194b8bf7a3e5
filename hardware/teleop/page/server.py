"""Serves the page: one document and one socket on one port, for whoever knows the token.

A page hears of a view, or of a camera's picture, when it has seen the one before: nothing waits in
a queue, neither here nor in the network, and what a person sees is the newest there is.

One thread talks to all pages (asyncio): the encryption of a connection must not be read and written
by two threads at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import Event

from hardware.teleop.device import DeviceReading, Key, Look, View
from hardware.teleop.page.assembly import document
from hardware.teleop.page.driver import Allowance, Driver
from hardware.teleop.page.layout import Layout
from hardware.teleop.page.messages import (
    Claim,
    Grip,
    Hand,
    Press,
    Seen,
    decode,
    look_text,
    picture_bytes,
    role_text,
    scene_text,
    view_text,
)
from hardware.teleop.page.pictures import Pictures
from robolearn.errors import ConfigError, DataError
from robolearn.web.address import LOOPBACK, Served, is_loopback, listen_at, require_one_address
from robolearn.web.certificate import certificate_for

CLOSE_S = 1.0
# A tablet that was carried out of the network is gone after two of them [s].
PING_S = 5.0
# A page sends 40 messages a second, and what it has seen.
ALLOWED_HZ, ALLOWED_AT_ONCE = 200.0, 400
# Of messages [bytes], pages, and keys that nobody has asked for yet.
LARGEST, MOST_PAGES, MOST_KEYS = 4096, 8, 32
# Of connections, known or not: each takes a file of those that this program may open. How long one
# may take until it has asked for something, and until it has said how it encrypts [s].
MOST_CONNECTIONS, ASK_S, HANDSHAKE_S = 64, 5.0, 2.0
# As the standard numbers them: against the rules, and come again later.
_AGAINST_RULES, _LATER = 1008, 1013
_DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Page:
    """One open page, and what it was sent."""

    number: int
    connection: ServerConnection
    allowance: Allowance
    # There may be something that the page was not told.
    stirred: asyncio.Event = field(default_factory=asyncio.Event)
    view: int = -1
    view_seen: bool = True
    # The attempt in small that it was told.
    look: Look = field(default_factory=Look)
    role: tuple[bool, str] | None = None
    why: str = ""
    # Of each camera: the number of the picture that was sent last.
    pictures: dict[int, int] = field(default_factory=dict[int, int])
    # Cameras whose last picture was not seen yet.
    unseen: set[int] = field(default_factory=set[int])
    complained: bool = False
    sender: asyncio.Task[None] | None = None


class Door(socket.socket):
    """Listens, and lets no more in than may be open: they are counted before they have said a word,
    as one that encrypts is no connection of the server's until it has said how.
    """

    def __init__(self, fileno: int) -> None:
        super().__init__(fileno=fileno)
        self._inside: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """ConnectionAbortedError, which servers pass over, for one too many."""
        came, where = super().accept()
        self._inside = [one for one in self._inside if one.fileno() >= 0]
        if len(self._inside) >= MOST_CONNECTIONS:
            came.close()
            raise ConnectionAbortedError(f"{MOST_CONNECTIONS} connections are open")
        self._inside.append(came)
        return came, where


class PageServer:
    """Serves ``layout`` at :attr:`url` until :meth:`close`; ``now_ns`` is the time."""

    def __init__(
        self,
        layout: Layout,
        host: str = LOOPBACK,
        port: int = 0,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        require_one_address(host)
        self._layout, self._now_ns = layout, now_ns
        self._token = secrets.token_urlsafe(18)
        self._lock = threading.Lock()
        self._driver, self._pages = Driver(), dict[int, _Page]()
        self._numbers = itertools.count()
        self._view: View | None = None
        self._version, self._closed = 0, False
        self._pressed: list[Key] = []
        self._opening: float | None = None
        listening = Door(fileno=listen_at(host, port).detach())
        tls: ssl.SSLContext | None = None
        self.fingerprint = ""
        if not is_loopback(host):
            try:
                certificate = certificate_for(host)
            except ConfigError:
                listening.close()
                raise
            tls, self.fingerprint = certificate.context(), certificate.fingerprint
        self.port = int(listening.getsockname()[1])
        self._served = Served(host, self.port, secure=tls is not None)
        self.url = self._served.url(self._token)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._pictures = Pictures(tuple(c.name for c in layout.cameras), self._stir)
        self._thread = threading.Thread(
            target=self._run, args=(listening, tls), name="teleop-page", daemon=True
        )
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether a page is open."""
        with self._lock:
            return bool(self._pages)

    def begin(self, opening: float | None) -> None:
        """Control begins with the gripper open by this share; None: there is none."""
        with self._lock:
            self._opening = opening

    def poll(self) -> tuple[DeviceReading, float | None]:
        """What the hand of who drives does, and the wanted opening of the gripper."""
        with self._lock:
            return self._driver.reading, self._opening

    def pressed(self) -> tuple[Key, ...]:
        """Keys pressed since the last call, oldest first."""
        with self._lock:
            pressed, self._pressed = tuple(self._pressed), []
        return pressed

    def show(self, view: View) -> None:
        """Hand the view to all open pages; never blocks."""
        with self._lock:
            self._view, self._version = view, self._version + 1
            watched = bool(self._pages)
        if watched:
            self._pictures.put(view.pictures, view.jpegs)
            self._stir()

    def close(self) -> None:
        """Stop serving; safe to call twice. Open pages get the last view before."""
        with self._lock:
            already, self._closed = self._closed, True
        if already:
            return
        self._pictures.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _stir(self) -> None:
        """Let all pages look whether there is something new; on any thread."""
        # The loop may have ended, and nobody is there to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stir_pages)

    def _stir_pages(self) -> None:
        for page in self._pages.values():
            page.stirred.set()

    def _run(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listening, tls))

    async def _serve(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        made = weakref.WeakSet[ServerConnection]()

        now_ns = self._now_ns

        class Known(ServerConnection):
            # Frames that are no message: pings, and pieces of what may never become one.
            pieces: Allowance

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self.pieces = Allowance(ALLOWED_HZ, ALLOWED_AT_ONCE)
                made.add(self)

            def connection_lost(self, exc: Exception | None) -> None:
                made.discard(self)
                super().connection_lost(exc)

            def process_event(self, event: Event) -> None:
                whole = not isinstance(event, Frame) or (event.opcode in _DATA and event.fin)
                if whole or self.pieces.take(now_ns()):
                    super().process_event(event)
                elif not self.transport.is_closing():
                    log.warning("a page that sent too many pieces of messages was closed")
                    self.transport.abort()

        # An error where nothing is encrypted.
        encrypting: dict[str, Any] = {} if tls is None else {"ssl_handshake_timeout": HANDSHAKE_S}
        server = await serve(
            self._talk,
            sock=listening,
            ssl=tls,
            process_request=self._answer,
            max_size=LARGEST,
            compression=None,
            open_timeout=ASK_S,
            close_timeout=CLOSE_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            server_header=None,
            create_connection=Known,
            **encrypting,
        )
        await self._stop.wait()
        self._stir_pages()
        senders = [page.sender for page in self._pages.values() if page.sender is not None]
        if senders:
            await asyncio.wait(senders, timeout=CLOSE_S)
        # Browsers open connections on which they may never speak: nobody waits for those.
        for connection in made:
            connection.transport.abort()
        server.close()
        await server.wait_closed()

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        path, _, query = request.path.partition("?")
        # Two of them are one that is nobody's.
        host = ", ".join(request.headers.get_all("Host"))
        given = parse_qs(query).get("token", [""])[0]
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            text = "Open the address that the terminal shows now; an older one has ended.\n"
            return connection.respond(HTTPStatus.FORBIDDEN, text)
        if not self._served.asked_by_name(host):
            log.warning("a request for '%s' was refused", host[:100])
            text = "This page has another name; open the address that the terminal shows.\n"
            return connection.respond(HTTPStatus.MISDIRECTED_REQUEST, text)
        if path == "/ws":
            return self._refused_origin(connection, request, host)
        if path == "/":
            return _page(self._served.socket(host))
        return connection.respond(HTTPStatus.NOT_FOUND, "There is only one page here: /\n")

    def _refused_origin(
        self, connection: ServerConnection, request: Request, host: str
    ) -> Response | None:
        """A page from elsewhere that learned the token must not drive the tool; a program that is
        no browser tells no origin.
        """
        origin = ", ".join(request.headers.get_all("Origin"))
        if not origin or self._served.own_origin(origin, host):
            return None
        log.warning("a page of %s was refused", origin[:100])
        return connection.respond(HTTPStatus.FORBIDDEN, "Only the page served here may connect.\n")

    async def _talk(self, connection: ServerConnection) -> None:
        page = _Page(next(self._numbers), connection, Allowance(ALLOWED_HZ, ALLOWED_AT_ONCE))
        if len(self._pages) >= MOST_PAGES:
            await connection.close(_LATER, "too many pages are open")
            return
        with self._lock:
            self._pages[page.number] = page
            if self._driver.page is None:
                self._driver.claim(page.number, self._now_ns())
            shown = self._view
        self._stir_pages()
        if shown is not None:
            # Pictures are made for pages that are open: this one may be the first.
            self._pictures.put(shown.pictures, shown.jpegs)
        page.sender = asyncio.create_task(self._send(page))
        try:
            async for text in connection:
                if not page.allowance.take(self._now_ns()):
                    log.warning("a page that sent too many messages was closed")
                    self._leave(page)
                    await connection.close(_AGAINST_RULES, "too many messages")
                    break
                self._hear(page, text)
        except ConnectionClosed:
            log.debug("page closed without saying goodbye")
        finally:
            self._leave(page)
            page.sender.cancel()

    def _leave(self, page: _Page) -> None:
        with self._lock:
            self._pages.pop(page.number, None)
            self._driver.leave(page.number)
        self._stir_pages()

    def _hear(self, page: _Page, text: str | bytes) -> None:
        now = self._now_ns()
        try:
            message = decode(text)
            if isinstance(message, Hand) and message.control != self._layout.control:
                raise DataError(f"a hand that drives by a {message.control}")
        except DataError as error:
            with self._lock:
                self._driver.nonsense(page.number, now)
            if not page.complained:
                page.complained = True
                log.warning("a page was not understood, and holds nothing: %s", error)
            return
        with self._lock:
            if isinstance(message, Hand):
                self._driver.hear(page.number, message, now)
            elif isinstance(message, Seen):
                self._seen(page, message)
            elif isinstance(message, Claim):
                page.why = self._driver.claim(page.number, now)
                page.role = None
                page.stirred.set()
            elif self._driver.touched(page.number, now) or message == Press("stop"):
                # Whoever sees the arm may stop it.
                self._press(message)

    def _seen(self, page: _Page, message: Seen) -> None:
        if message.camera is None:
            page.view_seen = True
        else:
            page.unseen.discard(message.camera)
        page.stirred.set()

    def _press(self, message: Press | Grip) -> None:
        if isinstance(message, Grip):
            if self._opening is not None:
                self._opening = message.opening
        elif len(self._pressed) < MOST_KEYS or (
            message.key == "stop" and "stop" not in self._pressed
        ):
            self._pressed.append(message.key)

    async def _send(self, page: _Page) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            await page.connection.send(scene_text(self._layout))
            while True:
                page.stirred.clear()
                with self._lock:
                    news = self._role(page) + self._newer_view(page)
                    closed, look = self._closed, self._newer_look(page)
                if look is not None:
                    news.append(look_text(look))
                if not closed:
                    news += self._newer_pictures(page)
                for message in news:
                    await page.connection.send(message)
                if closed and not news:
                    break
                if not news:
                    await page.stirred.wait()
            await page.connection.close()

    def _role(self, page: _Page) -> list[str | bytes]:
        driving = self._driver.page == page.number
        why = "" if driving else _watching(self._driver, page.why)
        if page.role == (driving, why):
            return []
        page.role = (driving, why)
        return [role_text(driving, why)]

    def _newer_view(self, page: _Page) -> list[str | bytes]:
        # The last view is sent however slow the page is.
        due = page.view_seen or self._closed
        if self._view is None or not due or page.view == self._version:
            return []
        page.view, page.view_seen = self._version, False
        return [view_text(self._view)]

    def _newer_look(self, page: _Page) -> Look | None:
        if self._view is None or self._view.look is page.look:
            return None
        before, page.look = page.look, self._view.look
        # An attempt has one empty look after the other.
        return page.look if page.look.shows or before.shows else None

    def _newer_pictures(self, page: _Page) -> list[str | bytes]:
        found: list[str | bytes] = []
        for camera in range(len(self._layout.cameras)):
            if camera in page.unseen:
                continue
            newer = self._pictures.newer(camera, page.pictures.get(camera, 0))
            if newer is not None:
                page.pictures[camera] = newer[0]
                page.unseen.add(camera)
                found.append(picture_bytes(camera, *newer))
        return found


def _watching(driver: Driver, refused: str) -> str:
    if driver.page is None:
        return "Nobody drives."
    return refused or "Somebody drives from another page."


def _page(socket_at: str) -> Response:
    found = document()
    headers = Headers()
    headers["Content-Type"] = "text/html; charset=utf-8"
    headers["Content-Length"] = str(len(found.body))
    headers["Cache-Control"] = "no-store"
    headers["Connection"] = "close"
    headers["Referrer-Policy"] = "no-referrer"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Content-Security-Policy"] = found.policy(socket_at)
    return Response(HTTPStatus.OK.value, HTTPStatus.OK.phrase, headers, found.body)
