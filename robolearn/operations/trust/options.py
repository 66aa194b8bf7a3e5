"""Says what may stand beside the agreement of rates; apart from what makes it, so that ``--help``
answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Beside:
    """What else may stand beside the agreement of rates; nothing has to."""

    # Folder of 'robolearn explain': what is wrong with the simulator.
    causes: Path | None = None
    # Folders of 'robolearn rank' over the same runs: what recordings alone say of them.
    rankings: tuple[Path, ...] = ()
    # Changes of the world that were tried on both sides and are not called alike, as 'REAL=>SIM',
    # two names of worlds; those that are (NAME~mass=1) pair up by themselves.
    changed: tuple[str, ...] = ()
    # Store of real episodes, replayed open loop in the simulator: how far it leads away.
    trajectories: Path | None = None
    # The scene's folder for that, where trials name a scene that is no packaged one.
    trajectories_world: str = ""
    # Results of another simulator of the same real trials, and its world: which one is closer?
    against: tuple[Path, ...] = ()
    against_world: str = ""
