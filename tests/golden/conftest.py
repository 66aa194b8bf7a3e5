"""``golden``: the checker of ``tests/golden/golden.py``; one thread, whose sums have one order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.golden.golden import Golden


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="record the golden numbers instead"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    # A run of more than this folder does not know the option.
    return Golden(update=bool(request.config.getoption("update_golden", default=False)))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
