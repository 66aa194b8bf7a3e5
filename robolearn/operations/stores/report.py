"""Says what a store of episodes is good for: measures, advice, a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eval.plain import write_text
from eval.report.store_page import store_page
from robolearn.data.insight.advice import Advice, advise
from robolearn.data.insight.measures import StoreMeasures, measure
from robolearn.data.insight.sample import sample_store
from robolearn.data.store.store import EpisodeStore

ROWS = 50_000
"""Steps that are looked at by default: enough for stable shares, seconds to read."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What was measured of ``store``, what speaks for what, and both as a self-contained page."""

    store: str
    measures: StoreMeasures
    advice: Advice
    page: str

    def write(self, out: Path) -> None:
        """Write the page, whole or not at all."""
        write_text(out, self.page)


def report_store(path: Path | str, *, rows: int = ROWS, seed: int = 0) -> StoreReport:
    """Look at whole episodes, drawn by ``seed``, until ``rows`` steps are reached.

    The time that it takes is bounded by ``rows`` and the longest episode, but for the listing.
    Errors: :class:`DataError` for a store without episodes.
    """
    store = EpisodeStore.open(path)
    measures = measure(sample_store(store, rows, seed), seed)
    advice = advise(measures)
    title = f"What the data of {store.path.name} are good for"
    return StoreReport(str(store.path), measures, advice, store_page(title, measures, advice))
