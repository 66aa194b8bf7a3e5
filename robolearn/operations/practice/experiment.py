"""Makes the experiment of a practice: what its file says, and for the rest what the parent was.

    policy: idql                 what is learned; left out: online re-ranking
    algorithm: {candidates: 8}   its settings; what the parent sees by (n_obs, relative ...) is
                                 taken from the parent where nothing is said
    data: {...}                  likewise; the reward is 1 - discount per step until success
    fit: {steps: 60000}          how many updates at most, and by what optimiser
    practice: {lanes: 16}        rounds, tests, limits

The file may be absent: then the parent's chunks are re-ranked by critics that learn from its own
episodes (``docs/practice.md``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from eval.sweep import Value, with_settings
from policies.chunks.eyes import Eyes, eyes_of
from policies.critics.continued import NETWORKS
from policies.critics.over_parent import OverParentConfig
from policies.registry import Practising, policy_config, policy_of
from robolearn.config import check_finite, from_dict, load_yaml, to_dict
from robolearn.data.episode import EpisodeKind
from robolearn.data.store.stats import RunningStats
from robolearn.errors import ConfigError
from robolearn.operations.goals import trained_goal
from robolearn.operations.practice.options import PracticeConfig
from robolearn.representation import Representation
from robolearn.training.collected.growing_data import require_growable
from robolearn.training.experiment import Experiment, experiment_of
from robolearn.training.run_directory import PARENT, Run, nested_run
from robolearn.training.run_directory import PRACTICE as SECTION
from robolearn.training.task_goal import at_goal

RERANKING = "idql"
"""What is learned where nothing else is said."""
FILTERED = "filtered_bc"
"""What imitates, and therefore takes in only what succeeded."""
DECISION_DISCOUNT = 0.98
"""Discount from one decision to the next (../reference: the setting that was measured)."""
ON_CELL: Mapping[str, Value] = {"lanes": 2, "warmup_episodes": 20, "updates_per_decision": 4.0}
"""On a cell rounds are pairs, and the arm is what is slow."""
CORRECTED: Mapping[str, Value] = {"parent_share": 0.0, "demonstrations": 0.5}
"""A person who takes over keeps practice from harm, whose time is dear: the parent does not drive
beside what is learned. Half of a batch is what people did (RLPD, HIL-SERL)."""
INHERITED = ("n_obs", "horizon", "relative", "focus", "picture", "anchor", "mirror", "octaves")
"""What an algorithm has in common with its parent, where it has it at all."""
APART: Mapping[str, tuple[str, ...]] = {"dsrl": ("mirror",)}
"""What it does not take from there: which noise makes a reflected chunk is not known."""
SEEN = (
    "observations",
    "actions",
    "latency_s",
    "normalization",
    "representation",
    "text",
)
"""How a policy sees the data, which a policy that builds on it has to see alike."""


@dataclass(frozen=True, slots=True)
class PracticeExperiment:
    """``experiment`` as training knows it; ``practice``: how it comes by its data."""

    experiment: Experiment
    practice: PracticeConfig

    def plain(self) -> dict[str, Any]:
        """As plain values, which the run directory keeps."""
        return self.experiment.plain() | {SECTION: to_dict(self.practice)}


def practice_experiment(
    parent: Run,
    config: Path | None = None,
    settings: Mapping[str, Value] | None = None,
    *,
    on_cell: bool = False,
    corrected: bool = False,
) -> PracticeExperiment:
    """What to practise on top of ``parent``: the file ``config`` with some of its values replaced
    (``{"practice.lanes": 8}``), and the parent's where they say nothing. ``on_cell``: in real time,
    where an episode is dear and computing is not; ``corrected``: a person takes over.

    Errors: :class:`ConfigError` for a file that does not fit.
    """
    raw = {} if config is None else load_yaml(config)
    raw = with_settings(_completed(parent, raw, on_cell=on_cell), settings or {})
    where = "practice" if config is None else str(config)
    usual: Mapping[str, Value] = {
        **(ON_CELL if on_cell else {}),
        **(CORRECTED if corrected else {}),
    }
    said = cast("dict[str, Any]", raw.pop(SECTION, {}))
    if cast("dict[str, Any]", raw["fit"]).get("max_minutes") is not None:
        raise ConfigError(
            f"{where}: fit.max_minutes is for training on what is there; say practice.max_minutes"
        )
    experiment = experiment_of(raw, policy_config, where)
    # Some algorithms are what they are by how they practise.
    configured = experiment.algorithm
    own: Mapping[str, Any] = configured.practice() if isinstance(configured, Practising) else {}
    practice = from_dict(PracticeConfig, {**own, **usual, **said}, f"{where}: {SECTION}")
    check_finite(practice, f"{where}: {SECTION}")
    return PracticeExperiment(experiment, practice)


def _completed(parent: Run, raw: Mapping[str, Any], *, on_cell: bool) -> dict[str, Any]:
    """``raw`` with the parent's values for what it does not say."""
    name = str(raw.get("policy", RERANKING))
    kind = policy_config(name)
    known = {f.name for f in dataclasses.fields(cast("Any", kind))}
    theirs = _section(parent, "algorithm")
    shared = (key for key in INHERITED if key in known and key not in APART.get(name, ()))
    algorithm = {key: theirs[key] for key in shared if key in theirs}
    algorithm |= {"n_obs": parent.spec.n_obs, "horizon": parent.spec.horizon}
    if "stride" in known:
        execute = parent.spec.execute
        algorithm |= {"stride": execute, "discount": DECISION_DISCOUNT ** (1.0 / execute)}
        # Its own episodes hold a decision every so many steps.
        algorithm |= {"every": execute} if "every" in known else {}
    elif "discount" in known:
        # Actor-critics act by whole chunks.
        execute = parent.spec.execute
        algorithm |= {"horizon": execute, "discount": DECISION_DISCOUNT ** (1.0 / execute)}
    if name == RERANKING:
        algorithm |= {"backup": "candidates", "backup_chunks": 3, "schedule": "constant"}
    # There what was practised is real, and the other store is simulated.
    algorithm |= {"real": 0} if on_cell and "real" in known else {}
    said = cast("dict[str, Any]", raw.get("algorithm", {}))
    continued = _continued(parent, name, said)
    algorithm |= {key: theirs[key] for key in continued if key in theirs}
    algorithm = {key: value for key, value in algorithm.items() if key in known}
    algorithm |= said
    recorded = _section(parent, "data")
    data: dict[str, Any] = {key: recorded[key] for key in SEEN if key in recorded}
    if issubclass(kind, OverParentConfig) and (eyes := _eyes(parent)) is not None:
        data |= {"observations": eyes.names}
    data |= {"kinds": ["online"]}
    if "discount" in algorithm:
        params = {"discount": algorithm["discount"]}
        data |= {"reward": {"task": "success", "params": params}}
    if continued and "reward" in recorded:
        # What its critics say is about these.
        data |= {"reward": recorded["reward"]}
    data |= {"success": True} if name == FILTERED else {}
    data |= cast("dict[str, Any]", raw.get("data", {}))
    fit: dict[str, Any] = {"steps": 1_000_000, "warmup": 0, "schedule": "constant"}
    fit |= cast("dict[str, Any]", raw.get("fit", {}))
    rest = {key: value for key, value in raw.items() if key not in ("algorithm", "data", "fit")}
    return {**rest, "policy": name, "algorithm": algorithm, "data": data, "fit": fit}


