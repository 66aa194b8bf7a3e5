"""Builds across process boundaries: small picklable values that import late.

``eval`` and the workers receive these instead of envs and policies; only this package knows which
modules stand behind a name.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robolearn.agents.execution import Execution, GuidanceName, Runtime
from robolearn.contracts import Agent, Env, Policy
from robolearn.errors import ConfigError, did_you_mean
from robolearn.spec import EmbodimentSpec

SERVER_VARIABLE = "ROBOLEARN_TOKEN"
"""The environment variable with the token of a policy server."""


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
    """Builds the world ``world``: a packaged scene, a scene folder, or an adapter's name.

    Make it with :func:`env_builder`, which turns a scene folder into an absolute path (a worker
    may have another working directory) and says what exists when a name is wrong.
    """

    world: str

    def __call__(self) -> Env:
        """Import the simulator and build the env."""
        from robolearn.operations.reality.worlds import make_world

        return make_world(self.world)

    def info(self) -> WorldInfo:
        """Describe the world (builds it once)."""
        from robolearn.operations.reality.worlds import make_world

        env = make_world(self.world)
        try:
            return WorldInfo(
                name=env.spec.name,
                hash=env.scene_hash,
                engine=env.engine,
                task=env.task,
                max_steps=env.max_steps,
            )
        finally:
            env.close()


def env_builder(world: str) -> EnvBuilder:
    """An :class:`EnvBuilder` for a world that exists, with pictures (``gym_pusht,camera=top``,
    ``docs/rendering.md``) or perturbed (``pusht_reference~mass=1``, ``docs/perturbations.md``) or
    neither; else :class:`ConfigError` with the choice.
    """
    from robolearn.operations.reality.worlds import is_scene, world_names
    from sim.world_name import WorldName

    names, parsed = world_names(), WorldName.parse(world)
    if parsed.base in names or not is_scene(parsed):
        return EnvBuilder(world)
    folder = Path(parsed.base).expanduser()
    if (folder / "scene.yaml").is_file():
        return EnvBuilder(str(dataclasses.replace(parsed, base=str(folder.resolve()))))
    raise ConfigError(
        f"no world '{parsed.base}'.{did_you_mean(parsed.base, names)} Worlds: {names};"
        " or give a folder with scene.yaml"
    )


@dataclass(frozen=True, slots=True)
class PolicyBuilder:
    """Loads the policy of a run directory, with ``threads`` torch threads in this process."""

    run_dir: Path
    threads: int = 1
    runtime: Runtime = "torch"
    guidance: GuidanceName = "auto"
    accept_edited: bool = False

    def __call__(self) -> Policy:
        """Import torch and the algorithm, and load the (averaged) weights; or, with ``onnx``, the
        run's graph, which is made first if it is missing or of another policy.
        """
        from policies.registry import load_policy

        accept = self.accept_edited
        if self.runtime == "torch":
            return load_policy(self.run_dir, self.threads, self.guidance, accept_edited=accept)
        from robolearn.inference.onnx import GRAPH, OnnxPolicy, export_onnx
        from robolearn.training.run_directory import checked_hash

        path, wanted = self.run_dir / GRAPH, checked_hash(self.run_dir, accept_edited=accept)
        if path.is_file():
            graph = OnnxPolicy.load(path, self.threads)
            if graph.policy_hash == wanted:
                return graph
        policy = load_policy(self.run_dir, self.threads, accept_edited=accept)
        export_onnx(policy, path, wanted)
        return OnnxPolicy.load(path, self.threads)


@dataclass(frozen=True, slots=True)
class ServerBuilder:
    """Connects to a policy on a server, which must still be the one of ``policy_hash``; the token
    is read from the environment where it is built.
    """

    url: str
    policy_hash: str

    def __call__(self) -> Policy:
        """The policy, as one that answers when asked."""
        from robolearn.inference.served import ServedPolicy

        return ServedPolicy(self.url, os.environ.get(SERVER_VARIABLE, ""), self.policy_hash)


def is_server(run: str | Path) -> bool:
    """Whether a policy is named by the address of a server."""
    # A path has lost one of the slashes.
    return str(run).startswith(("ws:/", "wss:/"))


@dataclass(frozen=True, slots=True)
class ExpertBuilder:
    """Builds the scripted expert of a task."""

    task: str
    noise: float = 0.0
    # Parameters of the task, Push-T's goal.
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, spec: EmbodimentSpec) -> Agent:
        """The agent for this embodiment."""
        from sim.experts.registry import build_expert

        return build_expert(self.task, spec, self.noise, self.params)


@dataclass(frozen=True, slots=True)
class ClipWriter:
    """Writes the clip of one episode, small enough that a page of them can be mailed."""

    def __call__(self, path: Path, frames: Sequence[Any], fps: float) -> None:
        """Write one mp4."""
        from sim.rendering.video import write_mp4

        write_mp4(path, frames, fps, crf=27)


_SUFFIXES: dict[Runtime, str] = {"torch": "", "onnx": "-onnx"}


def executed_as(
    name: str,
    digest: str,
    *,
    execution: Execution,
    runtime: Runtime = "torch",
    guidance: GuidanceName = "auto",
    delay_ticks: int = 0,
    aside: str = "",
) -> tuple[str, str]:
    """Name and hash of a policy in trials: whatever changes them beside the policy is in both, so
    that a simulated and a real trial of one policy have the same. ``aside``: what is done otherwise
    than the suite says (:func:`robolearn.operations.suites.aside`).
    """
    # The two round differently, and trials of one do not count for the other.
    suffix = _SUFFIXES[runtime]
    way = "" if guidance == "auto" else f"guidance={guidance}"
    delay = f"delay={delay_ticks}" if delay_ticks else ""
    how = ",".join(part for part in (execution.label, way, delay, aside) if part)
    return (f"{name}+{how}", f"{digest}{suffix}+{how}") if how else (name, digest + suffix)


def run_hash_of(policy_hash: str) -> str:
    """The run's own hash in that of a policy as trials have it: what :func:`executed_as` put behind
    it, left out. A version of a practice (``HASH-3``) has a hash of its own.
    """
    return policy_hash.partition("+")[0].removesuffix(_SUFFIXES["onnx"])


def policy_labels(runs: Sequence[str | Path]) -> tuple[str, ...]:
    """What run directories are called in results: the folder's name, with the one around it where
    several have the same; "" for a server, which says itself what its policy is called.
    """
    folders = [None if is_server(run) else Path(run).resolve() for run in runs]
    names = [f.name for f in folders if f is not None]
    return tuple(
        "" if f is None else f.name if names.count(f.name) == 1 else f"{f.parent.name}-{f.name}"
        for f in folders
    )


def require_continued(guidance: GuidanceName, realtime: bool) -> None:
    """:class:`ConfigError` if a way to continue plans is given where none is continued."""
    if guidance != "auto" and not realtime:
        raise ConfigError(
            f"guidance {guidance} is a way to continue the plan: it goes with real-time"
            " chunking and the runtime torch, and without an ensemble"
        )


def expert_noise(run: str) -> float | None:
    """The dial in ``scripted`` or ``scripted:NOISE``; None for anything else (a run directory)."""
    name, _, noise = run.partition(":")
    if name != "scripted":
        return None
    try:
        return float(noise or 0.0)
    except ValueError as error:
        raise ConfigError(f"expected 'scripted' or 'scripted:NOISE', got '{run}'") from error


def policy_builder(
    run_dir: Path,
    threads: int = 1,
    runtime: Runtime = "torch",
    guidance: GuidanceName = "auto",
    *,
    accept_edited: bool = False,
) -> PolicyBuilder:
    """A :class:`PolicyBuilder` with an absolute path, checked to exist."""
    folder = run_dir.expanduser().absolute()
    if not folder.is_dir():
        near = sorted(p.name for p in folder.parent.glob("*/")) if folder.parent.is_dir() else []
        raise ConfigError(
            f"no run directory '{run_dir}'.{did_you_mean(folder.name, near)}"
            f" {folder.parent}/ has: {near}"
        )
    return PolicyBuilder(folder, threads, runtime, guidance, accept_edited)
