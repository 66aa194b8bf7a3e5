"""How late a tool is, told from what is known."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.benchmarks.tool_lag import tool_lag


@pytest.mark.parametrize("lag_s", [0.0, 0.05, 0.12])
def test_a_tool_that_follows_late_is_told(lag_s):
    rng, due_s, t_s = np.random.default_rng(0), np.arange(0.0, 8.0, 0.05), np.arange(0.0, 8.0, 0.01)

    def path(t):
        # It rests at first, where nothing tells how late it is.
        t = np.maximum(t - 1.0, 0.0)
        return 0.1 * np.stack([np.sin(1.3 * t), np.cos(0.9 * t), np.sin(0.5 * t)], axis=1)

    seen = path(t_s - lag_s) + rng.normal(0.0, 1e-4, (len(t_s), 3))
    episode = SimpleNamespace(
        action={"tool/xyz_yaw": np.c_[path(due_s), np.zeros(len(due_s))]},
        due_ns=np.round(1e9 * due_s).astype(np.int64),
        streams={
            "tool/pose": SimpleNamespace(
                value=np.c_[seen, np.zeros((len(t_s), 4))],
                t_ns=np.round(1e9 * t_s).astype(np.int64),
            )
        },
    )
    lag, apart = tool_lag(episode)
    assert lag == pytest.approx(lag_s, abs=0.003)
    assert apart < 1e-3
