"""Refuses options that would change nothing where they were given."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from robolearn.errors import ConfigError


def refuse_without_use(args: Any, names: Iterable[str], why: str) -> None:
    """:class:`ConfigError` that says ``why`` for those fields ``names`` of ``args``, a dataclass of
    options, that are not as when they are left out.
    """
    fields = {field.name: field for field in dataclasses.fields(args)}
    given = [option for name in names for option in _given(args, fields[name])]
    if given:
        raise ConfigError(f"{', '.join(given)}: {why}")


def _given(args: Any, field: dataclasses.Field[Any]) -> list[str]:
    """As they are typed; of a group those of its own options."""
    value, usual = getattr(args, field.name), field.default
    if field.default_factory is not dataclasses.MISSING:
        usual = field.default_factory()
    if value == usual:
        return []
    if dataclasses.is_dataclass(value):
        return [option for f in dataclasses.fields(value) for option in _given(value, f)]
    return [f"--{field.name.replace('_', '-')}"]
