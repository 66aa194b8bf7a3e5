"""``robolearn scene`` makes, validates, draws, judges and corrects scene packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import finite, parse, print_json, say
from robolearn.cli.shared.verbs import run_verb


@dataclass(frozen=True, slots=True)
class Check:
    """Validate a scene package: references, bodies, cameras, starts, a second of rest."""

    # Packaged scene, or a scene folder.
    scene: Annotated[str, tyro.conf.Positional]
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class New:
    """Make a scene package of your own arm, from its URDF or MJCF."""

    # URDF or MJCF; meshes are copied into the package.
    arm: Path
    # Folder of the package; one that this wrote before is replaced.
    out: Path
    # Body or site at the tool. Default: one with a usual name, such as tool0.
    tool: str = ""
    # Where starts begin, an angle per joint [rad]. Default: found over the table.
    home: tuple[float, ...] = ()
    # What commands it: arm/joint_position or tool/pose.
    action: str = "arm/joint_position"
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """Draw a scene at a start drawn from its reset distribution: from above, or by a camera."""

    # Packaged scene, scene folder, or gym_pusht.
    scene: Annotated[str, tyro.conf.Positional]
    # Picture to write; with --camera all, NAME becomes NAME-CAMERA.
    out: Path = Path("scene.png")
    # Camera of the scene, or 'all'.
    camera: str = "top"
    width: int = 512
    height: int = 512
    # Chooses the start.
    seed: int = 0
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class Overlay:
    """Lay the start that is wanted over a camera's picture, so that things can be placed so."""

    # Picture of the cell's camera (.png, .jpg).
    photo: Annotated[Path, tyro.conf.Positional]
    # Scene whose camera stands where the real one does.
    scene: str
    # Camera of the scene.
    camera: str
    # Where the starts come from.
    suite: Path
    # Id of the start.
    condition: str
    # Picture to write.
    out: Path = Path("start.png")
    # How much of the scene is seen: 0 its outlines alone, 1 nothing else.
    opacity: float = 0.5


@dataclass(frozen=True, slots=True)
class Verify:
    """Hold a reconstructed scene against pictures of the table: use, use with care, or refuse."""

    # Scene folder that 'robolearn reconstruct' wrote.
    scene: Annotated[str, tyro.conf.Positional]
    # Capture folder: the one it was made from (pictures that were kept back count), or a later one.
    capture: Path
    # Page with photographs beside the scene.
    out: Path = Path("verified.html")
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class ByHand:
    """Write what you know better than a scene into it: a thing's pose, mass or friction."""

    # Scene folder.
    scene: Annotated[Path, tyro.conf.Positional]
    # Body of the scene.
    body: Annotated[str, tyro.conf.Positional]
    # x y z [m] and a quaternion w x y z, in the table's frame.
    pose: tuple[float, float, float, float, float, float, float] | None = None
    # [kg].
    mass_kg: float | None = None
    # Sliding friction of its contacts, whatever it lies on.
    friction: float | None = None
    # Take back all that was written of it by hand.
    clear: bool = False
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class Drift:
    """Find what moved since a scene was made, a camera or the table, and record it in the scene."""

    # Scene folder of your cell.
    scene: Annotated[Path, tyro.conf.Positional]
    # Today's photographs of the scene's cameras, CAMERA=FILE each.
    photo: tuple[str, ...] = ()
    # A later capture of the table, its poses in the same frame.
    capture: Path | None = None
    # Where the arm's tool touched a known point, x y z in the table's frame [m].
    touched: tuple[float, float, float] | None = None
    # Where the scene has that point [m]; default: the lower left corner of the capture's board.
    expected: tuple[float, float, float] | None = None
    # How well the touched point is known [mm].
    touch_mm: float = 1.0
    # What may be off before it counts as moved [mm].
    tolerance_mm: float = 3.0
    # What may be turned before it counts as moved [degrees].
    tolerance_deg: float = 0.5
    # Print one JSON document and nothing else.
    json: bool = False


