"""Takes the networks of a finished run of actor and critic as those that training begins with.

A run directory's weights are the actor's alone; critics and their targets are in its ``state/``,
which copies of a run leave out. Of the same algorithm everything is taken, of another one the
critics, the targets and the actor, where those are the same networks or the actor can
:class:`Adopting` the other's. What optimisers remember is not taken: the data change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from policies.critics.parent import differing_keys, inner_policy
from policies.registry import policy_config
from robolearn.config import from_dict
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.learning import Algorithm, AnyTensor, Weights
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_state, load_weights

NETWORKS = (
    "n_obs",
    "horizon",
    "normalization",
    "observation_scaling",
    "discount",
    "members",
    "width",
    "depth",
    "clip",
    "relative",
    "focus",
    "picture",
    "anchor",
    "goals",
    "bisimulation",
)
"""Keys that decide what the networks are, see, and mean."""
ALGORITHM, ACTOR = "algorithm/", "actor."
SHARED = ("critic.", "target.", ACTOR)
ALONG = ("log_entropy_weight",)
"""Taken where both have it."""


@runtime_checkable
class Adopting(Protocol):
    """An actor that can begin as one of another kind."""

    def adopted(self, weights: Weights) -> Weights | None:
        """Its own weights from those of the other actor; None: of a kind it knows nothing of."""
        ...


def continue_from(
    built: Algorithm, config: object, parent: Run, space: TaskSpace, stats: DatasetStats
) -> None:
    """Give ``built``, which ``config`` describes, the networks of ``parent``.

    Errors: :class:`ConfigError` for a parent without actor and critic, or with other networks;
    :class:`SpecMismatchError` where it sees, does or scales something else;
    :class:`CheckpointError` where its critics were not kept.
    """
    name = str(parent.config.get("policy"))
    if inner_policy(parent).spec.task_space != space:
        raise SpecMismatchError(
            f"the run '{parent.path}' reads and writes another task space than the data: {space}"
        )
    refuse_other_networks(config, name, parent)
    if (stats.observations, stats.actions) != (parent.stats.observations, parent.stats.actions):
        raise SpecMismatchError(
            f"the networks of '{parent.path}' see and act by the statistics of its own data; go on"
            " with 'robolearn finetune', which keeps them, or train on the same data"
        )
    found = load_state(parent.path)
    if found is None:
        raise CheckpointError(
            f"'{parent.path}' keeps no state/, where its critics are: name the run directory that"
            " training wrote, not a copy of it"
        )
    weights = {k.removeprefix(ALGORITHM): v for k, v in found[1].items() if k.startswith(ALGORITHM)}
    own = built.state_dict()
    if own.keys() == weights.keys() and name == getattr(built, "name", None):
        load_weights(built, weights, f"{parent.path}/state")
        return
    taken = {k: v for k, v in weights.items() if k in own and k.startswith(SHARED[:2])}
    taken |= {k: weights[k] for k in ALONG if k in own and k in weights}
    taken |= _actor(built, own, weights, name, parent)
    lacking = [k for k in own if k.startswith(SHARED) and k not in taken]
    if lacking:
        raise ConfigError(
            f"the run '{parent.path}' ('{name}') has no {lacking[0]} to begin with; go on by its"
            f" own algorithm, policy: {name}"
        )
    load_weights(built, {**own, **taken}, f"{parent.path}/state")


def refuse_other_networks(config: object, name: str, parent: Run) -> None:
    """:class:`ConfigError` where keys differ that networks depend on."""
    raw = parent.config["algorithm"]
    theirs: Any = from_dict(policy_config(name), raw, f"{parent.path}/config.yaml")
    known = {f.name for f in dataclasses.fields(theirs)}
    if not {*NETWORKS} <= known:
        raise ConfigError(
            f"the run '{parent.path}' ('{name}') has no actor and critic to begin with; take one"
            " of an actor-critic (cql, iql, rebrac, td3_bc, awac ...), or begin from scratch"
        )
    if differing := differing_keys(theirs, config, NETWORKS):
        raise ConfigError(
            f"the networks of '{parent.path}' ('{name}') do not fit: {'; '.join(differing)}; set"
            " these keys of algorithm to what they are there"
        )


def _actor(
    built: Algorithm, own: Weights, weights: Weights, name: str, parent: Run
) -> Mapping[str, AnyTensor]:
    """The weights of the actor, by their names in ``built``."""
    theirs = {k.removeprefix(ACTOR): v for k, v in weights.items() if k.startswith(ACTOR)}
    wanted = {k.removeprefix(ACTOR): v.shape for k, v in own.items() if k.startswith(ACTOR)}
    actor = getattr(built, "actor", None)
    if {k: v.shape for k, v in theirs.items()} != wanted:
        other = actor.adopted(theirs) if isinstance(actor, Adopting) else None
        if other is None:
            raise ConfigError(
                f"the actor of '{parent.path}' ('{name}') is of another kind than that of"
                f" {getattr(built, 'name', 'this one')}; go on by its own algorithm,"
                f" policy: {name}"
            )
        theirs = dict(other)
    return {f"{ACTOR}{k}": v for k, v in theirs.items()}
