"""Measures what a share of simulated demonstrations in every batch is worth beside few real ones.

    python -m tests.benchmarks.cotraining FOLDER [SCENE ...]

gym-pusht stands for reality: a tenth of the 206 human demonstrations, dealt at random. Simulated
are episodes of the scripted expert in SCENE (``pusht_naive``, where identification starts, and
``pusht_reference``, which it should find). One recipe and as many updates for every share of a
batch that is real; all are tried from the same starts of the suite in gym-pusht. Whatever is there
is not done again; the same command goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main as command
from robolearn.config import find_config
from tests.benchmarks.practice_rows import compare
from tests.benchmarks.two_scenes import made

RECIPE = Path("configs/train/pusht_flow_demo.yaml")
REALITY = "gym_pusht"
SCENES = ("pusht_naive", "pusht_reference")
# Of every batch; 1: real demonstrations alone, 0: simulated ones alone.
SHARES = (1.0, 0.5, 0.25, 0.1, 0.0)
# Starts of the simulated episodes: those of no suite, nor of the recordings.
SEED = 20260301


@dataclass(frozen=True, slots=True)
class Size:
    """How large."""

    real_share: float = 0.1
    simulated: int = 62
    updates: int = 800
    starts: int = 100


def real_store(folder: Path, share: float) -> Path:
    """Few of the human demonstrations."""
    every = made(folder / "human", "data", "import", str(pusht_demonstrations_path()))
    parts = ("--parts", f"few={share:g}", f"rest={1 - share:g}")
    return made(folder / "dealt", "data", "split", str(every), *parts) / "few"


def simulated_store(folder: Path, scene: str, episodes: int) -> Path:
    """Episodes of the scripted expert, disturbed a little so that it shows how to recover."""
    config = folder / f"collect_{scene}.yaml"
    config.write_text(yaml.safe_dump({"world": scene, "seed": SEED, "max_steps": 300}))
    how = ("--agent", "scripted", "--noise", "0.2", "--episodes", str(episodes), "--yes")
    return made(folder / f"{scene}_store", "collect", "--config", str(config), *how)


def trained(
    folder: Path, real: Path, scene: str, simulated: Path, share: float, size: Size
) -> Path:
    """The policy of one share."""
    name = "real_alone" if share == 1.0 else f"{scene}_real_{share:g}"
    raw = yaml.safe_load(find_config(RECIPE).read_text(encoding="utf-8"))
    parts = [
        {"path": str(real), "kinds": ["demonstration"], "weight": share},
        {"path": str(simulated), "kinds": ["scripted"], "success": True, "weight": 1.0 - share},
    ]
    raw["data"]["stores"] = [part for part in parts if part["weight"] > 0.0]
    raw["fit"] |= {"steps": size.updates, "max_minutes": None}
    recipe = folder / f"{name}.yaml"
    recipe.write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")
    out = folder / name
    if command(["train", "--config", str(recipe), "--out", str(out), "--resume"]):
        raise RuntimeError(f"training {name} failed")
    return out


def main(folder: Path, scenes: Sequence[str] = SCENES, size: Size = Size()) -> None:
    """Collect, train, try, print."""
    folder.mkdir(parents=True, exist_ok=True)
    real = real_store(folder, size.real_share)
    for scene in scenes:
        simulated = simulated_store(folder, scene, size.simulated)
        runs = [trained(folder, real, scene, simulated, share, size) for share in SHARES]
        print(f"-- simulated in {scene}", flush=True)
        compare(folder, runs[0], runs[1:], size.starts, REALITY)


if __name__ == "__main__":
    _folder, *_scenes = sys.argv[1:]
    main(Path(_folder), _scenes or SCENES)
