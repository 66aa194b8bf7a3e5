"""Schedules are balanced; what was not done by the plan, or was edited, is refused."""

import dataclasses
import itertools
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.blinded.interim import interim
from eval.blinded.key import SealedKey, SealedPolicy, open_key
from eval.blinded.plan import lock_plan, read_locked
from eval.blinded.queue import counted, standing, void_note
from eval.blinded.schedule import aliases, schedule, starts_by_cell, unbalanced, williams
from eval.blinded.votes import Vote, add_vote, read_votes
from eval.rule import Rule
from eval.trials.table import TrialStore
from robolearn.config import config_hash
from robolearn.errors import ConfigError, DataError, StoreCorruptError
from robolearn.operations.compare import compare
from robolearn.operations.trial import report
from robolearn.operations.trial.report import unblind
from robolearn.types import TrialRecord
from tests.robolearn.operations.trial.toy import SUITE, plan_toy


def plan(folder, **more):
    return plan_toy(folder, **more).locked


def row(locked, number, at, **more):
    slot = locked.plan.by_number[number]
    fields = {"policy": slot.alias, "policy_hash": "h", "env": slot.cell, "env_hash": "p"}
    fields |= {"engine": "robot", "kind": "robot", "condition": slot.condition, "seed": 0}
    fields |= {"success": True, "score": 1.0, "final_progress": 1.0, "return_": 1.0, "steps": 1}
    fields |= {"duration_s": 1.0, "reason": "success", "commit": "", "suite": SUITE}
    fields |= {"plan": locked.hash, "slot": number, "alias": slot.alias, "episode": "e"}
    return TrialRecord(**{**fields, "started": time_of(at), **more})


def time_of(minute):
    return f"2026-01-02T10:{minute:02d}:00.000+00:00"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_williams_squares_balance_places_and_what_came_before(count):
    rows = williams(count)
    places = Counter((i, v) for r in rows for i, v in enumerate(r))
    before = Counter(pair for r in rows for pair in itertools.pairwise(r))
    assert len(set(places.values())) == len(set(before.values())) == 1
    assert len(before) == count * (count - 1)


@settings(max_examples=10, deadline=None)
@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 2**31), st.data())
def test_every_policy_tries_every_condition_in_blocks(policies, conditions, seed, data):
    repeats = data.draw(st.integers(0, conditions))
    ids, names = [f"c{i}" for i in range(conditions)], aliases(policies)
    slots = schedule(ids, names, ["a", "b"], repeats=repeats, seed=seed, pairs=False)
    assert len(slots) == policies * (conditions + repeats)
    tried = Counter((s.alias, s.condition, s.repetition) for s in slots)
    assert set(tried.values()) == {1}
    for _, block in itertools.groupby(slots, key=lambda s: s.block):
        members = list(block)
        assert {s.alias for s in members} == set(names)
        assert len({(s.condition, s.repetition, s.cell) for s in members}) == 1
    first = {(s.condition, s.repetition): s.block for s in slots}
    assert all(first[c, 0] < b for (c, r), b in first.items() if r)
    assert slots == schedule(ids, names, ["a", "b"], repeats=repeats, seed=seed, pairs=False)
    # A repetition on another cell would tell nothing of how far a trial predicts its own.
    assert len({(s.condition, s.cell) for s in slots}) == conditions
    spread = Counter(starts_by_cell(slots)).most_common()
    assert len(spread) == min(conditions, 2)
    assert spread[0][1] - spread[-1][1] <= 1


def test_each_cell_and_the_repetitions_on_it_are_balanced_by_themselves():
    """Rows were dealt to cells in turns: with two policies one cell had the same one first."""
    ids, names, cells = [f"c{i}" for i in range(12)], aliases(3), ("a", "b")
    for seed in range(20):
        slots = schedule(ids, names, cells, repeats=12, seed=seed, pairs=False)
        for cell in cells:
            for repetition in (0, 1):
                mine = [s for s in slots if (s.cell, s.repetition) == (cell, repetition)]
                places = Counter((i % 3, s.alias) for i, s in enumerate(mine))
                assert set(places.values()) == {2}
        paired = schedule(ids, names, cells, repeats=3, seed=seed, pairs=True)
        assert not unbalanced(paired, pairs=True)


