"""Extensions: features that the core can do without, in `ensue.extensions` and in other packages.

An extension is one object of the class `Extension`. The core asks for its entries by kind and name, and imports what an
entry names only when it is used. Of equal names the core's comes first, then that of ensue, then those of others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ensue.errors import EnsueError, RecipeError
from ensue.notices import say_once

if TYPE_CHECKING:  # importing it takes longer than `ensue --help`
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Kind = Literal[
    "command", "task", "format", "layer", "recipe", "tracker", "exporter", "importer", "section",
    "data_kind", "pair_format", "coder", "name", "extension",
]  # fmt: skip
OLDER_GROUPS: tuple[Kind, ...] = ("layer", "task", "format", "recipe", "tracker")
"""The kinds whose entries may stand in an entry point group of their own, `ensue.layers` and so on."""


@dataclass(frozen=True)
class PipelineMethod:
    """A method of pipelines, and the options of a command that call it."""

    function: str
    """The function, "module:attribute": from a pipeline to a changed one (predict) or to scores (evaluate)."""
    pipeline: str
    """The class of pipelines that have the method, "module:class"; its subclasses have it, too."""
    command: Literal["", "predict", "evaluate"] = ""
    options: Mapping[str, tuple[type, str]] = field(default_factory=dict)
    """The options by name, each with its type and its help. They are given together. The function takes the value of
    the first one by position, unless it is a flag, and the others by name.
    """

    def __post_init__(self) -> None:
        if self.command not in ("", "predict", "evaluate"):
            raise TypeError(f"options are for predict and evaluate, not for {self.command!r:.60}")

    def is_of(self, pipeline: type[Any]) -> bool:
        """Return whether the pipelines of a class have the method."""
        return self.pipeline in {f"{each.__module__}:{each.__qualname__}" for each in pipeline.__mro__}

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, attribute = self.function.partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]

    def with_values(self, pipeline: Any, values: Mapping[str, Any]) -> Any:
        """Call the method on a pipeline with the values of its options. Raises EnsueError for one that is missing."""
        if self.options.keys() - values.keys():
            options = (f"--{name.replace('_', '-')} FILE" for name in self.options)
            raise EnsueError(f"{' and '.join(options)} go together")
        first, *others = self.options
        arguments = () if values[first] is True else (values[first],)
        return self.load()(pipeline, *arguments, **{name: values[name] for name in others})


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Additions of a package to ensue, by name. Values are "module:attribute", imported at first use.

    A package offers the object by an entry point in the group `ensue.extensions`.
    """

    name: str
    commands: Mapping[str, str] = field(default_factory=dict)
    """Functions with typer's annotations; their docstrings are the help."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Objects of the class `TaskEntry`."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """For suffixes without their dot, functions from a path, and perhaps an encoding, to rows, which are dicts."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `GuestEncoder`, the tables of encoders in recipes."""
    recipes: Mapping[str, str] = field(default_factory=dict)
    """For names of recipes, the packages that have the file NAME.toml."""
    trackers: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `Tracker`."""
    exporters: Mapping[str, str] = field(default_factory=dict)
    """For formats of `ensue export`, functions (run, description, out, *, overwrite, **options) that write the model of
    a `ModelDescription` and return lines about the files. The options are those of the command that they name.
    """
    importers: Mapping[str, str] = field(default_factory=dict)
    """Functions that make a run of a published model, if they know its files."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Functions from an `Inspection` to more sections of its page, which stand at the end."""
    data_kinds: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `DataKind`: data that `ensue data` recognizes, counts and reports."""
    methods: Mapping[str, PipelineMethod] = field(default_factory=dict)
    """Methods of trained models, and their options of commands."""
    pair_formats: Mapping[str, str] = field(default_factory=dict)
    """For suffixes without their dot, objects of the class `PairFormat`."""
    coders: Mapping[str, str] = field(default_factory=dict)
    """Functions that make a tokenizer of word vectors, from the text, the run to begin from and the recipe."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the package `ensue`: functions ("module:attribute") and modules ("module")."""
    needs: Collection[str] = ()
    """Other extensions without which this one does not work."""

    def __post_init__(self) -> None:
        """Raise TypeError for a value of another type, since other packages declare extensions, too."""
        for each in fields(self):
            value = getattr(self, each.name)
            kind, is_table = (PipelineMethod if each.name == "methods" else str), each.name not in ("name", "needs")
            items = value.values() if isinstance(value, Mapping) else value
            if isinstance(value, Mapping) != is_table or isinstance(value, str) != (each.name == "name"):
                raise TypeError(f"{each.name} is {value!r:.60}")
            if not all(isinstance(item, kind) for item in items):
                raise TypeError(f"{each.name}: expected values of type {kind.__name__}, found {value!r:.60}")


