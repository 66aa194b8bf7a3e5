"""Finds public functions and fields that take or return arrays without saying their shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

# What annotates an array and says nothing of its shape.
ARRAYS = {"NDArray", "ndarray", "Tensor", "ArrayLike"}


def unshaped(root: Path, trees: Mapping[Path, ast.Module]) -> dict[Path, list[str]]:
    """Per module what lacks a shape, as ``line name``; an alias of a bare array is one too."""
    aliases: dict[str, set[str]] = {_module(root, path): set() for path in trees}
    # An alias may be of an imported alias: as often as something new is found.
    growing = True
    while growing:
        before = sum(map(len, aliases.values()))
        for path, tree in trees.items():
            aliases[_module(root, path)] = _bare_names(tree, aliases)
        growing = sum(map(len, aliases.values())) > before
    return {
        path: [
            f"{line} {name}"
            for line, name, annotation in _annotations(tree.body)
            if _is_bare(annotation, _shaping(tree), aliases[_module(root, path)])
        ]
        for path, tree in trees.items()
    }


def _module(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _shaping(tree: ast.Module) -> set[str]:
    """The names that give an array its type and shape: ``Float64[NDArray, "n 3"]``."""
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "jaxtyping"
        for alias in node.names
    }


def _bare_names(tree: ast.Module, aliases: Mapping[str, set[str]]) -> set[str]:
    """Names of bare arrays in this module: the libraries', imported ones and its own."""
    bare = set(ARRAYS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known = aliases.get(node.module or "", set())
            bare |= {a.asname or a.name for a in node.names if a.name in known}
    shaping = _shaping(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign) and _is_bare(node.value, shaping, bare):
            bare |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return bare


def _is_bare(node: ast.expr, shaping: set[str], bare: set[str]) -> bool:
    """Whether an array without a shape stands in an annotation."""
    if isinstance(node, ast.Name):
        return node.id in bare
    if isinstance(node, ast.Attribute):
        return node.attr in ARRAYS
    if isinstance(node, ast.Subscript):
        if isinstance(node.value, ast.Name) and node.value.id in shaping:
            return False
        return any(_is_bare(n, shaping, bare) for n in (node.value, node.slice))
    if isinstance(node, ast.BinOp):
        return any(_is_bare(n, shaping, bare) for n in (node.left, node.right))
    if isinstance(node, ast.Tuple | ast.List):
        return any(_is_bare(n, shaping, bare) for n in node.elts)
    return False


def _annotations(body: list[ast.stmt], owner: str = "") -> Iterator[tuple[int, str, ast.expr]]:
    """Annotations of public functions, methods and fields, with their line and name."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _annotations(node.body, f"{owner}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_"):
                continue
            a = node.args
            given = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
            found = [x.annotation for x in given if x is not None] + [node.returns]
            yield from ((node.lineno, owner + node.name, x) for x in found if x is not None)
        elif owner and isinstance(node, ast.AnnAssign) and not ast.unparse(node).startswith("_"):
            yield node.lineno, owner + ast.unparse(node.target), node.annotation
