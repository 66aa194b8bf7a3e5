"""Runs one policy in one spawned process, reached through a pipe that carries
:mod:`robolearn.inference.codec`.
"""

from __future__ import annotations

import logging
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from robolearn.config import from_dict
from robolearn.contracts import Policy, PolicySpec
from robolearn.errors import InferenceError, RobolearnError
from robolearn.inference.checked import sample_checked
from robolearn.inference.codec import (
    Message,
    decode,
    encode,
    encode_output,
    encode_request,
    output_from,
    request_from,
)
from robolearn.machine.process import exit_with_parent
from robolearn.spec import to_json
from robolearn.types import PolicyInput, PolicyOutput

log = logging.getLogger(__name__)


class Worker:
    """Starts the process and waits until its policy is built."""

    def __init__(self, build: Callable[[], Policy], start_timeout_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe(duplex=True)
        self._process = context.Process(
            target=serve, args=(build, theirs), name="policy-worker", daemon=True
        )
        self._process.start()
        theirs.close()
        self._closed = False
        self.pid = self._process.pid or 0
        try:
            self.spec = self._handshake(start_timeout_s)
        except BaseException:
            self.close()
            raise

    def send(self, request: PolicyInput) -> None:
        """Send one request; raises :class:`InferenceError` when the worker is gone."""
        if self._closed:
            raise InferenceError("the policy worker was closed; start a new one")
        try:
            self._pipe.send_bytes(encode_request(request))
        except OSError as error:
            raise self._death() from error

    def receive(self) -> PolicyOutput | None:
        """The answer if there is one; raises :class:`InferenceError` on failure or death."""
        message = self._read(0.0)
        return None if message is None else output_from(message)

    def close(self) -> None:
        """End the process: politely by closing its pipe, then by force."""
        if self._closed:
            return
        self._closed = True
        self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _handshake(self, timeout_s: float) -> PolicySpec:
        message = self._read(timeout_s)
        if message is None:
            raise InferenceError(f"the policy was not ready within {timeout_s:g} s")
        return policy_spec_from(message)

    def _read(self, timeout_s: float) -> Message | None:
        if self._closed:
            raise InferenceError("the policy worker was closed; start a new one")
        try:
            if not self._pipe.poll(timeout_s):
                return None
            message = decode(self._pipe.recv_bytes())
        except (OSError, EOFError) as error:
            raise self._death() from error
        if message.meta["kind"] == "error":
            log.debug("worker traceback:\n%s", message.meta["traceback"])
            raise InferenceError(f"policy worker: {message.meta['text']}")
        return message

    def _death(self) -> InferenceError:
        self._process.join(1.0)
        return InferenceError(
            f"the policy worker (process {self.pid}) died with exit code {self._process.exitcode};"
            " a negative code is the signal that killed it (-9: out of memory or killed)"
        )


def serve(build: Callable[[], Policy], pipe: Connection) -> None:
    """The worker's main: build the policy, answer requests until the pipe closes."""
    exit_with_parent()
    try:
        policy = build()
        pipe.send_bytes(spec_message(policy.spec))
        while True:
            request = request_from(decode(pipe.recv_bytes()))
            pipe.send_bytes(encode_output(sample_checked(policy, request)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent must hear of it
        _report(pipe, error)


def _report(pipe: Connection, error: Exception) -> None:
    text = str(error) if isinstance(error, RobolearnError) else f"{type(error).__name__}: {error}"
    meta = {"kind": "error", "text": text, "traceback": traceback.format_exc()}
    try:
        pipe.send_bytes(encode(Message(meta, {})))
    except OSError:
        log.warning("policy worker failed and its parent is gone: %s", text)


def spec_message(spec: PolicySpec) -> bytes:
    """A :class:`PolicySpec` as a message."""
    return encode(Message({"kind": "spec", "spec": to_json(spec)}, {"ready": np.zeros(0)}))


def policy_spec_from(message: Message) -> PolicySpec:
    """Inverse of :func:`spec_message`."""
    return from_dict(PolicySpec, dict(message.meta["spec"]), "policy specification")
