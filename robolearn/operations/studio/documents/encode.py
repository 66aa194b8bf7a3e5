"""Encodes documents as JSON: dataclasses as objects, what is not finite as null, arrays as such."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import functools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGE = 256
"""Floating-point arrays of more values go as base64, others as lists."""


def encoded(document: Any) -> bytes:
    """A document as JSON in UTF-8.

    Dataclasses and mappings become objects; tuples, lists and sets arrays; paths and times text;
    numbers that are not finite null. A floating-point array of more than :data:`LARGE` values
    becomes ``{"float32": BASE64, "shape": [...]}`` (little endian, row by row, NaN kept), a smaller
    one lists. TypeError for what has no such form.
    """
    return json.dumps(
        plain(document), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()


@functools.singledispatch
def plain(value: Any) -> Any:
    """``value`` as JSON values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} has no form in JSON")


@plain.register(str)
@plain.register(bool)
@plain.register(int)
@plain.register(type(None))
def _as_it_is(value: str | bool | int | None) -> Any:
    return value


@plain.register(float)
@plain.register(np.floating)
def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


@plain.register(np.integer)
def _integer(value: np.integer[Any]) -> int:
    return int(value)


@plain.register(np.bool_)
def _truth(value: np.bool_) -> bool:
    return bool(value)


@plain.register(Path)
@plain.register(dt.datetime)
@plain.register(dt.date)
def _text(value: object) -> str:
    return str(value)


@plain.register(Mapping)
def _object(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(k): plain(v) for k, v in value.items()}


@plain.register(Sequence)
@plain.register(set)
@plain.register(frozenset)
def _list(value: Sequence[Any]) -> list[Any]:
    return [plain(v) for v in value]


@plain.register(np.ndarray)
def _array(value: NDArray[Any]) -> Any:
    if value.dtype.kind == "f" and value.size > LARGE:
        data = np.ascontiguousarray(value, dtype="<f4").tobytes()
        return {"float32": base64.b64encode(data).decode("ascii"), "shape": list(value.shape)}
    return _list(value.tolist())
