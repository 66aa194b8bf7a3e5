"""Builds frozen dataclasses from YAML and JSON, with overrides on the command line.

No inheritance, interpolation or expressions. An unknown key is an error with did-you-mean.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from robolearn.errors import ConfigError, RobolearnError, did_you_mean

# Wheels of PyYAML have libyaml; one that was built without has not.
if typing.TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml import SafeLoader as _Libyaml
else:
    from yaml import CSafeLoader as _Libyaml

T = TypeVar("T")


# In an installed package beside this file, in a checkout beside the package.
SHIPPED = (Path(__file__).parent / "configs", Path(__file__).parents[1] / "configs")


def shipped_configs() -> Path:
    """The folder ``configs/`` that belongs to this installation."""
    return next((folder for folder in SHIPPED if folder.is_dir()), SHIPPED[0])


def find_config(path: Path) -> Path:
    """``path``; or, if there is none and it begins with ``configs/``, the file of that name that
    came with this installation, so that commands do not depend on the current directory.
    """
    if path.exists() or path.is_absolute() or path.parts[:1] != ("configs",):
        return path
    shipped = shipped_configs().joinpath(*path.parts[1:])
    return shipped if shipped.parent.is_dir() else path


class _Strict:
    """Refuses what YAML takes silently: of a key that stands twice the last one would count, and
    a NaN passes most comparisons that would refuse it later.
    """

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        parent: Any = super()
        value = float(parent.construct_yaml_float(node))
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(
                None, None, f"'{node.value}' is no finite number", node.start_mark
            )
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{name[1]}' stands twice in one mapping", key.start_mark
                )
            if name is not None:
                seen.add(name)
        parent: Any = super()
        return typing.cast("dict[Any, Any]", parent.construct_mapping(node, deep))


class _Loader(_Strict, yaml.SafeLoader):
    """Written in Python: quotes the line that is wrong, and bears any nesting."""


class _FastLoader(_Strict, _Libyaml):
    """Written in C, seven times faster; a file that nests some 30,000 deep overflows its stack."""


_FLOAT = "tag:yaml.org,2002:float"
_Loader.add_constructor(_FLOAT, _Loader.construct_yaml_float)
_FastLoader.add_constructor(_FLOAT, _FastLoader.construct_yaml_float)

DEEPEST = 5000
"""Levels of nesting that the loader in C may be given."""


def parse_yaml(text: str) -> Any:
    """What ``text`` says. Errors: :class:`yaml.YAMLError`, and :class:`ValueError` or
    :class:`RecursionError` of values and nesting that cannot be.
    """
    # A level takes a bracket, or at least half a column.
    columns = max((len(line) for line in text.splitlines()), default=0)
    if text.count("[") + text.count("{") + 2 * columns <= DEEPEST:
        try:
            return yaml.load(text, _FastLoader)  # noqa: S506  (a safe one)
        except yaml.YAMLError:
            pass  # The other one says it better.
    return yaml.load(text, _Loader)  # noqa: S506  (a safe one)


def load_yaml(path: Path) -> dict[str, Any]:
    """Read one YAML mapping (see :func:`find_config`); errors name the file and line."""
    path = find_config(path)
    try:
        raw = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        near = sorted(p.name for p in path.parent.glob("*.yaml")) if path.parent.is_dir() else []
        raise ConfigError(
            f"no config file '{path}'.{did_you_mean(path.name, near)} {path.parent}/ has: {near}"
        ) from error
    except IsADirectoryError as error:
        raise ConfigError(f"'{path}' is a folder; expected a YAML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not a text file (UTF-8); expected YAML") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        # A 30th of February, a number of 5000 digits, a thousand brackets.
        raise ConfigError(f"'{path}' cannot be read as YAML: {error}") from error
    if not isinstance(raw, dict):
        got = "an empty file" if raw is None else type(raw).__name__
        raise ConfigError(f"'{path}' must hold a mapping, got {got}")
    return typing.cast("dict[str, Any]", raw)


def load_config(kind: type[T], path: Path) -> T:
    """Build the frozen dataclass ``kind`` from a YAML file."""
    return from_dict(kind, load_yaml(path), where=str(path))


def from_dict(
    kind: type[T],
    raw: Mapping[str, Any],
    where: str = "config",
    *,
    error: type[RobolearnError] = ConfigError,
) -> T:
    """Build a (nested) dataclass from plain values: YAML, JSON, or what ``asdict`` gives.

    Types are checked, lists become tuples where tuples are declared, unknown keys are refused.
    What is wrong is an ``error`` that says where.
    """
    try:
        return _decode(kind, raw, where)
    except ConfigError as wrong:
        if error is ConfigError:
            raise
        raise error(str(wrong)) from wrong


@functools.cache
def _fields(kind: type[Any]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} is not a dataclass")
    # Looking hints up means evaluating source text, which costs more than the rest.
    hints = typing.get_type_hints(kind)
    return {f.name: (f, hints[f.name]) for f in dataclasses.fields(kind)}


def _decode(kind: type[T], raw: Mapping[str, Any], where: str) -> T:
    fields = _fields(kind)
    for key in raw:
        if key not in fields:
            raise ConfigError(
                f"{where}: unknown key '{key}'.{did_you_mean(str(key), fields)}"
                f" Known keys: {sorted(fields)}"
            )
    values: dict[str, Any] = {}
    for name, (field, hint) in fields.items():
        if name in raw:
            value = raw[name]
            values[name] = (
                value if type(value) is hint else _convert(hint, value, f"{where}: {name}")
            )
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{where}: key '{name}' is missing ({field.type})")
    try:
        config = kind(**values)
        # Those of nested configs were checked when these were built.
        _check_own_seeds(config, fields)
        return config
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from error


def check_seeds(config: Any) -> None:
    """Fields called ``seed`` or ``..._seed`` hold seeds, which are not negative (``ValueError``).

    Checked here once: generators refuse negative numbers, but only where they are first used.
    """
    names = [f.name for f in dataclasses.fields(config)]
    _check_own_seeds(config, names)
    for name in names:
        if dataclasses.is_dataclass(value := getattr(config, name)):
            check_seeds(value)


def check_finite(config: Any, where: str = "") -> None:
    """:class:`ConfigError` for a number that is NaN or infinite, in a config or those inside it,
    for values that come from no file: YAML is not read with any.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        name = f"{where}: {field.name}" if where else field.name
        if dataclasses.is_dataclass(value):
            check_finite(value, name)
        elif not _is_finite(value):
            raise ConfigError(f"{name} must be finite, got {value}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_finite(part) for part in typing.cast("tuple[Any, ...]", value))
    return not isinstance(value, float) or math.isfinite(value)


def _check_own_seeds(config: Any, names: Iterable[str]) -> None:
    for name in names:
        if name == "seed" or name.endswith("_seed"):
            value = getattr(config, name)
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name.replace('_', '-')} must be at least 0, got {value}")


