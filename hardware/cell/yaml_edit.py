"""Sets one value in a YAML file and leaves every other character, comments included, as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import yaml

from robolearn.errors import ConfigError

Path = Sequence[str | int]


def set_number(text: str, path: Path, value: float) -> str:
    """``text`` with the number at ``path`` set, to six digits; see :func:`set_value`."""
    return set_value(text, path, float(f"{value:.6g}"))


def set_value(text: str, path: Path, value: Any) -> str:
    """``text`` with the value at ``path`` (keys and list indices) set; a missing last key is added
    to its mapping. ``value``: a number, or numbers in lists and mappings, written on one line.
    Raises ConfigError when the path does not exist.
    """
    where = "/".join(map(str, path))
    node = yaml.compose(text)
    for key in path[:-1]:
        node = _child(node, key)
        if node is None:
            raise ConfigError(f"there is no '{where}' in this file: '{key}' is missing")
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"'{where}' is not in a mapping of this file")
    last, new = str(path[-1]), _told(value)
    found = _child(node, last)
    if found is not None:
        start, end = found.start_mark.index, _end(found)
        out = text[:start] + new + text[end:]
    elif node.flow_style:
        at = node.start_mark.index + 1
        out = text[:at] + f"{last}: {new}, " + text[at:]
    else:
        first = node.value[0][0].start_mark
        out = text[: first.index] + f"{last}: {new}\n" + " " * first.column + text[first.index :]
    _require_same_otherwise(text, out, path, value)
    return out


def _told(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "{" + ", ".join(f"{k}: {_told(v)}" for k, v in items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_told(v) for v in cast("list[Any]", value)) + "]"
    # A point makes "1e-05" a number for every reader of YAML.
    text = f"{value:.12g}"
    return text if "e" not in text or "." in text else text.replace("e", ".0e")


def _end(node: yaml.Node) -> int:
    """Where the last character of a node is; the end of a block would be the next key."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(cast("yaml.Node", last[1] if isinstance(node, yaml.MappingNode) else last))
    return node.end_mark.index


def _child(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return cast("yaml.Node", node.value[key])
    if isinstance(node, yaml.MappingNode):
        for name, child in node.value:
            if name.value == str(key):
                return cast("yaml.Node", child)
    return None


def _require_same_otherwise(old: str, new: str, path: Path, value: Any) -> None:
    # Through JSON: what an anchor shares comes apart.
    wanted: Any = json.loads(json.dumps(yaml.safe_load(old)))
    place: Any = wanted
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = yaml.safe_load(_told(value))
    if yaml.safe_load(new) != wanted:
        raise ConfigError(
            f"'{'/'.join(map(str, path))}' cannot be set here without touching more (an anchor or a"
            f" folded value); write {value:.6g} by hand"
        )
