"""Finds the run whose policy drove an episode, so that it can be asked what it wanted.

    provenance of a recording:  policy: /runs/flow, policy_hash     (deploy, collect)
                                practice: {version, ...}, agent: run@version
    a run under the folders     at this place, or the only one of this name

Chunks of actions are not recorded; a policy proposes them anew at the recorded observations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from robolearn.data.episode import Episode
from robolearn.operations.studio.library import Library


@dataclass(frozen=True, slots=True)
class Wanted:
    """``run``: the id of the run that drove, by its name; empty: ``words`` say why none is."""

    run: str
    words: str = ""


def wanted(library: Library, episode: Episode) -> Wanted:
    """Who can be asked what the policy of an episode wanted."""
    if "policy" not in episode.drivers:
        return Wanted("", "no policy drove this episode")
    place = episode.meta.provenance.get("policy", "")
    place = place if isinstance(place, str) else ""
    name = PurePath(place).name or episode.meta.agent.partition("@")[0]
    runs = [t for t in library.things() if t.kind == "run" and name and t.name == name]
    here = [t for t in runs if str(t.path) == place] or runs
    if len(here) == 1:
        return Wanted(here[0].id)
    if not here:
        called = f"'{name}', which drove it," if name else "of the policy that drove it"
        return Wanted("", f"no run {called} lies under these folders")
    return Wanted("", f"{len(here)} runs here are called '{name}', as the one that drove it")
