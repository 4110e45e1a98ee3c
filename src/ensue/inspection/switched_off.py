"""Ablation of units: activations are fixed at zero, at another number, or at their mean.

Taps replace the values of gates, states and neurons at every position.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ensue.errors import EnsueError, check_type, nearest
from ensue.inspection.units import Units, map_units_to_taps
from ensue.nn import SequenceLayer, replace
from ensue.nn.taps import Change

MAX_UNITS = 100_000
_PATTERN = re.compile(r"(?P<units>[^:=]+):(?P<numbers>[\d\s,-]+)(?:=(?P<held>[^=]*))?")


class SwitchedOff(NamedTuple):
    """Units of a layer, such as "layer 1, cell", by number, and the value at which they are held (None: the means)."""

    units: str
    numbers: tuple[int, ...]
    held: float | None = 0.0

    @property
    def name(self) -> str:
        """The units in the form that `parse` reads."""
        at = "" if self.held == 0 else f" = {'mean' if self.held is None else format(self.held, 'g')}"
        return f"{self.units}: {', '.join(_format_ranges(self.numbers))}{at}"

    @classmethod
    def parse(cls, text: str) -> "SwitchedOff":
        """Parse text such as "layer 1, cell: 3, 7-9" or "layer 1, cell: 3 = mean". Raises EnsueError for other text."""
        form = _PATTERN.fullmatch(text.strip())
        if form is None:
            raise EnsueError(
                f'expected units to switch off, such as "layer 1, cell: 3, 7-9" or "... = mean"; found "{text:.80}"'
            )
        return cls(form["units"].strip(), _parse_numbers(form["numbers"]), _parse_value(form["held"]))


def parse_switched_off(text: str) -> tuple[SwitchedOff, ...]:
    """Parse the units of one or more layers, separated by ";"."""
    check_type("the units to switch off", text, str, "a string")
    return tuple(SwitchedOff.parse(units) for units in text.split(";") if units.strip())


def _format_ranges(numbers: Sequence[int]) -> list[str]:
    """Return sorted numbers as text, with runs of consecutive numbers as ranges."""
    breaks = [0, *(place for place in range(1, len(numbers)) if numbers[place] != numbers[place - 1] + 1), len(numbers)]
    ranges = [(numbers[first], numbers[stop - 1]) for first, stop in pairwise(breaks)]
    return [f"{first}-{last}" if last > first else f"{first}" for first, last in ranges]


def _parse_numbers(text: str) -> tuple[int, ...]:
    """Parse numbers such as "3, 7-9". The count is bounded, since the text may come from a request to a server."""
    ranges = [_parse_range(item.strip()) for item in text.split(",")]
    if sum(map(len, ranges)) > MAX_UNITS:
        raise EnsueError(f"expected at most {MAX_UNITS:,} units to switch off")
    return tuple(sorted(set().union(*ranges)))


def _parse_range(text: str) -> range:
    first, dash, last = (side.strip() for side in text.partition("-"))
    if not first.isdecimal() or bool(dash) != last.isdecimal():
        raise EnsueError(f'"{text:.40}" is neither a unit\'s number nor a range such as 7-9')
    stop = last or first
    if max(len(first), len(stop)) > len(str(MAX_UNITS)) or int(first) > int(stop):
        raise EnsueError(f'"{text:.40}" is not a range of units; expected a range such as 7-9')
    return range(int(first), int(stop) + 1)


def _parse_value(text: str | None) -> float | None:
    if text is None or text.strip() == "mean":
        return 0.0 if text is None else None
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise EnsueError(f'units must be held at a number or at their mean; found "{text.strip():.40}"')
    return value


def switch_off(
    layers: SequenceLayer, switched: Sequence[SwitchedOff], units: Sequence[Units]
) -> AbstractContextManager[None]:
    """Return a context manager that fixes units of layers. `units` are the values over a text, for the means.

    Raises EnsueError for units that the layers do not have.
    """
    taps, by_name = map_units_to_taps(layers), {layer_units.name: layer_units.values for layer_units in units}
    fixed: dict[str, dict[int, float]] = {}
    for name, numbers, held in switched:
        if name not in taps or name not in by_name:
            known = ", ".join(taps) or "none"
            raise EnsueError(f'the model has no units "{name}"{nearest(name, taps)}; it has: {known}')
        values = by_name[name]
        if numbers[-1] >= values.shape[1]:
            raise EnsueError(f"{name} has units 0 to {values.shape[1] - 1}; found {numbers[-1]}")
        means = values[:, list(numbers)].mean(0, dtype=np.float64).tolist()
        chosen = means if held is None else [held] * len(means)
        fixed.setdefault(taps[name], {}).update(zip(numbers, chosen, strict=True))
    return replace(layers, {tap: _fix_units(values) for tap, values in fixed.items()})


def _fix_units(fixed: Mapping[int, float]) -> Change:
    def fix(x: Tensor) -> Tensor:
        """Return x (..., d) with fixed values of these features."""
        indices = torch.tensor(list(fixed), device=x.device)
        values = torch.tensor(list(fixed.values()), device=x.device, dtype=x.dtype)
        return x.index_copy(-1, indices, values.expand(*x.shape[:-1], -1))

    return fix
