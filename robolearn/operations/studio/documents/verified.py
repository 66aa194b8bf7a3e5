"""Holds a reconstructed scene against a capture, for a page: pictures side by side, measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.operations.scenes.page import figure, limit
from robolearn.operations.scenes.verify import verify_scene
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.pictures import as_address
from robolearn.operations.studio.documents.problems import Problem, Problems
from sim.reconstruction.verify import Verified
from sim.reconstruction.views import Compared

MOST_VIEWS = 8


@dataclass(frozen=True, slots=True)
class VerifiedView:
    """A photograph, the scene as the same camera sees it, and its outlines in the photograph; each
    as a ``data:`` address.
    """

    name: str
    iou: Mapping[str, float]
    edge_px: float
    depth_mm: float
    unexplained: float
    width: int
    height: int
    photo: str
    drawn: str
    outlined: str


@dataclass(frozen=True, slots=True)
class VerifiedMeasure:
    """A measure against its limits, as words."""

    name: str
    worst: str
    value: str
    good: str
    bearable: str
    verdict: str


@dataclass(frozen=True, slots=True)
class VerifiedDocument:
    """What holding a scene against a capture said. ``held_out``: by pictures that were kept back
    when the scene was made.
    """

    scene: str
    capture: str
    verdict: str
    held_out: bool
    advice: tuple[str, ...]
    said: tuple[str, ...]
    measures: tuple[VerifiedMeasure, ...]
    # The worst first, the best last; at most :data:`MOST_VIEWS` of ``pictures``.
    views: tuple[VerifiedView, ...]
    pictures: int
    command: str
    problems: tuple[Problem, ...]


def verified_document(scene: Path, capture: Path) -> VerifiedDocument:
    """Render a scene where the pictures of a capture were taken and measure the difference. It
    takes some seconds; nothing is written.
    """
    problems = Problems()
    found = problems.attempt("verify", lambda: verify_scene(scene, capture), None)
    chosen = () if found is None else _spread(found.views)
    return VerifiedDocument(
        scene=str(scene),
        capture=str(capture),
        verdict="" if found is None else found.verdict,
        held_out=found is not None and found.held_out,
        advice=() if found is None else tuple(found.advice),
        said=() if found is None else tuple(found.said),
        measures=() if found is None else _measures(found),
        views=tuple(_view(v) for v in chosen),
        pictures=0 if found is None else len(found.views),
        command=command_line("scene verify", scene, capture=capture),
        problems=problems.found,
    )


def _measures(found: Verified) -> tuple[VerifiedMeasure, ...]:
    return tuple(
        VerifiedMeasure(
            name=m.limit.name,
            worst=m.worst,
            value=figure(m),
            good=limit(m.limit, m.limit.good),
            bearable=limit(m.limit, m.limit.bearable),
            verdict=m.verdict,
        )
        for m in found.measures
    )


def _spread(views: Sequence[Compared]) -> tuple[Compared, ...]:
    order = sorted(views, key=_mean_iou)
    count = min(MOST_VIEWS, len(order))
    picks = (round(k * (len(order) - 1) / max(1, count - 1)) for k in range(count))
    return tuple(order[i] for i in picks)


def _mean_iou(view: Compared) -> float:
    known = [v for v in view.iou.values() if np.isfinite(v)]
    return float(np.mean(known)) if known else 0.0


def _view(view: Compared) -> VerifiedView:
    height, width = view.photo.shape[:2]
    return VerifiedView(
        name=view.name,
        iou=view.iou,
        edge_px=view.edge_px,
        depth_mm=view.depth_mm,
        unexplained=view.unexplained,
        width=width,
        height=height,
        photo=as_address(view.photo),
        drawn=as_address(view.drawn),
        outlined=as_address(view.outlined),
    )
