"""Finds the page of a task by the task's name."""

from __future__ import annotations

from collections.abc import Mapping

from eval.report.tasks import pusht
from eval.report.tasks.base import TaskPage

TASK_PAGES: Mapping[str, TaskPage] = {"pusht": pusht.PAGE}
GENERIC = TaskPage()


def task_page(task: str) -> TaskPage:
    """What there is to say about a task; the generic page for tasks that bring nothing."""
    return TASK_PAGES.get(task, GENERIC)
