"""Extensions: optional features, such as addresses (`hf:NAME`), in `ensue.extensions` and in other packages.

An extension is one object of the class `Extension`. The core looks up entries by kind and name, and imports the object
of an entry at its first use. If several entries have the same name, the entry of the core has precedence, then the
entry in `ensue.extensions`, then the entry of another package.
"""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path, PurePath
from pkgutil import iter_modules, resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from ensue.errors import EnsueError, RecipeError, RunError
from ensue.notices import warn_once

if TYPE_CHECKING:  # this import takes longer than `ensue --help`
    from importlib.metadata import EntryPoint

T = TypeVar("T")
Kind = Literal[
    "command", "task", "format", "layer", "recipe", "tracker", "exporter", "importer", "section",
    "writer", "data_kind", "pair_format", "json_layout", "coder", "proposal", "scheme", "name", "extension",
]  # fmt: skip
OLDER_GROUPS: tuple[Kind, ...] = ("layer", "task", "format", "recipe", "tracker")
"""The kinds for which packages may also use one entry point group per kind, such as `ensue.layers`."""


@dataclass(frozen=True)
class PipelineMethod:
    """A method of pipelines, and the options of the command that calls the method."""

    function: str
    """The function, "module:attribute". It takes a pipeline, and returns a changed pipeline (predict), scores
    (evaluate), or with `reads_data` a report: scores (`scores`), JSON values (`as_json()`) and tables (`tables()`).
    """
    pipeline: str
    """The class of pipelines with the method, "module:class". Subclasses have the method, too."""
    command: Literal["", "predict", "evaluate"] = ""
    options: Mapping[str, tuple[type, str]] = field(default_factory=dict)
    """The type and the help of each option, by name. A user sets all options or none. The function takes the value of
    the first option by position, unless the option is a flag, and the other values by name.
    """
    reads_data: bool = False
    """Whether `evaluate` passes its data to the function. Then each option may be set alone, and paths are outputs. The
    function takes pipeline and data, and by name `encoding`, `format`, `overwrite` and the options that are set.
    """

    def __post_init__(self) -> None:
        if self.command not in ("", "predict", "evaluate"):
            raise TypeError(f"options are for predict and evaluate, not for {self.command!r:.60}")

    def is_of(self, pipeline: type[Any]) -> bool:
        """Return whether the pipelines of a class have the method."""
        return self.pipeline in {f"{base.__module__}:{base.__qualname__}" for base in pipeline.__mro__}

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        return resolve_name(self.function)

    def with_values(self, pipeline: Any, values: Mapping[str, Any]) -> Any:
        """Call the method on a pipeline with the values of its options. Raises EnsueError for a missing option."""
        if self.options.keys() - values.keys():
            options = (
                f"--{name.replace('_', '-')}" + " FILE" * (kind is Path) for name, (kind, _) in self.options.items()
            )
            raise EnsueError(f"{' and '.join(options)} go together")
        first, *others = self.options
        arguments = () if values[first] is True else (values[first],)
        return self.load()(pipeline, *arguments, **{name: values[name] for name in others})


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Additions of a package to ensue, by name. Values are "module:attribute", imported at first use, unless noted.

    A package offers the object by an entry point in the group `ensue.extensions`.
    """

    name: str
    commands: Mapping[str, str] = field(default_factory=dict)
    """Functions with typer's annotations; their docstrings are the help."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Objects of the class `TaskEntry`."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """By suffix without the dot: functions that take a path, and optionally an encoding, and return rows as dicts."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `GuestEncoder`, the tables of encoders in recipes."""
    recipes: Mapping[str, str] = field(default_factory=dict)
    """By name of the recipe: the package with the file NAME.toml."""
    trackers: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `Tracker`."""
    exporters: Mapping[str, str] = field(default_factory=dict)
    """By format of `ensue export`: functions (run, description, out, *, overwrite, **options) that write the model of a
    `ModelDescription` and return lines about the files. Their `options` are options of the command.
    """
    importers: Mapping[str, str] = field(default_factory=dict)
    """Functions that convert a published model to a run, if they recognize the model's files."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Functions that take an `Inspection` and return sections for the end of its page."""
    data_kinds: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `DataKind`: data that `ensue data` recognizes, counts and reports."""
    methods: Mapping[str, PipelineMethod] = field(default_factory=dict)
    """Methods of trained models, with the command-line options that call them."""
    generate_options: Mapping[str, tuple[type, str]] = field(default_factory=dict)
    """The type and the help of options of `ensue generate`, by name. The options are parameters of `generate_into`, a
    method of pipelines that write files.
    """
    pair_formats: Mapping[str, str] = field(default_factory=dict)
    """By suffix without the dot: objects of the class `PairFormat`."""
    json_layouts: Mapping[str, str] = field(default_factory=dict)
    """Subclasses of `JsonLayout`, for JSON files that do not have one object per example."""
    writers: Mapping[str, str] = field(default_factory=dict)
    """By format of `ensue predict --to`: functions (pipeline, texts, out, *, to, format, encoding, offsets, overwrite)
    that write the predictions and return the lines for stdout.
    """
    coders: Mapping[str, str] = field(default_factory=dict)
    """Functions that build the tokenizer of word vectors from the text, the run to continue and the recipe."""
    proposals: Mapping[str, str] = field(default_factory=dict)
    """Functions (location of data, settings "key=value") that return a recipe, further settings and the reason."""
    schemes: Mapping[str, str] = field(default_factory=dict)
    """By address scheme, such as `hf` of `hf:NAME`: objects of the class `ensue.extension.Scheme`."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Additional public names of the package `ensue`: functions ("module:attribute") and modules ("module")."""
    needs: Collection[str] = ()
    """The names of the extensions that this extension requires."""

    def __post_init__(self) -> None:
        """Raise TypeError for a field of a wrong type, since authors of other packages may not use a type checker."""
        for name in (declared.name for declared in fields(self)):
            value = getattr(self, name)
            kind: type = {"methods": PipelineMethod, "generate_options": tuple}.get(name, str)
            is_table = name not in ("name", "needs")
            items = value.values() if isinstance(value, Mapping) else value
            if isinstance(value, Mapping) != is_table or isinstance(value, str) != (name == "name"):
                raise TypeError(f"{name} is {value!r:.60}")
            if not all(isinstance(item, kind) for item in items):
                raise TypeError(f"{name}: expected values of type {kind.__name__}, found {value!r:.60}")


