"""Numbers as they once were, and whether they still are.

    pytest tests/golden                    compares
    pytest tests/golden --update-golden    records anew; look at the diff before it is committed

``numbers/<name>.json`` names the platform that made the numbers. On that platform they must agree
bit for bit, elsewhere within a relative tolerance that the test states: other vector units, other
libraries and other compilers round in another way. An array of more than :data:`WHOLE` values is
kept as its shape, mean, root mean square, ends and digest; a tolerance is relative to the root mean
square, since a mean or a single value may be near 0 by chance.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

NUMBERS = Path(__file__).parent / "numbers"
UPDATE = "pytest tests/golden --update-golden"
# Arrays up to this size are kept whole; of larger ones so many values at either end.
WHOLE, ENDS = 8, 3
DIGEST = "sha256"
# What differs by less is the same on any platform.
NEAR_ZERO = 1e-12


@dataclasses.dataclass(frozen=True)
class Golden:
    """Compares with the recorded numbers, or records them."""

    update: bool
    folder: Path = NUMBERS

    def check(self, name: str, found: Any, *, rtol: float, rests_on: Sequence[str]) -> None:
        """``found``: dataclasses, mappings, sequences, arrays, tensors, numbers and words, nested.

        ``rests_on``: distributions whose version may change the last bits.
        """
        path = self.folder / f"{name}.json"
        here = {"platform": fingerprint(rests_on), "numbers": dict(leaves(found))}
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_written(here), encoding="utf-8")
            return
        assert path.is_file(), f"no golden numbers '{name}'; to record them: {UPDATE}"
        there = json.loads(path.read_text(encoding="utf-8"))
        exact = there["platform"] == here["platform"]
        wrong = differences(there["numbers"], here["numbers"], 0.0 if exact else rtol)
        how = "bit for bit" if exact else f"within {rtol:g}, recorded on {there['platform']}"
        assert not wrong, "\n".join(
            [f"'{name}' differs ({how}); if that is meant: {UPDATE}", *wrong]
        )


def fingerprint(rests_on: Sequence[str]) -> dict[str, str]:
    """What decides how numbers are rounded here; ``rests_on``: distributions."""
    return {
        "machine": platform.machine(),
        "cpu": _cpu(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "libc": "-".join(platform.libc_ver()),
        **{name: importlib.metadata.version(name) for name in ("numpy", *rests_on)},
    }


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and words in ``value``, each as what JSON holds of it, by its path."""
    if isinstance(value, torch.Tensor):
        value = value.detach().numpy()
    if dataclasses.is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        numbers = all(isinstance(v, int | float | np.number | np.bool_) for v in value)
        value = np.asarray(value) if numbers else {str(i): v for i, v in enumerate(value)}
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from leaves(part, f"{path}/{name}" if path else str(name))
    elif isinstance(value, np.ndarray) and value.size > WHOLE:
        yield path, _digested(value)
    else:
        yield path, value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def differences(there: Mapping[str, Any], here: Mapping[str, Any], rtol: float) -> list[str]:
    """A line for every number that is not what it was; ``rtol`` 0: to the last bit."""
    return [
        f"  {name}: was {there.get(name, 'absent')}, is {here.get(name, 'absent')}"
        for name in [*there, *(n for n in here if n not in there)]
        if name not in there
        or name not in here
        or not (_same(there[name], here[name]) or (rtol and _near(there[name], here[name], rtol)))
    ]


def _same(there: Any, here: Any) -> bool:
    # JSON tells -0 from 0 and takes one NaN for another; floats are written to the last bit.
    return json.dumps(there) == json.dumps(here)


def _near(there: Any, here: Any, rtol: float, scale: float = 0.0) -> bool:
    if isinstance(there, dict) and isinstance(here, dict):
        size = float(there.get("rms", 0.0))
        return there.keys() == here.keys() and all(
            name == DIGEST or _near(v, here[name], rtol, size) for name, v in there.items()
        )
    if isinstance(there, list) and isinstance(here, list):
        size = scale or float(np.sqrt(np.mean(np.square(_floats(there))))) if there else 0.0
        return len(there) == len(here) and all(
            _near(p, q, rtol, size) for p, q in zip(there, here, strict=True)
        )
    if isinstance(there, float) and isinstance(here, float):
        size = max(scale, abs(there))
        return _same(there, here) or abs(there - here) <= max(NEAR_ZERO, rtol * size)
    return _same(there, here)


def _floats(values: list[Any]) -> np.ndarray:
    flat = np.array([v for v in np.ravel(np.array(values, dtype=object)) if isinstance(v, float)])
    return flat[np.isfinite(flat)] if np.isfinite(flat).any() else np.zeros(1)


def _digested(values: np.ndarray) -> dict[str, Any]:
    flat = np.ascontiguousarray(values).ravel()
    x = flat.astype(np.float64)
    return {
        "shape": list(values.shape),
        "dtype": str(values.dtype),
        "mean": float(x.mean()),
        "rms": math.sqrt(float((x * x).mean())),
        "first": flat[:ENDS].tolist(),
        "last": flat[-ENDS:].tolist(),
        DIGEST: hashlib.sha256(flat.tobytes()).hexdigest()[:16],
    }


def _written(record: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for every number."""
    parts = [
        f"  {json.dumps(part)}: {{\n"
        + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in values.items())
        + "\n  }"
        for part, values in record.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {k.strip(): v.strip() for k, v in found.items()}
    words = ("vendor_id", "cpu family", "model", "model name")
    return " ".join(named[w] for w in words if w in named) or platform.processor()
