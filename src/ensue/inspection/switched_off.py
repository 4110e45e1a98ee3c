"""Units of layers held at a number while a model reads: switched off at zero, or at their mean.

They are held from outside, by `replace`; a unit of a state is held at every position, so nothing of it is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_type
from ensue.errors import EnsueError, nearest
from ensue.inspection.units import Units, tap_of_units
from ensue.nn import SequenceLayer, replace
from ensue.nn.taps import Change

MOST_UNITS = 100_000
_FORM = re.compile(r"(?P<units>[^:=]+):(?P<numbers>[\d\s,-]+)(?:=(?P<held>[^=]*))?")


class SwitchedOff(NamedTuple):
    """The `numbers` of the units of one name, such as "layer 1, cell", held at a number; None: each at its mean."""

    units: str
    numbers: tuple[int, ...]
    held: float | None = 0.0

    @property
    def name(self) -> str:
        """As `parse` reads it."""
        at = "" if self.held == 0 else f" = {'mean' if self.held is None else format(self.held, 'g')}"
        return f"{self.units}: {', '.join(_ranges(self.numbers))}{at}"

    @classmethod
    def parse(cls, text: str) -> SwitchedOff:
        """From text such as "layer 1, cell: 3, 7-9" or "layer 1, cell: 3 = mean". Raises EnsueError for other text."""
        form = _FORM.fullmatch(text.strip())
        if form is None:
            raise EnsueError(
                f'units to switch off are written "layer 1, cell: 3, 7-9" or "... = mean", not "{text:.80}"'
            )
        return cls(form["units"].strip(), _numbers(form["numbers"]), _fixed_at(form["held"]))


def switched_off(text: str) -> tuple[SwitchedOff, ...]:
    """The units in a text, with ";" between units of different names; none in ""."""
    check_type("the units that are off", text, str, "a string")
    return tuple(SwitchedOff.parse(part) for part in text.split(";") if part.strip())


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Numbers in order, with those that follow one another as a range."""
    breaks = [0, *(at for at in range(1, len(numbers)) if numbers[at] != numbers[at - 1] + 1), len(numbers)]
    ranges = [(numbers[first], numbers[stop - 1]) for first, stop in pairwise(breaks)]
    return [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges]


def _numbers(text: str) -> tuple[int, ...]:
    """Numbers such as "3, 7-9", in order. What they say is bounded, since anybody may ask a server."""
    ranges = [_range(part.strip()) for part in text.split(",")]
    if sum(map(len, ranges)) > MOST_UNITS:
        raise EnsueError(f"more than {MOST_UNITS:,} units to switch off")
    return tuple(sorted(set().union(*ranges)))


def _range(text: str) -> range:
    first, dash, last = (side.strip() for side in text.partition("-"))
    if not first.isdecimal() or bool(dash) != last.isdecimal():
        raise EnsueError(f'"{text:.40}" is no unit\'s number, and no range such as 7-9')
    stop = last or first
    if max(len(first), len(stop)) > len(str(MOST_UNITS)) or int(first) > int(stop):
        raise EnsueError(f'"{text:.40}" is no range of units')
    return range(int(first), int(stop) + 1)


def _fixed_at(text: str | None) -> float | None:
    if text is None or text.strip() == "mean":
        return 0.0 if text is None else None
    try:
        held = float(text)
    except ValueError:
        held = np.nan
    if not np.isfinite(held):
        raise EnsueError(f'units are held at a number or at their mean, not at "{text.strip():.40}"')
    return held


def switching_off(
    layers: SequenceLayer, switched: Sequence[SwitchedOff], units: Sequence[Units]
) -> AbstractContextManager[None]:
    """A context in which the units are held; `units` has their values over a text, from which the means are taken.

    Raises EnsueError for units that the layers do not have.
    """
    taps, sizes = tap_of_units(layers), {found.name: found.values for found in units}
    held: dict[str, dict[int, float]] = {}
    for one in switched:
        if one.units not in taps or one.units not in sizes:
            known = ", ".join(taps) or "none"
            raise EnsueError(f'the model has no units "{one.units}"{nearest(one.units, taps)}; it has: {known}')
        values = sizes[one.units]
        if one.numbers[-1] >= values.shape[1]:
            raise EnsueError(f"{one.units} has units 0 to {values.shape[1] - 1}; found {one.numbers[-1]}")
        held.setdefault(taps[one.units], {}).update(_values(one, values))
    return replace(layers, {tap: _holding(numbers) for tap, numbers in held.items()})


def _values(one: SwitchedOff, values: NDArray[np.float32]) -> dict[int, float]:
    means = values[:, list(one.numbers)].mean(0, dtype=np.float64).tolist()
    return dict(zip(one.numbers, means if one.held is None else [one.held] * len(means), strict=True))


def _holding(held: Mapping[int, float]) -> Change:
    numbers, values = list(held), list(held.values())

    def hold(x: Tensor) -> Tensor:
        """`x` (..., d) with these features at these values."""
        where = torch.tensor(numbers, device=x.device)
        by = torch.tensor(values, device=x.device, dtype=x.dtype).expand(*x.shape[:-1], -1)
        return x.index_copy(-1, where, by)

    return hold