@dataclass(frozen=True)
class Entry:
    """A named addition of an extension."""

    kind: Kind
    name: str
    value: str
    """ "module:attribute" or "module"."""
    package: str
    """The package and its version, such as `ensue-minimal 0.1`; "" for an extension in `ensue.extensions`."""

    @property
    def requirement(self) -> str:
        """The requirement of the package with at least this version, such as `ensue-minimal>=0.1`."""
        return self.package.replace(" ", ">=")

    def load(self, expected: type) -> Any:
        """Import an object of the class `expected`, or a subclass of it.

        Raises:
            EnsueError: The type differs, or the module cannot be imported. The message names the package.
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
    """Return the extensions of `ensue.extensions` and of other packages, by name."""
    return _first_by_name((extension.name, extension) for extension, _ in _extensions(tuple(sys.path)))


def entries(kind: Kind) -> dict[str, Entry]:
    """Return the entries of a kind by name, without importing their objects."""
    return _entries(kind, tuple(sys.path))


def find_entry(kind: Kind, name: object, expected: type) -> Any:
    """Import the object of an entry; None if the name is unknown. Raises EnsueError like `Entry.load`."""
    entry = entries(kind).get(name) if isinstance(name, str) else None
    return entry and entry.load(expected)


def pipeline_methods(command: str = "") -> dict[str, PipelineMethod]:
    """Return the methods that extensions add to pipelines, by name. With `command`, only methods with its options."""
    methods = _first_by_name(pair for extension in extensions().values() for pair in extension.methods.items())
    return {name: method for name, method in methods.items() if command in ("", method.command)}


def generate_options() -> dict[str, tuple[type, str]]:
    """Return the options that extensions add to `ensue generate`, by name."""
    return _first_by_name(pair for extension in extensions().values() for pair in extension.generate_options.items())


def with_options(pipeline: Any, command: str, options: Mapping[str, Any]) -> Any:
    """Call the methods of a pipeline that have these options of a command, and return the result of the last method.

    Options with the value None or False are ignored. Raises TypeError for an option that no method of the pipeline has.
    """
    values = {name: value for name, value in options.items() if value is not None and value is not False}
    for method in pipeline_methods(command).values():
        if method.is_of(type(pipeline)) and not method.options.keys().isdisjoint(values):
            values_of_method = {name: values.pop(name) for name in [*values] if name in method.options}
            pipeline = method.with_values(pipeline, values_of_method)
    if values:
        hint = "; for options of the search, call with_search" if hasattr(pipeline, "with_search") else ""
        raise TypeError(f"{type(pipeline).__name__}.{command} has no option {', '.join(values)}{hint}")
    return pipeline


def loadable_entries(kind: Kind, expected: type) -> dict[str, Any]:
    """Return the objects of all entries of a kind by name. Warn about each entry that cannot be imported."""
    loaded = {}
    for name, entry in entries(kind).items():
        try:
            loaded[name] = entry.load(expected)
        except EnsueError as error:
            warn_once(f"extension {kind} {name}", str(error))
    return loaded


@cache
def _extensions(path: tuple[str, ...]) -> list[tuple[Extension, str]]:
    """Return the extensions with their packages, cached by `path`. Warn about extensions that cannot be imported."""
    names = sorted(module.name for module in iter_modules(import_module("ensue.extensions").__path__))
    loaded = [(import_module(f"ensue.extensions.{name}").EXTENSION, "") for name in names]
    for point in _entry_points("ensue.extensions"):
        entry = Entry("extension", point.name, point.value, _package_version(point))
        try:
            loaded.append((entry.load(Extension), entry.package))
        except EnsueError as error:
            warn_once(f"extension {point.name}", str(error))
    return loaded


@cache
def _entries(kind: Kind, path: tuple[str, ...]) -> dict[str, Entry]:
    added = [
        Entry(kind, name, value, package)
        for extension, package in _extensions(path)
        for name, value in getattr(extension, f"{kind}s").items()
    ]
    if kind in OLDER_GROUPS:
        points = _entry_points(f"ensue.{kind}s")
        added += [Entry(kind, point.name, point.value, _package_version(point)) for point in points]
    return _first_by_name((entry.name, entry) for entry in added)


def _first_by_name(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    first: dict[str, T] = {}
    for name, value in pairs:
        first.setdefault(name, value)
    return first


def _entry_points(group: str) -> "Iterable[EntryPoint]":
    if not _has_entry_points(tuple(sys.path)):
        return ()
    return import_module("importlib.metadata").entry_points(group=group)


@cache
def _has_entry_points(path: tuple[str, ...]) -> bool:
    """Return whether a package may have entry points for ensue. Importing importlib.metadata would be slower."""
    with suppress(OSError):  # a folder that cannot be read may have entry points
        for folder in map(Path, path):
            if folder.is_file():  # a zip archive may have entry points
                return True
            for file in chain(folder.glob("*.dist-info/entry_points.txt"), folder.glob("*.egg-info/entry_points.txt")):
                if b"[ensue." in file.read_bytes():
                    return True
        return False
    return True


def _package_version(point: "EntryPoint") -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module


def all_requirements(needs: Iterable[object], used: Iterable[Entry] = ()) -> list[Any]:
    """Return the required packages, such as `ensue-minimal>=0.1`, and the packages of the entries in `used`.

    Raises RecipeError for a required package that is not installed in a matching version.
    """
    needs, names = list(needs), set()
    if needs and find_spec("packaging") is None:
        raise RecipeError("needs: comparing versions needs the package packaging: pip install packaging")
    metadata = import_module("importlib.metadata")
    packages: Any = needs and import_module("packaging.requirements")
    for text in needs:
        try:
            requirement = packages.Requirement(str(text))
            version = metadata.version(requirement.name)
        except packages.InvalidRequirement:
            raise RecipeError(f'needs: expected a package, such as "ensue-minimal>=0.1", found {text!r:.60}') from None
        except metadata.PackageNotFoundError:
            raise RecipeError(f"needs the package {text}, which is not installed: pip install '{text}'") from None
        if not requirement.specifier.contains(version, prereleases=True):
            raise RecipeError(f"needs the package {text}, but {version} is installed: pip install '{text}'")
        names.add(_normalize(requirement.name))
    added = {entry.requirement: None for entry in used if entry.package}
    return [*needs, *(text for text in added if _normalize(text.partition(">=")[0]) not in names)]


def _normalize(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


_SCHEME = re.compile(r"([a-z][\w+-]+):\S")
"""Matches a scheme of two or more characters, since `C:` is a drive of Windows."""


class Scheme(ABC):
    """An address scheme, such as `hf:`, which an extension declares in `schemes`."""

    how_to_write: ClassVar[str]
    """The command that uploads files to an address, for the error message if an output directory is an address."""

    @abstractmethod
    def local_run(self, address: str) -> Path:
        """Return the local directory with the files of a run. Raises RunError if the files are unavailable."""

    @abstractmethod
    def run_name(self, location: str) -> str:
        """Return the short name of the run at an address, or in a directory of `local_run`; "" for other locations."""

    @abstractmethod
    def load_dataset(self, address: str) -> tuple[Any, str]:
        """Return a data set of the package `datasets`, and the name of its split. Raises DataError if it is missing."""


def scheme_of(location: str | Path) -> Scheme | None:
    """Return the scheme of an address; None for a path."""
    return loadable_entries("scheme", Scheme).get(_scheme_name(location)) if is_address(location) else None


def is_address(location: str | Path) -> bool:
    """Return whether a location begins with the scheme of an installed extension, without importing the extension."""
    return _scheme_name(location) in entries("scheme")


def unknown_scheme(location: str | Path) -> str:
    """Return a hint for the error about a missing file whose name looks like an address; else ""."""
    match = _SCHEME.match(_to_text(location))
    return f'; no installed extension reads addresses with "{match[1]}:"' if match else ""


def local_run(location: str | Path) -> Path:
    """Return the directory of a run at a path or address, or of an installed model. Raises RunError like `Scheme`."""
    if scheme := scheme_of(location):
        return scheme.local_run(_to_text(location))
    return Path(location) if os.path.exists(location) else installed_models().get(str(location), Path(location))


def installed_models() -> dict[str, Path]:
    """Return the run directories of installed packages by name. An entry point NAME = PACKAGE of the group
    `ensue.models` declares the folder NAME of PACKAGE. No code of a package is executed.
    """
    return _first_by_name(
        (point.name, Path(str(point.dist.locate_file(point.value.replace(".", "/"))), point.name))
        for point in _entry_points("ensue.models")
        if point.dist
    )


def run_name(location: str | Path) -> str:
    """Return the short name of a run: the last part of its directory or address."""
    text = _to_text(location)
    names = (scheme.run_name(text) for scheme in loadable_entries("scheme", Scheme).values())
    return next(filter(None, names), "") or Path(location).resolve().name


def output_directory(out: str | Path) -> Path:
    """Return the path of a directory to write. Raises RunError for an address."""
    if scheme := scheme_of(out):
        raise RunError(f"{_to_text(out)}: --out names a directory; {scheme.how_to_write}")
    return Path(out)


def _scheme_name(location: str | Path) -> str:
    """Return the text before the first colon; "" without a colon."""
    return _to_text(location).rpartition(":")[0].partition(":")[0]


def _to_text(location: str | Path) -> str:
    return location.as_posix() if isinstance(location, PurePath) else location
