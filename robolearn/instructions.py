"""Encodes an instruction as numbers that a network takes beside its observations.

Now: a fixed table of the instructions that training saw, one number each (:class:`TaskTable`).
Another :class:`TextEncoder`, for instance of sentences by a frozen network from a local file, takes
its place in :func:`text_encoder`; nothing else knows what texts become.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError, SpecMismatchError, did_you_mean
from robolearn.spec import TaskSpace

TEXT = "task/text"
"""Where the numbers stand among the observations of a batch, ``[b, size]`` float32."""


@runtime_checkable
class TextEncoder(Protocol):
    """Texts to numbers; the same text always gives the same ones."""

    @property
    def size(self) -> int:
        """How many numbers a text becomes."""
        ...

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """``[len(texts), size]``; :class:`SpecMismatchError` for a text that it cannot tell."""
        ...


class TaskTable:
    """One number per known instruction: 1 for the one that is meant, 0 for the others.

    Case, white space and a full stop at the end do not matter.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self._rows = {_plain(text): i for i, text in enumerate(self._texts)}

    @property
    def size(self) -> int:
        """Number of instructions."""
        return len(self._texts)

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """See :class:`TextEncoder`."""
        out = np.zeros((len(texts), self.size), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            known = self._rows.get(_plain(text))
            if known is None:
                instruction = f"not told to do '{text}'" if text.strip() else "told nothing"
                raise SpecMismatchError(
                    f"the policy was {instruction} in training."
                    f"{did_you_mean(text, self._texts)} It knows the instructions"
                    f" {list(self._texts)}"
                )
            row[known] = 1.0
        return out


def text_encoder(space: TaskSpace) -> TextEncoder | None:
    """The encoder of a policy that reads text; None for one that does not."""
    return TaskTable(space.texts) if space.texts else None


def require_understood(space: TaskSpace, texts: Sequence[str]) -> None:
    """:class:`SpecMismatchError` unless a policy that reads text can tell all ``texts``."""
    encoder = text_encoder(space)
    if encoder is not None:
        encoder(texts)


def task_table(texts: Sequence[str]) -> tuple[str, ...]:
    """The different instructions among those of all episodes, in the order of the alphabet."""
    if not all(text.strip() for text in texts):
        raise DataError(
            "data.text: some episodes have no instruction; leave them out, or record with task_text"
        )
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(_plain(text), text.strip())
    return tuple(first[key] for key in sorted(first))


def _plain(text: str) -> str:
    return " ".join(text.split()).rstrip(".").casefold()
