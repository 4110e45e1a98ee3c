"""Checks of the layers' signatures at each call: types, and the array shapes of jaxtyping."""

import types
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import jaxtyping

_full = jaxtyping.jaxtyped


def checked(function: Any = None, *, typechecker: Any) -> Any:
    """Replace `jaxtyping.jaxtyped`: build the check at the first call, since building all takes seconds."""
    if function is None:
        return partial(checked, typechecker=typechecker)
    if isinstance(function, property):
        return property(*(part and checked(part, typechecker=typechecker) for part in (function.fget, function.fset)))
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(checked(function.__func__, typechecker=typechecker))
    if not isinstance(function, types.FunctionType):
        return _full(function, typechecker=typechecker)
    full: Callable[..., Any] | None = None

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        nonlocal full
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        full = full or _full(function, typechecker=typechecker)
        return full(*args, **kwargs)

    return wrapper
