"""The unattended operators of tasks: what ``robolearn collect --agent scripted`` does.

For Push-T: the recorded human actions, from their recorded starts. Such an episode is of kind
``scripted`` and says which demonstration it replays; it never enters training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from robolearn.agents import ReplayAgent
from robolearn.errors import ConfigError, did_you_mean
from robolearn.spec import EmbodimentSpec, diff_task_spaces
from robolearn.types import Condition

BUNDLED = "bundled"


@dataclass(frozen=True, slots=True)
class ScriptedEpisode:
    """One unattended episode: where it starts, who acts, and for how many ticks."""

    condition: Condition
    agent: ReplayAgent
    steps: int
    provenance: Mapping[str, Any]


@runtime_checkable
class ScriptedOperator(Protocol):
    """Knows unattended episodes of one task by number; numbers beyond the last start over."""

    def __len__(self) -> int:
        """How many different episodes there are."""
        ...

    def episode(self, number: int) -> ScriptedEpisode:
        """The episode with this number."""
        ...


class PushTReplay:
    """The human demonstrations of Push-T, replayed open loop in another world."""

    def __init__(self, source: Path, embodiment: EmbodimentSpec) -> None:
        from robolearn.data.importers.diffusion_policy import open_replay
        from robolearn.data.importers.pusht import is_pusht, pusht_embodiment

        self._data = open_replay(source)
        if not is_pusht(self._data.low_dim):
            raise ConfigError(
                f"{source} is not a Push-T recording: expected state [N, 5] and action [N, 2],"
                f" found { {k: v.shape for k, v in self._data.low_dim.items()} }"
            )
        human = pusht_embodiment()
        space = human.task_space([], [a.name for a in human.actions])
        lines = diff_task_spaces(space, embodiment)
        if lines:
            raise ConfigError(
                f"the recorded actions do not fit '{embodiment.name}':\n" + "\n".join(lines)
            )
        self._actions = embodiment.task_space([], [a.name for a in human.actions]).actions

    def __len__(self) -> int:
        """Number of demonstrations."""
        return len(self._data.ends)

    def episode(self, number: int) -> ScriptedEpisode:
        """Demonstration ``number % len(self)``: its start and its actions."""
        from robolearn.data.importers.pusht import pusht_episode

        index = number % len(self)
        start, end = int(self._data.starts[index]), int(self._data.ends[index])
        rows = {k: v[start:end] for k, v in self._data.low_dim.items() if k in ("state", "action")}
        human = pusht_episode(rows, index, {})
        agent = ReplayAgent(
            human.action, self._actions, name="scripted:pusht-human", source="scripted"
        )
        provenance = {
            "operator": "replay of recorded human actions, open loop",
            "source": self._data.path.name,
            "source_episode": index,
            "round": number // len(self),
        }
        return ScriptedEpisode(human.meta.condition, agent, human.steps, provenance)


def scripted_operator(
    task: str, demonstrations: str, embodiment: EmbodimentSpec
) -> ScriptedOperator:
    """The unattended operator of ``task``; ``demonstrations`` is ``bundled`` or a path."""
    operators = {"pusht": PushTReplay}
    if task not in operators:
        raise ConfigError(
            f"no scripted operator for task '{task}'.{did_you_mean(task, operators)}"
            f" Tasks with one: {sorted(operators)}; use --agent browser or keyboard"
        )
    if demonstrations == BUNDLED:
        from robolearn.assets import pusht_demonstrations_path

        return operators[task](pusht_demonstrations_path(), embodiment)
    return operators[task](Path(demonstrations).expanduser(), embodiment)
