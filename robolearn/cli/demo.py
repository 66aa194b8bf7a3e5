"""``robolearn demo`` runs the whole chain on real human data.

Every stage runs the same commands that a person would type, each in a process of its own, and
leaves its results in a folder of its own:

    runs/demo/
      demo.json                 stages, keys, times
      import/store/             the 206 human demonstrations       import/import.json
      collect/store/            scripted episodes
      identify/pusht_identified/  the scene package that was found identify/identify.json
      identify/replay_<scene>.json  open-loop replay errors        identify/replay_<scene>.png
      train/flow/               a run directory
      practise/practised/       another one; its episodes: practise/store/
      evaluate/                 trials.sqlite, evaluation.json, summary.json, videos/
      trust/                    young/ (a third policy), trials.sqlite, trust.html, trust.json
      deploy/                   store/, trials.sqlite, deploy.json
      report/report.html

A stage is reused only when configuration, data (the stages before it) and code are the same;
training and evaluation go on where they stopped, the other stages start over.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, say
from robolearn.errors import ConfigError, RobolearnError
from robolearn.files import replacing
from robolearn.machine.interrupt import WORDS, stopped_by
from robolearn.operations.stages import Stage, StageListener, StageRun, finished, run_stages

ROOT = Path(__file__).resolve().parents[2]
PRACTICE = "practice/pusht_demo.yaml"
# A third policy, so that there is an order to be trusted: the same recipe, stopped early.
YOUNG_UPDATES, YOUNG_STARTS = 500, 15
# Of every policy and world: a failure and a success of usual length.
CLIPS = 2


@dataclass(frozen=True, slots=True)
class Args:
    """Run the whole chain on real human data and write one HTML report."""

    # Folder that keeps everything.
    out: Path = Path("runs/demo")
    # Run this stage alone (the stages before it must be done).
    stage: str = ""
    # Start over instead of reusing finished stages.
    fresh: bool = False


class StageError(RobolearnError, RuntimeError):
    """A command of a stage failed."""


@dataclass(frozen=True, slots=True)
class Context:
    """Where a stage works and how it runs commands."""

    out: Path
    stage: str

    def path(self, *parts: str) -> str:
        """A path inside the demo folder."""
        return str(self.out.joinpath(*parts))

    def run(self, *arguments: str, json_to: str = "") -> None:
        """Run one ``robolearn`` command; its standard output may go to a file of this stage."""
        say("  $ robolearn " + " ".join(arguments))
        command = [sys.executable, "-m", "robolearn.cli.main", *arguments]
        if not json_to:
            _require_done(arguments, _wait(subprocess.Popen(command)))
            return
        with replacing(self.out / self.stage / json_to) as fresh:
            with fresh.open("wb") as stream:
                code = _wait(subprocess.Popen(command, stdout=stream))
            _require_done(arguments, code)


def _require_done(arguments: Sequence[str], code: int) -> None:
    if code == 130:
        raise KeyboardInterrupt
    if code != 0:
        raise StageError(
            f"'robolearn {arguments[0]}' ended with exit code {code} (its message is above);"
            " everything before it is kept, run the same command to go on"
        )


def _wait(process: subprocess.Popen[bytes]) -> int:
    # Ctrl-C reaches the child too (same process group), a SIGTERM need not: let it finish its own
    # clean-up.
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            if stopped_by() != WORDS[signal.SIGINT]:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                process.wait()
            return 130


def _import(ctx: Context) -> None:
    from robolearn.assets.demonstrations import pusht_demonstrations_path

    source = str(pusht_demonstrations_path())
    store = ctx.path("import", "store")
    ctx.run("data", "import", source, "--out", store, "--json", json_to="import.json")
    ctx.run("data", "check", store)


def _collect(ctx: Context) -> None:
    store = ctx.path("collect", "store")
    ctx.run(
        *("collect", "--config", _config("collect/pusht.yaml"), "--agent", "scripted"),
        *("--episodes", "5", "--out", store, "--yes"),
    )
    ctx.run("data", "ls", store)


def _identify(ctx: Context) -> None:
    store, found = ctx.path("import", "store"), ctx.path("identify", "pusht_identified")
    ctx.run("identify", store, "--out", found, "--json", json_to="identify.json")
    for name, scene in (
        ("pusht_naive", "pusht_naive"),
        ("pusht_identified", found),
        ("pusht_reference", "pusht_reference"),
    ):
        figure = ctx.path("identify", f"replay_{name}.png")
        ctx.run(
            *("replay", store, "--scene", scene, "--plot", figure, "--json"),
            json_to=f"replay_{name}.json",
        )
    ctx.run(
        *("replay", store, "--scene", "pusht_ur5e", "--episodes", "10", "--json"),
        json_to="replay_pusht_ur5e.json",
    )


def _train(ctx: Context) -> None:
    store, flow = ctx.path("import", "store"), ctx.path("train", "flow")
    ctx.run(
        *("train", "--config", _config("train/pusht_flow_demo.yaml"), "--store", store),
        *("--out", flow, "--threads", "2", "--resume"),
    )
    say(f"  {updates(Path(flow))}")


def _practise(ctx: Context) -> None:
    flow, scene = ctx.path("train", "flow"), ctx.path("identify", "pusht_identified")
    ctx.run(
        *("finetune", flow, "--world", scene, "--store", ctx.path("practise", "store")),
        *("--out", ctx.path("practise", "practised"), "--config", _config(PRACTICE)),
        # One process drives, the other one learns.
        *("--actors", "1", "--resume"),
    )


def updates(run: Path) -> str:
    """How far the recipe came: its budget is minutes, so a busy machine learns less in it."""
    fit = json.loads((run / "provenance.json").read_text(encoding="utf-8"))["fit"]
    return (
        f"{run.name}: {fit['steps']:,} updates in {fit['seconds'] / 60:.1f} min; a slower or busier"
        " machine makes fewer, and its policy scores lower"
    )


def _evaluate(ctx: Context) -> None:
    ctx.run(
        *("evaluate", ctx.path("train", "flow"), ctx.path("practise", "practised")),
        *("--suite", _config("eval/pusht.yaml")),
        *("--worlds", "gym_pusht", "pusht_reference", "pusht_ur5e"),
        *("--out", ctx.path("evaluate"), "--workers", "2", "--batch", "10", "--repeat"),
        *("--videos", str(CLIPS)),
    )


def _trust(ctx: Context) -> None:
    young = ctx.path("trust", "young")
    ctx.run(
        *("train", "--config", _config("train/pusht_flow_demo.yaml")),
        *("--store", ctx.path("import", "store"), "--out", young, "--threads", "2", "--resume"),
        *("--fit.max-minutes", "None", "--fit.steps", str(YOUNG_UPDATES)),
    )
    ctx.run(
        *("evaluate", young, "--suite", _config("eval/pusht.yaml"), "--out", ctx.path("trust")),
        *("--worlds", "gym_pusht", "pusht_reference", "--conditions", str(YOUNG_STARTS)),
        *("--workers", "2", "--batch", "10", "--videos", "0"),
    )
    # What the demo has tried already, and the third policy.
    tried = (ctx.path("evaluate"), ctx.path("trust"))
    ctx.run(
        *("trust", "--real", *tried, "--real-world", "gym_pusht"),
        *("--sim", *tried, "--sim-world", "pusht_reference", "--by", "score"),
        *("--html", ctx.path("trust", "trust.html"), "--json"),
        json_to="trust.json",
    )
    say(f"  {trusted(ctx.out / 'trust' / 'trust.json')}")


def trusted(file: Path) -> str:
    """What the page of trust says, in a line."""
    (task,) = json.loads(file.read_text(encoding="utf-8"))
    return (
        f"gym-pusht as reality, MuJoCo as its simulator, {task['k']} policies: {task['verdict']}"
        f" ({task['why']})"
    )


def _deploy(ctx: Context) -> None:
    from robolearn.operations.report import best_run

    ctx.run(
        *("deploy", str(best_run(ctx.out / "evaluate", "gym_pusht"))),
        *("--robot", _config("hardware/lab_ur5e.yaml"), "--start-lab", "--episodes", "2"),
        *("--out", ctx.path("deploy"), "--yes"),
    )


def _report(ctx: Context) -> None:
    ctx.run("report", "--demo", str(ctx.out), "--out", ctx.path("report", "report.html"))


def _stage(
    name: str,
    title: str,
    run: Callable[[Context], None],
    *,
    needs: tuple[str, ...] = (),
    configs: tuple[str, ...] = (),
    resumable: bool = False,
) -> Stage:
    return Stage(
        name,
        title,
        lambda out: run(Context(out, name)),
        needs,
        tuple(Path(_config(config)) for config in configs),
        resumable,
    )


def stages() -> tuple[Stage, ...]:
    """The chain."""
    return (
        _stage("import", "206 human Push-T demonstrations into an episode store", _import),
        _stage(
            "collect",
            "a few scripted episodes in the simulated workcell",
            _collect,
            configs=("collect/pusht.yaml",),
        ),
        _stage("identify", "the physics, from the recordings alone", _identify, needs=("import",)),
        _stage(
            "train",
            "a flow-matching policy, by imitation",
            _train,
            needs=("import",),
            configs=("train/pusht_flow_demo.yaml",),
            resumable=True,
        ),
        _stage(
            "practise",
            "it gets better by doing, in the scene that was identified",
            _practise,
            needs=("train", "identify"),
            configs=(PRACTICE,),
            resumable=True,
        ),
        _stage(
            "evaluate",
            "both, paired, in gym-pusht and two MuJoCo workcells",
            _evaluate,
            needs=("train", "practise"),
            configs=("eval/pusht.yaml",),
            resumable=True,
        ),
        _stage(
            "trust",
            "how far MuJoCo may be trusted, gym-pusht as reality: three policies of different age",
            _trust,
            needs=("import", "evaluate"),
            configs=("train/pusht_flow_demo.yaml", "eval/pusht.yaml"),
            resumable=True,
        ),
        _stage(
            "deploy",
            "the better one, on an emulated UR5e in real time",
            _deploy,
            needs=("evaluate",),
            configs=("hardware/lab_ur5e.yaml",),
        ),
        _stage(
            "report",
            "one self-contained page",
            _report,
            needs=("collect", "identify", "evaluate", "deploy"),
        ),
    )


def main(argv: list[str]) -> int:
    """Run the stages; exit code 0 done, 2 fixable, 130 on Ctrl-C."""
    args = parse(Args, argv, "demo", "The whole chain on real human data.")
    chain = stages()
    output_folder(args.out, "--out", "a demo")
    say(f"robolearn demo -> {args.out}")
    labels = {stage.name: f"[{n}/{len(chain)}] {stage.name}" for n, stage in enumerate(chain, 1)}
    for number, stage in enumerate(chain, 1):
        say(f"  {number} {stage.name:<9} {stage.title}")

    def begin(stage: Stage, going_on: bool) -> None:
        say(f"{labels[stage.name]}: {stage.title}" + (" (going on)" if going_on else ""))

    def done(run: StageRun) -> None:
        how = f"done in {run.seconds:.0f} s"
        if run.reused:
            how = f"reused (same code, configuration and data; {run.seconds:.0f} s then)"
        say(f"{labels[run.stage.name]}: {how}")

    start = time.monotonic()
    try:
        run_stages(
            chain,
            args.out,
            only=args.stage,
            fresh=args.fresh,
            listener=StageListener(begin, done),
        )
    except KeyboardInterrupt:
        names = ", ".join(finished(chain, args.out)) or "none"
        say(f"\nstopped by {stopped_by()}; finished stages: {names}")
        say(f"everything is kept in {args.out}")
        say("run the same command to go on")
        return 130
    say(f"\ndone in {(time.monotonic() - start) / 60:.1f} min")
    if not args.stage or args.stage == "report":
        say(f"report: {(args.out / 'report' / 'report.html').resolve()}")
        page = args.out / "trust" / "trust.html"
        if page.is_file():
            say(f"trust:  {page.resolve()}")
    return 0


def _config(name: str) -> str:
    for base in (ROOT / "configs", ROOT / "robolearn" / "configs"):
        if (base / name).is_file():
            return str(base / name)
    raise ConfigError(f"config '{name}' is missing from {ROOT / 'configs'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
