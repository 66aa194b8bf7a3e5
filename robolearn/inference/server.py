"""Serves one policy over a websocket (``robolearn serve``)."""

from __future__ import annotations

import logging
import threading

from robolearn.contracts import Policy
from robolearn.errors import RobolearnError
from robolearn.inference.channel_server import ChannelServer, ServeConfig
from robolearn.inference.checked import sample_checked
from robolearn.inference.codec import Message, encode, encode_output
from robolearn.inference.protocol import error_message, read_request
from robolearn.spec import to_json

__all__ = ["PolicyServer", "ServeConfig"]

log = logging.getLogger(__name__)


class PolicyServer:
    """Answers requests one after the other; runs until :meth:`close`."""

    def __init__(self, policy: Policy, config: ServeConfig, name: str, policy_hash: str) -> None:
        self._policy = policy
        spec = {"kind": "spec", "spec": to_json(policy.spec), "name": name, "hash": policy_hash}
        self._busy = threading.Lock()
        self.answered = self.refused = 0
        self._channel = ChannelServer(encode(Message(spec, {})), self._answer, config)
        self.token, self.url, self.port = (
            self._channel.token,
            self._channel.url,
            self._channel.port,
        )

    def close(self) -> None:
        """Let everybody go; safe to call twice."""
        self._channel.close()

    def _answer(self, data: bytes) -> tuple[bytes, bool]:
        number = 0
        try:
            request, number = read_request(data, self._policy.spec)
            with self._busy:
                output = sample_checked(self._policy, request)
        except RobolearnError as error:
            self.refused += 1
            log.warning("refused: %s", str(error)[:200])
            return error_message(str(error), number), False
        self.answered += 1
        return encode_output(output, {"number": number}), True
