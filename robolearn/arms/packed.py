"""Packs the numbers of a form that kernels take (``robolearn/arms/compiled/forms.py``) into one
array: handing over an array of its own takes a third of a microsecond, and a tool's drive has 40.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np

from robolearn.shapes import OwnFloats, OwnIndex

Form = TypeVar("Form", bound=tuple[Any, ...])


def packed(form: Form) -> tuple[Form, OwnFloats, OwnIndex]:
    """The same form, whose arrays are views of these two: of all that is real, in the order of the
    fields, and of all that is whole.
    """
    leaves = _leaves(form)
    numbers = np.concatenate([*(np.ravel(v) for v in leaves if not _is_whole(v)), np.zeros(0)])
    none = np.zeros(0, dtype=np.int64)
    marks = np.concatenate([*(np.ravel(v) for v in leaves if _is_whole(v)), none])
    left = {False: numbers, True: marks}

    def view(value: Any) -> Any:
        if isinstance(value, tuple):
            return _made_like(value, [view(part) for part in _parts(value)])
        whole, size = _is_whole(value), np.size(value)
        mine, left[whole] = left[whole][:size], left[whole][size:]
        return mine.reshape(value.shape) if isinstance(value, np.ndarray) else value

    return view(form), numbers, marks


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, tuple):
        return [value]
    return [leaf for part in _parts(value) for leaf in _leaves(part)]


def _parts(form: Any) -> tuple[Any, ...]:
    return form


def _made_like(form: Any, parts: list[Any]) -> Any:
    return type(form)(*parts)


def _is_whole(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and np.issubdtype(cast("Any", leaf).dtype, np.integer)
