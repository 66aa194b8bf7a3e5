"""Registers our scenes with Gymnasium: ``import sim.adapters.gymnasium.register``, then
``gymnasium.make``.

    import gymnasium, sim.adapters.gymnasium.register
    env = gymnasium.make("robolearn/PushT-v0", render_mode="rgb_array")

Or without the import: ``gymnasium.make("sim.adapters.gymnasium.register:robolearn/PushT-v0")``.
Gymnasium 1.x has no plugins that would make either unnecessary. ``robolearn/World-v0`` takes any
world's name: ``gymnasium.make("robolearn/World-v0", world="robosuite/Lift")``.
"""

from __future__ import annotations

import gymnasium

# Gymnasium's name -> our world.
SCENES: dict[str, str] = {
    "PushT-v0": "pusht_reference",
    "PushTUR5e-v0": "pusht_ur5e",
    "PickPlace-v0": "pick_place",
    "PickPlaceUR5e-v0": "pick_place_ur5e",
    "Stacking-v0": "stacking",
    "Drawer-v0": "drawer",
    "InsertionLoose-v0": "insertion_loose",
    "InsertionTight-v0": "insertion_tight",
    "PlayTable-v0": "play_table",
}
ENTRY_POINT = "sim.adapters.gymnasium.outward:WorldGym"
NAMESPACE = "robolearn"


def register() -> None:
    """Register every name once; registering again changes nothing."""
    for name, world in SCENES.items():
        _register(f"{NAMESPACE}/{name}", {"world": world})
    _register(f"{NAMESPACE}/World-v0", {})


def _register(name: str, kwargs: dict[str, str]) -> None:
    if name not in gymnasium.registry:
        # Time limits are the worlds' own, so nothing is loaded here.
        gymnasium.register(id=name, entry_point=ENTRY_POINT, kwargs=kwargs)


register()
