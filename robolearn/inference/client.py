"""Asks a policy on a server, as :class:`robolearn.contracts.Inference`."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Mapping

from robolearn.contracts import PolicySpec
from robolearn.data.names import plain_name, steering
from robolearn.errors import DataError, InferenceError, RemoteError
from robolearn.inference.channel_client import Channel
from robolearn.inference.checked import check_output
from robolearn.inference.codec import encode_request, output_from
from robolearn.inference.policy_process import policy_spec_from
from robolearn.types import PolicyInput, PolicyOutput

log = logging.getLogger(__name__)


def _told(meta: Mapping[str, object]) -> tuple[str, str]:
    """What a server calls its policy, and the hash of it; ValueError for what cannot be shown."""
    try:
        name = plain_name(str(meta.get("name", "")))
    except ValueError as error:
        raise ValueError(f"what it calls its policy {error}") from error
    digest = str(meta.get("hash", ""))
    if steering(digest):
        raise ValueError(f"the hash of its policy has the control character {steering(digest)}")
    return name, digest


class RemoteInference:
    """Sends requests from a thread of its own, so that no call of the loop waits for the network.

    One request is in flight at a time; of those waiting only the newest of each env is kept. A
    connection that breaks, a refusal, an answer that does not fit, or none within ``timeout_s``
    raises :class:`InferenceError` (:class:`RemoteError` where it quotes the server) at the next
    :meth:`submit` or :meth:`poll`, and stays.
    ``latency_ns`` of an answer is the whole round trip.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 5.0) -> None:
        self._timeout_s = timeout_s
        self._channel = Channel(url, token, timeout_s, "policy server")
        hello = self._channel.hello
        try:
            self.spec: PolicySpec = policy_spec_from(hello)
            self.name, self.policy_hash = _told(hello.meta)
        except (KeyError, TypeError, ValueError, InferenceError) as error:
            self._channel.close()
            raise RemoteError(f"{url} is no policy server: {error}") from error
        self._wake = threading.Condition()
        self._waiting: dict[int, PolicyInput] = {}
        self._done: dict[int, PolicyOutput] = {}
        self._newest: dict[int, int] = {}
        self._number = 0
        self._error: InferenceError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="remote-policy", daemon=True)
        self._thread.start()

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """Leave the request for the thread; it replaces an unanswered one of the env."""
        self._require_alive()
        with self._wake:
            self._number += 1
            self._newest[env_id] = self._number
            self._waiting[env_id] = request
            self._done.pop(env_id, None)
            self._wake.notify()

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """The reply if it has arrived."""
        del now_ns
        self._require_alive()
        with self._wake:
            return self._done.pop(env_id, None)

    def close(self) -> None:
        """Leave the server; safe to call twice."""
        with self._wake:
            if self._closed:
                return
            self._closed = True
            self._wake.notify()
        self._channel.close()
        self._thread.join(self._timeout_s)

    def _require_alive(self) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error)) from self._error
        if self._closed:
            raise InferenceError("the connection to the policy server was closed")

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    return
                env_id = next(iter(self._waiting))
                request, number = self._waiting.pop(env_id), self._newest[env_id]
            try:
                output = self._ask(request, number)
            except InferenceError as error:
                self._error = error
                return
            with self._wake:
                # An answer to a request that was replaced meanwhile is dropped.
                if self._newest[env_id] == number:
                    self._done[env_id] = output

    def _ask(self, request: PolicyInput, number: int) -> PolicyOutput:
        start_ns = time.perf_counter_ns()
        message = self._channel.ask(encode_request(request, {"number": number}))
        if message.meta.get("kind") == "error":
            raise RemoteError(f"policy server: {message.meta.get('text')}")
        if message.meta.get("number") != number:
            raise InferenceError("policy server: answered another request than the one in flight")
        try:
            output = output_from(message)
        except (DataError, TypeError, ValueError) as error:
            raise RemoteError(f"policy server: {error}") from error
        check_output(self.spec, request, output)
        return dataclasses.replace(output, latency_ns=time.perf_counter_ns() - start_ns)