@pytest.mark.parametrize(
    ("policies", "conditions", "more", "said"),
    [
        (2, 4, {}, ""),
        (2, 5, {}, "5 conditions: not every policy stands in every place.* a multiple of 2 would"),
        (3, 6, {}, ""),
        (3, 20, {}, "a multiple of 6 would be balanced$"),
        (4, 12, {}, ""),
        (4, 10, {"repeats": 2}, "a multiple of 4 would be balanced, without repetitions$"),
        (4, 12, {"pairs": True, "repeats": 5}, ""),
        (3, 4, {"pairs": True}, "not every pair comes, .* a multiple of 6 would be balanced"),
        (2, 4, {"cells": ("a", "b"), "repeats": 2}, ""),
        (2, 6, {"cells": ("a", "b")}, "a multiple of 2 on each cell would be balanced"),
    ],
)
def test_a_plan_says_of_how_many_conditions_it_would_be_balanced(policies, conditions, more, said):
    how = {"cells": ("a",), "repeats": 0, "pairs": False, **more}
    for seed in range(5):
        slots = schedule([f"c{i}" for i in range(conditions)], aliases(policies), seed=seed, **how)
        assert re.search(said or "^$", unbalanced(slots, pairs=how["pairs"]))


@pytest.mark.parametrize(
    ("more", "digest"),
    [
        ({"repeats": 3, "pairs": False}, "3241be8384649a81"),
        ({"repeats": 0, "pairs": False}, "8fb250cde4256919"),
        ({"repeats": 0, "pairs": True}, "89b435cc193ade3c"),
    ],
)
def test_on_one_cell_a_seed_gives_what_it_always_gave(more, digest):
    slots = schedule([f"c{i}" for i in range(7)], aliases(3), ["a"], seed=5, **more)
    assert config_hash([dataclasses.asdict(s) for s in slots]) == digest


def test_pairs_come_equally_often_and_first_equally_often():
    names = aliases(4)
    slots = schedule([f"c{i}" for i in range(24)], names, ["a"], repeats=0, seed=3, pairs=True)
    names_in_turn = [s.alias for s in slots]
    pairs = list(zip(names_in_turn[::2], names_in_turn[1::2], strict=True))
    assert set(Counter(pairs).values()) == {2}
    assert len(set(pairs)) == 12


def test_impossible_designs_are_refused():
    with pytest.raises(ConfigError, match="two or more"):
        schedule(["c"], ["one"], ["a"], repeats=0, seed=0, pairs=False)
    with pytest.raises(ConfigError, match="repeats must be 0 to 1"):
        schedule(["c"], ["one", "two"], ["a"], repeats=2, seed=0, pairs=False)


def test_a_voided_slot_is_tried_after_the_last_one_in_the_order_of_voiding(tmp_path):
    locked = plan(tmp_path, trials=2)
    rows = [row(locked, n, n) for n in range(1, 5)]
    rows[2] = dataclasses.replace(rows[2], status="voided", note=void_note(time_of(20), "bumped"))
    rows[0] = dataclasses.replace(rows[0], status="voided", note=void_note(time_of(30), "bumped"))
    now = standing(locked, rows)
    assert [s.number for s in now.waiting["point"]] == [5, 6, 3, 1]
    rows += [row(locked, n, 30 + i) for i, n in enumerate((5, 6, 3, 1), 1)]
    now = standing(locked, rows)
    assert now.left == 0
    assert sorted(r.slot for r in counted(now, rows)) == [1, 2, 3, 4, 5, 6]


