"""Transforms: both directions, angles on a circle, constants left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.nets.transforms import fit_transform
from robolearn.contracts import Normalization
from robolearn.data.store.stats import signal_stats
from robolearn.errors import DataError


@given(
    st.sampled_from(["minmax", "meanstd", "none"]),
    st.sets(st.integers(0, 3)),
    st.integers(0, 2**31),
)
def test_inverse_undoes_forward(mode: Normalization, angular: set[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3.0, 3.0, (5, 2, 4))
    angles = tuple(sorted(angular))
    transform = fit_transform((4,), signal_stats(values.reshape(-1, 4)), mode, angles)
    features = transform.forward(values)
    assert features.shape == (5, 2, transform.size)
    assert transform.size == 4 + len(angles)
    np.testing.assert_allclose(transform.inverse(features), values, atol=1e-9)


def test_minmax_maps_the_observed_range() -> None:
    data = np.array([[0.0, 10.0], [4.0, 30.0]])
    transform = fit_transform((2,), signal_stats(data), "minmax")
    np.testing.assert_allclose(transform.forward(data), [[-1, -1], [1, 1]])


def test_meanstd_standardises() -> None:
    data = np.random.default_rng(0).normal(7.0, 3.0, (500, 2))
    features = fit_transform((2,), signal_stats(data), "meanstd").forward(data)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), 1, atol=1e-12)


def test_angles_half_a_turn_beyond_meet() -> None:
    data = np.array([[0.1], [3.0]])
    transform = fit_transform((1,), signal_stats(data), "minmax", (0,))
    np.testing.assert_allclose(
        transform.forward(np.array([np.pi])), transform.forward(np.array([-np.pi])), atol=1e-12
    )


@pytest.mark.parametrize("mode", ["minmax", "meanstd"])
def test_a_constant_component_is_centred_and_not_blown_up(mode: Normalization) -> None:
    data = np.full((10, 1), 0.3) + np.linspace(0, 1e-6, 10)[:, None]
    transform = fit_transform((1,), signal_stats(data), mode)
    assert abs(float(transform.forward(np.array([0.3]))[0])) < 1e-5
    assert transform.scale == (1.0,)


def test_wrong_shapes_are_explained() -> None:
    transform = fit_transform((2,), signal_stats(np.zeros((3, 2))), "none")
    with pytest.raises(DataError, match="expected 2 features"):
        transform.inverse(np.zeros(3))
    with pytest.raises(DataError, match="expected values"):
        transform.forward(np.zeros(3))
    with pytest.raises(DataError, match="statistics have 2"):
        fit_transform((3,), signal_stats(np.zeros((3, 2))), "none")
