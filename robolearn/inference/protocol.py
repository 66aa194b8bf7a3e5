"""Fixes what client and server of a remote policy agree on.

    client                                   server
    GET / (Authorization: Bearer TOKEN)  ->  101, or 401 without the token
                                         <-  spec      PolicySpec, name, hash
    request (PolicyInput), meta.number   ->
                                         <-  output (PolicyOutput), meta.number
                                             or error {text}, meta.number

Binary frames of :mod:`robolearn.inference.codec`, nothing executable, at most :data:`MAX_BYTES`
each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from robolearn.contracts import PolicySpec
from robolearn.errors import DataError
from robolearn.inference.codec import Message, decode, encode, request_from
from robolearn.types import PolicyInput

MAX_BYTES = 32 * 2**20
MAX_BATCH = 256
_TEXT = 500


def error_message(text: str, number: int) -> bytes:
    """A refusal, cut to a bounded length."""
    return encode(Message({"kind": "error", "text": text[:_TEXT], "number": number}, {}))


def read_request(data: bytes, spec: PolicySpec) -> tuple[PolicyInput, int]:
    """A request of a client that may be anything, checked against the policy, and its number.

    Raises :class:`DataError` that says what is wrong.
    """
    message = decode(data)
    number = message.meta.get("number", 0)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**53:
        raise DataError(f"request number must be a non-negative integer, got {str(number)[:40]!r}")
    task = message.meta.get("task", [])
    if not isinstance(task, list):
        raise DataError(f"task must be a list of texts, got {type(task).__name__}")
    request = request_from(message)
    batch = len(request.t_ns) if request.t_ns.ndim == 1 else -1
    if not 1 <= batch <= MAX_BATCH or request.seed.shape != (batch,):
        raise DataError(
            f"expected t_ns and seed of one shape (b,), b in 1..{MAX_BATCH}, got"
            f" {request.t_ns.shape} and {request.seed.shape}"
        )
    if request.t_ns.dtype != np.int64 or request.seed.dtype != np.int64 or np.any(request.seed < 0):
        raise DataError("t_ns and seed must be int64, seeds not negative")
    for signal in spec.task_space.observations:
        value: np.ndarray[Any, Any] | None = request.observations.get(signal.name)
        want = (batch, spec.n_obs, *signal.shape)
        if value is None or value.shape != want:
            got = "nothing" if value is None else value.shape
            raise DataError(f"'{signal.name}' should be {want}, got {got}")
        if not np.isfinite(value).all():
            raise DataError(f"'{signal.name}' is not finite")
    size = spec.task_space.action_size
    prefix, weight = request.prefix, request.prefix_weight
    if prefix is None:
        if weight is not None:
            raise DataError("prefix_weight without prefix")
    elif prefix.ndim != 3 or prefix.shape[::2] != (batch, size) or prefix.shape[1] > spec.horizon:
        raise DataError(f"prefix should be ({batch}, up to {spec.horizon}, {size})")
    elif weight is not None and weight.shape != prefix.shape[:2]:
        raise DataError(f"prefix_weight should be {prefix.shape[:2]}, got {weight.shape}")
    return request, number
