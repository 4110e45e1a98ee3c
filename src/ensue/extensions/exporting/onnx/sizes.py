"""Sizes that are known only at run time, while a model is traced.

A model is traced once, on tensors without content, with a large prime for each such size. So a number that stands in an
operation shows what it is made of: the prime of the positions and 2 is the number of positions and 2, a multiple of two
primes is a product of sizes. All other numbers are the same at every run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations_with_replacement
from typing import NamedTuple

from ensue.extensions.exporting.onnx.graph import Graph

LEAST, MOST, DISTANCE = 5_000, 100_000, 1.37
"""The bounds of the first prime, and how far the next ones are from each other. Products of four still are sizes."""
ROWS, TEXTS, BEAMS = "batch", "texts", "beams"
"""The names of sizes that go together: as many rows as there are beams read each text."""
NEAR = 512
"""Up to this number something may be added to a size, or taken away; above it, only a size of the model be added."""


class Made(NamedTuple):
    """A number as a formula: `op` of the `sizes`, times `factor`, plus `rest`."""

    op: str
    sizes: tuple[int, ...]
    factor: int = 1
    rest: int = 0


class Sizes:
    """The primes of named sizes, and in the graph the values that stand for them."""

    def __init__(self, names: Iterable[str], fixed: Collection[int]) -> None:
        """`fixed`: the sizes of the model."""
        self.primes: dict[str, int] = {}
        self._fixed = frozenset(fixed)
        number = min(max(LEAST, 2 * max(fixed, default=0)), MOST)
        for name in names:
            self.primes[name] = number = _prime(number)
            number = int(number * DISTANCE)
        if BEAMS in self.primes:
            self.primes[ROWS] = self.primes[TEXTS] * self.primes[BEAMS]
        self._values: dict[int, str] = {}
        self._made: dict[int, Made | None] = {}
        self._terms = _terms(self.primes)

    def let(self, size: int, value: str) -> None:
        """The value, (1,) int64, of a size of an input."""
        self._values.setdefault(size, value)

    def is_fixed(self, number: int) -> bool:
        """Whether a number is the same at every run."""
        return self._of(number) is None

    def value(self, graph: Graph, number: int) -> str:
        """The value (1,) int64 of a number that stands in a traced operation."""
        made = self._of(number)
        if made is None:
            return graph.constant([number])
        if number not in self._values:
            first, *others = (self._values[size] for size in made.sizes)
            for other in others:
                first = graph.root.add(made.op, first, other)
            for op, part, without in (("Mul", made.factor, 1), ("Add", made.rest, 0)):
                first = first if part == without else graph.root.add(op, first, graph.constant([part]))
            self._values[number] = first
        return self._values[number]

    def _of(self, number: int) -> Made | None:
        if number not in self._made:
            self._made[number] = self._found(number)
        return self._made[number]

    def _found(self, number: int) -> Made | None:
        size, sign = abs(number), 1 if number > 0 else -1
        if size < LEAST - NEAR or size > 1 << 62:
            return None
        for term in sorted(self._terms, key=lambda term: abs(size - term)):
            if abs(size - term) <= NEAR or size - term in self._fixed:
                return self._terms[term]._replace(factor=sign, rest=sign * (size - term))
        for term in sorted(self._terms, reverse=True):
            if size % term == 0 and size // term < LEAST:
                return self._terms[term]._replace(factor=sign * (size // term))
        return None


def _terms(primes: dict[str, int]) -> dict[int, Made]:
    """The sizes, their sums in pairs, and their products."""
    sizes = list(primes.values())
    found = {size: Made("Add", (size,)) for size in sizes}
    for pair in combinations_with_replacement(sizes, 2):
        found.setdefault(sum(pair), Made("Add", pair))
        found.setdefault(pair[0] * pair[1], Made("Mul", pair))
    return found


def _prime(above: int) -> int:
    number = above + 1
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number += 1
    return number
