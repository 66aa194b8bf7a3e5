"""Same seed, same actions, same bits: in another process too, pictures included."""

from __future__ import annotations

import pytest

from tests.benchmarks.sim_workers import run


@pytest.mark.parametrize("world", ["pick_place"])
def test_two_processes_do_and_see_the_same(world: str) -> None:
    first, second = run(world, ticks=12, workers=2)
    assert first.digest == second.digest
    assert run(world, ticks=12, workers=1)[0].digest == first.digest
