"""Builders that cross process boundaries: small picklable values that import late.

``eval`` and the workers receive these instead of envs and policies; only this package knows which
modules stand behind a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robolearn.contracts import Env, Policy
from robolearn.errors import ConfigError, MissingDependencyError, did_you_mean

GYM_PUSHT = "gym_pusht"


@dataclass(frozen=True, slots=True)
class WorldInfo:
    """What results say about a world: its name, a hash of everything that defines it, its engine,
    the task, and the time limit of the task's protocol in control steps.
    """

    name: str
    hash: str
    engine: str
    task: str
    max_steps: int


@dataclass(frozen=True, slots=True)
class EnvBuilder:
    """Builds the world ``world``: a packaged scene, a scene folder, or ``gym_pusht``.

    A scene folder is given by its absolute path, so that a worker with another working directory
    finds it; use :func:`env_builder`, which also says what exists when a name is wrong.
    """

    world: str
    render: bool = False

    def __call__(self) -> Env:
        """Import the simulator and build the env."""
        if self.world == GYM_PUSHT:
            from sim.adapters.pusht import GymPushTEnv

            return GymPushTEnv()
        from sim.scene import load_scene
        from sim.scene_env import SceneEnv

        return SceneEnv(load_scene(self.world), render=self.render)

    def info(self) -> WorldInfo:
        """Describe the world without running it."""
        if self.world == GYM_PUSHT:
            return _gym_pusht_info()
        import mujoco

        from sim.scene import load_scene

        scene = load_scene(self.world)
        return WorldInfo(
            name=scene.name,
            hash=scene.content_hash,
            engine=f"mujoco {mujoco.__version__}",
            task=scene.config.task.name,
            max_steps=_task_steps(scene.config.task.name),
        )


def env_builder(world: str, *, render: bool = False) -> EnvBuilder:
    """An :class:`EnvBuilder` for a world that exists; else :class:`ConfigError` with the choice."""
    if world == GYM_PUSHT:
        return EnvBuilder(world, render)
    from sim.scene import packaged_scenes

    packaged = packaged_scenes()
    if world in packaged:
        return EnvBuilder(world, render)
    folder = Path(world)
    if (folder / "scene.yaml").is_file():
        return EnvBuilder(str(folder.resolve()), render)
    names = [*packaged, GYM_PUSHT]
    raise ConfigError(
        f"no world '{world}'.{did_you_mean(world, names)} Worlds: {names};"
        " or give a folder with scene.yaml"
    )


@dataclass(frozen=True, slots=True)
class PolicyBuilder:
    """Loads the policy of a run directory, with ``threads`` torch threads in this process."""

    run_dir: Path
    threads: int = 1

    def __call__(self) -> Policy:
        """Import torch and the algorithm, and load the (averaged) weights."""
        import torch

        from policies.registry import load_policy

        torch.set_num_threads(self.threads)
        return load_policy(self.run_dir)


def policy_builder(run_dir: Path, threads: int = 1) -> PolicyBuilder:
    """A :class:`PolicyBuilder` with an absolute path, checked to exist."""
    folder = run_dir.expanduser().absolute()
    if not folder.is_dir():
        near = sorted(p.name for p in folder.parent.glob("*/")) if folder.parent.is_dir() else []
        raise ConfigError(
            f"no run directory '{run_dir}'.{did_you_mean(folder.name, near)}"
            f" {folder.parent}/ has: {near}"
        )
    return PolicyBuilder(folder, threads)


def _task_steps(task: str) -> int:
    from robolearn import pusht

    steps = {"pusht": pusht.MAX_STEPS}
    if task not in steps:
        raise ConfigError(f"no time limit known for task '{task}'; known: {sorted(steps)}")
    return steps[task]


def _gym_pusht_info() -> WorldInfo:
    from importlib.metadata import PackageNotFoundError, version

    from robolearn import pusht

    try:
        engine = f"pymunk {version('pymunk')}, gym-pusht {version('gym-pusht')}"
    except PackageNotFoundError as error:
        raise MissingDependencyError(f"{error.name} is not installed; run 'make setup'") from error
    return WorldInfo(GYM_PUSHT, engine, engine, "pusht", pusht.MAX_STEPS)
