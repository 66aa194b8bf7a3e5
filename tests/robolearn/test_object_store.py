"""The episode store on an object store: the contract, the commit rule, two writers, damage."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from robolearn.data.store import EpisodeStore
from tests.contracts import StoreContract

_count = itertools.count()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))


class TestObjectStore(StoreContract):
    def make(self, tmp_path: Path) -> EpisodeStore:
        return EpisodeStore.create(f"memory://contract{next(_count)}/prefix")
