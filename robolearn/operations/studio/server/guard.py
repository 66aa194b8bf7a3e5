"""Lets requests through that may be answered, and says to browsers what the page may do.

Every request needs the token: a cookie that the first address sets, or ``Authorization: Bearer``.
The name by which it asks must be this page's (DNS rebinding), and what changes something must come
from this page (forged requests).
"""

from __future__ import annotations

import logging
import secrets
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from robolearn.web.address import Served

LONGEST = 16_384
"""Bytes of an address with its query: a sheet names 64 episodes, a selection is a sentence."""
MOST_TOLD = 16
"""Foreign origins that are named in the log."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:;"
    " connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
log = logging.getLogger(__name__)


class Guard:
    """Stands before ``app``; ``served`` is where the page is, ``token`` what opens it."""

    def __init__(self, app: ASGIApp, served: Served, token: str) -> None:
        self._app, self._served, self._token = app, served, token.encode()
        self._cookie = f"robolearn_studio_{served.port}"
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, refuse or pass on one request."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["type"] != "http":
            return
        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, sent)

    def _answer(self, scope: Scope) -> Response | None:
        """What to say instead of passing the request on; None: it may pass."""
        headers = Headers(scope=scope)
        host = ", ".join(headers.getlist("host"))
        if not self._served.asked_by_name(host):
            text = "This page has another name; open the address that the terminal shows.\n"
            return PlainTextResponse(text, 421)
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST:
            return PlainTextResponse("The address is too long.\n", 414)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Pages and documents are read here.\n", 405)
        given = self._in_address(scope)
        if given is not None and scope["method"] == "GET" and self._right(given):
            return self._admitted()
        if not self._admits(headers):
            text = "Open the address that the terminal shows now; an older one has ended.\n"
            return PlainTextResponse(text, 403)
        if self._foreign(headers, host, changes=scope["method"] == "POST"):
            self._tell(", ".join(headers.getlist("origin"))[:100])
            return PlainTextResponse("Only the page served here may ask.\n", 403)
        return None

    def _tell(self, origin: str) -> None:
        """Once of each of the first few: another page can ask without end, under many names."""
        if origin in self._told or len(self._told) > MOST_TOLD:
            return
        self._told.add(origin)
        if len(self._told) > MOST_TOLD:
            log.warning("pages of more than %d origins were refused; told no more", MOST_TOLD)
        else:
            log.warning("a page of %r was refused; of this one it is told once", origin)

    def _right(self, given: bytes) -> bool:
        return secrets.compare_digest(given, self._token)

    def _in_address(self, scope: Scope) -> bytes | None:
        """The token of the first address, if it has one."""
        if scope["path"] != "/":
            return None
        values = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=None)
        token = values.get("token", [""])[0]
        return token.encode("utf-8", "replace") if token else None

    def _admitted(self) -> Response:
        """To the page without the token in its address, which people share and browsers keep."""
        answer = RedirectResponse("/", 303)
        # Lax: a shared link opens the page; nothing that another page loads or sends carries it.
        answer.set_cookie(
            self._cookie,
            self._token.decode(),
            httponly=True,
            samesite="lax",
            secure=self._served.secure,
            path="/",
        )
        return answer

    def _admits(self, headers: Headers) -> bool:
        spoken = headers.get("authorization", "")
        scheme, _, bearer = spoken.partition(" ")
        if scheme.lower() == "bearer" and self._right(bearer.strip().encode("utf-8", "replace")):
            return True
        for text in headers.getlist("cookie"):
            try:
                morsel = SimpleCookie(text).get(self._cookie)
            except CookieError:
                continue
            if morsel is not None and self._right(morsel.value.encode("utf-8", "replace")):
                return True
        return False

    def _foreign(self, headers: Headers, host: str, *, changes: bool) -> bool:
        """Whether another page asks, with what this browser knows. Programs tell no origin; they
        have spoken the token.
        """
        origin = ", ".join(headers.getlist("origin"))
        if origin:
            return not self._served.own_origin(origin, host)
        site = headers.get("sec-fetch-site", "")
        followed = headers.get("sec-fetch-mode") == "navigate" and not changes
        if site and site not in ("same-origin", "none") and not followed:
            return True
        return changes and "authorization" not in headers
