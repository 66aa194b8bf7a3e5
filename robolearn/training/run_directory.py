"""Writes and reads run directories: everything that a policy needs, nothing executable.

    run/ config.yaml  spec.json  stats.json  provenance.json  metrics.jsonl  weights.safetensors
         parent/        the run this one builds on, complete (only for multi-stage methods)
         parts/0, 1 ..  the runs this one is composed of, complete; both nest to any depth
         digests.json   what all of these were when the run was written; checked at every load
         state/         what resuming needs: tensors as safetensors, the rest as JSON

Files are written beside their target and renamed. The digests go before a file changes and come
back after it, so that a run that is killed in between has none instead of wrong ones.
"""

# The stubs of safetensors leave type arguments open.
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from robolearn.config import from_dict, load_yaml, parse_yaml
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats, stats_to_json
from robolearn.errors import CheckpointError, RobolearnError
from robolearn.files import write_atomic
from robolearn.learning import AnyTensor, Weights
from robolearn.spec import to_json
from robolearn.training.renamed_keys import with_new_keys

log = logging.getLogger(__name__)

WEIGHTS, PROVENANCE, DIGESTS = "weights.safetensors", "provenance.json", "digests.json"
PARENT, PARTS, STATE = "parent", "parts", "state"
TENSORS, SUM = "tensors.safetensors", "sha256"
HOLDS = "holds"
"""In config.yaml: ``parent`` where a run was made to improve on its parent and did not, or has not
been found to yet, so that what it does is what its parent does.
"""
HELD = {HOLDS: PARENT}
PRACTICE = "practice"
"""In config.yaml: rounds and limits of a practice, by which nothing is decided."""
# What a policy is beside its weights; it does not change during training.
CONFIG_FILE = "config.yaml"
FRAME = (CONFIG_FILE, "spec.json", "stats.json")
REQUIRED = (*FRAME, PROVENANCE, WEIGHTS)


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory as read. ``config`` is the resolved experiment: plain values, by the names
    that keys have now.
    """

    path: Path
    config: Mapping[str, Any]
    spec: PolicySpec
    stats: DatasetStats
    provenance: Mapping[str, Any]
    weights: Weights
    policy_hash: str


def write_json(path: Path, value: Any) -> None:
    """JSON with sorted keys, atomically."""
    write_atomic(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def write_tensors(path: Path, tensors: Weights, metadata: Mapping[str, str]) -> None:
    """A safetensors file, atomically; the same bytes for the same content."""
    # Clones: safetensors refuses tensors that share storage.
    plain = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
    # Not save_file: what it makes is readable by its maker alone.
    data = save(plain, metadata=dict(metadata))
    # Of no tensors at all the library's header is no JSON.
    write_atomic(path, _in_order(data) if plain else data)


def _in_order(data: bytes) -> bytes:
    """A safetensors file (the header's length in 8 bytes, the header as JSON, the numbers) with its
    metadata in the order of their names: the library has them in another one every time.
    """
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    told = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # The numbers begin at a multiple of eight bytes.
    told += b" " * (-len(told) % 8)
    return len(told).to_bytes(8, "little") + told + data[begin:]


def _beside(target: Path) -> Path:
    # Not by tempfile: its files are private to their maker, and a run is there to be shared.
    return target.with_name(f".{target.name}-{uuid.uuid4().hex[:12]}")


def write_run(path: Path, config: Mapping[str, Any], spec: PolicySpec, stats: DatasetStats) -> None:
    """The files of a run that do not change during training; :func:`seal_run` comes last."""
    path.mkdir(parents=True, exist_ok=True)
    unseal_run(path)
    write_atomic(path / CONFIG_FILE, yaml.safe_dump(dict(config), sort_keys=False))
    write_json(path / "spec.json", to_json(spec))
    write_json(path / "stats.json", stats_to_json(stats))


def load_run(path: Path, *, accept_edited: bool = False) -> Run:
    """Read and check a run directory.

    Errors: :class:`CheckpointError` if something is absent or damaged, or differs from what was
    written (:func:`seal_run`), unless ``accept_edited``.
    """
    run, digests = _read(path, path / WEIGHTS)
    if not accept_edited:
        _refuse_edited(path, digests)
    _refuse_foreign_statistics(run)
    return run


def load_again(path: Path, policy_hash: str) -> Run:
    """A run that was read before, when its policy was this one (empty: any).

    Errors as :func:`load_run`, and :class:`CheckpointError` where another policy lies there now.
    """
    run = load_run(path)
    if policy_hash and run.policy_hash != policy_hash:
        raise CheckpointError(
            f"'{path}' holds another policy ({run.policy_hash}) than when this began"
            f" ({policy_hash}); bring it back, or name a copy of it, and go on with resume. What"
            " was recorded and learned is kept"
        )
    return run


def read_run(path: Path, weights: Path) -> Run:
    """A run with the weights of the file ``weights`` in place of its own, which need not be there
    yet; nor its provenance. It is what was learned, also where the run holds its parent. Errors as
    :func:`load_run`; edits are the caller's to check.
    """
    run, digests = _read(path, weights)
    _refuse_foreign_statistics(run)
    config = {k: v for k, v in run.config.items() if k != HOLDS}
    learned = {**digests, CONFIG_FILE: _digest(path / CONFIG_FILE, HOLDS)}
    return dataclasses.replace(run, config=config, policy_hash=_policy_hash(learned))


def _refuse_foreign_statistics(run: Run) -> None:
    """:class:`CheckpointError` where a signal or an action has no statistics."""
    space, path = run.spec.task_space, run.path
    vectors = [s.name for s in space.observations if not s.is_image]
    lacking = [name for name in vectors if name not in run.stats.observations]
    lacking += [a.name for a in space.actions if a.name not in run.stats.actions]
    if lacking:
        raise CheckpointError(
            f"'{path}': spec.json and stats.json do not belong together, {lacking} has no"
            " statistics; copy the run again or train it anew"
        )


def nested_run(run: Run, name: str) -> Run:
    """A run that ``run`` keeps inside, such as ``parent`` or ``parts/0``. Whether it was edited has
    been checked with ``run``.
    """
    return load_run(run.path / name, accept_edited=True)


def _read(path: Path, weights_file: Path) -> tuple[Run, Mapping[str, str]]:
    """A run as it is, and its digests; those of ``weights_file`` count as those of its weights."""
    if not path.is_dir():
        near = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        raise CheckpointError(f"no run directory '{path}'; {path.parent}/ has: {near[:20]}")
    own = weights_file == path / WEIGHTS
    required = REQUIRED if own else FRAME
    missing = [name for name in required if not (path / name).is_file()]
    if missing:
        raise CheckpointError(
            f"'{path}' is not a finished run: {missing} absent, it has"
            f" {sorted(p.name for p in path.iterdir())}; train it with 'robolearn train --resume'"
        )
    name = CONFIG_FILE
    try:
        config = with_new_keys(load_yaml(path / name))
        name = "spec.json"
        spec = from_dict(PolicySpec, read_json(path / name), "spec")
        name = "stats.json"
        stats = from_dict(DatasetStats, read_json(path / name), "statistics")
        name = PROVENANCE
        unwritten = not own and not (path / name).is_file()
        provenance: Mapping[str, Any] = {} if unwritten else read_json(path / name)
        name = WEIGHTS
        weights = read_tensors(weights_file)
    except PermissionError as error:
        raise CheckpointError(f"'{path / name}' is not readable for you: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        detail = " ".join(str(error).split())
        raise CheckpointError(
            f"'{path}' has a damaged file, {name}: {detail}; copy the run again or train it anew"
        ) from error
    digests = file_digests(path) | {WEIGHTS: _digest(weights_file)}
    return Run(path, config, spec, stats, provenance, weights, _policy_hash(digests)), digests


def read_tensors(path: Path) -> dict[str, AnyTensor]:
    """Read a safetensors file; a damaged one is a :class:`CheckpointError`."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"'{path}' cannot be read: {error}") from error


def load_weights(module: nn.Module, weights: Weights, where: str) -> None:
    """Copy ``weights`` into ``module``; every key and shape must match."""
    own = module.state_dict()
    problems = [f"missing {k}" for k in own if k not in weights]
    problems += [f"unexpected {k}" for k in weights if k not in own]
    problems += [
        f"{k} should be {tuple(own[k].shape)}, is {tuple(weights[k].shape)}"
        for k in own
        if k in weights and own[k].shape != weights[k].shape
    ]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise CheckpointError(
            f"{where}: the weights do not fit the configured network: "
            f"{'; '.join(problems[:5])}{more}"
        )
    module.load_state_dict(dict(weights))


def policy_hash(path: Path) -> str:
    """16 hex digits over what decides the outputs: weights, configuration, specification and
    statistics of the run and of all runs inside of it. How YAML and JSON are laid out is not.
    """
    return _policy_hash(file_digests(path))


def checked_hash(path: Path, *, accept_edited: bool = False) -> str:
    """:func:`policy_hash`, refusing an edited run as :func:`load_run` does."""
    digests = file_digests(path)
    if not accept_edited:
        _refuse_edited(path, digests)
    return _policy_hash(digests)


def _policy_hash(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(_deciding(digests), sort_keys=True).encode()).hexdigest()[:16]


def _deciding(digests: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in digests.items() if Path(k).name != PROVENANCE}


def deciding_digests(path: Path) -> dict[str, str]:
    """Those of :func:`file_digests` that :func:`policy_hash` is made of."""
    return _deciding(file_digests(path))


def file_digests(path: Path) -> dict[str, str]:
    """SHA-256 of the contents of every file that makes up a run, by its path inside of it; those
    of the runs that it keeps inside are among them.
    """
    digests = {name: _digest(path / name) for name in REQUIRED if (path / name).is_file()}
    for run in nested_runs(path):
        digests |= {f"{run}/{name}": one for name, one in file_digests(path / run).items()}
    return digests


def nested_runs(path: Path) -> tuple[str, ...]:
    """The runs that a run keeps inside: ``parent``, ``parts/0`` ..."""
    names = [PARENT] if (path / PARENT).is_dir() else []
    parts = path / PARTS
    if parts.is_dir():
        folders = [p.name for p in parts.iterdir() if p.is_dir() and not p.name.startswith(".")]
        names += [f"{PARTS}/{name}" for name in sorted(folders)]
    return tuple(names)


def learned_digests(path: Path) -> dict[str, str]:
    """Those of :func:`file_digests` of what was learned, also where the run holds its parent, and
    however long it practised: limits change when it goes on.
    """
    return file_digests(path) | {CONFIG_FILE: _digest(path / CONFIG_FILE, HOLDS, PRACTICE)}


def _digest(file: Path, *without: str) -> str:
    """Of the values where a file holds some, else of the bytes; ``without`` these keys."""
    data = file.read_bytes()
    try:
        if file.suffix == ".yaml":
            values = parse_yaml(data.decode("utf-8"))
            if without and isinstance(values, dict):
                values = cast("dict[str, Any]", values)
                values = {k: v for k, v in values.items() if k not in without}
            data = json.dumps(values, sort_keys=True).encode()
        elif file.suffix == ".json":
            data = json.dumps(json.loads(data), sort_keys=True).encode()
    except (yaml.YAMLError, ValueError, TypeError, RecursionError):
        # A damaged file counts by its bytes, which differ from every sound one's values; whoever
        # reads it says what is wrong with it.
        pass
    return hashlib.sha256(data).hexdigest()


def seal_run(path: Path) -> None:
    """Write down what the files of a run are now, so that whoever loads it learns if one was edited
    since then.
    """
    write_json(path / DIGESTS, file_digests(path))


def hold_parent(path: Path) -> None:
    """From now on the run at ``path`` does what the run inside of it, its parent, does."""
    unseal_run(path)
    say_held(path / CONFIG_FILE)
    seal_run(path)


def say_held(file: Path) -> None:
    """In ``file``, a config.yaml, that its run does what its parent does."""
    config = load_yaml(file) | HELD
    write_atomic(file, yaml.safe_dump(config, sort_keys=False))


def holding(path: Path) -> dict[str, Any]:
    """What config.yaml of the run at ``path`` says beside its experiment: :data:`HOLDS`, or
    nothing.
    """
    file = path / CONFIG_FILE
    config = load_yaml(file) if file.is_file() else {}
    return {HOLDS: config[HOLDS]} if HOLDS in config else {}


def release_parent(path: Path) -> None:
    """From now on the run at ``path``, which is not sealed, does what was learned."""
    config = {k: v for k, v in load_yaml(path / CONFIG_FILE).items() if k != HOLDS}
    write_atomic(path / CONFIG_FILE, yaml.safe_dump(config, sort_keys=False))


def unseal_run(path: Path) -> None:
    """Before files of a run are written anew: nothing is known of them until :func:`seal_run`."""
    (path / DIGESTS).unlink(missing_ok=True)


def require_unedited(path: Path) -> None:
    """:class:`CheckpointError` where the run at ``path``, which is gone on with, is not what it was
    when it was last written; of one that was left while it was being written only the runs inside
    are known.
    """
    if (path / DIGESTS).is_file():
        _refuse_changes(path, file_digests(path))
        return
    for name in nested_runs(path):
        require_unedited(path / name)


def _refuse_edited(path: Path, found: Mapping[str, str]) -> None:
    """:class:`CheckpointError` where a run is not what it was sealed as."""
    if (path / DIGESTS).is_file():
        _refuse_changes(path, found)
        return
    log.warning("'%s' has no %s, whether it was edited is not known", path, DIGESTS)
    require_unedited(path)


def _refuse_changes(path: Path, found: Mapping[str, str]) -> None:
    sealed = read_json(path / DIGESTS)
    changes = {
        "differs": [name for name in found if name in sealed and sealed[name] != found[name]],
        "is absent": [name for name in sealed if name not in found],
        "was added": [name for name in found if name not in sealed],
    }
    differences = [f"{name} {change}" for change, names in changes.items() for name in names]
    if differences:
        more = f" and {len(differences) - 8} more" if len(differences) > 8 else ""
        raise CheckpointError(
            f"'{path}' was edited after it was written: {', '.join(differences[:8])}{more};"
            " copy the run again or train it anew, or load it as it is now with accept_edited"
            " (--accept-edited)"
        )


def run_provenance(path: Path) -> Mapping[str, Any]:
    """Data, latencies and versions of a run directory, without its weights."""
    return read_json(path / PROVENANCE)


def copy_run(source: Path, target: Path) -> None:
    """Copy a finished run, with the runs that it keeps inside, into ``target``, replacing it; what
    resuming needs is left out.
    """
    temporary = _beside(target)
    _copy(source, temporary)
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for name in (*REQUIRED, "metrics.jsonl", DIGESTS):
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    for name in nested_runs(source):
        _copy(source / name, target / name)


def save_state(path: Path, step: int, tensors: Weights, figures: Any) -> None:
    """Keep what resuming at ``step`` needs; older states go once the new one is complete."""
    folder = path / STATE
    folder.mkdir(exist_ok=True)
    temporary = _beside(folder / "new")
    temporary.mkdir()
    write_tensors(temporary / TENSORS, tensors, {})
    # As it will be read.
    written = json.loads(json.dumps({"step": step, "figures": figures}))
    write_json(temporary / "state.json", written | {SUM: _state_sum(temporary, written)})
    target = folder / f"{step:09d}"
    shutil.rmtree(target, ignore_errors=True)
    temporary.rename(target)
    for old in folder.iterdir():
        if old != target:
            shutil.rmtree(old, ignore_errors=True)


def _state_sum(folder: Path, written: Mapping[str, Any]) -> str:
    """Over the tensors of ``folder`` and what is ``written`` beside them."""
    found = hashlib.sha256(json.dumps(written, sort_keys=True).encode())
    found.update((folder / TENSORS).read_bytes())
    return found.hexdigest()


def load_state(path: Path) -> tuple[int, dict[str, AnyTensor], Any] | None:
    """The newest complete state, or None."""
    folder = path / STATE
    if not folder.is_dir():
        return None
    complete = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    if not complete:
        return None
    try:
        raw = read_json(complete[-1] / "state.json")
        tensors = read_tensors(complete[-1] / TENSORS)
        # States of earlier versions have no sum.
        found = raw.pop(SUM, None)
        if found is not None and found != _state_sum(complete[-1], raw):
            raise CheckpointError("it is not what was written")
        return int(raw["step"]), tensors, raw["figures"]
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"'{complete[-1]}' is damaged ({error}); delete it to train from the start"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; :class:`CheckpointError` where the file holds none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, RobolearnError):
            raise
        raise CheckpointError(f"'{path}' cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"'{path}' must hold a JSON object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)
