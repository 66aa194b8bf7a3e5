"""The page of a trust report, where its figures could not be read."""

from eval.report.trust.page import labels
from eval.trust.outcomes import Outcomes
from eval.trust.tables import PolicyPair, TaskTable


def test_dots_on_top_of_each_other_have_one_name() -> None:
    rates = {"a": (0.0, 0.0), "b": (0.02, 0.01), "c": (0.5, 0.5), "d": (0.01, 0.0)}
    pairs = (PolicyPair(n, (Outcomes(r),), (Outcomes(s),)) for n, (s, r) in rates.items())
    found = labels(TaskTable("t", tuple(pairs)))
    assert found == [((0.0, 0.0), "a and 2 others"), ((0.5, 0.5), "c")]
