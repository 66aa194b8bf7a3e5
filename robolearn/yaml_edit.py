"""Set one number in a YAML file and leave every other character, comments included, as it is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import yaml

from robolearn.errors import ConfigError

Path = Sequence[str | int]


def set_number(text: str, path: Path, value: float) -> str:
    """``text`` with the number at ``path`` (keys and list indices) set; a missing last key is added
    to its mapping. Raises ConfigError when the path does not exist.
    """
    where = "/".join(map(str, path))
    node = yaml.compose(text)
    for key in path[:-1]:
        node = _child(node, key)
        if node is None:
            raise ConfigError(f"there is no '{where}' in this file: '{key}' is missing")
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"'{where}' is not in a mapping of this file")
    last, new = str(path[-1]), f"{value:.6g}"
    found = _child(node, last)
    if found is not None:
        start, end = found.start_mark.index, found.end_mark.index
        out = text[:start] + new + text[end:]
    elif node.flow_style:
        at = node.start_mark.index + 1
        out = text[:at] + f"{last}: {new}, " + text[at:]
    else:
        first = node.value[0][0].start_mark
        out = text[: first.index] + f"{last}: {new}\n" + " " * first.column + text[first.index :]
    _require_same_otherwise(text, out, path, value)
    return out


def _child(node: yaml.Node | None, key: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return cast("yaml.Node", node.value[key])
    if isinstance(node, yaml.MappingNode):
        for name, child in node.value:
            if name.value == str(key):
                return cast("yaml.Node", child)
    return None


def _require_same_otherwise(old: str, new: str, path: Path, value: float) -> None:
    # Through JSON: what an anchor shares comes apart.
    wanted: Any = json.loads(json.dumps(yaml.safe_load(old)))
    place: Any = wanted
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = float(f"{value:.6g}")
    if yaml.safe_load(new) != wanted:
        raise ConfigError(
            f"'{'/'.join(map(str, path))}' cannot be set here without touching more (an anchor or a"
            f" folded value); write {value:.6g} by hand"
        )
