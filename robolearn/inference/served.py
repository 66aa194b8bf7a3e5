"""Asks the policy on a server, as :class:`robolearn.contracts.Policy`: one question, one answer."""

from __future__ import annotations

import time

import numpy as np

from robolearn.contracts import PolicySpec
from robolearn.errors import InferenceError
from robolearn.inference.client import RemoteInference
from robolearn.types import PolicyInput, PolicyOutput

_POLL_S = 0.0005


class ServedPolicy:
    """Asks a server and waits; what it answers was checked by :class:`RemoteInference`.

    ``policy_hash``: what the server must say that it serves. Raises :class:`InferenceError` for
    another policy, a server that is slow, gone or answers what does not fit.
    """

    def __init__(self, url: str, token: str, policy_hash: str, *, timeout_s: float = 5.0) -> None:
        self._remote = RemoteInference(url, token, timeout_s=timeout_s)
        if self._remote.policy_hash != policy_hash:
            self._remote.close()
            raise InferenceError(
                f"{url} serves another policy than before ({self._remote.policy_hash}, expected"
                f" {policy_hash}); start the evaluation anew for it"
            )

    @property
    def spec(self) -> PolicySpec:
        """As the server said."""
        return self._remote.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """The server's chunks, the first ``n`` of each row."""
        self._remote.submit(0, request)
        while (answer := self._remote.poll(0, 0)) is None:
            time.sleep(_POLL_S)
        if answer.actions.shape[1] < n:
            raise InferenceError(f"the server answered with fewer than {n} chunks")
        return PolicyOutput(
            actions=np.ascontiguousarray(answer.actions[:, :n]),
            scores=answer.scores[:, :n],
            t_ns=answer.t_ns,
            latency_ns=answer.latency_ns,
            extras=answer.extras,
        )

    def close(self) -> None:
        """Leave the server; safe to call twice."""
        self._remote.close()
