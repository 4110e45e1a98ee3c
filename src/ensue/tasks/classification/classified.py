"""The prediction of a classifier: a text, or a pair, with its labels and the probability of every label."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self

from rich.console import Console
from rich.text import Text

from ensue.arguments import check_share
from ensue.inspection.colors import color_of
from ensue.inspection.markup import ansi


@dataclass(frozen=True, repr=False)
class Classified:
    """A text (or a pair) with its labels and the probability of every label."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: dict[str, float] = field(repr=False)

    @property
    def label(self) -> str:
        """The most probable of the labels; "" if there is none."""
        return self.labels[0] if self.labels else ""

    @property
    def probability(self) -> float:
        """The probability of `label`; without a label, that of the most probable one."""
        return self.probabilities[self.label] if self.labels else max(self.probabilities.values())

    def as_json(self) -> dict[str, Any]:
        """The prediction as JSON values."""
        rounded = {name: round(share, 6) for name, share in self.probabilities.items()}
        return {"texts": self.texts, "labels": self.labels, "probabilities": rounded}

    def __repr__(self) -> str:
        shown = ", ".join(f"{label} {self.probabilities[label]:.2f}" for label in self.labels) or "no label"
        text = " | ".join(self.texts)
        return f"{text[:57] + '...' if len(text) > 60 else text!r}: {shown}"


class Choosing:
    """A classifier that gives no label whose probability is below `at_least`."""

    at_least: float = 0.0

    def with_search(self, *, at_least: float) -> Self:
        """A copy of the model with another `at_least`."""
        check_share("at_least", at_least)
        other = copy(self)
        other.at_least = at_least
        return other


def colored(text: str, labels: Sequence[str], shares: dict[str, float]) -> str:
    """A text behind its labels, in their colors."""
    line = Text()
    for label in labels or ("-",):
        share = f" {shares[label]:.2f}" if labels else ""
        line.append(f"{label}{share}", style=f"black on {color_of(label)}").append("  ")
    line.append(text)
    return ansi(Console(highlight=False), line) + "\n"
