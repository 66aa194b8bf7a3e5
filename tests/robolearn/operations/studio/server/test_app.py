"""Pages that listen do not keep the server from its end."""

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import StreamingResponse

from robolearn.operations.studio.library import Library
from robolearn.operations.studio.server.app import changes


def test_who_listens_is_let_go_when_the_server_ends(tmp_path: Path):
    async def heard() -> list[str]:
        library = Library([tmp_path])
        scope = {"type": "http", "query_string": b"", "headers": []}
        answer = await changes(library)(Request(scope))
        assert isinstance(answer, StreamingResponse)
        lines = aiter(answer.body_iterator)
        found = [str(await anext(lines))]
        rest = asyncio.ensure_future(anext(lines, "the end"))
        # By then it waits for news.
        asyncio.get_running_loop().call_later(0.02, library.close)
        return [*found, str(await asyncio.wait_for(rest, 5.0))]

    first, last = asyncio.run(heard())
    assert first.startswith("data: ")
    assert last == "the end"
