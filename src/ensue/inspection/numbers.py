"""What was found in a model, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

MOST_NUMBERS = 1 << 20
"""An array with more numbers is left out."""


def as_json(value: Any) -> Any:
    """A view as JSON values: objects of its fields, lists of arrays. What is no number is null.

    In the place of an array of more than `MOST_NUMBERS` stands its shape: `{"shape": [4000, 1024]}`.
    """
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return as_json(value._asdict())
    if isinstance(value, (list, tuple, range)):
        return [as_json(one) for one in value]
    return _array(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic, float)) else value


def _array(values: np.ndarray[Any, Any]) -> Any:
    return {"shape": list(values.shape)} if values.size > MOST_NUMBERS else _listed(values)


def _listed(values: np.ndarray[Any, Any]) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    found = _short(values.astype(np.float64)) if values.dtype.itemsize < 8 else values
    return np.where(np.isfinite(found), found.astype(object), np.array(None)).tolist()


def _short(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers of float32 with nine digits, which tell them apart."""
    with np.errstate(all="ignore"):
        scale = 10.0 ** (8 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & (scale > 0), np.rint(values * scale) / scale, values)