def _eyes(parent: Run) -> Eyes | None:
    """What whoever builds on a policy that tells signals from its pictures sees by, instead of the
    pictures, which it alone looks at; None for any other parent.
    """
    pictures = any(s.is_image for s in parent.spec.task_space.observations)
    return eyes_of(policy_of(parent)) if pictures else None


def _continued(parent: Run, name: str, said: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the parent's algorithm that hold for one that goes on from its networks: all of
    them where that is the same algorithm; none for one that begins anew.
    """
    if name == parent.config.get("policy"):
        return tuple(_section(parent, "algorithm"))
    fields = {f.name: f for f in dataclasses.fields(cast("Any", policy_config(name)))}
    start = said.get("start", fields["start"].default if "start" in fields else "")
    return NETWORKS if start == "parent" else ()


def _section(parent: Run, name: str) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", parent.config.get(name, {})))


def require_buildable(experiment: Experiment, parent: Run) -> None:
    """Refuse now what could not be learned after the warm-up: by building it on the parent's
    statistics, with rewards that are all 0.
    """
    require_growable(experiment.data)
    rewards = RunningStats(1)
    rewards.update(np.zeros((1, 1)))
    goal = trained_goal(parent.path)
    configured = at_goal(experiment.algorithm, lambda: () if goal is None else (goal,))
    eyes, space = _eyes(parent), parent.spec.task_space
    if eyes is not None and experiment.data.observations == eyes.names:
        space = eyes.space
    space = Representation(experiment.data.representation, space).inner
    configured.build(space, dataclasses.replace(parent.stats, reward=rewards.finish()), parent)


def recorded_kinds(parent: Run) -> tuple[EpisodeKind, ...]:
    """The kinds of episodes that the policy at the root of ``parent`` imitated."""
    return from_dict(_Kinds, {"kinds": _section(_root(parent), "data")["kinds"]}).kinds


@dataclass(frozen=True, slots=True)
class _Kinds:
    kinds: tuple[EpisodeKind, ...]


def _root(run: Run) -> Run:
    return _root(nested_run(run, PARENT)) if (run.path / PARENT).is_dir() else run
