"""Encodes messages between processes: a JSON header and raw arrays, nothing executable.

    0   4 bytes   magic "RLM1"
    4   u32 LE    length of the header [bytes]
    8   header    JSON: {"meta": {...}, "arrays": [[name, dtype, shape], ...]}
        arrays    C order, little endian, each starting at a multiple of 8 bytes

Pipes, shared memory and sockets carry the same bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.types import PolicyInput, PolicyOutput, Signals

MAGIC = b"RLM1"
_HEAD = struct.Struct("<4sI")
DTYPES = tuple("|b1 |i1 |u1 <i2 <i4 <i8 <u2 <u4 <u8 <f2 <f4 <f8".split())  # noqa: SIM905
_ALIGN = 8


@dataclass(frozen=True, slots=True)
class Message:
    """``meta`` holds JSON values only; ``arrays`` numeric or boolean arrays (read-only when
    decoded).
    """

    meta: Mapping[str, Any]
    arrays: Signals


def encode(message: Message) -> bytes:
    """Serialise; raises :class:`DataError` for values that JSON or the format cannot carry."""
    arrays = {name: np.asarray(value) for name, value in message.arrays.items()}
    for name, value in arrays.items():
        if value.dtype.newbyteorder("<").str not in DTYPES:
            raise DataError(
                f"array '{name}': dtype {value.dtype} cannot be sent; use one of {DTYPES}"
            )
    listing = [[n, a.dtype.newbyteorder("<").str, list(a.shape)] for n, a in arrays.items()]
    try:
        text = json.dumps({"meta": dict(message.meta), "arrays": listing}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"message header is not plain JSON: {error}") from error
    header = text.encode()
    parts = [_HEAD.pack(MAGIC, len(header)), header]
    size = _HEAD.size + len(header)
    for value in arrays.values():
        pad = -size % _ALIGN
        raw = value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
        parts += [b"\0" * pad, raw]
        size += pad + len(raw)
    return b"".join(parts)


def decode(data: bytes) -> Message:
    """Inverse of :func:`encode`; anything malformed raises :class:`DataError`."""
    if len(data) < _HEAD.size:
        raise DataError(f"message of {len(data)} bytes is shorter than its head ({_HEAD.size})")
    magic, length = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise DataError(f"message starts with {magic!r}, expected {MAGIC!r}")
    position = _HEAD.size + length
    if len(data) < position:
        raise DataError(f"message header of {length} bytes is cut off after {len(data)} bytes")
    try:
        header = json.loads(data[_HEAD.size : position].decode())
        meta, listing = dict(header["meta"]), list(header["arrays"])
        plan = [_entry(item) for item in listing]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"message header does not decode: {error}") from error
    arrays: dict[str, NDArray[Any]] = {}
    for name, dtype, shape in plan:
        position += -position % _ALIGN
        count = math.prod(shape)
        if position + count * dtype.itemsize > len(data):
            raise DataError(f"message ends inside array '{name}' {shape}")
        try:
            arrays[name] = np.frombuffer(data, dtype, count, position).reshape(shape)
        except (ValueError, OverflowError) as error:
            # No elements, but a shape that numpy cannot hold.
            raise DataError(f"array '{name}' cannot have shape {shape}") from error
        position += count * dtype.itemsize
    if position != len(data):
        raise DataError(f"message has {len(data) - position} bytes too many")
    return Message(meta, arrays)


def _entry(item: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    name, dtype_name, shape = item
    sizes = tuple(int(n) for n in cast("list[int]", shape))
    if dtype_name not in DTYPES or not isinstance(name, str) or any(n < 0 for n in sizes):
        raise ValueError(f"array {name!r} of dtype {dtype_name!r} and shape {shape!r}")
    return name, np.dtype(dtype_name), sizes


def encode_request(request: PolicyInput, meta: Mapping[str, Any] | None = None) -> bytes:
    """A :class:`PolicyInput` with routing values ``meta``."""
    arrays: dict[str, NDArray[Any]] = {"t_ns": request.t_ns, "seed": request.seed}
    arrays |= {f"observation:{n}": v for n, v in request.observations.items()}
    arrays |= {f"goal:{n}": v for n, v in request.goal.items()}
    if request.prefix is not None:
        arrays["prefix"] = request.prefix
    if request.prefix_weight is not None:
        arrays["prefix_weight"] = request.prefix_weight
    head = {"kind": "request", "task": list(request.task), **(meta or {})}
    return encode(Message(head, arrays))


def request_from(message: Message) -> PolicyInput:
    """Inverse of :func:`encode_request`."""
    _expect(message, "request", ("t_ns", "seed"))
    return PolicyInput(
        observations=_group(message, "observation:"),
        t_ns=message.arrays["t_ns"],
        seed=message.arrays["seed"],
        prefix=message.arrays.get("prefix"),
        goal=_group(message, "goal:"),
        task=tuple(str(t) for t in message.meta.get("task", [])),
        prefix_weight=message.arrays.get("prefix_weight"),
    )


def encode_output(output: PolicyOutput, meta: Mapping[str, Any] | None = None) -> bytes:
    """A :class:`PolicyOutput` with routing values ``meta``."""
    arrays: dict[str, NDArray[Any]] = {
        "actions": output.actions,
        "scores": output.scores,
        "t_ns": output.t_ns,
    }
    arrays |= {f"extra:{n}": v for n, v in output.extras.items()}
    head = {"kind": "output", "latency_ns": int(output.latency_ns), **(meta or {})}
    return encode(Message(head, arrays))


def output_from(message: Message) -> PolicyOutput:
    """Inverse of :func:`encode_output`."""
    _expect(message, "output", ("actions", "scores", "t_ns"))
    return PolicyOutput(
        actions=message.arrays["actions"],
        scores=message.arrays["scores"],
        t_ns=message.arrays["t_ns"],
        latency_ns=int(message.meta.get("latency_ns", 0)),
        extras=_group(message, "extra:"),
    )


def _group(message: Message, prefix: str) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): v for n, v in message.arrays.items() if n.startswith(prefix)}


def _expect(message: Message, kind: str, names: tuple[str, ...]) -> None:
    got = message.meta.get("kind")
    if got != kind:
        raise DataError(f"expected a message of kind '{kind}', got {got!r}")
    missing = [n for n in names if n not in message.arrays]
    if missing:
        raise DataError(f"{kind} lacks {missing}; it has {sorted(message.arrays)}")
