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
from robolearn.operations.stores.generate_options import GenerateConfig


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
class Generate:
    """Act a few demonstrations out from many new starts, keep what passes every check."""

    # Store with demonstrations.
    store: tyro.conf.Positional[Path]
    # New store; one that an earlier, killed call of the same generation made is gone on with.
    out: Path
    # Ids of the demonstrations; left out: all. Those that failed are never used.
    demonstrations: tuple[str, ...] = ()
    # World to act them out in; left out: where they were recorded.
    scene: str = ""
    # YAML file that says which skill belongs to which object; left out: what the recordings show.
    skills: Path | None = None
    # How many, and what is kept.
    config: Annotated[GenerateConfig, tyro.conf.arg(name="")] = field(
        default_factory=GenerateConfig
    )
    # Print one JSON document.
    json: bool = False


def generated(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Generate, argv, "data generate", Generate.__doc__ or "")
    from robolearn.data.upkeep.edit import Selection
    from robolearn.operations.stores.generate import generate

    with counting("generate", quiet=args.json) as show:
        made = generate(
            args.store,
            args.out,
            args.config,
            world=args.scene,
            selection=Selection(ids=args.demonstrations),
            skills=args.skills,
            on_kept=show,
        )
    if args.json:
        print_json(dataclasses.asdict(made) | {"attempts_per_kept": made.per_kept})
        return 0
    wanted = args.config.episodes
    say(f"{len(made.ids)} of {wanted} episodes ({made.new} new) are in {made.store}")
    say(f"skills: {', '.join(made.skills)}")
    say(f"attempts per kept episode: {made.per_kept:.2f} ({made.attempts} attempts)")
    for name, count in sorted(made.failed.items(), key=lambda item: -item[1]):
        last = f"; the last one: {made.why[name]}" if name in made.why else ""
        say(f"failed, {name}: {count}{last}")
    shares = list(made.used.values())
    say(f"demonstrations used: {len(shares)}, {min(shares)} to {max(shares)} episodes from each")
    for name, why in made.left_out.items():
        say(f"not used: {name}, {why}")
    if made.missing:
        say(
            f"{len(made.missing)} of {wanted} parts of the start distribution gave none in"
            f" {args.config.attempts} attempts: starts like these are missing. More"
            " demonstrations, from there, or more --attempts"
        )
    if not made.sees_touches:
        say("this world cannot say what touches: collisions were not looked for")
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
    "generate": (Generate, generated),
    "label-actions": (LabelActions, labelled),
    "denoise": (Denoise, denoised),
    "cut": (Cut, cut),
}