@dataclass(frozen=True, slots=True)
class List:
    """Name the worlds that come with the project."""

    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run one verb; returns the exit code."""
    return run_verb("scene", "Scene packages.", VERBS, argv)


def _check(argv: list[str]) -> int:
    args = parse(Check, argv, "scene check", Check.__doc__ or "")
    import dataclasses

    from sim.env.scene_check import check_scene
    from sim.scene.load import load_scene

    report = check_scene(load_scene(args.scene))
    if args.json:
        plain = dataclasses.asdict(report)
        print_json({**plain, "hash": report.content_hash})
        return 0
    say(f"{report.scene}: valid")
    rows = [
        ("package", f"{report.path}, {report.provenance}, hash {report.content_hash}"),
        ("schema, engine", f"{report.schema}, {report.engine}"),
        ("robot, task", f"{report.robot}, {report.task}, {report.rate_hz:g} Hz"),
        ("signals", ", ".join(report.signals)),
        ("actions", ", ".join(report.actions)),
        *((f"joint {k}", joint) for k, joint in enumerate(report.joints)),
        *((f"mass {body}", f"{mass:.4g} kg") for body, mass in report.moving_kg.items()),
        *(
            (
                f"camera {c.name}",
                f"{c.width} x {c.height}, {c.view}, on {c.body}, sees {', '.join(c.sees)}",
            )
            for c in report.cameras
        ),
        ("starts", f"{report.starts} drawn and placed; nothing overlaps at the nominal one"),
        ("rest", "a second of holding still moves no tool"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        say(f"  {name:<{width}}  {text}")
    return 0


def _new(argv: list[str]) -> int:
    args = parse(New, argv, "scene new", New.__doc__ or "")
    from robolearn.operations.scenes.new_arm import new_arm_scene

    made, report = new_arm_scene(
        args.arm, args.out, tool=args.tool, home=args.home, action=args.action
    )
    if args.json:
        print_json(
            {
                "scene": str(args.out),
                "hash": report.content_hash,
                "joints": list(made.joints),
                "assumed": list(made.assumed),
                "notes": list(made.notes),
            }
        )
        return 0
    for note in made.notes:
        say(f"look at: {note}")
    width = max((len(a["what"]) for a in made.assumed), default=0)
    for a in made.assumed:
        say(f"  assumed: {a['what']:<{width}}  {a['value']} ({a['why']})")
    say(f"{args.out}: {len(made.joints)} joints, checked; try 'robolearn scene view {args.out}'")
    return 0


def _view(argv: list[str]) -> int:
    args = parse(View, argv, "scene view", View.__doc__ or "")
    from robolearn.operations.pictures.draw import ALL, draw_world

    output_file(args.out, "--out", (".png", ".jpg"))
    drawn = draw_world(
        args.scene, camera=args.camera, width=args.width, height=args.height, seed=args.seed
    )
    paths: list[Path] = []
    for picture in drawn:
        several = args.camera == ALL
        name = f"{args.out.stem}-{picture.camera}" if several else args.out.stem
        paths.append(args.out.with_stem(name))
        picture.write(paths[-1])
    if args.json:
        print_json({"scene": args.scene, "pictures": [str(p) for p in paths]})
    else:
        for path in paths:
            say(str(path))
    return 0


def _overlay(argv: list[str]) -> int:
    args = parse(Overlay, argv, "scene overlay", Overlay.__doc__ or "")
    from robolearn.operations.pictures.draw import Drawn
    from robolearn.operations.pictures.overlay import overlay_start

    output_file(args.out, "--out", (".png", ".jpg"))
    image = overlay_start(
        args.photo, args.scene, args.camera, args.suite, args.condition, opacity=args.opacity
    )
    Drawn(args.camera, image).write(args.out)
    say(str(args.out))
    return 0


def _verify(argv: list[str]) -> int:
    args = parse(Verify, argv, "scene verify", Verify.__doc__ or "")
    from robolearn.operations.scenes.page import figure
    from robolearn.operations.scenes.verify import verify_scene

    output_file(args.out, "--out", (".html",))
    found = verify_scene(args.scene, args.capture, args.out)
    code = 2 if found.verdict == "refuse" else 0
    if args.json:
        print_json(
            {
                "scene": found.scene,
                "hash": found.scene_hash,
                "capture": found.capture,
                "verdict": found.verdict,
                "held_out": found.held_out,
                "pictures": len(found.views),
                "measures": {
                    m.limit.name: {
                        "value": finite(m.value),
                        "unit": m.limit.unit,
                        "verdict": m.verdict,
                    }
                    for m in found.measures
                },
                "silhouettes": {name: finite(value) for name, value in found.iou.items()},
                "robot_silhouette": finite(found.robot_iou),
                "missing": dict(found.missing),
                "advice": list(found.advice),
                "assumed": list(found.assumed),
                "page": str(args.out),
            }
        )
        return code
    width = max(len(m.limit.name) for m in found.measures)
    for m in found.measures:
        say(f"  {m.limit.name:<{width}}  {figure(m):>13}  {m.verdict}")
    for sentence in (*found.said, *found.advice):
        say(f"look at: {sentence}")
    say(f"{found.scene}: {found.verdict} ({len(found.views)} pictures); page: {args.out}")
    return code


def _override(argv: list[str]) -> int:
    args = parse(ByHand, argv, "scene override", ByHand.__doc__ or "")
    from robolearn.errors import ConfigError
    from robolearn.operations.scenes.by_hand import override_by_hand
    from sim.scene.config import Override
    from sim.scene.overrides import by_hand_sentences

    change = Override(args.pose, args.mass_kg, args.friction)
    if args.clear == (change != Override()):
        raise ConfigError(
            "scene override takes one of --pose, --mass-kg and --friction or more of them, or"
            " --clear"
        )
    scene = override_by_hand(args.scene, args.body, None if args.clear else change)
    details = scene.config.provenance.details
    if args.json:
        by_hand = details.get("by_hand", {})
        print_json({"scene": str(scene.path), "hash": scene.content_hash, "by_hand": by_hand})
        return 0
    for sentence in by_hand_sentences(details):
        say(sentence)
    say(
        f"{scene.name}: written, hash {scene.content_hash}; certificates of the one before are"
        " stale"
    )
    return 0


def _drift(argv: list[str]) -> int:
    args = parse(Drift, argv, "scene drift", Drift.__doc__ or "")
    from robolearn.operations.scenes.drift import scene_drift
    from sim.reconstruction.drift import Tolerance

    record, parts = scene_drift(
        args.scene,
        photos=_photos(args.photo),
        capture=args.capture,
        touched=args.touched,
        expected=args.expected,
        touch_mm=args.touch_mm,
        tolerance=Tolerance(args.tolerance_mm, args.tolerance_deg),
    )
    counts = record.parts
    code = 0 if all(counts[name].verdict == "unmoved" for name in parts) else 2
    if args.json:
        import dataclasses

        document = {
            **dataclasses.asdict(record),
            "parts": {name: dataclasses.asdict(part) for name, part in counts.items()},
            "looked_at": sorted(parts),
            "moved": record.moved,
        }
        print_json(document)
        return code
    for name, part in counts.items():
        today = parts.get(name)
        if today is not None and today != part:
            say(f"  {name:<20}  {today.verdict:<8}  {today.said}; that takes nothing back:")
        earlier = "" if today == part else f" (by {part.source}, looked at {part.checked_at})"
        say(f"  {name:<20}  {part.verdict:<8}  {part.said}{earlier}")
    if record.moved:
        say(f"{record.scene}: {', '.join(record.moved)} moved; what depends on the scene is stale")
    elif code:
        say(f"{record.scene}: not told; nothing is known to have moved")
    else:
        say(f"{record.scene}: nothing moved")
    return code


def _photos(pairs: Sequence[str]) -> dict[str, Path]:
    """``CAMERA=FILE`` as given on a command line. ConfigError for what is not."""
    from robolearn.errors import ConfigError

    out: dict[str, Path] = {}
    for pair in pairs:
        camera, equals, file = pair.partition("=")
        if not (camera and equals and file):
            raise ConfigError(f"--photo takes CAMERA=FILE, such as top=today.png, got '{pair}'")
        if camera in out:
            raise ConfigError(f"--photo names camera '{camera}' twice")
        out[camera] = Path(file)
    return out


def _list(argv: list[str]) -> int:
    args = parse(List, argv, "scene ls", List.__doc__ or "")
    from sim.worlds import OPEN_FAMILIES, described_worlds

    worlds = described_worlds()
    if args.json:
        print_json({"worlds": list(worlds), "descriptions": worlds})
        return 0
    width = max(map(len, worlds))
    for name, text in worlds.items():
        say(f"{name:<{width}}  {text}")
    others = ", ".join(f"{family}/NAME" for family in OPEN_FAMILIES)
    say(f"and {others}, or a folder with scene.yaml (docs/worlds.md)")
    return 0


VERBS: dict[str, tuple[type[Any], Callable[[list[str]], int]]] = {
    "new": (New, _new),
    "check": (Check, _check),
    "view": (View, _view),
    "overlay": (Overlay, _overlay),
    "verify": (Verify, _verify),
    "override": (ByHand, _override),
    "drift": (Drift, _drift),
    "ls": (List, _list),
}
