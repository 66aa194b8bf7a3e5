"""Reads the demonstrations of a store as what can be acted out elsewhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.data.episode import Episode, EpisodeKind
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, SpecMismatchError
from robolearn.planar import kind_of
from robolearn.retargeting.commands import poses_of, tool_action
from robolearn.retargeting.shapes import Way
from robolearn.retargeting.skills import TABLE, Seen, SkillRule, find_skills, turning
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec, diff_task_spaces
from robolearn.types import Condition
from sim.contract import World
from sim.experts.retarget import Demonstration
from sim.perturbations.signals import is_object


@dataclass(frozen=True, slots=True)
class Commanded:
    """How a world is commanded and what of it is seen: the tool's action and signal, and every
    object's signal by name.
    """

    tool: ActionSpec
    tool_signal: SignalSpec
    objects: Mapping[str, SignalSpec]

    @staticmethod
    def of(spec: EmbodimentSpec) -> Commanded:
        """Those of an embodiment; :class:`SpecMismatchError` where it has none of either."""
        tool = tool_action(spec)
        objects = {s.name: s for s in spec.signals if is_object(s.name) and _is_place(s)}
        if not objects:
            raise SpecMismatchError(
                f"'{spec.name}' has no object's pose among its signals"
                f" {[s.name for s in spec.signals]}; demonstrations are moved along with objects:"
                " add a signal such as cube/pose of kind body_pose to scene.yaml"
            )
        part = tool.name.partition("/")[0]
        seen = [s for s in spec.signals if s.name in (f"{part}/pose", tool.name) and _is_place(s)]
        if not seen:
            raise SpecMismatchError(
                f"'{spec.name}' is commanded by {tool.name}, but where the tool is is no signal;"
                f" it needs {part}/pose or {tool.name}, it has {[s.name for s in spec.signals]}"
            )
        return Commanded(tool, seen[0], objects)


@dataclass(frozen=True, slots=True)
class Source:
    """A demonstration, and what its episode says of itself."""

    demonstration: Demonstration
    condition: Condition
    kind: EpisodeKind
    task_text: str
    operator: str


def read_demonstrations(
    store: EpisodeStore,
    ids: Sequence[str],
    env: World,
    world: str,
    near_m: float,
    rules: Sequence[SkillRule] = (),
) -> tuple[tuple[Source, ...], dict[str, str]]:
    """The demonstrations that can be acted out in ``env``, and by id why others cannot.

    Errors: :class:`SpecMismatchError` for episodes of another task, or with other signals than the
    world has.
    """
    commanded = Commanded.of(env.spec)
    left_out: dict[str, str] = {}
    found: list[tuple[Episode, Demonstration]] = []
    successes = {i.id: i.success for i in store.list()}
    for name in ids:
        episode = store.read(name)
        _require_fitting(episode, env, world)
        if not successes[name]:
            left_out[name] = "it failed"
            continue
        try:
            found.append((episode, _demonstration(episode, commanded, near_m, rules)))
        except DataError as error:
            left_out[name] = str(error)
    turns = turning([(d.seen, d.skills) for _, d in found])
    said = {r.object: r.turns for r in rules if r.turns is not None}
    sources: list[Source] = []
    for episode, demonstration in found:
        skills = tuple(
            dataclasses.replace(
                s, turns=said.get(s.object, s.object == TABLE or turns[s.object, s.held])
            )
            for s in demonstration.skills
        )
        meta = episode.meta
        sources.append(
            Source(
                dataclasses.replace(demonstration, skills=skills),
                _start(episode),
                meta.kind,
                meta.task_text,
                meta.operator,
            )
        )
    return tuple(sources), left_out


def _demonstration(
    episode: Episode, commanded: Commanded, near_m: float, rules: Sequence[SkillRule]
) -> Demonstration:
    if episode.steps < 2:
        raise DataError(f"{episode.steps} ticks; a way needs 2")
    objects = {n: _way(episode, spec) for n, spec in commanded.objects.items()}
    others = {n: np.asarray(v) for n, v in episode.action.items() if n != commanded.tool.name}
    fingers = next((v.reshape(-1).astype(np.float64) for v in others.values()), None)
    seen = Seen(_way(episode, commanded.tool_signal), objects, fingers)
    values = np.asarray(episode.action[commanded.tool.name], dtype=np.float64)
    commands = poses_of(commanded.tool, values.reshape(episode.steps, -1))
    skills = find_skills(seen, near_m, rules)
    return Demonstration(episode.id, commands, others, seen, skills)


def _require_fitting(episode: Episode, env: World, world: str) -> None:
    if episode.meta.task != env.task:
        raise SpecMismatchError(
            f"episode {episode.id} is of the task '{episode.meta.task}', '{world}' is of"
            f" '{env.task}': name the scene that it was recorded in"
        )
    recorded = episode.meta.embodiment
    names = [s.name for s in recorded.signals if not s.is_image]
    lines = diff_task_spaces(recorded.task_space(names), env.spec)
    if lines:
        raise SpecMismatchError(
            f"episode {episode.id} of '{recorded.name}' cannot be acted out in '{world}':\n"
            + "\n".join(lines)
        )


def _way(episode: Episode, spec: SignalSpec) -> Way:
    return poses_of(spec, np.asarray(episode.observed(spec.name), dtype=np.float64))


def _start(episode: Episode) -> Condition:
    """Where it began; imported ones say where things were, not where they were asked to be."""
    condition = episode.meta.condition
    if condition.poses:
        return condition
    names = [s.name for s in episode.meta.embodiment.signals if _is_place(s)]
    poses = {
        n: tuple(np.asarray(episode.observed(n)[0], dtype=np.float64).tolist())
        for n in names
        if n in episode.view
    }
    return dataclasses.replace(condition, poses=poses)


def _is_place(spec: SignalSpec) -> bool:
    return kind_of(spec) in ("pose", "xy_yaw", "xy")
