"""``robolearn data`` writes new stores whose episodes were computed from others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from policies.data_models.options import DenoiserConfig, InverseDynamicsConfig
from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.data.upkeep.pieces import CutConfig
from robolearn.operations.stores.augment_options import AugmentConfig


@dataclass(frozen=True)
class Augment:
    """Write moved copies of episodes into a new store, each checked by replay in its world."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # New store, of the moved copies alone.
    out: Path
    # Ids to move; left out: all.
    episodes: tuple[str, ...] = ()
    # Outcome, as annotated or else as recorded.
    outcome: Literal["success", "failure"] | None = None
    # World to replay in; left out: where the episodes were recorded.
    scene: str = ""
    # How they are moved, and when a replay counts.
    config: Annotated[AugmentConfig, tyro.conf.arg(name="")] = field(default_factory=AugmentConfig)
    # Print one JSON document.
    json: bool = False


def augmented(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Augment, argv, "data augment", Augment.__doc__ or "")
    from robolearn.data.upkeep.edit import Selection
    from robolearn.operations.stores.augment import augment

    selection = Selection(
        ids=args.episodes, success=None if args.outcome is None else args.outcome == "success"
    )
    with counting("augment", quiet=args.json) as show:
        made = augment(
            args.store,
            args.out,
            args.config,
            world=args.scene,
            selection=selection,
            on_replayed=show,
        )
    if args.json:
        document = dataclasses.asdict(made) | {"dropped": dict(made.dropped)}
        print_json(document)
        return 0
    say(f"{len(made.ids)} of {len(made.replays)} moved episodes are in {made.store}")
    for reason, count in made.dropped.items():
        say(f"dropped, {_REASONS[reason]}: {count}")
    return 0


@dataclass(frozen=True)
class LabelActions:
    """Write episodes anew with actions that are inferred from what is seen before and after."""

    # Store whose episodes lack actions; those that it may have are not looked at.
    store: tyro.conf.Positional[Path]
    # Store with episodes whose actions are known.
    labelled: Path
    # New store.
    out: Path
    # Signals that actions are inferred from; left out: all that both stores have, pictures aside.
    observations: tuple[str, ...] = ()
    # The model.
    config: Annotated[InverseDynamicsConfig, tyro.conf.arg(name="")] = field(
        default_factory=InverseDynamicsConfig
    )
    # Print one JSON document.
    json: bool = False


def labelled(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(LabelActions, argv, "data label-actions", LabelActions.__doc__ or "")
    from robolearn.operations.stores.label_actions import label_actions

    with counting("label", quiet=args.json) as show:
        made = label_actions(
            args.store,
            args.labelled,
            args.out,
            args.config,
            observations=args.observations,
            on_labelled=show,
        )
    if args.json:
        print_json(dataclasses.asdict(made))
        return 0
    say(
        f"{made.episodes} episodes with inferred actions in {made.store}; learned from"
        f" {made.learned_from}, measured on {made.held_out}"
    )
    for name, error in made.error.items():
        say(f"error of {name}: {error:.3f} of its spread")
    say(f"disagreement of the members: {made.disagreement:.3f}")
    return 0


@dataclass(frozen=True)
class Denoise:
    """Write episodes anew, rows that went wrong replaced by what a small diffusion says of them."""

    # Store to read, which the diffusion is trained on.
    store: tyro.conf.Positional[Path]
    # New store.
    out: Path
    # Signals to look at, besides actions and reward; left out: all but pictures.
    observations: tuple[str, ...] = ()
    # The diffusion, and when a row counts as wrong.
    config: Annotated[DenoiserConfig, tyro.conf.arg(name="")] = field(
        default_factory=DenoiserConfig
    )
    # Print one JSON document.
    json: bool = False


def denoised(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Denoise, argv, "data denoise", Denoise.__doc__ or "")
    from robolearn.operations.stores.denoise import denoise

    with counting("denoise", quiet=args.json) as show:
        made = denoise(
            args.store,
            args.out,
            args.config,
            observations=args.observations,
            on_denoised=show,
        )
    if args.json:
        print_json(dataclasses.asdict(made))
        return 0
    say(f"{made.episodes} episodes in {made.store}")
    for name, count in made.replaced.items():
        say(f"{name}: {count} of {made.rows} rows replaced ({100 * count / made.rows:.1f} %)")
    return 0


@dataclass(frozen=True)
class Cut:
    """Cut long recordings into episodes: at markers, after the gripper let go, or at pauses."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # New store, of the pieces.
    out: Path
    # Ids of the recordings; left out: all.
    episodes: tuple[str, ...] = ()
    # Where they are cut, and which pieces are kept.
    config: Annotated[CutConfig, tyro.conf.arg(name="")] = field(default_factory=CutConfig)
    # Print one JSON document.
    json: bool = False


def cut(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Cut, argv, "data cut", Cut.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep.cut import cut_store
    from robolearn.data.upkeep.edit import Selection, select

    source = EpisodeStore.open(args.store)
    ids = select(source, Selection(ids=args.episodes)) if args.episodes else ()
    with counting("cut", quiet=args.json) as show:
        made = cut_store(source, args.out, args.config, ids, show)
    if args.json:
        print_json(dataclasses.asdict(made) | {"pieces": dict(made.pieces)})
        return 0
    for name, pieces in made.pieces.items():
        say(f"{name}: {len(pieces)} pieces{f', {pieces[0]} to {pieces[-1]}' if pieces else ''}")
    total = sum(map(len, made.pieces.values()))
    say(f"{total} episodes in {made.store}; {made.too_short} pieces were too short")
    return 0


_REASONS = {
    "refused": "the world refuses the start or the commands",
    "outcome": "another outcome than the recording's",
    "apart": "the object ends elsewhere",
}

DERIVE_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {
    "augment": (Augment, augmented),
    "label-actions": (LabelActions, labelled),
    "denoise": (Denoise, denoised),
    "cut": (Cut, cut),
}
