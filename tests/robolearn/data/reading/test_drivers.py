"""Who drove each step as weights: the shares of every published rule, and the corners of each."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.data.episode import drivers, leading_up, take_overs, taken_over
from robolearn.data.reading.cache import FlatEpisodes, flatten
from robolearn.data.reading.selection import DataConfig, StoreChoice
from robolearn.data.reading.weighting import (
    CLASSES,
    IdleConfig,
    QualityConfig,
    driver_classes,
    driver_weights,
    row_weights,
    shares,
)
from robolearn.errors import ConfigError, DataError
from tests.episodes import TOOL
from tests.learning_mocks import random_source

SOURCES = ("policy", "policy:b", "human", "human:x", "operator:x", "hold", "scripted")
driven = st.lists(st.sampled_from(SOURCES), min_size=1, max_size=15)


def flat_of(*sources: list[str]) -> FlatEpisodes:
    source = random_source(tuple(len(s) for s in sources))
    items = tuple(
        dataclasses.replace(e, source=tuple(s)) for e, s in zip(source.items, sources, strict=True)
    )
    return flatten(dataclasses.replace(source, items=items))


def test_sources_say_who_drove() -> None:
    said = (
        "policy:a",
        "human:keyboard",
        "operator:scripted",
        "scripted",
        "hold",
        "replay",
        "",
        "x",
    )
    assert drivers(said) == ("policy", "human", "script", "script", "nobody", "replay", "", "")


@settings(max_examples=30, deadline=None)
@given(driven, st.integers(0, 6))
def test_take_overs_and_what_leads_up_to_them(source: list[str], ticks: int) -> None:
    begins, driving = [], False
    for name in source:
        who = name.split(":")[0]
        begins.append(driving and who in ("human", "operator"))
        driving = (driving or who == "policy") and not begins[-1]
    assert take_overs(source).tolist() == begins
    taken = taken_over(source)
    lead = [not taken[t] and any(begins[t + 1 : t + 1 + ticks]) for t in range(len(source))]
    assert leading_up(source, ticks).tolist() == lead


@settings(max_examples=15, deadline=None)
@given(st.lists(driven, min_size=1, max_size=4), st.integers(0, 4))
def test_every_step_is_of_one_class(sources: list[list[str]], ticks: int) -> None:
    found = [CLASSES[k] for k in driver_classes(flat_of(*sources), ticks)]
    for source in sources:
        mine, found = found[: len(source)], found[len(source) :]
        lead, taken = leading_up(source, ticks), taken_over(source)
        policy = [k for k, name in enumerate(source) if name.startswith("policy")]
        for t, name in enumerate(source):
            if not policy:
                wanted = "demonstration"
            elif taken[t]:
                wanted = "person"
            elif t < policy[0] and name != "hold":
                wanted = "demonstration"
            else:
                wanted = "lead" if lead[t] else "policy"
            assert mine[t] == wanted


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.floats(0, 1e6)] * 3),
    st.floats(1e-3, 1e6),
    st.sampled_from(["iwr", "sirius", "people"]),
)
def test_shares_are_at_least_0_and_1_together(others, person, rule) -> None:
    totals = np.array([*others, person])
    found = shares(totals, rule)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1.0)
    assert (found[totals == 0] == 0).all()
    own = totals / totals.sum()
    if rule == "people":
        assert found[3] == pytest.approx(own[3] / (own[0] + own[3]))
        assert found[1] == found[2] == 0
    elif any(others):
        assert found[3] >= 0.5 - 1e-9
    if rule == "sirius" and all(t > 0 for t in totals) and own[0] < 0.498:
        # As published: .5, .002, demonstrations as many as there are, the policy the rest.
        assert found == pytest.approx([own[0], 0.498 - own[0], 0.002, 0.5])


def test_published_weights_below_0_do_not_arise() -> None:
    """With 90 % demonstrations the policy's weight would be -.402 / .05."""
    assert shares(np.array([90.0, 5.0, 1.0, 4.0]), "sirius") == pytest.approx(
        [0.498, 0, 0.002, 0.5]
    )


def weigh(flat: FlatEpisodes, **quality: object) -> np.ndarray:
    found = row_weights(
        flat,
        np.arange(len(flat.actions)),
        stores=None,
        quality=QualityConfig(**quality),  # type: ignore[arg-type]
        qualities=(),
        idle=IdleConfig(),
    )
    assert found is not None
    return found


def test_batches_are_divided_as_the_rule_says() -> None:
    corrected = ["policy"] * 20 + ["human:x"] * 5 + ["hold"] * 5 + ["policy"] * 10
    flat = flat_of(["human:x"] * 10, corrected)
    rate = flat.task_space.rate_hz
    classes = driver_classes(flat, round(0.5 * rate))
    weights = weigh(flat, drivers="sirius", before_s=0.5)
    total = [weights[classes == k].sum() / weights.sum() for k in range(4)]
    assert total == pytest.approx([0.2, 0.298, 0.002, 0.5])
    iwr = weigh(flat, drivers="iwr")
    assert iwr[30:35].sum() / iwr.sum() == pytest.approx(0.5)
    assert len(set(np.delete(iwr, range(30, 35)).round(9))) == 1
    people = weigh(flat, drivers="people")
    assert (people > 0).tolist() == [True] * 10 + [False] * 20 + [True] * 5 + [False] * 15


def test_what_divides_nothing_is_said() -> None:
    flat = flat_of(["human:x"] * 5, ["policy"] * 5)
    with pytest.raises(DataError, match=r"in none of these 2 episodes did a person take over"):
        driver_weights(flat, np.arange(10), np.ones(10), "iwr", 0)
    for other in ({"intervention": 2.0}, {"success_share": 0.5}):
        with pytest.raises(ConfigError, match=r"drivers and .* leave one out"):
            QualityConfig(drivers="sirius", **other)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="before_s"):
        QualityConfig(drivers="sirius", before_s=-1.0)
    stores = (StoreChoice("a", weight=1.0), StoreChoice("b", weight=1.0))
    with pytest.raises(ConfigError, match=r"quality\.drivers both say"):
        DataConfig((TOOL,), stores=stores, quality=QualityConfig(drivers="iwr"))