def test_an_interrupted_slot_is_tried_again_in_its_place(tmp_path):
    locked = plan(tmp_path)
    rows = [row(locked, 1, 1, status="voided", success=False, reason="interrupted")]
    assert standing(locked, rows).waiting["point"][0].number == 1
    rows[0] = dataclasses.replace(rows[0], status="aborted", reason="safety_stop")
    assert standing(locked, rows).waiting["point"][0].number == 2


def test_of_a_pair_both_trials_are_tried_again(tmp_path):
    locked = plan(tmp_path, pairs=True)
    rows = [row(locked, 1, 1), row(locked, 2, 2), row(locked, 3, 3)]
    for i in (0, 1):
        note = void_note(time_of(9), "bumped")
        rows[i] = dataclasses.replace(rows[i], status="voided", note=note)
    numbers = [s.number for s in standing(locked, rows).waiting["point"]]
    assert numbers == [4, 5, 6, 1, 2]


def test_decisions_are_shown_only_if_the_plan_says_so(tmp_path):
    rule = Rule(by="score", kind="sequential")
    locked = plan(tmp_path / "a", trials=30, rule=rule)
    score = dict(zip(locked.plan.aliases, (0.0, 0.5, 1.0), strict=True))
    rows = [
        row(locked, n, n % 60, success=False, score=score[s.alias], final_progress=0.0)
        for n, s in locked.plan.by_number.items()
    ]
    rows = [dataclasses.replace(r, started=f"2026-01-02T{10 + i // 60:02d}:{i % 60:02d}:00+00:00")
            for i, r in enumerate(rows)]  # fmt: skip
    found = interim(locked.plan, standing(locked, rows), rows)
    assert found is not None
    assert found.decided
    assert f"{locked.plan.aliases[2]} is better" in " ".join(found.lines)
    early = interim(locked.plan, standing(locked, rows[:7]), rows[:7])
    assert early is not None
    assert not early.decided
    silent = dataclasses.replace(locked.plan, rule=Rule())
    assert interim(silent, standing(locked, rows), rows) is None


def test_a_plan_over_several_cells_counts_as_planned_once_it_is_complete(tmp_path, monkeypatch):
    # Nothing was recorded; episodes are held against their rows beside the sessions.
    monkeypatch.setattr(report, "require_episodes", lambda folder, rows: None)
    locked = plan(tmp_path, trials=7, repeats=3, cells=("left", "right"))
    moments = [f"2026-01-02T{10 + i // 60}:{i % 60:02d}:00+00:00" for i in range(30)]
    rows = [
        row(locked, n, 0, started=moments[n - 1], episode=f"e{n}") for n in locked.plan.by_number
    ]
    with TrialStore(tmp_path / "blind") as table:
        table.add(rows)
    unblind(tmp_path)
    found = compare([tmp_path])
    assert sorted({(e.n, w.world) for w in found.worlds for e in w.effects}) == sorted(
        (n, cell) for cell, n in starts_by_cell(locked.plan.slots).items()
    )
    assert len(found.standings) == 6
    assert all(s.planned for s in found.standings), found.standings


@pytest.mark.parametrize(("design", "n"), [({"repeats": 3}, 10), ({"cells": ("l", "r")}, 7)])
def test_a_plan_of_an_earlier_version_is_refused_not_misread(tmp_path, design, n):
    """It counted repetitions, and the conditions of all cells, as starts of each."""
    locked = plan(tmp_path, trials=7, **design)
    old = dataclasses.replace(locked.plan, rule=Rule().limited(n))
    lock_plan(tmp_path / "old", old)
    with pytest.raises(ConfigError, match=f"compared over {n} starts.* an earlier version of robo"):
        read_locked(tmp_path / "old")


