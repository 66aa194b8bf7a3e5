"""Puts the routes together: handlers run on a few threads, their documents become answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Address

from robolearn.errors import RobolearnError
from robolearn.operations.studio.apart import BusyError
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.encoding import encode
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.routes import ROUTES, Route
from robolearn.operations.studio.server.files import page_files
from robolearn.table import resolve

THREADS = 4
LARGEST = 2**20
"""Bytes of what is posted."""
BODY_S = 10.0
BEAT_S = 15.0
"""A page that is told nothing is told so, or a proxy would close the line."""
MOST_LISTENERS = 64
log = logging.getLogger(__name__)


class _Thing(Convertor[str]):
    """The id of a thing."""

    regex = "[0-9a-f]{16}"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


class _Whole(Convertor[int]):
    """A whole number, of a length that a person could mean."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("thing", _Thing())
register_url_convertor("whole", _Whole())


def studio_app(library: Library, pool: ThreadPoolExecutor) -> Starlette:
    """The application behind the guard; handlers run in ``pool``."""
    addresses = [Address(_pattern(r.path), _endpoint(r, library, pool), methods=[r.method])
                 for r in ROUTES]  # fmt: skip
    events = Address("/api/changes", changes(library))
    pages = [Address(path, _file) for path in page_files()]
    return Starlette(
        routes=[*addresses, events, *pages],
        exception_handlers={404: _not_here, 405: _not_so},
    )


def error_json(text: str, status: int) -> Response:
    """``{"error": text}``."""
    return Response(encode({"error": text}), status, media_type="application/json")


def _pattern(path: str) -> str:
    parts = [p if p == "{thing}" else p.replace("}", ":whole}") for p in path.split("/")]
    return "/".join(parts).replace("{thing}", "{thing:thing}")


def _endpoint(
    route: Route, library: Library, pool: ThreadPoolExecutor
) -> Callable[[Request], Awaitable[Response]]:
    kinds = route.kinds.split()

    async def answer(request: Request) -> Response:
        values = dict(request.path_params)
        name = str(values.pop("thing", ""))
        found = library.thing(name) if name else None
        if name and (found is None or (kinds and found.kind not in kinds)):
            what = f"no {' or '.join(kinds)}" if kinds else "nothing"
            return error_json(f"there is {what} with the id {name} (any more)", 404)
        try:
            body = await _body(request) if route.method == "POST" else b""
        except (TimeoutError, ClientDisconnect):
            return error_json("the request did not arrive as a whole", 408)
        if len(body) > LARGEST:
            return error_json(f"at most {LARGEST} bytes can be posted at once", 413)
        numbers = {k: int(v) for k, v in values.items()}
        ask = Ask(library, found, numbers, dict(request.query_params), body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool, _handled, route, ask)

    return answer


def _handled(route: Route, ask: Ask) -> Response:
    """The answer of a route's function, or what went wrong in words; on a thread of the pool."""
    try:
        handler: Callable[[Ask], Any] = resolve(route.place)
        made = handler(ask)
        if isinstance(made, Picture):
            keep = f"private, max-age={made.keep_s}, immutable" if made.keep_s else "no-store"
            status = HTTPStatus.PARTIAL_CONTENT if made.partial else HTTPStatus.OK
            kept = {"Cache-Control": keep}
            return Response(made.data, status, media_type=made.media_type, headers=kept)
        return Response(encode(made), media_type="application/json")
    except NotHere as error:
        return error_json(str(error), HTTPStatus.NOT_FOUND)
    except BusyError as error:
        return error_json(str(error), HTTPStatus.SERVICE_UNAVAILABLE)
    except (RobolearnError, OSError) as error:
        return error_json(str(error) or type(error).__name__, HTTPStatus.UNPROCESSABLE_ENTITY)
    except Exception as error:
        # A bug, or data that its reader did not expect: this answer fails, the rest works on.
        log.exception("%s failed", route.place)
        text = f"internal error: {type(error).__name__}: {error}"
        return error_json(text, HTTPStatus.INTERNAL_SERVER_ERROR)


async def _body(request: Request) -> bytes:
    data = b""
    async with asyncio.timeout(BODY_S):
        async for part in request.stream():
            data += part
            if len(data) > LARGEST:
                break
    return data


async def _file(request: Request) -> Response:
    file = page_files()[request.url.path]
    kept = {"ETag": file.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=kept)
    return Response(file.body, headers=kept, media_type=file.media_type)


def changes(library: Library) -> Callable[[Request], Awaitable[Response]]:
    """The handler that tells pages what changes, until the library is closed."""
    listeners: set[object] = set()

    async def answer(request: Request) -> Response:
        if len(listeners) >= MOST_LISTENERS:
            return error_json("too many pages listen; close some", 503)
        text = request.query_params.get("since", "")
        since = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None
        return StreamingResponse(_told(library, since, listeners), media_type="text/event-stream")

    return answer


async def _told(library: Library, since: int | None, listeners: set[object]) -> AsyncGenerator[str]:
    """Server-sent events: the changes since a version, then each as it is seen."""
    loop, stirred, me = asyncio.get_running_loop(), asyncio.Event(), object()

    def tell() -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(stirred.set)

    end = library.listen(tell)
    listeners.add(me)
    at = library.version if since is None else since
    try:
        yield f"data: {json.dumps({'version': library.version, 'ids': [], 'all': False})}\n\n"
        while not library.closed:
            news = library.changes(at)
            if news.ids or news.all:
                at = news.version
                yield f"data: {encode(news).decode()}\n\n"
            try:
                async with asyncio.timeout(BEAT_S):
                    await stirred.wait()
            except TimeoutError:
                yield ": nothing new\n\n"
            stirred.clear()
    finally:
        end()
        listeners.discard(me)


async def _not_here(request: Request, _: Exception) -> Response:
    return error_json(f"nothing is at {request.url.path[:200]}", 404)


async def _not_so(request: Request, _: Exception) -> Response:
    return error_json(f"{request.method} is not answered here", 405)
