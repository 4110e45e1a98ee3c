"""A schedule in Triton: one kernel for each segment, which works out one position of one row in each of its programs.

    NAME(p0, p1, ..., at0, at1, ..., ld0, ld1, ...)

For every array of the kernel, in its order: where the array begins; which of its rows is the first one of the position,
if it has rows for positions; and the distance of its rows. A loop over features is one vector, as long as the next
power of two. What is worked out or read once stays at hand for the rest of the segment; memory is read again only where
features change places.

Threads of a program do not see each other's writes until they meet at a barrier, and arrays may lie in others
(`overlays.py`). So each level reads all it needs before it writes anything, with a barrier in between and one after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from ensue.engine.graph import Node
from ensue.engine.operations import OPERATIONS
from ensue.engine.program import Array
from ensue.engine.schedule import Loop, Schedule, Segment, View

IMPORTS = "import triton\nimport triton.language as tl\n"
BARRIER = "tl.debug_barrier()"
CHOOSING = {"where": 1, "and": 2, "or": 2, "not": 1}
"""How many of an operation's arguments, from the first on, are true or false."""


@dataclass(frozen=True)
class Kernel:
    """A printed function, and the arrays that it is called with."""

    name: str
    arrays: list[Array]
    text: str
    width: int
    """Of its longest vector, as a power of two."""
    read: set[Array]
    """Those of the arrays that it reads."""


def kernels(name: str, plan: Schedule, dtype: torch.dtype) -> list[Kernel | None]:
    """For each segment of `plan` its kernel; None where it is nothing but products."""
    found = _all(name, plan, dtype, frozenset())
    read = {array for kernel in found if kernel is not None for array in kernel.read}
    read |= {product.factor.array for segment in plan.segments for product in segment.products}
    return _all(name, plan, dtype, frozenset(array for array in plan.arrays if array.name == "work") - read)


def _all(name: str, plan: Schedule, dtype: torch.dtype, unread: frozenset[Array]) -> list[Kernel | None]:
    return [
        _Printer(plan, dtype, unread).kernel(f"{name}_{number}", segment) if segment.levels else None
        for number, segment in enumerate(plan.segments)
    ]


class _Printer:
    """One segment's kernel, line by line. To arrays that are `unread` it does not write."""

    def __init__(self, plan: Schedule, dtype: torch.dtype, unread: frozenset[Array]) -> None:
        self.plan, self.real, self.unread = plan, f"tl.{dtype}".replace("torch.", ""), unread
        self.arrays: list[Array] = []
        self.read: set[Array] = set()
        self.names: dict[Node, str] = {}
        self.widths = {1}
        self.number_of_names = 0

    def kernel(self, name: str, segment: Segment) -> Kernel:
        body: list[str] = []
        for loops in segment.levels:
            body += ([BARRIER] if body else []) + list(self._level(list(loops.values())))
        numbers = range(len(self.arrays))
        moving = [f"at{number}" for number, array in enumerate(self.arrays) if moves(array)]
        given = [*(f"p{number}" for number in numbers), *moving, *(f"ld{number}: tl.constexpr" for number in numbers)]
        lines = [f"@triton.jit(do_not_specialize={moving})", f"def {name}({', '.join(given)}):"]
        lines += [f"    {line}" for line in [*self._head(), *body]]
        return Kernel(name, self.arrays, "\n".join(lines) + "\n", max(map(_power, self.widths)), self.read)

    def _head(self) -> Iterator[str]:
        yield "row = tl.program_id(0).to(tl.int64)"
        for number, array in enumerate(self.arrays):
            row = f"(at{number} + row)" if moves(array) else "row"
            yield f"a{number} = p{number}" + ("" if array.extent == "vector" else f" + {row} * ld{number}")
        for width in sorted(self.widths - {1}):
            yield f"j{width} = tl.arange(0, {_power(width)})"
            yield f"m{width} = j{width} < {width}"

    def _level(self, loops: list[Loop]) -> Iterator[str]:
        self.widths |= {loop.width for loop in loops}
        own = {node for loop in loops for node in loop.nodes}
        reads = [line for loop in loops for line in self._reads(loop, own)]
        results = [result for loop in loops for result in (*loop.writes, *loop.sums_written)]
        sums = {view: self._new_name() for _, view in results if view.array.extent == "sum"}
        reads += [f"{name} = {self._load(view)}" for view, name in sums.items()]
        yield from reads
        for loop in loops:
            yield from self._worked_out(loop)
        writes = [self._store(node, view, sums) for node, view in results if view.array not in self.unread]
        if reads and writes:
            yield BARRIER
        yield from writes

    def _reads(self, loop: Loop, own: set[Node]) -> Iterator[str]:
        """Of each value that is neither at hand nor worked out on this level."""
        for node in _in_order(loop.arguments() - own):
            if node in self.names:
                continue
            if node.op == "constant":
                self.names[node] = self._constant(node.number)
                continue
            view = self.plan.view(node)
            assert view is not None, node
            self.names[node] = self._new_name()
            yield f"{self.names[node]} = {self._load(view)}{' != 0' if _is_condition(node) else ''}"

    def _worked_out(self, loop: Loop) -> Iterator[str]:
        for node in loop.nodes:
            if node not in self.names:
                operation, conditions = OPERATIONS[node.op], CHOOSING.get(node.op, 0)
                given = [self._truth(arg) if k < conditions else self._number(arg) for k, arg in enumerate(node.args)]
                self.names[node] = self._new_name()
                yield f"{self.names[node]} = {(operation.triton or operation.c).format(*given)}"
        for node in loop.sums:
            (arg,) = node.args
            self.names[node] = self._new_name()
            yield f"{self.names[node]} = tl.sum(tl.where(m{loop.width}, {self._number(arg)}, 0.0), axis=0)"

    def _truth(self, node: Node) -> str:
        return self.names[node] if _is_condition(node) else f"({self.names[node]} != 0)"

    def _number(self, node: Node) -> str:
        return f"{self.names[node]}.to({self.real})" if _is_condition(node) else self.names[node]

    def _constant(self, number: float) -> str:
        """Of the type of all else: a bare number would be rounded to float32 on its way to where it is used."""
        text = repr(number) if abs(number) < float("inf") else f'float("{number}")'
        return f"tl.full((), {text}, {self.real})"

    def _load(self, view: View) -> str:
        self.read.add(view.array)
        mask = f", mask=m{view.width}, other=0.0" if view.width > 1 else ""
        return f"tl.load({self._address(view)}{mask})"

    def _store(self, node: Node, view: View, sums: dict[View, str]) -> str:
        mask = f", mask=m{view.width}" if view.width > 1 else ""
        before = f"{sums[view]} + " if view in sums else ""
        return f"tl.store({self._address(view)}, {before}{self._number(node)}{mask})"

    def _address(self, view: View) -> str:
        if view.array not in self.arrays:
            self.arrays.append(view.array)
        start = f" + {view.start}" if view.start else ""
        return f"a{self.arrays.index(view.array)}{start}{f' + j{view.width}' if view.width > 1 else ''}"

    def _new_name(self) -> str:
        self.number_of_names += 1
        return f"v{self.number_of_names}"


def moves(array: Array) -> bool:
    """Whether an array has rows for positions."""
    return array.extent in ("position", "previous")


def _is_condition(node: Node) -> bool:
    return node.op in OPERATIONS and OPERATIONS[node.op].is_condition


def _in_order(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: node.order)


def _power(width: int) -> int:
    """The power of two that is not below `width`."""
    return 1 << (width - 1).bit_length()
