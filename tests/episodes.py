"""Small synthetic episodes for tests of the store and what reads it."""

from __future__ import annotations

import numpy as np

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome

TOOL = "tool/xy_table"
IMAGE = "top/image"
TOOL_SPEC = SignalSpec(TOOL, (2,), "m", 10.0, components=("x", "y"), frame="table")
IMAGE_SPEC = SignalSpec(IMAGE, (48, 40, 3), rate_hz=10.0, dtype="uint8")
ACTION_SPEC = ActionSpec(TOOL, (2,), "m", 10.0, frame="table", low=(0.0, 0.0), high=(1.0, 1.0))


def embodiment(image: bool = False) -> EmbodimentSpec:
    """A point on a table, with or without a camera."""
    signals = (TOOL_SPEC, IMAGE_SPEC) if image else (TOOL_SPEC,)
    return EmbodimentSpec("point", signals, (ACTION_SPEC,), 10.0)


def small_episode(seed: int = 0, steps: int = 12, image: bool = False) -> Episode:
    """Random values; the same seed gives the same episode."""
    rng = np.random.default_rng(seed)
    observations: dict[str, np.ndarray] = {TOOL: rng.random((steps, 2))}
    if image:
        observations[IMAGE] = rng.integers(0, 255, (steps, *IMAGE_SPEC.shape), dtype=np.uint8)
    meta = EpisodeMeta(
        kind="demonstration",
        task="point",
        embodiment=embodiment(image),
        condition=Condition(f"c{seed}", seed, {TOOL: (0.1, 0.2)}),
        outcome=Outcome(True, 0.5, 0.25, terminal=True, reason="success", metrics={"m": 1.5}),
        agent="test",
        task_text="move",
        operator="nobody",
        start_wall_ns=1_700_000_000_000_000_000 + seed,
        achieved={TOOL: (0.1, 0.21)},
        provenance={"seed": seed, "nested": {"list": [1, 2.5, None, "é"]}},
        git_revision="abc",
        versions={"numpy": "1"},
    )
    return episode_from_arrays(
        meta, observations, {TOOL: rng.random((steps, 2))}, progress=rng.random(steps)
    )


def assert_same(a: Episode, b: Episode) -> None:
    """Bit for bit the same, ids aside."""
    assert a.meta == b.meta
    assert a.source == b.source
    for name in ("tick_t_ns", "seq", "due_ns", "reward", "progress", "terminal", "truncated"):
        _same(getattr(a, name), getattr(b, name))
    for name in ("inference_ns", "overrun_ns"):
        _same(getattr(a, name), getattr(b, name))
    assert set(a.streams) == set(b.streams)
    for name, block in a.streams.items():
        _same(block.t_ns, b.streams[name].t_ns)
        _same(block.value, b.streams[name].value)
        _same(block.valid, b.streams[name].valid)
        _same(a.view[name], b.view[name])
    for left, right in ((a.action, b.action), (a.sent.action, b.sent.action)):
        assert set(left) == set(right)
        for name, values in left.items():
            _same(values, right[name])
    _same(a.sent.seq, b.sent.seq)
    _same(a.sent.t_ns, b.sent.t_ns)


def _same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)
