"""``robolearn scene check|view SCENE``: validate and draw scene packages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robolearn.cli.common import parse, print_json, say
from robolearn.cli.outputs import output_file
from robolearn.errors import ConfigError, did_you_mean


@dataclass(frozen=True, slots=True)
class Check:
    """Validate a scene package and run it for a second."""

    # Packaged scene, or a scene folder.
    scene: Annotated[str, tyro.conf.Positional]
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Draw a scene from above at a start drawn from its reset distribution."""

    # Packaged scene, scene folder, or gym_pusht.
    scene: Annotated[str, tyro.conf.Positional]
    # Picture to write.
    out: Path = Path("scene.png")
    width: int = 512
    height: int = 512
    # Chooses the start.
    seed: int = 0
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class List:
    """Name the worlds that come with the project."""

    # Print one JSON document and nothing else.
    json: bool = False


def usage() -> str:
    """The help page of the group."""
    lines = [f"  {name:<8}{kind.__doc__}" for name, (kind, _) in VERBS.items()]
    return (
        "usage: robolearn scene VERB ...\n\nScene packages.\n\nverbs:\n"
        + "\n".join(lines)
        + "\n\n'robolearn scene VERB --help' explains a verb.\n"
    )


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if argv[0] not in VERBS:
        raise ConfigError(
            f"no verb '{argv[0]}'.{did_you_mean(argv[0], VERBS)} Verbs: {', '.join(VERBS)}"
        )
    return VERBS[argv[0]][1](argv[1:])


def _check(argv: list[str]) -> int:
    args = parse(Check, argv, "scene check", Check.__doc__ or "")
    import numpy as np

    from robolearn.actions import hold_action
    from robolearn.types import Command as Step
    from sim.scene import load_scene
    from sim.scene_env import SceneEnv

    scene = load_scene(args.scene)
    env = SceneEnv(scene)
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    for seq in range(round(scene.config.rate_hz)):
        action = hold_action(env.spec.actions, env.observe())
        env.apply(Step(seq=seq, action=action, due_ns=env.now_ns(), source="check"))
        env.advance()
    reason = env.outcome().reason
    env.close()
    if reason == "physics_diverged":
        raise ConfigError(f"{args.scene}: the physics diverges within a second of holding still")
    config = scene.config
    if args.json:
        print_json(
            {
                "scene": scene.name,
                "hash": scene.content_hash,
                "path": str(scene.path),
                "robot": config.robot.name,
                "task": config.task.name,
                "signals": [s.name for s in config.signals],
                "actions": [a.name for a in config.actions],
                "provenance": config.provenance.kind,
            }
        )
        return 0
    say(f"{scene.name}: valid ({scene.content_hash}, {config.provenance.kind})")
    say(f"  robot {config.robot.name}; task {config.task.name}; {config.rate_hz:g} Hz")
    say(f"  signals: {', '.join(s.name for s in config.signals)}")
    say(f"  actions: {', '.join(a.name for a in config.actions)}")
    return 0


def _view(argv: list[str]) -> int:
    args = parse(View, argv, "scene view", View.__doc__ or "")
    import cv2
    import numpy as np

    from sim.worlds import make_world

    output_file(args.out, "--out", (".png", ".jpg"))
    env = make_world(args.scene)
    try:
        env.reset(env.sample_condition(args.seed), np.random.default_rng(args.seed))
        image = env.render(args.width, args.height)
    finally:
        env.close()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(args.out), np.ascontiguousarray(image[..., ::-1])):
        raise ConfigError(f"cannot write '{args.out}': check its permissions and the free space")
    if args.json:
        print_json({"scene": args.scene, "picture": str(args.out)})
    else:
        say(str(args.out))
    return 0


def _list(argv: list[str]) -> int:
    args = parse(List, argv, "scene ls", List.__doc__ or "")
    from sim.worlds import world_names

    if args.json:
        print_json({"worlds": world_names()})
    else:
        for name in world_names():
            say(name)
    return 0


VERBS: dict[str, tuple[type[Any], Callable[[list[str]], int]]] = {
    "check": (Check, _check),
    "view": (View, _view),
    "ls": (List, _list),
}
