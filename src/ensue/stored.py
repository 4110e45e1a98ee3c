"""Values that are kept as JSON: a class has the form of its constructor's arguments, by their names and annotations.

What pickles and copies of objects leave out is here, too: locks, and properties that are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache, cached_property
from threading import Lock
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from ensue.parsing import shown

FORMAT_VERSION = 1
_NAMES = {str: "a string", bool: "true or false", dict: "an object"}
_LOCK = type(Lock())


class Bounds(NamedTuple):
    """The least and the most of a number. `Annotated` with it, or with another check, a type has this check."""

    least: float
    most: float

    def __call__(self, value: float) -> None:
        """Raises ValueError for a number that is out of bounds."""
        if not self.least <= value <= self.most:
            raise ValueError(f"expected {self.least:,} to {self.most:,}, found {shown(value)}")


T = TypeVar("T")


def changed(value: T, **attributes: Any) -> T:
    """A copy of an object, with these attributes."""
    other = copy(value)
    vars(other).update(attributes)
    return other


class Copyable:
    """An object whose pickles and copies leave out its cached properties, and have new locks in place of its locks."""

    def __getstate__(self) -> dict[str, Any]:
        state = {n: v for n, v in vars(self).items() if not isinstance(getattr(type(self), n, None), cached_property)}
        return {name: Lock if isinstance(value, _LOCK) else value for name, value in state.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: Lock() if value is Lock else value for name, value in state.items()})


Count = Annotated[int, Bounds(0, 2**31 - 1)]
"""How many of something there are; bounded, since memory follows from it."""


class FormError(ValueError):
    """A JSON value that has not the expected form: one line, which begins with the place in it."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.reason, self.path = reason, path


class Stored:
    """A value that is kept as JSON: the arguments of its constructor, by the attributes of these names.

    A class whose keys are others has a class method `_restored`, which is called with them. An abstract class reads the
    values of its subclasses.
    """

    kind: ClassVar[str] = ""
    """The value of the key `kind`, beside which is the version; "" for a part of another value, which has neither."""
    unstored: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are not kept."""
    later: ClassVar[frozenset[str]] = frozenset()
    """Keys that files of earlier versions do not have."""

    def to_json(self) -> dict[str, Any]:
        """Everything that `from_json` needs, as JSON values."""
        head = {"kind": self.kind, "format_version": FORMAT_VERSION} if self.kind else {}
        return head | {name: _written(getattr(self, name)) for name in _form(type(self))}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """The inverse of `to_json`. Raises ValueError, with a message of one line, for other content."""
        family = {each.kind: each for each in _subclasses(cls) if each.kind != cls.kind}
        if not family:
            make: Callable[..., Self] = getattr(cls, "_restored", cls)
            form = _form(cls)  # type: ignore[arg-type]
            return make(**arguments(form, content, kind=cls.kind, later=cls.later))
        kind = arguments({"kind": str}, content)["kind"]
        if kind not in family:
            raise FormError(f"expected one of {', '.join(family)}, found {shown(kind)}", ("kind",))
        return cast("Self", family[kind].from_json(content))


def arguments(
    form: Mapping[str, Any], content: Any, *, kind: str = "", later: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The values of an object's keys, of these types. Unknown keys are left out, since they may be of other versions.
    Raises FormError.
    """
    if not isinstance(content, dict):
        raise FormError(f"expected an object, found {shown(content)}")
    if kind:
        head = arguments({"kind": Literal[kind], "format_version": Annotated[int, Bounds(1, math.inf)]}, content)
        if head["format_version"] > FORMAT_VERSION:
            version = shown(head["format_version"])
            raise FormError(f"format_version {version} is newer than this program, which reads {FORMAT_VERSION}")
    if missing := next((name for name in form if name not in content and name not in later), None):
        raise FormError(f"no {missing}")
    return {name: _inside(name, type_, content[name]) for name, type_ in form.items() if name in content}


@cache
def _form(cls: Any) -> dict[str, Any]:
    """The types of the arguments of a class, by name."""
    types = get_type_hints(getattr(cls, "_restored", cls.__init__), include_extras=True)
    return {name: type_ for name, type_ in types.items() if name not in {"return", *cls.unstored}}


def _subclasses(cls: type[Stored]) -> Iterator[type[Stored]]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _inside(key: str, type_: Any, value: Any) -> Any:
    """The value of a key; its mistakes are those of the key."""
    try:
        return read(type_, value)
    except FormError as error:
        raise FormError(error.reason, (key, *error.path)) from None
    except ValueError as error:
        raise FormError(str(error), (key,)) from None


def read(type_: Any, value: Any) -> Any:
    """A value of this type. Raises ValueError."""
    origin, parts = get_origin(type_), get_args(type_)
    if type_ is Any or (value is None and NoneType in parts):
        found = value
    elif origin is Annotated:
        found = read(parts[0], value)
        parts[1](found)
    elif NoneType in parts:
        found = read(next(part for part in parts if part is not NoneType), value)
    elif origin is Literal:
        found = _one_of(parts, value)
    elif hasattr(type_, "from_json"):
        found = type_.from_json(value)
    elif hasattr(type_, "_fields"):
        found = _row(type_, value)
    elif origin is None:
        found = _of(type_, value)
    elif issubclass(origin, Mapping):
        found = {name: _inside(name, parts[1], part) for name, part in _of(dict, value).items()}
    else:
        found = _list(origin, parts[0], value)
    return found


def _one_of(values: tuple[Any, ...], value: Any) -> Any:
    if value not in values or type(value) not in map(type, values):
        raise FormError(f"expected {' or '.join(map(shown, values))}, found {shown(value)}")
    return value


def _of(type_: type, value: Any) -> Any:
    """A value of JSON that is of this type itself; a real number may be a whole one."""
    if type_ is float and type(value) in (int, float) and abs(value) < 2**1023:
        return float(value)
    if type(value) is not type_ or type_ is float:
        raise FormError(f"expected {_NAMES.get(type_, 'a number')}, found {shown(value)}")
    return value


def _list(kind: type, type_: Any, value: Any) -> Any:
    if not isinstance(value, list):
        raise FormError(f"expected a list, found {shown(value)}")
    if type_ is str and all(type(part) is str for part in value):  # quick, for a million words
        parts = value
    else:
        parts = [_inside(str(place), type_, part) for place, part in enumerate(value)]
    return parts if kind is list else kind(parts) if kind in (tuple, frozenset) else tuple(parts)


def _row(type_: Any, value: Any) -> Any:
    """A named tuple, which is a list of all its fields."""
    types = get_type_hints(type_, include_extras=True)
    if not isinstance(value, list) or len(value) != len(types):
        raise FormError(f"expected a list of {len(types)}, found {shown(value)}")
    return type_(*(_inside(str(place), types[name], value[place]) for place, name in enumerate(types)))


def _written(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [part if isinstance(part, str) else _written(part) for part in value]
    return {name: _written(part) for name, part in value.items()} if isinstance(value, dict) else value
