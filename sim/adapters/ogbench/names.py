"""Lists what the family ``ogbench`` has, without importing it."""

WORLDS = (
    "cube-single",
    "cube-double",
    "cube-triple",
    "cube-quadruple",
    "scene",
    "puzzle-3x3",
    "puzzle-4x4",
    "puzzle-4x5",
    "puzzle-4x6",
)
MODES = ("task", "play")
