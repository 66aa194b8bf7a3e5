"""Lists every address of the studio's API: one line for each, with the function that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_STUDIO = "robolearn.operations.studio"
_EPISODES = f"{_STUDIO}.episodes"


@dataclass(frozen=True, slots=True)
class Route:
    """``path`` with ``{thing}`` and integers; ``place``: the ``module:function`` that answers an
    :class:`~robolearn.operations.studio.asking.Ask`; ``kinds``: of which kind the thing must be, in
    words apart by spaces, empty: any; ``what`` it gives.
    """

    path: str
    place: str
    kinds: str
    what: str
    method: Literal["GET", "POST"] = "GET"


ROUTES: tuple[Route, ...] = (
    Route("/api/things", f"{_STUDIO}.listing:things", "", "everything found"),
    Route("/api/things/{thing}", f"{_STUDIO}.listing:thing", "", "one of them"),
    Route("/api/things/{thing}/episodes", f"{_EPISODES}.table:table", "store", "the episodes"),
    Route(
        "/api/things/{thing}/select",
        f"{_EPISODES}.selecting:select",
        "store",
        "which episodes a filter takes, in the command line's words: `?filter=`",
    ),
    Route(
        "/api/things/{thing}/thumbnails",
        f"{_EPISODES}.thumbnails:sheet",
        "store",
        "a JPEG of up to 64 thumbnails, eight in a row: `?rows=3,7,12`",
    ),
    Route(
        "/api/things/{thing}/episodes/{number}",
        f"{_EPISODES}.episode:document",
        "store",
        "an episode: signals, commands, who drove, events, annotations",
    ),
    Route(
        "/api/things/{thing}/episodes/{number}/cameras/{camera}/{row}",
        f"{_EPISODES}.frames:frame",
        "store",
        "a frame of a camera as a picture",
    ),
    Route(
        "/api/things/{thing}/annotations",
        f"{_EPISODES}.saying:say",
        "store",
        "says something about episodes, once per `key`",
        "POST",
    ),
    Route(
        "/api/things/{thing}/likeness",
        f"{_EPISODES}.likeness:likeness",
        "store",
        "how unlike the others each episode is, and pairs that are nearly the same",
    ),
    Route(
        "/api/things/{thing}/episodes/{number}/stage",
        f"{_EPISODES}.stage:stage",
        "store",
        "the shapes of an episode's scene, and where they were",
    ),
)
