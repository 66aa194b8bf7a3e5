"""The scene, as a folder, and a family of worlds: ``slides/late`` reacts late."""

from pathlib import Path

from sim.perturbations.env import perturbed_scene
from sim.perturbations.kinds import Perturbations
from sim.scene.load import load_scene
from sim.world_name import choose, only

SCENE = Path(__file__).parent / "slide"
DELAYS = {"prompt": 0.5, "late": 1.0}


def build(name):
    """``slides/late``: commands arrive later than in the scene."""
    only(name, ())
    thing = choose(name.family, "slide", name.thing, list(DELAYS))
    return perturbed_scene(load_scene(SCENE), Perturbations({"action_delay": DELAYS[thing]}))
