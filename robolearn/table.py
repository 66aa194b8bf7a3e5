"""Resolves things by name from tables that installed packages extend.

    POLICIES = Table({"flow": "policies.imitation.flow:FlowConfig"}, what="policy",
                     group="robolearn.policies")
    POLICIES.find("flow")    # imports the module and returns FlowConfig

An installed package adds a name with an entry point of the table's group (``docs/plugins.md``);
it cannot replace one. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import functools
import importlib
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


class Table(Generic[T]):
    """Names to objects of one kind; iterating gives the names, built-in ones first.

    ``what`` says in errors what is looked up; ``group`` is that of the entry points which extend
    it. A group of several kinds (``robolearn.devices``) tells them apart by ``kind``, the part of
    an entry point's name before the first dot. ``taken`` lists further names that plug-ins must
    leave alone; ``hint`` ends the message about an unknown name.
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
    ) -> None:
        self.what, self.group = what, group
        self._own = {name: Entry(place, "robolearn") for name, place in places.items()}
        self._kind, self._taken, self._hint = kind, taken, hint
        self._entries: dict[str, Entry] | None = None
        self._found: dict[str, T] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries())

    def __contains__(self, name: object) -> bool:
        # Built-in names are answered without a look at what is installed.
        return name in self._own or name in self.entries()

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

        ``where`` (a file and key) begins the message. A plug-in that cannot be imported is a
        :class:`ConfigError` that names its package.
        """
        if name not in self._found:
            entry = self._own.get(name) or self.entries().get(name)
            if entry is None:
                raise error(self._unknown(name, where))
            self._found[name] = self._resolve(name, entry)
        return self._found[name]

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
        try:
            return cast("T", resolve(entry.place))
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"{self.what} '{name}' of the package {entry.owner}: '{entry.place}' cannot be"
                f" imported ({error}); repair or uninstall the package"
            ) from error

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


def resolve(place: str) -> Any:
    """The object at ``module:Name`` or ``module:Class.method``; ImportError, AttributeError."""
    module, _, names = place.partition(":")
    return functools.reduce(getattr, names.split("."), importlib.import_module(module))
