"""Describes the person beside a cell during blinded trials: asked what only a person sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from robolearn.operations.deploy.operator import Operator


@runtime_checkable
class TrialOperator(Operator, Protocol):
    """An operator who can be asked after a trial."""

    @property
    def answers(self) -> bool:
        """Whether somebody is there to answer."""
        ...

    def choose(self, question: str, answers: Sequence[str]) -> int:
        """Which of ``answers`` (its index)."""
        ...

    def remark(self, question: str) -> str:
        """Free words; "" for none."""
        ...
