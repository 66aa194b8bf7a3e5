"""What may be pooled: evaluate, report and compare keep apart, or refuse, the same trials."""

from __future__ import annotations

import dataclasses

import pytest

from eval.compare import compare_policies
from eval.report.data import load_evaluation
from eval.rule import Rule
from eval.summary import summarize
from eval.trials.identity import newest, require_poolable
from eval.trials.table import TrialStore, read_trials
from robolearn.errors import DataError
from robolearn.operations import suites
from robolearn.operations.code_hash import LIBRARIES, deciding_libraries
from robolearn.operations.compare import compare
from robolearn.operations.evaluate import EvaluateListener, EvaluateOptions, evaluate
from robolearn.operations.report import report
from tests.eval.test_compare import trials

OLD, NEW = "mujoco 3.7.0, numpy 1.26.4", "mujoco 3.8.1, numpy 1.26.4"
FEW = EvaluateOptions(
    worlds=("so101_reach",), conditions=2, workers=0, videos=0, repeat=False, batch=1
)


def made(records, **changes):
    return [dataclasses.replace(r, **changes) for r in records]


def test_the_libraries_that_decide_are_named_with_their_versions():
    found = dict(part.split(" ") for part in deciding_libraries().split(", "))
    assert {"mujoco", "numpy", "torch"} <= set(found) <= set(LIBRARIES)


def test_another_version_of_an_engine_is_another_trial_for_all_three(tmp_path, monkeypatch):
    begun = []
    listener = EvaluateListener(on_begin=begun.append)
    for libraries in (OLD, NEW, NEW):
        monkeypatch.setattr(suites, "deciding_libraries", lambda said=libraries: said)
        result = evaluate(("scripted", "scripted:0.5"), tmp_path, FEW, listener=listener)
    assert [b.there for b in begun] == [0, 0, 4]
    assert len(read_trials(tmp_path)) == 8
    apart = (
        "4 trials are kept apart: different versions of libraries (mujoco 3.7.0; here mujoco 3.8.1)"
    )
    assert begun[0].apart == ()
    assert begun[1].apart == begun[2].apart == result.data.apart == (apart,)
    assert [r.n for r in result.data.results] == [2, 2]
    assert load_evaluation(tmp_path).apart == (apart,)
    assert apart in report(tmp_path).page
    compared = compare([tmp_path])
    assert [e.n for e in compared.worlds[0].entries] == [2, 2]
    assert compared.apart == (f"{tmp_path}: {apart}",)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"libraries": NEW},
            r"different versions of libraries: \['mujoco 3.7.0', 'mujoco 3.8.1'\]",
        ),
        ({"code": "other"}, "different versions of robolearn's code"),
        ({"batch": 8}, "different batch sizes"),
    ],
)
def test_trials_of_two_folders_are_refused_unless_one_says_so(tmp_path, changes, words):
    for name, more in (("a", {}), ("b", changes)):
        with TrialStore(tmp_path / name) as store:
            store.add(made(trials(name, [1, 0, 1]), **({"libraries": OLD} | more)))
    folders = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(DataError, match=words + ".*--mixed"):
        compare(folders)
    (world,) = compare(folders, mixed=True).worlds
    assert any("made by different" in note for note in world.notes)


def test_summaries_join_no_versions():
    old, new = made(trials("a", [1, 0]), libraries=OLD), made(trials("a", [1, 0]), libraries=NEW)
    with pytest.raises(DataError, match="versions of libraries"):
        summarize([*old, *made(new, condition="d")])
    assert require_poolable(old) == ()


def test_what_is_kept_apart_is_named_when_it_is_what_is_missing(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add(made(trials("a", [1, 0]), libraries=OLD))
        store.add(made(trials("b", [1, 0]), libraries=NEW) + made(trials("a", [1, 0]), engine="x"))
    with pytest.raises(DataError, match=r"needs two policies in one world; .*kept apart"):
        compare([tmp_path])


def test_a_policy_whose_trials_are_all_kept_apart_is_told(tmp_path):
    """Nothing was said of it; and one trial is no '1 trials'."""
    with TrialStore(tmp_path) as store:
        store.add(made(trials("c", [1]), libraries=OLD))
        store.add(made([*trials("a", [1, 0]), *trials("b", [1, 0])], libraries=NEW))
    (words,) = compare([tmp_path]).apart
    assert words.startswith(f"{tmp_path}: 1 trial is kept apart: different versions of libraries")


def test_the_newest_version_of_a_name_is_meant():
    first = trials("a", [1, 0])
    pool = newest([*first, *made(trials("a", [1, 0]), policy_hash="new")])
    assert pool.kept_apart(first) == (
        "2 trials are kept apart: a different policy with the name 'a'",
    )
    pool = newest([*first, *made(trials("a", [1, 0]), env_hash="w2")])
    assert pool.kept_apart(first) == (
        "2 trials are kept apart: a different version of the world 'world'",
    )


def test_a_policy_with_other_seeds_is_named():
    a, b, c = (trials(name, [1, 0, 1, 0]) for name in "abc")
    c = [dataclasses.replace(r, seed=r.seed + 90 * (r.seed > 1)) for r in c]
    words = r"missing per policy: .*; 2 conditions of 'a' have other seeds .*2 conditions of 'c'"
    with pytest.raises(DataError, match=words):
        compare_policies([*a, *b, *c], Rule())
    (world,) = compare_policies([*a, *b, *c], Rule(), common=True).worlds
    assert any("2 conditions of 'c' have other seeds" in note for note in world.notes)


def test_trials_with_other_seeds_than_the_suite_says_are_named_in_the_report(tmp_path):
    evaluate(("scripted",), tmp_path, FEW)
    with TrialStore(tmp_path) as store:
        store.add([dataclasses.replace(store.all()[0], seed=12345)])
    found = load_evaluation(tmp_path)
    assert [r.n for r in found.results] == [2]
    words = "1 trial of 'scripted' in 'so101_reach' is kept apart: other seeds than the suite says"
    assert found.apart == (words,)
