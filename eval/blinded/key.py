"""Seals which alias stands for which policy until the trials are unblinded.

The file is encoded, so that nobody reads it by accident; it does not keep out who wants to know.
Its digest stands in the locked plan, and a random number in it keeps others from guessing what a
sealed hash stands for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eval.plain import write_text
from robolearn.config import from_dict, to_dict
from robolearn.errors import ConfigError, DataError

FILE_NAME = "key.sealed"
_HEAD = "Which alias stands for which policy. Opened by 'robolearn trial report --unblind'.\n"


@dataclass(frozen=True, slots=True)
class SealedPolicy:
    """A policy behind an alias."""

    alias: str
    # What trials call it once they are unblinded, and the hash of what decides its answers.
    name: str
    hash: str
    # Run directory, or ws://HOST:PORT of a server.
    source: str
    # Digests of the run's files, and of the runs inside of it, by path.
    files: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class SealedKey:
    """Every policy, and the preregistration (as the text of its file) that names them."""

    nonce: str
    policies: tuple[SealedPolicy, ...]
    registered: str

    def of(self, alias: str) -> SealedPolicy:
        """The policy behind an alias."""
        return next(p for p in self.policies if p.alias == alias)

    def sealed_hash(self, alias: str) -> str:
        """What stands for the policy's hash while it is blinded."""
        return _digest(self.nonce + self.of(alias).hash)[:16]

    def redact(self, text: str, sources: Sequence[str] = ()) -> str:
        """``text`` without the names and aliases of policies; the words for all are the same.
        ``sources``: where the policies are now, if they were moved.
        """
        were = [p.source for p in self.policies]
        words = {word for p in self.policies for word in (p.name, p.hash, p.alias)}
        words |= _names_of(were) | _names_of(sources)
        folders = _folders_of(were) | _folders_of(sources)
        for word in sorted(filter(None, words | folders), key=len, reverse=True):
            pattern = _whole(word) if word in words or not word.isalpha() else _in_path(word)
            text = re.sub(pattern, "(policy)", text)
        return text


def _whole(word: str) -> str:
    return rf"(?<!\w){re.escape(word)}(?!\w)"


def _in_path(name: str) -> str:
    """A folder that is called as a word may be (data): where it is a part of a path, or in quotes
    by itself; in a sentence the word is no folder.
    """
    name = re.escape(name)
    ends = r"(?!\w|[.-]\w)"
    return rf"(?<=/){name}{ends}|(?<!\w)(?<!\w[.-]){name}(?=/)|(?<=['\"`]){name}(?=['\"`])"


def _names_of(sources: Sequence[str]) -> set[str]:
    """These places themselves, and their own names."""
    return {word for s in sources for word in (s, str(Path(s).resolve()), Path(s).name)}


def _folders_of(sources: Sequence[str]) -> set[str]:
    """What tells folders apart: the names of those above them that not all of them share."""
    # Of a server's address a path has lost one of the slashes.
    folders = [Path(s).resolve() for s in sources if not s.startswith(("ws:/", "wss:/"))]
    if len(folders) == 1:
        return {folders[0].parent.name}
    above = [set(folder.parent.parts) for folder in folders]
    shared = set[str].intersection(*above) if above else set[str]()
    return set[str]().union(*(parts - shared for parts in above))


def shuffled(names: tuple[str, ...], hashes: tuple[str, ...], nonce: str) -> Mapping[str, str]:
    """An alias for each hash, by chance."""
    order = sorted(hashes, key=lambda value: _digest(nonce + value))
    return dict(zip(order, names, strict=True))


def new_nonce() -> str:
    """A random number that nobody knows."""
    return secrets.token_hex(16)


def seal(folder: Path, key: SealedKey) -> str:
    """Write the key; returns its digest."""
    text = _sealed(key)
    write_text(folder / FILE_NAME, text)
    return _digest(text)


def key_digest(key: SealedKey) -> str:
    """The digest that the key's file will have."""
    return _digest(_sealed(key))


def open_key(folder: Path, digest: str) -> SealedKey:
    """Read the key; :class:`ConfigError` for one that is not that of the plan."""
    path = folder / FILE_NAME
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"'{path}' cannot be read ({type(error).__name__}): without it nobody knows which"
            " policy is which; restore it from a copy"
        ) from error
    if _digest(text) != digest:
        raise ConfigError(
            f"'{path}' is not the key that the plan was locked with: it was changed; restore it"
            " from a copy"
        )
    try:
        raw = json.loads(base64.b64decode(text.removeprefix(_HEAD)))
    except ValueError as error:
        raise DataError(f"'{path}' is damaged: {error}") from error
    return from_dict(SealedKey, raw, where=str(path))


def _sealed(key: SealedKey) -> str:
    text = json.dumps(to_dict(key)).encode()
    return _HEAD + base64.encodebytes(text).decode("ascii")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
