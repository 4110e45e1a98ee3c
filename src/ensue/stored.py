"""Base classes for objects that are stored as JSON, copied or pickled.

The JSON schema of a class follows from the names and annotations of its constructor's arguments.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache, cached_property
from threading import Lock
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args, get_origin, get_type_hints

from ensue.errors import quote

FORMAT_VERSION = 1
_TYPE_NAMES = {str: "a string", bool: "true or false", dict: "an object"}
_LOCK = type(Lock())


class Bounds(NamedTuple):
    """The bounds of a number, as in `Annotated[int, Bounds(0, 9)]`.

    Any other function that raises ValueError for a wrong value may stand in the annotation as well.
    """

    minimum: float
    maximum: float

    def __call__(self, value: float) -> None:
        """Raise ValueError for a number out of bounds."""
        if not self.minimum <= value <= self.maximum:
            raise ValueError(f"expected {self.minimum:,} to {self.maximum:,}, found {quote(value)}")


T = TypeVar("T")


def copy_with(value: T, **attributes: Any) -> T:
    """Return a copy of an object with new values of `attributes`."""
    result = copy(value)
    vars(result).update(attributes)
    return result


class Copyable:
    """An object whose copies and pickles have new locks, and do not have the values of cached properties."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: Lock if isinstance(value, _LOCK) else value
            for name, value in vars(self).items()
            if not isinstance(getattr(type(self), name, None), cached_property)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: Lock() if value is Lock else value for name, value in state.items()})


Count = Annotated[int, Bounds(0, 2**31 - 1)]
"""A count, bounded since a count read from a file determines how much memory is allocated."""


class SchemaError(ValueError):
    """A JSON value that does not match the schema. The message is one line and begins with the path of keys."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(path)}: {reason}" if path else reason)
        self.reason, self.path = reason, path


class Stored:
    """A value stored as a JSON object. Each key is an argument of the constructor and an attribute of the same name.

    A class with other keys defines a class method `_restored`, whose arguments are the keys. `from_json` of an abstract
    class returns an object of the subclass that the key `kind` names.
    """

    kind: ClassVar[str] = ""
    """The value of the key `kind`, which is stored with the version; "" for an object inside of another object."""
    unstored: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are not stored."""
    optional_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that files of earlier versions lack; the constructor has defaults for them."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for `from_json`."""
        head = {"kind": self.kind, "format_version": FORMAT_VERSION} if self.kind else {}
        return head | {name: _to_json(getattr(self, name)) for name in _schema(type(self))}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """Return the object of a JSON value. Raises ValueError, with a message of one line, for other content."""
        subclasses = {subclass.kind: subclass for subclass in _subclasses(cls) if subclass.kind != cls.kind}
        if not subclasses:
            make: Callable[..., Self] = getattr(cls, "_restored", cls)
            schema = _schema(cls)  # type: ignore[arg-type]
            return make(**arguments(schema, content, kind=cls.kind, optional_keys=cls.optional_keys))
        kind = arguments({"kind": str}, content)["kind"]
        if kind not in subclasses:
            raise SchemaError(f"expected one of {', '.join(subclasses)}, found {quote(kind)}", ("kind",))
        return subclasses[kind].from_json(content)


def arguments(
    schema: Mapping[str, Any], content: Any, *, kind: str = "", optional_keys: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the values of a JSON object with the types of `schema`. Raises SchemaError for other content.

    Unknown keys are ignored, since another version may have written them.
    """
    if not isinstance(content, dict):
        raise SchemaError(f"expected an object, found {quote(content)}")
    if kind:
        head = arguments({"kind": Literal[kind], "format_version": Annotated[int, Bounds(1, math.inf)]}, content)
        if head["format_version"] > FORMAT_VERSION:
            version = quote(head["format_version"])
            raise SchemaError(f"format_version {version} is newer than this program, which reads {FORMAT_VERSION}")
    if missing := next((name for name in schema if name not in content and name not in optional_keys), None):
        raise SchemaError(f"no {missing}")
    return {name: _read_key(name, type_, content[name]) for name, type_ in schema.items() if name in content}


@cache
def _schema(cls: Any) -> dict[str, Any]:
    types = get_type_hints(getattr(cls, "_restored", cls.__init__), include_extras=True)
    return {name: type_ for name, type_ in types.items() if name not in {"return", *cls.unstored}}


def _subclasses(cls: type[T]) -> Iterator[type[T]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _read_key(key: str, type_: Any, value: Any) -> Any:
    """Return the value of a key. Raises SchemaError with the key in the error's path."""
    try:
        return read(type_, value)
    except SchemaError as error:
        raise SchemaError(error.reason, (key, *error.path)) from None
    except ValueError as error:
        raise SchemaError(str(error), (key,)) from None


def read(type_: Any, value: Any) -> Any:
    """Return a JSON value, converted to a type. Raises ValueError if the value does not match the type."""
    origin, types = get_origin(type_), get_args(type_)
    if type_ is Any or (value is None and NoneType in types):
        result = value
    elif origin is Annotated:
        result = read(types[0], value)
        types[1](result)
    elif NoneType in types:
        result = read(next(option for option in types if option is not NoneType), value)
    elif origin is Literal:
        if value not in types or type(value) not in map(type, types):
            raise SchemaError(f"expected {' or '.join(map(quote, types))}, found {quote(value)}")
        result = value
    elif hasattr(type_, "from_json"):
        result = type_.from_json(value)
    elif hasattr(type_, "_fields"):
        result = _read_named_tuple(type_, value)
    elif origin is None:
        result = _read_scalar(type_, value)
    elif issubclass(origin, Mapping):
        result = {name: _read_key(name, types[1], item) for name, item in _read_scalar(dict, value).items()}
    else:
        result = _read_list(origin, types[0], value)
    return result


def _read_scalar(type_: type, value: Any) -> Any:
    """Return a JSON value of exactly this type, but convert an integer to a float if the type is float."""
    if type_ is float and type(value) in (int, float) and abs(value) < 2**1023:
        return float(value)
    if type(value) is not type_ or type_ is float:
        raise SchemaError(f"expected {_TYPE_NAMES.get(type_, 'a number')}, found {quote(value)}")
    return value


def _read_list(kind: type, type_: Any, value: Any) -> Any:
    if not isinstance(value, list):
        raise SchemaError(f"expected a list, found {quote(value)}")
    if type_ is str and all(type(item) is str for item in value):  # a shortcut for millions of words
        items = value
    else:
        items = [_read_key(str(index), type_, item) for index, item in enumerate(value)]
    return items if kind is list else kind(items) if kind in (tuple, frozenset) else tuple(items)


def _read_named_tuple(type_: Any, value: Any) -> Any:
    """Return a named tuple from the JSON list of its fields."""
    types = get_type_hints(type_, include_extras=True)
    if not isinstance(value, list) or len(value) != len(types):
        raise SchemaError(f"expected a list of {len(types)}, found {quote(value)}")
    return type_(*(_read_key(str(index), types[name], value[index]) for index, name in enumerate(types)))


def _to_json(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [item if isinstance(item, str) else _to_json(item) for item in value]
    return {name: _to_json(item) for name, item in value.items()} if isinstance(value, dict) else value
