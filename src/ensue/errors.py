"""Exceptions for errors that the user can correct, with messages of one line, and checks of arguments.

A message names the place, the problem, the expected value and the value found. The command line prints the message of
an `EnsueError` and exits with status 2. Any other exception is a bug and shows its traceback.

A numeric setting is declared once, by an `Option` in the annotation of a dataclass field. The command line derives its
option from this declaration, and the server its request field.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

MAX_MESSAGE_CHARACTERS = 5000
"""The maximum length of a message, whose arguments may have any length. A path has at most 4,096 characters."""
_ARGUMENTS: tuple[tuple[str, Any], ...] = (
    (r"(overwrite|resume)\b", r"\1=True"),
    (r"(encoding|device) ([\w.-]*\w)", r'\1="\2"'),
    (r"from (\S*\w)", r'from_run="\1"'),
    (r"set takes", "settings take"),
    (r"set '([\w.]+)=([^']*)'", r'settings={"\1": "\2"}'),
    (r"set ([\w.]+)=([\w.]+) and ([\w.]+)=([\w.]+)", r'settings={"\1": "\2", "\3": "\4"}'),
    (r"set ([\w.]+)=([\w.]+(?:,[\w.]+)*)", r'settings={"\1": "\2"}'),
    (r"set ([\w.]+)\b", r'the setting "\1"'),
    (r"([a-z][a-z-]*)", lambda match: match[1].replace("-", "_")),
)
"""Command-line options in messages, and the corresponding arguments in Python; the last rule is for any option."""
FILES_OF_ROWS: dict[str, Callable[[int | None], str]] = {}
"""Temporary files with data that a program has passed as Python objects, by path. The function of a file maps a line
number, or None for the file itself, to the name that messages show.
"""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Matches line ends, control characters of terminals, and characters that change the direction of text."""


def to_one_line(text: str) -> str:
    """Escape line ends and control characters, and leave out the middle of a text above MAX_MESSAGE_CHARACTERS."""
    line = _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
    half = MAX_MESSAGE_CHARACTERS // 2 - 2
    return line if len(line) <= MAX_MESSAGE_CHARACTERS else f"{line[:half]} … {line[-half:]}"


def in_python(message: str) -> str:
    """Return a message with arguments of Python in place of options; a command for the shell keeps its options."""
    text, command = re.split(r"(?=\bensue [a-z]|$)", message, maxsplit=1)
    for option, argument in _ARGUMENTS:
        text = re.sub(rf"(?<![\w-])--{option}", argument, text)
    return text + command


NESTED_REMEDY = "the recipe tag-nested learns overlapping spans"


class UserMessage:
    """The base of errors and warnings for the user."""

    def __str__(self) -> str:
        """Return the message in one line, with arguments of Python in place of options."""
        message = self.in_options()
        for path, name_row in FILES_OF_ROWS.items():
            if path in message:
                pattern = rf"{re.escape(path)}(?::(\d+))?"
                message = re.sub(pattern, lambda row: name_row(int(row[1]) if row[1] else None), message)  # noqa: B023
        return to_one_line(in_python(message))

    def in_options(self) -> str:
        """Return the message with options of the command line."""
        return super().__str__()


class EnsueError(UserMessage, Exception):
    """The base of every error that a user can correct."""


