"""The signatures of the layers are checked at each call: types, and the shapes that jaxtyping writes into them.

A check sees of a tensor only its type, numbers and shape, and of a shape which sizes are the same and which are written
in the signature. So arguments and results that are alike in all that a check can see of them are checked once; that
costs a tenth of checking them again.
"""

import re
import types
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jaxtyping
import numpy as np
from torch import Tensor

MOST = 16
"""Longer sequences are not described, and what holds one is checked at each call."""
READS_VALUES = re.compile(r"{|\w ?[-+*/%] ?\w|Literal\[\d")
"""In a signature such as "B {self.width}", "T-1" or Literal[1, 2]: what it says is checked at each call."""
_full = jaxtyping.jaxtyped


class Indescribable(Exception):
    """It would take longer to describe than to check."""


def described(value: Any, sizes: dict[int, Any]) -> Any:
    """All that a check of types and shapes can see of a value. A size that is new gets the next name in `sizes`."""
    kind = type(value)
    if issubclass(kind, (Tensor, np.ndarray)):
        return kind, value.dtype, *[sizes.setdefault(size, f"size {len(sizes)}") for size in value.shape]
    if kind in (str, bool) or issubclass(kind, type):
        return kind, value
    if issubclass(kind, (tuple, list, dict)):
        if len(value) > MOST:
            raise Indescribable
        parts = value.values() if kind is dict else value
        return kind, tuple(value) if kind is dict else None, *[described(part, sizes) for part in parts]
    if issubclass(kind, (set, frozenset)):
        raise Indescribable
    return kind


def checked(function: Any = None, *, typechecker: Any) -> Any:
    """In the place of `jaxtyping.jaxtyped`."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(function, property):
        return property(*(part and checked(part, typechecker=typechecker) for part in (function.fget, function.fset)))
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(checked(function.__func__, typechecker=typechecker))
    if not isinstance(function, types.FunctionType):
        return _full(function, typechecker=typechecker)
    return _Checked(function, typechecker).wrapper()


class _Checked:
    """A function and the descriptions of arguments and results that were found right."""

    def __init__(self, function: types.FunctionType, typechecker: Any) -> None:
        self.function, self.typechecker = function, typechecker
        self.known: dict[Any, set[Any]] = {}
        self.full: Callable[..., Any] | None = None
        written = str(function.__annotations__)
        self.reads_values = bool(READS_VALUES.search(written))
        self.written_sizes = {size: size for size in (0, 1, *map(int, re.findall(r"[0-9]+", written)))}

    def wrapper(self) -> Callable[..., Any]:
        @wraps(self.function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if jaxtyping.config.jaxtyping_disable:
                return self.function(*args, **kwargs)
            if self.full is None:  # most of what importing the layers took
                self.full = _full(self.function, typechecker=self.typechecker)
            return self.full(*args, **kwargs) if self.reads_values else self.call(args, kwargs)

        return wrapper

    def call(self, args: Any, kwargs: Any) -> Any:
        __tracebackhide__ = True
        assert self.full
        try:
            sizes = dict(self.written_sizes)
            given = described((args, kwargs), sizes)
            right = self.known.get(given)
        except (Indescribable, TypeError):
            return self.full(*args, **kwargs)
        result = self.full(*args, **kwargs) if right is None else self.function(*args, **kwargs)
        try:
            found = described(result, sizes)
            if right is None:
                self.known[given] = {found}
            elif found not in right:
                self.check(args, kwargs, result)
                right.add(found)
        except (Indescribable, TypeError):
            if right is not None:
                self.check(args, kwargs, result)
        return result

    def check(self, args: Any, kwargs: Any, result: Any) -> None:
        """Of a call that is over."""

        def over(*args: Any, **kwargs: Any) -> Any:
            return result

        function = types.FunctionType(over.__code__, self.function.__globals__, closure=over.__closure__)
        _full(wraps(self.function)(function), typechecker=self.typechecker)(*args, **kwargs)
