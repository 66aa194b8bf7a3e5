"""Who made a decision, and what it was worth."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robolearn.data.decisions import Decided, Driven, advantages
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec, DecisionSpec
from robolearn.seeding import child_seed
from tests.growing_store import own_episode


def test_advantages_by_hand() -> None:
    values = np.array([1.0, 2.0, 3.0, 5.0], dtype=np.float32)
    following = np.array([2.0, 9.0, 4.0, 7.0], dtype=np.float32)
    reward = np.array([10.0, 20.0, 30.0, 40.0], dtype=np.float32)
    # The task ends with the second; the last two are of another episode, which was cut off.
    bootstrap = np.array([0.5, 0.0, 0.5, 0.5], dtype=np.float32)
    goes_on = np.array([True, False, True, False])
    found = advantages(values, following, reward, bootstrap, goes_on, 0.8)
    last = 40.0 + 0.5 * 7.0 - 5.0
    second = 20.0 - 2.0
    expected = [
        10.0 + 0.5 * 2.0 - 1.0 + 0.5 * 0.8 * second,
        second,
        30.0 + 0.5 * 4.0 - 3.0 + 0.5 * 0.8 * last,
        last,
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    # Without a trace one step counts; with all of it what was expected in between cancels.
    short = advantages(values, following, reward, bootstrap, goes_on, 0.0)
    np.testing.assert_allclose(short, reward + bootstrap * following - values)


def test_an_episode_says_who_made_its_decisions() -> None:
    meta = own_episode(5).meta
    assert Driven.of(meta) is None
    said = {"practice": {"version": 3, "policy_hash": "abc", "execute": 4}}
    driven = Driven.of(dataclasses.replace(meta, provenance=said))
    assert driven == Driven(3, "abc", 5, 4)
    # What an agent asks with (robolearn/agents/chunk.py).
    assert driven.seeds(np.array([0, 4, 12])).tolist() == [child_seed(5, i) for i in (0, 1, 3)]
    with pytest.raises(DataError, match=r"every 4 steps.*algorithm.stride be 4"):
        driven.seeds(np.array([0, 2]))


def test_only_decisions_that_are_known_are_shown() -> None:
    rows, one = np.array([3, 7]), np.array([0.5, 1.5], dtype=np.float32)
    chain = np.zeros((2, 3, 4, 2), dtype=np.float32)
    decided = Decided(rows, chain, np.zeros((2, 2), dtype=np.float32), one, one + 1)
    assert decided.at(np.array([7, 3, 7]))["worth"].tolist() == [2.5, 1.5, 2.5]
    with pytest.raises(DataError, match="how some of these decisions were made"):
        decided.at(np.array([3, 4]))


def test_bad_settings_are_explained() -> None:
    with pytest.raises(ConfigError, match="trace must be in"):
        DecisionSpec(trace=1.5)
    with pytest.raises(ConfigError, match="ask for the part 'transition'"):
        BatchSpec(2, 4, 8, decisions=DecisionSpec())