class DataError(EnsueError):
    """Data that cannot be read or written. The message begins with `path: ` or `path:line: ` if these are known.

    `options` maps settings of a recipe in the message to the corresponding options of commands.
    """

    def __init__(
        self, message: str, path: str | Path | None = None, line: int | None = None, *,
        options: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.place = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        self.message, self.options = message, options or {}
        super().__init__(self.place + message)

    def with_options(self) -> "DataError":
        """Return the error for commands without `--set`: options replace settings, other advice is left out."""
        message = self.message
        for setting, option in {**self.options, "--set data.labels=": "--labels "}.items():
            message = message.replace(setting, option)
        return DataError(self.place + re.sub(r"; --set [^;]*", "", message))


class IncompleteError(DataError):
    """A row without a label, a text, a source or a target; `missing` is the name of the missing value."""

    def __init__(
        self, message: str, path: str | Path | None = None, line: int | None = None, missing: str = ""
    ) -> None:
        super().__init__(message, path, line)
        self.missing = missing


class OverlapError(DataError):
    """Overlapping spans in the data of a model whose spans do not overlap."""


class RecipeError(EnsueError):
    """A recipe with an unknown key, a wrong type, or values that do not fit together."""


class RunError(EnsueError):
    """A run directory that is missing, in use, damaged or of another version."""


class MissingFileError(RunError):
    """A file that is missing at an address such as `hf:NAME`, or in the cache of a process without network access."""


class TrainingError(EnsueError):
    """Training that cannot continue: a loss that is not finite, a text that is too short, a full disk."""


class ContextError(EnsueError):
    """A text with more positions than the model has position vectors."""


class ReportedError(EnsueError):
    """A failure that another process of the same run has reported."""


def quote(value: Any, max_characters: int = 60) -> str:
    """Return the `repr` of a value for a message, shortened to `max_characters`."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # more digits or levels than Python prints
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def letters_and_digits(text: str) -> str:
    """Return a text without punctuation, white space and escaped line ends, to compare the texts of different tools."""
    return re.sub(r"\\n|[\W_]+", "", text)


T = TypeVar("T")


def look_up(table: Mapping[str, T], name: str, what: str) -> T:
    """Return an entry of a table of `what`. Raises RecipeError, with the known names, for an unknown name."""
    if name not in table:
        raise RecipeError(f'unknown {what} "{name}"; expected one of {", ".join(table)}{nearest(name, table)}')
    return table[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "..."?` with the most similar known name; "" if no known name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f'; did you mean "{close[0]}"?' if close else ""


def list_names(names: Sequence[str], max_names: int = 6) -> str:
    """Join the first `max_names` names with commas, and append `...` if there are more. Long names are shortened."""
    return ", ".join(distinct_names(names[:max_names])) + (", ..." if len(names) > max_names else "")


def pluralize(count: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun; the default of the plural is the singular and an s."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def distinct_names(names: Sequence[str], max_characters: int = 40) -> list[str]:
    """Escape names, and shorten names above `max_characters` at the end or in the middle, if they stay distinct."""
    half = (max_characters - 3) // 2
    shown = [name if len(name) <= max_characters else f"{name[: max_characters - 3]}..." for name in names]
    for longer in ([f"{name[:half]}...{name[-half:]}" for name in names], names):
        counts = Counter(text for text, _ in set(zip(shown, names, strict=True)))
        shown = [other if counts[text] > 1 else text for text, other in zip(shown, longer, strict=True)]
    return ["".join(char if char.isprintable() else repr(char)[1:-1] for char in name) for name in shown]


def check_type(name: str, value: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise TypeError unless `value` has the type `kind`, which `expected` describes. Booleans are not numbers."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise TypeError(f"{name} is {quote(value)}; expected {expected}")


def check_path(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a string or a path."""
    check_type(name, value, (str, PathLike), "a path")


def check_texts(value: Any, expected: str) -> None:
    """Raise EnsueError for a single text, and TypeError for a table, a mapping, bytes or a value that has no items."""
    if isinstance(value, str):
        raise EnsueError("predict takes a list of texts; for a single text: predict([text])")
    names = () if hasattr(value, "collect") else getattr(value, "columns", getattr(value, "column_names", None))
    if isinstance(names, Iterable) and (names := [*names]):
        remedy = f"expected the column of its texts, predict(table[COLUMN]); columns: {list_names([*map(str, names)])}"
        raise TypeError(f"predict takes a list of {expected}; found a table; {remedy}")
    if isinstance(value, bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"predict takes a list of {expected}; found {quote(value)}")


def check_text_list(value: Any, expected: str, *, are_lists: bool = True) -> list[Any]:
    """Return a list of texts or, if `are_lists`, of lists of words. Raises like `check_texts`, and for other items."""
    check_texts(value, expected)
    texts = [text.tolist() if hasattr(text, "tolist") else text for text in value]
    for number, text in enumerate(texts):
        words = text if are_lists and isinstance(text, list | tuple) else [text]
        if not all(isinstance(word, str) for word in words):
            raise EnsueError(f"predict takes a list of {expected}; text {number + 1} ([{number}]) is {quote(text)}")
    return texts


def check_integer(name: str, value: Any, minimum: int, maximum: int) -> None:
    """Raise TypeError unless `value` is an integer, and EnsueError unless it is from `minimum` to `maximum`."""
    NumericSetting(int, minimum, Option(minimum, maximum)).check(name, value)


def check_fraction(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a number, and EnsueError unless it is from 0 to 1."""
    NumericSetting(float, 0, Option(0, 1)).check(name, value)


@dataclass(frozen=True)
class Option:
    """The declaration of a numeric setting: bounds, name and help."""

    minimum: float
    maximum: float
    help: str = ""
    """The help of the command line; "" if no command has the option."""
    name: str = ""
    """The name on the command line, if it differs from the field's name."""
    expected: str = ""
    """The description of the bounds; by default "a number from `minimum` to `maximum`"."""
    excludes_minimum: bool = False
    """Whether `minimum` itself is out of bounds."""
    in_api: tuple[float, float] | None = None
    """The bounds of the field in a request to a server; None if requests have no such field."""
    no_effect_value: float | None = None
    """The default of the request field, with which the setting has no effect; None stands for null."""


class NumericSetting(NamedTuple):
    """A declared setting of type int or float. None is valid if the default is None."""

    kind: type
    default: Any
    option: Option

    def check(self, name: str, value: Any) -> None:
        """Raise TypeError for a value that is not a number, EnsueError for a number out of bounds."""
        option, noun = self.option, "a whole number" if self.kind is int else "a number"
        if value is None and self.default is None:
            return
        check_type(name, value, Integral if self.kind is int else Real, noun)
        if not option.minimum <= value <= option.maximum or (option.excludes_minimum and value == option.minimum):
            expected = option.expected or f"{noun} from {option.minimum:,} to {option.maximum:,}"
            raise EnsueError(f"{name} is {quote(value)}; expected {expected}")


@cache
def numeric_settings(declared: type) -> Mapping[str, NumericSetting]:
    """Return the fields of a dataclass that have an `Option`, by name."""
    settings = {}
    hints = get_type_hints(declared, include_extras=True)
    for field in fields(declared):
        kind, *notes = get_args(hints[field.name]) or (None,)
        for option in notes:
            if isinstance(option, Option):
                kind = int if kind in (int, int | None) else float
                settings[field.name] = NumericSetting(kind, field.default, option)
    return settings


def check_field_names(noun: str, names: Iterable[str], declared: type) -> None:
    """Raise EnsueError for a name that is not a field of a dataclass, which `noun` describes."""
    expected = [field.name for field in fields(declared)]
    for name in names:
        if name not in expected:
            raise EnsueError(f'{noun} has no "{name}"; expected one of {", ".join(expected)}{nearest(name, expected)}')


def check_settings(value: Any) -> None:
    """Raise TypeError or EnsueError for a field that violates its `Option`."""
    for name, setting in numeric_settings(value.__class__).items():
        setting.check(name, getattr(value, name))


def fields_by_option(declared: type) -> dict[str, str]:
    """Return the names of a dataclass's fields, by option name."""
    return {setting.option.name or name: name for name, setting in numeric_settings(declared).items()}
