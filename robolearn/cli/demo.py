"""``robolearn demo``: the whole chain on real human data.

Every stage runs the same commands that a person would type, each in a process of its own, and
leaves its results in a folder of its own:

    runs/demo/
      demo.json                 stages, keys, times
      import/store/             the 206 human demonstrations       import/import.json
      collect/store/            scripted episodes                  collect/log.txt
      identify/pusht_identified/  the scene package that was found identify/identify.json
      identify/replay_<scene>.json  open-loop replay errors        identify/replay_<scene>.png
      train/flow/  train/iql/   run directories
      evaluate/                 trials.sqlite, evaluation.json, summary.json, videos/
      deploy/                   store/, trials.sqlite, deploy.json
      report/report.html

A stage is reused only when configuration, data (the stages before it) and code are the same;
training and evaluation go on where they stopped, the other stages start over.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, say
from robolearn.errors import ConfigError, RobolearnError, did_you_mean
from robolearn.files import replacing, write_atomic

PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")
ROOT = Path(__file__).resolve().parents[2]


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
    folder: Path

    def path(self, *parts: str) -> str:
        """A path inside the demo folder."""
        return str(self.out.joinpath(*parts))

    def run(self, *arguments: str, json_to: str = "", log_to: str = "") -> None:
        """Run one ``robolearn`` command; its standard output may go to a file of this stage."""
        say("  $ robolearn " + " ".join(arguments))
        command = [sys.executable, "-m", "robolearn.cli.main", *arguments]
        target = self.folder / (json_to or log_to) if (json_to or log_to) else None
        if target is None:
            _require_done(arguments, _wait(subprocess.Popen(command)))
            return
        with replacing(target) as fresh:
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
    # Ctrl-C reaches the child too (same process group): let it finish its own clean-up.
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGTERM)
                process.wait()
            return 130


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the chain. ``resumable``: its commands go on where they stopped."""

    name: str
    title: str
    needs: tuple[str, ...]
    configs: tuple[str, ...]
    run: Callable[[Context], None]
    resumable: bool = False


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
    ctx.run(
        *("train", "--config", _config("train/pusht_iql_demo.yaml"), "--store", store),
        *("--parent", flow, "--out", ctx.path("train", "iql"), "--threads", "2", "--resume"),
    )
    for name in ("flow", "iql"):
        say(f"  {updates(Path(ctx.path('train', name)))}")


def updates(run: Path) -> str:
    """How far the recipe came: its budget is minutes, so a busy machine learns less in it."""
    fit = json.loads((run / "provenance.json").read_text(encoding="utf-8"))["fit"]
    return (
        f"{run.name}: {fit['steps']:,} updates in {fit['seconds'] / 60:.1f} min; a slower or busier"
        " machine makes fewer, and its policy scores lower"
    )


def _evaluate(ctx: Context) -> None:
    ctx.run(
        *("evaluate", ctx.path("train", "flow"), ctx.path("train", "iql")),
        *("--suite", _config("eval/pusht.yaml")),
        *("--worlds", "gym_pusht", "pusht_reference", "pusht_ur5e"),
        *("--out", ctx.path("evaluate"), "--workers", "2", "--batch", "10", "--repeat"),
    )


def _deploy(ctx: Context) -> None:
    ctx.run(
        *("deploy", better_policy(ctx.out / "evaluate")),
        *("--robot", _config("hardware/lab_ur5e.yaml"), "--start-lab", "--episodes", "2"),
        *("--out", ctx.path("deploy"), "--yes"),
    )


def _report(ctx: Context) -> None:
    ctx.run("report", "--demo", str(ctx.out), "--out", ctx.path("report", "report.html"))


STAGES: tuple[Stage, ...] = (
    Stage("import", "206 human Push-T demonstrations into an episode store", (), (), _import),
    Stage(
        "collect",
        "a few scripted episodes in the simulated workcell",
        (),
        ("collect/pusht.yaml",),
        _collect,
    ),
    Stage("identify", "the physics, from the recordings alone", ("import",), (), _identify),
    Stage(
        "train",
        "a flow-matching policy, and critics that re-rank it (offline RL)",
        ("import",),
        ("train/pusht_flow_demo.yaml", "train/pusht_iql_demo.yaml"),
        _train,
        resumable=True,
    ),
    Stage(
        "evaluate",
        "both, paired, in gym-pusht and two MuJoCo workcells",
        ("train",),
        ("eval/pusht.yaml",),
        _evaluate,
        resumable=True,
    ),
    Stage(
        "deploy",
        "the better one, on an emulated UR5e in real time",
        ("evaluate",),
        ("hardware/lab_ur5e.yaml",),
        _deploy,
    ),
    Stage(
        "report",
        "one self-contained page",
        ("collect", "identify", "evaluate", "deploy"),
        (),
        _report,
    ),
)


