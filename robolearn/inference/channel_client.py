"""Connects to a server that is asked over a websocket with a token: a policy's, or a learner's."""

from __future__ import annotations

from contextlib import ExitStack

from websockets.exceptions import InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from robolearn.errors import ConfigError, DataError, InferenceError, RemoteError
from robolearn.inference.codec import Message, decode
from robolearn.inference.protocol import MAX_BYTES


class Channel:
    """One connection of one thread: :attr:`hello`, then :meth:`ask`.

    Errors: :class:`ConfigError` for what is no address; :class:`InferenceError` where nobody is
    there, the token is wrong, the connection breaks or no answer comes within ``timeout_s``; it is
    of no use any more then.
    """

    def __init__(self, url: str, token: str, timeout_s: float, what: str) -> None:
        self._url, self._timeout_s, self._what = url, timeout_s, what
        self._stack = ExitStack()
        self._connection = _connected(url, token, timeout_s, self._stack, what)
        try:
            self.hello = self._receive()
        except InferenceError as error:
            self.close()
            raise RemoteError(f"{url} is no {what}: {error}") from error

    def ask(self, data: bytes) -> Message:
        """What the server answers."""
        try:
            self._connection.send(data)
        except (WebSocketException, OSError) as error:
            raise self._lost(error) from error
        return self._receive()

    def close(self) -> None:
        """Leave; safe to call twice."""
        self._stack.close()

    def _receive(self) -> Message:
        try:
            data = self._connection.recv(self._timeout_s)
        except TimeoutError as error:
            raise InferenceError(
                f"the {self._what} {self._url} did not answer within {self._timeout_s:g} s"
            ) from error
        except (WebSocketException, OSError) as error:
            raise self._lost(error) from error
        try:
            return decode(data.encode() if isinstance(data, str) else data)
        except DataError as error:
            raise RemoteError(f"{self._what}: {error}") from error

    def _lost(self, error: Exception) -> RemoteError:
        # The reason for which it was closed is the server's own text.
        return RemoteError(f"the connection to the {self._what} {self._url} broke: {error}")


def _connected(
    url: str, token: str, timeout_s: float, stack: ExitStack, what: str
) -> ClientConnection:
    try:
        return stack.enter_context(
            connect(
                url,
                additional_headers={"Authorization": f"Bearer {token}"},
                open_timeout=timeout_s,
                close_timeout=1.0,
                compression=None,
                max_size=MAX_BYTES,
                proxy=None,
            )
        )
    except InvalidURI as error:
        raise ConfigError(f"not the address of a {what}: {error}; give ws://HOST:PORT") from (error)
    except (WebSocketException, TimeoutError, OSError) as error:
        hint = "the token is wrong" if "401" in str(error) else "is 'robolearn serve' running?"
        raise InferenceError(f"no {what} at {url} ({error}): {hint}") from error
