"""Reports how far a simulator may be trusted, from a table that people export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.plain import write_text
from eval.report.trust.lines import trust_document, trust_lines, trust_markdown
from eval.trust.report import TrustReport, trust_report
from eval.trust.spreadsheet import read_sheet

TITLE = "How far may this simulator be trusted?"


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust report and its renderings."""

    report: TrustReport

    @property
    def document(self) -> Sequence[Mapping[str, Any]]:
        """JSON values: one object per task, and a last one over all of several."""
        return trust_document(self.report)

    @property
    def lines(self) -> Sequence[str]:
        """Plain lines, for a terminal."""
        return trust_lines(self.report)

    def write_page(self, out: Path, title: str = TITLE) -> None:
        """A self-contained HTML page, whole or not at all."""
        # It draws plots, and what draws them takes a second to load.
        from eval.report.trust.page import trust_page

        write_text(out, trust_page(self.report, title))

    def write_markdown(self, out: Path, title: str = TITLE) -> None:
        """The same as Markdown."""
        write_text(out, trust_markdown(self.report, title))


def trust_of_table(table: Path, *, level: float = 0.95, seed: int = 0) -> Trust:
    """Judge the simulator of a CSV table with a line per policy and task.

    Columns: ``task, policy, real_successes, real_trials, sim_successes, sim_trials``, or
    ``real_score``, ``sim_score`` where only rates are known. The same table and ``seed`` give the
    same report. :class:`DataError` names file and line of what cannot be.
    """
    sheet = read_sheet(table)
    return Trust(trust_report(sheet.tables, level=level, seed=seed, notes=sheet.notes))