def better_policy(results: Path) -> str:
    """The run directory with the higher mean score in gym-pusht; ties go to the first."""
    from eval.report.data import load_evaluation

    evaluation = load_evaluation(results)
    best = max(evaluation.in_world("gym_pusht"), key=lambda r: r.score.value)
    return evaluation.asked.run_of(best.policy)


def source_hash() -> str:
    """SHA-256 (16 digits) over the sources of the five packages."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".xml", ".yaml", ".html", ".js") and path.is_file():
                digest.update(str(path.relative_to(ROOT)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def stage_keys() -> dict[str, str]:
    """One key per stage from code, its configs and the keys of the stages it needs."""
    code = source_hash()
    keys: dict[str, str] = {}
    for stage in STAGES:
        digest = hashlib.sha256(f"{stage.name} {code}".encode())
        for config in stage.configs:
            digest.update(Path(_config(config)).read_bytes())
        for need in stage.needs:
            digest.update(keys[need].encode())
        keys[stage.name] = digest.hexdigest()[:16]
    return keys


def main(argv: list[str]) -> int:
    """Run the stages; exit code 0 done, 2 fixable, 130 on Ctrl-C."""
    args = parse(Args, argv, "demo", "The whole chain on real human data.")
    names = [s.name for s in STAGES]
    if args.stage and args.stage not in names:
        raise ConfigError(
            f"no stage '{args.stage}'.{did_you_mean(args.stage, names)} Stages: {', '.join(names)}"
        )
    output_folder(args.out, "--out", "a demo")
    if args.fresh and not args.stage:
        _start_over(args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    say(f"robolearn demo -> {args.out}")
    for number, stage in enumerate(STAGES, 1):
        say(f"  {number} {stage.name:<9} {stage.title}")
    start = time.monotonic()
    record = _Record.load(args.out)
    try:
        for number, stage in enumerate(STAGES, 1):
            if not args.stage or stage.name == args.stage:
                _run_stage(stage, number, args, record)
    except KeyboardInterrupt:
        done = [n for n in names if record.stages.get(n, {}).get("status") == "done"]
        say(f"\nstopped by Ctrl-C; finished stages: {', '.join(done) or 'none'}")
        say(f"everything is kept in {args.out}")
        say("run the same command to go on")
        return 130
    say(f"\ndone in {(time.monotonic() - start) / 60:.1f} min")
    if not args.stage or args.stage == "report":
        say(f"report: {(args.out / 'report' / 'report.html').resolve()}")
    return 0


def _start_over(out: Path) -> None:
    """Delete what an earlier demo left, and nothing else."""
    (out / "demo.json").unlink(missing_ok=True)
    for stage in STAGES:
        shutil.rmtree(out / stage.name, ignore_errors=True)


def _run_stage(stage: Stage, number: int, args: Args, record: _Record) -> None:
    keys = stage_keys()
    key, folder = keys[stage.name], args.out / stage.name
    before = record.stages.get(stage.name, {})
    label = f"[{number}/{len(STAGES)}] {stage.name}"
    same = before.get("key") == key and folder.is_dir()
    if same and before.get("status") == "done" and not args.fresh:
        say(f"{label}: reused (same code, configuration and data; {before['seconds']:.0f} s then)")
        return
    for need in stage.needs:
        if record.stages.get(need, {}).get("key") != keys[need] or (
            record.stages[need].get("status") != "done"
        ):
            raise ConfigError(
                f"stage '{stage.name}' needs '{need}', which is not done with this code and"
                f" configuration; run 'robolearn demo --out {args.out}' or --stage {need} first"
            )
    if not (same and stage.resumable):
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{label}: {stage.title}" + (" (going on)" if same and stage.resumable else ""))
    start = time.monotonic()
    record.set(stage.name, {"key": key, "status": "running"})
    stage.run(Context(out=args.out, folder=folder))
    seconds = time.monotonic() - start
    record.set(stage.name, {"key": key, "status": "done", "seconds": round(seconds, 1)})
    say(f"{label}: done in {seconds:.0f} s")


@dataclasses.dataclass(slots=True)
class _Record:
    """``demo.json``, replaced atomically at every change."""

    file: Path
    stages: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, out: Path) -> _Record:
        file = out / "demo.json"
        try:
            return cls(file, dict(json.loads(file.read_text())["stages"]))
        except FileNotFoundError:
            return cls(file, {})
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"'{file}' does not read as a demo record ({error}); delete it to start over"
            ) from error

    def set(self, stage: str, entry: dict[str, Any]) -> None:
        self.stages[stage] = entry
        write_atomic(self.file, json.dumps({"stages": self.stages}, indent=2) + "\n")


def _config(name: str) -> str:
    for base in (ROOT / "configs", ROOT / "robolearn" / "configs"):
        if (base / name).is_file():
            return str(base / name)
    raise ConfigError(f"config '{name}' is missing from {ROOT / 'configs'}")


def stage_names() -> Sequence[str]:
    """Names in order."""
    return [s.name for s in STAGES]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
