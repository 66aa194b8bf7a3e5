"""Identifies a planar scene's physics from the demonstrations of a store, and writes the scene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError
from sim.identification import search
from sim.identification.search import Identified, IdentifyConfig
from sim.identification.write_scene import write_identified
from sim.scene.config import Scene
from sim.scene.load import load_scene

USUAL = IdentifyConfig()


@dataclass(frozen=True, slots=True)
class IdentifyResult:
    """The scene package that was written to ``out``, and what it was found from."""

    out: Path
    scene: Scene
    found: Identified


def identify(
    store: Path,
    out: Path,
    *,
    template: str = "pusht_naive",
    episodes: int | None = None,
    config: IdentifyConfig = USUAL,
    on_note: Callable[[str], None] | None = None,
) -> IdentifyResult:
    """Fit contact friction, damping ratio, centre of mass and contact stiffness of ``template``.

    ``episodes``: the first so many demonstrations (all: None), some to fit and others to check;
    ``on_note``: told in a sentence what is done. An identified scene in ``out`` is replaced.

    Errors: :class:`ConfigError`, :class:`SceneError`, :class:`DataError`, nothing written.
    """
    if episodes is not None and episodes < 2:
        raise ConfigError(f"episodes must be at least 2, got {episodes}")
    start = load_scene(template)
    opened = EpisodeStore.open(store)
    ids = [i.id for i in opened.list() if i.kind == "demonstration"][:episodes]
    if len(ids) < 2:
        raise ConfigError(
            f"identification needs at least 2 demonstrations (one to check on);"
            f" '{store}' has {len(ids)}"
        )
    found = search.identify([opened.read(name) for name in ids], start, config, on_note)
    scene = write_identified(found, start, config, out, source=store.name)
    return IdentifyResult(out, scene, found)