def to_dict(config: Any) -> dict[str, Any]:
    """A config as plain JSON/YAML values."""
    return typing.cast(
        "dict[str, Any]", json.loads(json.dumps(dataclasses.asdict(config), default=str))
    )


def differences(want: Mapping[str, Any], have: Mapping[str, Any], prefix: str) -> list[str]:
    """What ``have`` says otherwise than ``want``, a line per value."""
    lines: list[str] = []
    for key, value in want.items():
        other = have.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            inner = typing.cast("dict[str, Any]", value), typing.cast("dict[str, Any]", other)
            lines += differences(*inner, f"{prefix}{key}.")
        elif value != other:
            lines.append(f"{prefix}{key}: now {value!r}, there {other!r}")
    return lines


def config_hash(*parts: Any) -> str:
    """Hex SHA-256 (16 digits) of JSON values or dataclasses, order of keys irrelevant."""
    plain = [to_dict(p) if dataclasses.is_dataclass(p) else p for p in parts]
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)


def _convert(hint: Any, value: Any, where: str) -> Any:
    if type(value) is hint:
        # A scalar of the declared type; everything else needs a look.
        return value
    origin, args = _parts(hint)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            raise ConfigError(
                f"{where}: got {value!r}.{did_you_mean(str(value), map(str, args))}"
                f" Allowed: {list(args)}"
            )
        return value
    if origin is tuple:
        return _convert_tuple(args, value, where)
    if origin is list:
        return [
            _convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(_sequence(value, where))
        ]
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a mapping, got {value!r}")
        if args[1] is Any:
            return dict(typing.cast("dict[Any, Any]", value))
        items = typing.cast("dict[Any, Any]", value).items()
        return {k: _convert(args[1], v, f"{where}.{k}") for k, v in items}
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{where}: expected a mapping, got {value!r}")
        return _decode(typing.cast("type[Any]", hint), typing.cast("dict[str, Any]", value), where)
    return _convert_scalar(hint, value, where)


def _convert_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    errors: list[str] = []
    for option in args:
        if option is type(None):
            continue
        try:
            return _convert(option, value, where)
        except ConfigError as error:
            errors.append(str(error))
    raise ConfigError(errors[0] if errors else f"{where}: got {value!r}")


def _convert_tuple(args: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    items = _sequence(value, where)
    if len(args) == 2 and args[1] is Ellipsis:
        if all(type(v) is args[0] for v in items):
            return tuple(items)
        return tuple(_convert(args[0], v, f"{where}[{i}]") for i, v in enumerate(items))
    if len(items) != len(args):
        raise ConfigError(f"{where}: expected {len(args)} values, got {len(items)}: {items}")
    return tuple(
        _convert(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(args, items, strict=True))
    )


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ConfigError(f"{where}: expected a number up to 1.8e308") from error
    if hint is float and isinstance(value, str):
        # YAML 1.1 reads 1e-4 (no dot) as text.
        try:
            return float(value)
        except ValueError as error:
            raise ConfigError(f"{where}: expected a number, got {value!r}") from error
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(hint, type) and isinstance(value, hint):
        if hint is int and isinstance(value, bool):
            raise ConfigError(f"{where}: expected int, got {value!r}")
        return value
    name = getattr(hint, "__name__", str(hint))
    raise ConfigError(f"{where}: expected {name}, got {value!r} ({type(value).__name__})")


def _sequence(value: Any, where: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"{where}: expected a list, got {value!r}")
    return list(typing.cast("list[Any]", value))
