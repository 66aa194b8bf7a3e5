"""How far apart the chunks of a policy are, by hand."""

import numpy as np
import pytest

from tests.benchmarks.chunk_spread import figures


def test_figures_by_hand():
    # Two rows of two chunks; the third step is not executed.
    chunks = np.zeros((2, 2, 3, 2))
    chunks[0, 1, :, 0] = 0.004, 0.006, 9.0
    chunks[1, 0, :, 1] = 0.008, 0.008, 9.0
    found = figures(chunks, np.array([[-0.5, -0.3], [-0.2, -0.4]]), execute=2)
    # Both chunks are half of their distance from the mean of the two.
    assert found["path"] == pytest.approx([np.sqrt((2.0**2 + 3.0**2) / 2), 4.0])
    assert found["end"] == pytest.approx([6.0, 8.0])
    # In the second row the first is the best.
    assert found["chosen"] == pytest.approx([6.0, 0.0])
    assert found["gain"] == pytest.approx([0.1, 0.1])
    assert found["deviation"] == pytest.approx([0.1, 0.1])
