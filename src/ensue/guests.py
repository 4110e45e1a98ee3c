"""Guests: layers, tasks, formats, recipes and trackers of other packages, found by their entry points.

The tables of ensue come first. Other packages are looked at where a name is in none of them, or where a list is shown,
and are imported where one of their names is used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ensue.errors import EnsueError, RecipeError
from ensue.notices import say_once

if TYPE_CHECKING:  # they take longer to import than `ensue --help` to answer
    from importlib.metadata import EntryPoint

Kind = Literal["layer", "task", "format", "recipe", "tracker"]
"""The kinds of guests. The entry points of layers are in the group `ensue.layers`, and so on."""


class Guest(NamedTuple):
    """An entry point of another package."""

    kind: Kind
    entry: EntryPoint

    @property
    def package(self) -> str:
        """The package and its version, such as `ensue-minimal 0.1`."""
        return f"{self.entry.dist.name} {self.entry.dist.version}" if self.entry.dist else self.entry.module

    @property
    def requirement(self) -> str:
        """The package in this version or a newer one, such as `ensue-minimal>=0.1`."""
        return self.package.replace(" ", ">=")

    def load(self, expected: type) -> Any:
        """The object, or class, of type `expected`. Raises EnsueError, which names the package, for anything else, and
        if the package cannot be imported.
        """
        place = f'the {self.kind} "{self.entry.name}" of the package {self.package}'
        try:
            found = self.entry.load()
        except Exception as error:
            raise EnsueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from None
        if not (isinstance(found, expected) or (isinstance(found, type) and issubclass(found, expected))):
            raise EnsueError(f"{place}: expected a {expected.__name__} at {self.entry.value}, found {found!r:.60}")
        return found


def guests(kind: Kind) -> dict[str, Guest]:
    """The guests of a kind by their names, without importing their packages."""
    return _guests(kind, tuple(sys.path))


@cache
def _guests(kind: Kind, path: tuple[str, ...]) -> dict[str, Guest]:
    found = import_module("importlib.metadata").entry_points(group=f"ensue.{kind}s")
    return {entry.name: Guest(kind, entry) for entry in found}


def find_guest(kind: Kind, name: object, expected: type) -> Any:
    """The object of a guest; None if no package has one of this name. Raises EnsueError as `Guest.load` does."""
    guest = guests(kind).get(name) if isinstance(name, str) else None
    return guest and guest.load(expected)


def working_guests(kind: Kind, expected: type) -> Iterator[Any]:
    """The objects of all guests that can be loaded. There is a notice of each of the others."""
    for guest in guests(kind).values():
        try:
            yield guest.load(expected)
        except EnsueError as error:
            say_once(f"guest {kind} {guest.entry.name}", str(error))


def with_needs(needs: Iterable[object], used: Iterable[Guest] = ()) -> list[Any]:
    """Packages that are needed, such as `ensue-minimal>=0.1`, with those of the guests that are used.

    Raises RecipeError for the first of them that is not installed.
    """
    needs, names = list(needs), set()
    if needs and find_spec("packaging") is None:
        raise RecipeError("needs: to compare versions of packages takes packaging: pip install packaging")
    metadata = import_module("importlib.metadata")
    packages: Any = needs and import_module("packaging.requirements")
    for text in needs:
        try:
            needed = packages.Requirement(str(text))
            version = metadata.version(needed.name)
        except packages.InvalidRequirement:
            raise RecipeError(f'needs: expected a package, such as "ensue-minimal>=0.1", found {text!r:.60}') from None
        except metadata.PackageNotFoundError:
            raise RecipeError(f"needs the package {text}, which is not installed: pip install '{text}'") from None
        if not needed.specifier.contains(version, prereleases=True):
            raise RecipeError(f"needs the package {text}, but {version} is installed: pip install '{text}'")
        names.add(_plain(needed.name))
    own = {guest.requirement: None for guest in used}
    return [*needs, *(text for text in own if _plain(text.partition(">=")[0]) not in names)]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
