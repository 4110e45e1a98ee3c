"""Scores of a model on test data, as a line for people and as JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar, Self

from ensue.inspection.notebook import ShownScores


@dataclass(frozen=True)
class Scores(ShownScores, ABC):
    """Scores by name: the fields of a subclass, or those fields and properties that are `in_json`."""

    in_json: ClassVar[tuple[str, ...]] = ()

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`."""
        return {key: _json(getattr(self, key)) for key in self.in_json} or asdict(self)

    @abstractmethod
    def summary(self) -> str:
        """The scores in one line, for people."""


@dataclass(frozen=True)
class SummedScores(Scores):
    """Scores whose fields are sums over parts of the data. Scores of parts can be added."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def mean(total: float, count: float) -> float:
    """`total / count`; NaN of none."""
    return total / count if count else math.nan


def perplexity(nats: float) -> float:
    """`exp(nats)`; infinite if that exceeds the floating-point numbers."""
    try:
        return math.exp(nats)
    except OverflowError:
        return math.inf


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return finite(value) if isinstance(value, float) else value


def finite(number: float) -> float | None:
    """The number; None if it is not finite, which JSON does not have."""
    return number if math.isfinite(number) else None