@dataclass(frozen=True)
class Entry:
    """A named addition of an extension."""

    kind: Kind
    name: str
    value: str
    """ "module:attribute" or "module"."""
    package: str
    """The package and its version, such as `ensue-minimal 0.1`; empty for an extension that comes with ensue."""

    @property
    def requirement(self) -> str:
        """The package in this version or a newer one, such as `ensue-minimal>=0.1`."""
        return self.package.replace(" ", ">=")

    def load(self, expected: type) -> Any:
        """Import the object, or class, of type `expected`.

        Raises:
            EnsueError: It is something else, or its module cannot be imported; the message names the package.
        """
        place = f'the {self.kind} "{self.name}" of the package {self.package or "ensue"}'
        module, _, attribute = self.value.partition(":")
        try:
            loaded = import_module(module)
            for name in filter(None, attribute.split(".")):
                loaded = getattr(loaded, name)
        except Exception as error:
            if not self.package:
                raise
            raise EnsueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from None
        if not (isinstance(loaded, expected) or (isinstance(loaded, type) and issubclass(loaded, expected))):
            raise EnsueError(f"{place}: expected a {expected.__name__} at {self.value}, found {loaded!r:.60}")
        return loaded


def extensions() -> dict[str, Extension]:
    """Return the extensions that come with ensue and those of other packages, by name."""
    return _first((extension.name, extension) for extension, _ in _extensions(tuple(sys.path)))


def entries(kind: Kind) -> dict[str, Entry]:
    """Return the entries of a kind by name, without importing what they name."""
    return _entries(kind, tuple(sys.path))


def find_entry(kind: Kind, name: object, expected: type) -> Any:
    """Import the entry of a name; None if no extension has one. Raises EnsueError as `Entry.load` does."""
    entry = entries(kind).get(name) if isinstance(name, str) else None
    return entry and entry.load(expected)


def pipeline_methods(command: str = "") -> dict[str, PipelineMethod]:
    """Return the methods that extensions add to pipelines, by name: those with options of a command, or all."""
    methods = _first(pair for each in extensions().values() for pair in each.methods.items())
    return {name: method for name, method in methods.items() if command in ("", method.command)}


def with_options(pipeline: Any, command: str, options: Mapping[str, Any]) -> Any:
    """Return the pipeline as the methods with these options of a command change it; None and False are left out.

    Raises TypeError for an option that no method of the pipeline has.
    """
    values = {name: value for name, value in options.items() if value is not None and value is not False}
    for method in pipeline_methods(command).values():
        if method.is_of(type(pipeline)) and not method.options.keys().isdisjoint(values):
            own = {name: values.pop(name) for name in [*values] if name in method.options}
            pipeline = method.with_values(pipeline, own)
    if values:
        raise TypeError(f"{type(pipeline).__name__}.{command} has no option {', '.join(values)}")
    return pipeline


def loadable_entries(kind: Kind, expected: type) -> dict[str, Any]:
    """Import all entries of a kind. Those that cannot be imported are left out, with a notice of each."""
    loaded = {}
    for name, entry in entries(kind).items():
        try:
            loaded[name] = entry.load(expected)
        except EnsueError as error:
            say_once(f"extension {kind} {name}", str(error))
    return loaded


@cache
def _extensions(path: tuple[str, ...]) -> list[tuple[Extension, str]]:
    """The extensions with their packages. One of another package that cannot be imported is left out, with a notice."""
    folder = import_module("ensue.extensions")
    names = sorted(module.name for module in iter_modules(folder.__path__))
    loaded = [(import_module(f"ensue.extensions.{name}").EXTENSION, "") for name in names]
    for point in _entry_points("ensue.extensions"):
        entry = Entry("extension", point.name, point.value, _package(point))
        try:
            loaded.append((entry.load(Extension), entry.package))
        except EnsueError as error:
            say_once(f"extension {point.name}", str(error))
    return loaded


@cache
def _entries(kind: Kind, path: tuple[str, ...]) -> dict[str, Entry]:
    found = [
        Entry(kind, name, value, package)
        for extension, package in _extensions(path)
        for name, value in getattr(extension, f"{kind}s").items()
    ]
    if kind in OLDER_GROUPS:
        points = _entry_points(f"ensue.{kind}s")
        found += [Entry(kind, point.name, point.value, _package(point)) for point in points]
    return _first((entry.name, entry) for entry in found)


def _first(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    """A dict in which the first of equal names stays."""
    found: dict[str, T] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _entry_points(group: str) -> Iterable[EntryPoint]:
    if not _has_entry_points(tuple(sys.path)):
        return ()
    return import_module("importlib.metadata").entry_points(group=group)  # type: ignore[no-any-return]


@cache
def _has_entry_points(path: tuple[str, ...]) -> bool:
    """Whether a package may have entry points for ensue. Importing importlib.metadata takes longer than this search."""
    with suppress(OSError):  # one that cannot be read may have some
        for folder in map(Path, path):
            if folder.is_file():  # an archive
                return True
            for file in chain(folder.glob("*.dist-info/entry_points.txt"), folder.glob("*.egg-info/entry_points.txt")):
                if b"[ensue." in file.read_bytes():
                    return True
        return False
    return True


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def with_needs(needs: Iterable[object], used: Iterable[Entry] = ()) -> list[Any]:
    """Return the packages that are needed, such as `ensue-minimal>=0.1`, with those of the entries that are used.

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
    added = {entry.requirement: None for entry in used if entry.package}
    return [*needs, *(text for text in added if _plain(text.partition(">=")[0]) not in names)]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