def test_a_plan_that_repeats_a_condition_on_another_cell_is_refused(tmp_path):
    """As an earlier version dealt blocks to cells in turns, whatever they were of."""
    locked = plan(tmp_path, trials=4, repeats=1, cells=("left", "right"))
    other = {"left": "right", "right": "left"}
    slots = tuple(
        dataclasses.replace(s, cell=other[s.cell]) if s.repetition else s for s in locked.plan.slots
    )
    starts = starts_by_cell(slots)
    rule = Rule().limited(max(starts.values()))
    lock_plan(tmp_path / "old", dataclasses.replace(locked.plan, slots=slots, rule=rule))
    with pytest.raises(ConfigError, match=r"plans c\d on the cells .* Plan these trials anew in"):
        read_locked(tmp_path / "old")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"slot": 3}, "planned for|turn of slot 2"),
        ({"slot": 99}, "no slot 99"),
        ({"plan": "other"}, "plan other"),
        ({"alias": "zebra"}, "not 'zebra'"),
        ({"condition": "c77"}, "not c77"),
        ({"suite": "toy@ffff"}, "toy@ffff"),
        ({"started": time_of(0)}, "clock was set back"),
        ({"started": ""}, "does not say when"),
    ],
)
def test_rows_that_the_plan_does_not_explain_are_refused(tmp_path, change, said):
    locked = plan(tmp_path)
    rows = [row(locked, 1, 1), dataclasses.replace(row(locked, 2, 2), **change)]
    with pytest.raises(DataError, match=said):
        standing(locked, rows)


def test_a_changed_plan_or_key_is_refused(tmp_path):
    locked = plan(tmp_path)
    text = (tmp_path / "plan.yaml").read_text()
    (tmp_path / "plan.yaml").write_text(text.replace("seed: 0", "seed: 1"))
    with pytest.raises(ConfigError, match="was edited"):
        read_locked(tmp_path)
    sealed = (tmp_path / "key.sealed").read_text()
    assert "middling" not in sealed
    assert open_key(tmp_path, locked.plan.key).redact("in runs/fast: x") == "in (policy): x"
    (tmp_path / "key.sealed").write_text(sealed + "\n")
    with pytest.raises(ConfigError, match="not the key"):
        open_key(tmp_path, locked.plan.key)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no data came, and no runs of act did", "no data came, and no runs of act did"),
        ("'/lab/data/act/last' is gone", "'(policy)' is gone"),
        ("'data/act/last/x.json' is gone", "'(policy)/(policy)/(policy)/x.json' is gone"),
        ("in ../data/act or /lab/data.", "in ../(policy)/(policy) or /lab/(policy)."),
        ("the folder 'act' and its data-set", "the folder '(policy)' and its data-set"),
        ("in data/raw_2 and raw_2/metadata/x", "in (policy)/(policy) and (policy)/metadata/x"),
        ("no room in raw_2: no data", "no room in (policy): no data"),
        ("/lab/database and /lab/runs.old/x", "/lab/database and /lab/runs.old/x"),
        ("amber, gull and h1", "(policy), (policy) and (policy)"),
    ],
)
def test_places_are_redacted_as_paths_and_words_are_left(text, shown):
    """'no data came' said '(policy)' where one of the runs lay in a folder data."""
    policies = (
        SealedPolicy("amber", "gull", "h1", "/lab/data/act/last"),
        SealedPolicy("birch", "tern", "h2", "/lab/runs/raw_2/last"),
    )
    assert SealedKey("nonce", policies, "").redact(text) == shown


def test_votes_only_grow_and_a_torn_line_is_none(tmp_path):
    votes = [Vote("p", i, "a", "b", (2 * i, 2 * i + 1), "a", "", "me", "t") for i in range(3)]
    for v in votes[:2]:
        add_vote(tmp_path, v)
    path = tmp_path / "votes.jsonl"
    path.write_bytes(path.read_bytes() + b'{"plan": "p", "blo')
    assert read_votes(tmp_path) == tuple(votes[:2])
    add_vote(tmp_path, votes[2])
    assert read_votes(tmp_path) == tuple(votes)
    whole = path.read_text()
    for edited in (whole.replace('"better": "a"', '"better": "b"', 1), whole.split("\n", 1)[1]):
        path.write_text(edited)
        with pytest.raises(StoreCorruptError, match="not as it was written"):
            read_votes(tmp_path)
