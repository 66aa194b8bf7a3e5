"""Resolves things by name from tables that installed packages extend.

    POLICIES = Table({"flow": "policies.imitation.flow:FlowConfig"}, what="policy",
                     group="robolearn.policies")
    POLICIES.find("flow")    # imports the module and returns FlowConfig

An installed package adds a name with an entry point of the table's group (``docs/plugins.md``);
it cannot replace one. Nothing is imported before it is asked for. Where a table takes ``own_files``
a name may also be a person's own ``module:Name``, a Python file in the working directory.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from robolearn.errors import ConfigError, RobolearnError, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a name leads: ``module:Name`` and who says so ("robolearn" or a distribution)."""

    place: str
    owner: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a package of somebody else must offer: in words, and what tells whether it does."""

    words: str
    fits: Callable[[object], bool]


ANYTHING = Wanted("anything", lambda _: True)
CALLABLE = Wanted("a class or a function", callable)
CONFIG = Wanted("a dataclass", lambda v: isinstance(v, type) and dataclasses.is_dataclass(v))


class Table(Generic[T]):
    """Names to objects of one kind; iterating gives the names, built-in ones first.

    ``what`` says in errors what is looked up; ``group`` is that of the entry points which extend
    it. A group of several kinds (``robolearn.devices``) tells them apart by ``kind``, the part of
    an entry point's name before the first dot. ``taken`` lists further names that plug-ins must
    leave alone; ``hint`` ends the message about an unknown name; ``wanted`` is what a plug-in must
    stand for. ``own_files``: ``module:Name`` is a name, too; it is not listed.
    """

    def __init__(
        self,
        places: Mapping[str, str],
        *,
        what: str,
        group: str,
        kind: str = "",
        taken: Callable[[], Collection[str]] = tuple,
        hint: str = "",
        wanted: Wanted = ANYTHING,
        own_files: bool = False,
    ) -> None:
        self.what, self.group = what, group
        self._own = {name: Entry(place, "robolearn") for name, place in places.items()}
        self._kind, self._taken, self._hint, self._wanted = kind, taken, hint, wanted
        self._own_files = own_files
        self._entries: dict[str, Entry] | None = None
        self._found: dict[str, T] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries())

    def __contains__(self, name: object) -> bool:
        # Built-in names are answered without a look at what is installed.
        return name in self._own or name in self.entries() or self._is_own_file(name)

    def __len__(self) -> int:
        return len(self.entries())

    def entries(self) -> Mapping[str, Entry]:
        """Every name and where it leads; :class:`ConfigError` when two things have one name."""
        if self._entries is None:
            found = dict(self._own)
            for point in entry_points(group=self.group):
                self._add(point, found)
            self._entries = found
        return self._entries

    def find(self, name: str, *, error: type[RobolearnError] = ConfigError, where: str = "") -> T:
        """What ``name`` stands for; otherwise ``error`` says what exists.

        ``where`` (a file and key) begins the message. A plug-in that cannot be imported, or is
        something else than what is wanted, is a :class:`ConfigError` that names its package.
        """
        if name not in self._found:
            entry = self._own.get(name) or self.entries().get(name)
            if entry is None and self._is_own_file(name):
                return cast("T", _own(name, self._wanted, where or self.what))
            if entry is None:
                raise error(self._unknown(name, where))
            self._found[name] = self._resolve(name, entry)
        return self._found[name]

    def _is_own_file(self, name: object) -> bool:
        return self._own_files and isinstance(name, str) and ":" in name

    def _unknown(self, name: str, where: str) -> str:
        names = list(self)
        at = f"{where}: " if where else ""
        return (
            f"{at}no {self.what} '{name}'.{did_you_mean(name, names)}"
            f" There are: {sorted(names)}{self._hint}"
        )

    def _resolve(self, name: str, entry: Entry) -> T:
        if entry.owner == "robolearn":
            return cast("T", resolve(entry.place))
        return cast(
            "T",
            resolve_foreign(
                entry.place,
                self._wanted,
                where=f"{self.what} '{name}' of the package {entry.owner}",
                advice="repair or uninstall the package",
            ),
        )

    def _add(self, point: EntryPoint, found: dict[str, Entry]) -> None:
        owner = point.dist.name if point.dist is not None else "an unnamed package"
        name = point.name
        if self._kind:
            kind, dot, name = point.name.partition(".")
            if not dot or not name:
                raise ConfigError(
                    f"the package {owner} offers '{point.name}' in {self.group}; expected a kind"
                    f" and a name, like '{self._kind}.{point.name}'"
                )
            if kind != self._kind:
                return
        before = found.get(name)
        if before is None and name in self._taken():
            before = Entry("", "robolearn")
        if before is not None:
            raise ConfigError(
                f"the package {owner} offers the {self.what} '{name}' ({point.value}), which"
                f" {before.owner} has already{f' ({before.place})' if before.place else ''};"
                " it must use another name, or be uninstalled"
            )
        found[name] = Entry(point.value, owner)


def look_in(folder: str) -> None:
    """Find modules in ``folder``, too; "" is the working directory."""
    # At the end: nobody's file may stand in for a module of a package.
    if folder not in sys.path:
        sys.path.append(folder)


def _own(place: str, wanted: Wanted, where: str) -> Any:
    """The object ``module:Name`` of a person's own file."""
    look_in("")
    advice = (
        "expected 'module:Name' of a Python file in this folder, beside the config, or of an"
        " installed package"
    )
    return resolve_foreign(place, wanted, where=where, advice=advice)


def resolve(place: str) -> Any:
    """The object at ``module:Name`` or ``module:Class.method``; ImportError, AttributeError."""
    module, _, names = place.partition(":")
    return functools.reduce(getattr, names.split("."), importlib.import_module(module))


def resolve_foreign(place: str, wanted: Wanted, *, where: str, advice: str) -> Any:
    """The object at ``place`` in somebody else's code, which may do anything while it is imported;
    :class:`ConfigError` with ``where`` and ``advice`` when it fails, ends or is not what is wanted.
    """
    try:
        found = resolve(place)
    except (Exception, SystemExit) as error:
        reason = (
            str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        )
        raise ConfigError(f"{where}: '{place}' cannot be imported ({reason}); {advice}") from error
    if not wanted.fits(found):
        raise ConfigError(
            f"{where}: '{place}' is {str(found)[:80]!r}; expected {wanted.words}; {advice}"
        )
    return found
