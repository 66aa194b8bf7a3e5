"""Lists every address of the studio's API: one line for each, with the function that answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_STUDIO = "robolearn.operations.studio"
_EPISODES = f"{_STUDIO}.episodes"
_RUNS, _TRIALS, _SCENES = (f"{_STUDIO}.answers.{name}" for name in ("runs", "trials", "scenes"))
_TRIED = "evaluation trial_session deployment"


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
    Route("/api/things/{thing}/run", f"{_RUNS}:run", "run", "a run"),
    Route("/api/things/{thing}/curves", f"{_RUNS}:curves", "run", "its log, from a byte on"),
    Route("/api/things/{thing}/practice", f"{_RUNS}:practice", "run", "success by version"),
    Route("/api/things/{thing}/samples", f"{_RUNS}:samples", "run", "chunks of its policy"),
    Route("/api/runs/differences", f"{_RUNS}:differences", "", "what tells runs apart"),
    Route("/api/things/{thing}/evaluation", f"{_TRIALS}:evaluation", _TRIED, "the report so far"),
    Route("/api/things/{thing}/trials", f"{_TRIALS}:trials", _TRIED, "trials, page by page"),
    Route("/api/things/{thing}/clips/{row}", f"{_TRIALS}:clip", _TRIED, "the film of a trial"),
    Route(
        "/api/things/{thing}/recordings/{row}", f"{_TRIALS}:recording", _TRIED, "where it is stored"
    ),
    Route("/api/things/{thing}/session", f"{_TRIALS}:session", "trial_session", "blinded trials"),
    Route("/api/things/{thing}/deployment", f"{_TRIALS}:deployment", "deployment", "a deployment"),
    Route("/api/comparison", f"{_TRIALS}:comparison", "", "policies side by side"),
    Route("/api/trust", f"{_TRIALS}:trust", "", "a simulator, judged by real trials"),
    Route(
        "/api/things/{thing}/certificate", f"{_TRIALS}:certificate", "certificate", "a certificate"
    ),
    Route("/api/things/{thing}/scene", f"{_SCENES}:scene", "scene", "a scene package"),
    Route("/api/things/{thing}/verified", f"{_SCENES}:verified", "scene", "beside photographs"),
    Route("/api/things/{thing}/placed", f"{_SCENES}:placed", "scene", "its objects, moved"),
    Route("/api/things/{thing}/capture", f"{_SCENES}:capture", "capture", "a capture"),
    Route("/api/things/{thing}/checked", f"{_SCENES}:checked", "capture", "its pictures, checked"),
    Route("/api/things/{thing}/pictures/{number}", f"{_SCENES}:picture", "capture", "one of them"),
)
