"""Turns results into JSON values: dataclasses to mappings, what is not finite to null."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from robolearn.errors import ConfigError, DataError
from robolearn.files import write_atomic


def plain_values(value: Any) -> Any:
    """``value`` as JSON values. Numbers that are not finite (an interval that is not known, a
    correlation that is not defined) become null; tuples become lists, paths become text.
    """
    text = json.dumps(_plain(value), default=str)
    return json.loads(text, parse_constant=lambda _: None)


def read_mapping(path: Path) -> Mapping[str, Any]:
    """The JSON object in ``path``; raises :class:`DataError` that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"'{path}' is not valid JSON: {error}; run its stage again") from error
    if not isinstance(value, dict):
        raise DataError(f"'{path}' must hold a JSON object, got {type(value).__name__}")
    return cast("Mapping[str, Any]", value)


def write_text(path: Path, text: str) -> None:
    """Make the folder and write the file, whole or not at all; :class:`ConfigError` if not."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write '{path}': {error.strerror}") from error


def write_mapping(path: Path, value: Any) -> None:
    """:func:`plain_values` of ``value`` as a JSON file, whole or not at all."""
    write_text(path, json.dumps(plain_values(value), indent=1) + "\n")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in cast("list[Any]", value)]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
