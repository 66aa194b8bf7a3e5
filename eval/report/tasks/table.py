"""Finds the page of a task by the task's name."""

from __future__ import annotations

from eval.report.tasks.base import TaskPage
from robolearn.table import Table

TASK_PAGES = Table[TaskPage](
    {"pusht": "eval.report.tasks.pusht:PAGE"},
    what="page of a task",
    group="robolearn.task_pages",
)
GENERIC = TaskPage()


def task_page(task: str) -> TaskPage:
    """What there is to say about a task; the generic page for tasks that bring nothing."""
    return TASK_PAGES.find(task) if task in TASK_PAGES else GENERIC
