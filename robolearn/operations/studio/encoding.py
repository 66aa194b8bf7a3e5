"""Encodes documents as JSON: dataclasses by their fields, arrays of numbers as packed bytes.

    {"shape": [120, 2], "type": "f4", "data": "base64 of little-endian float32"}

Integers become ``i4``, flags and bytes ``u1``. What is not finite in plain numbers is null.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, cast

import numpy as np

from robolearn.shapes import AnyArray

_SINGLE = (bool, int, str, float, Enum, np.generic, PurePath, dt.date)


def encode(document: object) -> bytes:
    """UTF-8 JSON, escaped where a text is no valid Unicode."""
    return json.dumps(plain(document), separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any) -> Any:
    """``value`` by what JSON knows; TypeError for what it cannot say."""
    if value is None or isinstance(
        value, (bool, int, str, float, Enum, np.generic, PurePath, dt.date)
    ):
        return _single(value)
    if isinstance(value, np.ndarray):
        return packed(cast("AnyArray", value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in cast("Iterable[Any]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"a document cannot hold {type(value).__name__}")


def _single(value: Any) -> bool | int | str | float | None:
    if isinstance(value, (Enum, np.generic)):
        return plain(value.value if isinstance(value, Enum) else value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, (PurePath, dt.date)) else value


def packed(array: AnyArray) -> dict[str, Any]:
    """An array of numbers or flags of any shape."""
    kind = array.dtype.kind
    if kind == "f":
        type_, cast = "f4", np.dtype("<f4")
    elif kind == "b" or array.dtype == np.uint8:
        type_, cast = "u1", np.dtype("u1")
    elif kind in "iu":
        type_, cast = "i4", np.dtype("<i4")
    else:
        raise TypeError(f"a document cannot hold an array of {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        data = np.ascontiguousarray(array, dtype=cast).tobytes()
    text = base64.b64encode(data).decode()
    return {"shape": list(array.shape), "type": type_, "data": text}
