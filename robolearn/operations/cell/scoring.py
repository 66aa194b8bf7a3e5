"""Scores an episode on a cell: by the operator's keys, by a lab's true poses."""

from __future__ import annotations

from collections.abc import Mapping

from hardware.emulators.lab.admin import LabClient
from hardware.env.real_env import Scorer
from robolearn.operations.deploy.operator import Verdicts
from robolearn.types import Outcome, Signals


class KeyScorer:
    """The operator's verdict (keys s, f, q) over that of ``scorer``; without one, the only one."""

    def __init__(self, scorer: Scorer | None, keys: Verdicts) -> None:
        self._scorer, self._keys = scorer, keys

    def reset(self) -> None:
        """Forget the last episode and its keys."""
        self._keys.forget()
        if self._scorer is not None:
            self._scorer.reset()

    def judge(self, values: Signals) -> Outcome:
        """The key if one was pressed, else the scorer's verdict."""
        now = Outcome(success=False, progress=0.0, reward=0.0)
        if self._scorer is not None:
            now = self._scorer.judge(values)
        key = self._keys.verdict()
        if key == "s":
            return Outcome(True, 1.0, 1.0, terminal=True, reason="success", metrics=now.metrics)
        if key in ("f", "q"):
            return Outcome(
                success=now.success if key == "q" else False,
                progress=now.progress,
                reward=now.reward,
                truncated=True,
                reason="operator" if key == "q" else "failure",
                metrics=now.metrics,
            )
        return now


class LabScorer:
    """Scores by the lab's true poses of the tracked objects; the policy never sees them.

    ``objects``: the lab's name of each, by signal.
    """

    def __init__(self, lab: LabClient, task: Scorer, objects: Mapping[str, str]) -> None:
        self._lab, self._task, self._objects = lab, task, objects

    def reset(self) -> None:
        """Forget the last episode."""
        self._task.reset()

    def judge(self, values: Signals) -> Outcome:
        """Judge the true poses instead of the tracked ones."""
        poses = self._lab.truth().poses
        true = {s: poses[n] for s, n in self._objects.items() if n in poses and s in values}
        return self._task.judge({**values, **true})
