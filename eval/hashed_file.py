"""Writes documents that hold their own hash, so that one that was edited is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.plain import write_text
from robolearn.config import config_hash, load_yaml
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """What a document calls itself. ``command``: what writes it, for whoever edited one."""

    format: str
    version: int
    command: str


def document_hash(kind: DocumentKind, values: Mapping[str, Any]) -> str:
    """The hash that a document with these values carries."""
    return config_hash({"format": kind.format, "version": kind.version, **values})


def hashed_text(kind: DocumentKind, values: Mapping[str, Any], *, rows: bool = False) -> str:
    """The text of a document. ``rows``: a mapping without anything nested in it takes one line."""
    import yaml

    digest = document_hash(kind, values)
    document = {"hash": digest, "format": kind.format, "version": kind.version, **values}
    flow = None if rows else False
    return yaml.safe_dump(document, sort_keys=False, width=98, default_flow_style=flow)


def write_hashed(
    path: Path, kind: DocumentKind, values: Mapping[str, Any], *, rows: bool = False
) -> str:
    """Write a document; returns its hash. :class:`ConfigError` for a file that is there already:
    results refer to it.
    """
    if path.exists():
        raise ConfigError(f"out: '{path}' is there already; a plan is not written over")
    write_text(path, hashed_text(kind, values, rows=rows))
    return document_hash(kind, values)


def read_hashed(path: Path, kind: DocumentKind) -> tuple[str, dict[str, Any]]:
    """Hash and values of a document; :class:`ConfigError` for another kind of file, and for one
    that was edited since it was written.
    """
    values = dict(load_yaml(path))
    said = values.pop("hash", None)
    try:
        digest = config_hash(values)
    except RecursionError as error:
        raise ConfigError(f"'{path}' is no such document: {error}") from error
    found = (values.pop("format", None), values.pop("version", None))
    if found != (kind.format, kind.version):
        raise ConfigError(
            f"'{path}' says {found}; expected version {kind.version} of '{kind.format}', as"
            f" '{kind.command}' writes it"
        )
    if said != digest:
        raise ConfigError(
            f"'{path}' was edited since it was written (hash {said}, its values give {digest});"
            f" write another plan with '{kind.command}'"
        )
    return digest, values
