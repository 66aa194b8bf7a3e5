"""Workers whose policy was asked once."""

from __future__ import annotations

from robolearn.inference.local import WorkerInference
from robolearn.inference.warm import WarmBuilder
from tests.mocks import BuildAlone


def test_a_worker_loads_no_more_than_its_policy_needs() -> None:
    """What opens a deployment needs torch; the process of a policy that does not, does not."""
    WorkerInference(WarmBuilder(BuildAlone())).close()
