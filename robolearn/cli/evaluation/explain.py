"""``robolearn explain RUN ...`` says which parameter of a scene explains its gap to reality."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from robolearn.agents.execution import Execution
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError
from robolearn.operations.evaluate_options import EvaluateOptions

if TYPE_CHECKING:
    from eval.trials.progress import Progress


@dataclass(frozen=True, slots=True)
class Args:
    """Say what is wrong with a scene: simulate every policy from where its real trials began, with
    one parameter at a time shifted, and see which of them explains the gap (docs/trust.md).
    """

    # Run directories of the policies, or 'scripted[:NOISE]' for the task's expert.
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    # Policies on servers, too, ws://HOST:PORT; their token in ROBOLEARN_TOKEN.
    server: tuple[str, ...] = ()
    # Folder of real trials: 'robolearn trial' (unblinded) or 'deploy'.
    like: Path | None = None
    # The scene that simulates them.
    world: str = ""
    # Results folder; 'robolearn trust --causes' reads it, too.
    out: Path = Path("results/causes")
    # What may be wrong: friction, mass, damping, gain, delay, camera, light; default: all that the
    # scene has and the policies can notice.
    parameters: tuple[str, ...] = ()
    # By how much: of factors powers of two, of a delay 100 ms (docs/perturbations.md).
    levels: tuple[float, ...] = (-1.0, 1.0)
    # What counts of trials.
    by: Literal["success", "score"] = "success"
    # Suite of the trials, where their folder does not keep it ('deploy').
    suite: Path | None = None
    # The simulated world that stands for reality in --like.
    real_world: str = ""
    # Rollouts from every real start, in every world.
    rollouts: int = 5
    # Standard deviations of how exactly starts were measured [m], [rad]; as 'evaluate --like' has
    # them.
    start_noise_m: float | None = None
    start_noise_rad: float | None = None
    # Worker processes; 0: in this process.
    workers: int = 1
    # Environments per forward pass of a policy.
    batch: int = 1
    # Of what is drawn anew.
    seed: int = 0
    # How chunks become commands; default: of a plan's trials and of a deployment's as these say.
    execution: Annotated[Execution, tyro.conf.arg(name="")] = field(default_factory=Execution)
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Simulate, judge, print."""
    args = parse(Args, argv, "explain", Args.__doc__ or "")
    if args.like is None or not args.world:
        raise ConfigError("give --like FOLDER (real trials) and --world SCENE (their simulator)")
    runs = (*args.runs, *args.server)
    if not runs:
        raise ConfigError("give the policies of the real trials: robolearn explain RUN [RUN ...]")
    output_folder(args.out, "--out", "simulated trials")
    from eval.report.trust.causes import causes_document, causes_lines
    from robolearn.operations.trial.like import LikeOptions
    from robolearn.operations.trial.start_noise import StartNoise
    from robolearn.operations.trust.explain import ExplainOptions, explain

    with progress("explain", None, quiet=args.json) as advance:

        def show(p: Progress) -> None:
            advance(p.added, f"{p.policy} in {p.world}: {p.n} trials")

        report = explain(
            runs,
            args.like,
            args.world,
            args.out,
            EvaluateOptions(suite=args.suite, workers=args.workers, batch=args.batch),
            args.execution,
            LikeOptions(
                args.rollouts,
                StartNoise(args.start_noise_m, args.start_noise_rad),
                args.real_world,
            ),
            ExplainOptions(args.parameters, args.levels, args.by, args.seed),
            show,
        )
    if args.json:
        print_json(causes_document(report))
        return 0
    for line in causes_lines(report):
        say(line)
    say(f"on the page of trust: robolearn trust --real {args.like} --sim ... --causes {args.out}")
    return 0
