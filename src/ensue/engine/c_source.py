"""A schedule as C: one function that works out one position of `rows` rows.

    void NAME(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld, const real *const *packed,
              multiplication *multiply)

`p` are the arrays of the schedule in its order, each at the first row of the position, `ld` their rows' distances,
`packed` the matrices, for `multiply`. Sizes are not written into the text but stand in `n`, so that a cell is compiled
once for all its sizes. Only with matrices whose rows are whole vectors are they written out: that saves what
is for the rest of a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ensue.engine.graph import Node
from ensue.engine.operations import OPERATIONS
from ensue.engine.schedule import Loop, Schedule, Segment, View

VECTOR = 16
"""A row of so many numbers, or a multiple, is whole vectors on every processor."""


class Source:
    """The text of a function, and the arrays, sizes and packed matrices that it wants at each call, in their order."""

    def __init__(
        self, name: str, schedule: Schedule, again: Schedule | None = None, *, writes_sizes: bool = False
    ) -> None:
        """`again` is printed as one more function, NAME_again, with the same arrays and sizes."""
        plans = {name: schedule} | ({} if again is None else {f"{name}_again": again})
        self.schedule = schedule
        self.sizes: list[int] = []
        self.writes_sizes = writes_sizes
        self.matrices: dict[tuple[int, bool], tuple[int, int]] = {}
        """Which ones, whether transposed, and their sizes (k, n) then."""
        arrays = dict.fromkeys(array for plan in plans.values() for array in plan.arrays)
        self.numbers = {array: number for number, array in enumerate(arrays)}
        self.work = [array for array in arrays if array.name == "work"]
        self._row_names: dict[Node, str] = {}
        self._rows_of: dict[str, str] = {}
        self._totals: dict[Node, str] = {}
        self._names = 0
        self._in_vectors = False
        """Whether the loop that is printed takes LANES features at a time."""
        self.text = "".join(self._function(*plan) for plan in plans.items())

    def _function(self, name: str, schedule: Schedule) -> str:
        self.schedule = schedule
        body = "\n".join(line for segment in schedule.segments for line in self._segment(segment))
        return (
            f"static void {name}(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld,\n"
            f"{' ' * (len(name) + 13)}const real *const *packed,\n"
            f"{' ' * (len(name) + 13)}multiplication *multiply) {{\n{body}\n}}\n"
        )

    def _size(self, number: int) -> str:
        if number not in self.sizes:
            self.sizes.append(number)
        return str(number) if self.writes_sizes else f"n[{self.sizes.index(number)}]"

    def _offset(self, view: View) -> str:
        return f" + {self._size(view.start)}" if view.start else ""

    def _segment(self, segment: Segment) -> Iterator[str]:
        for product in segment.products:
            key = (product.matrix, product.transposed)
            self.matrices.setdefault(key, (product.factor.width, product.result.width))
            a, c = self.numbers[product.factor.array], self.numbers[product.result.array]
            yield (
                f"    multiply(rows, {self._size(product.result.width)}, {self._size(product.factor.width)}, "
                f"p[{a}]{self._offset(product.factor)}, ld[{a}], packed[{list(self.matrices).index(key)}], "
                f"p[{c}]{self._offset(product.result)}, ld[{c}]);"
            )
        if segment.levels:
            self._row_names, self._rows_of = {}, {}
            loops = [loop for found in segment.levels for loop in found.values()]
            lines = [line for loop in loops for line in (self._numbers if loop.width == 1 else self._loop)(loop)]
            yield "    for (int64_t r = 0; r < rows; r++) {"
            yield from (f"        real *const {name} = {row};" for row, name in self._rows_of.items())
            yield from lines
            yield "    }"

    def _at(self, view: View, feature: str) -> str:
        """A number of a view. Where its row begins is said before all loops, or compilers look it up for each."""
        number = self.numbers[view.array]
        row = "" if view.array.extent in ("vector", "sum") else f" + r * ld[{number}]"
        name = self._rows_of.setdefault(f"p[{number}]{row}{self._offset(view)}", f"a{len(self._rows_of)}")
        return f"*(vector *)&{name}[{feature}]" if self._is_vector(feature) else f"{name}[{feature}]"

    def _is_vector(self, feature: str) -> bool:
        """Whether it moves with j, and so stands for LANES features."""
        return self._in_vectors and "j" in feature

    def _value(self, node: Node, names: dict[Node, str], feature: str) -> Iterator[str]:
        """The declaration of a value that is read from an array, if it has no name yet."""
        if node in names or node in self._row_names:
            return
        if node.op == "constant":
            names[node] = f"(real){node.number!r}".replace("inf", "INFINITY").replace("nan", "NAN")
            return
        names[node] = self._new_name()
        view = self.schedule.view(node)
        assert view is not None, node
        if node.op == "spread" and node not in self.schedule.views:
            feature = self._divided(node, node.args[0].width, node.width)
        where = feature if node.width > 1 else "0"
        kind = "vector" if self._is_vector(where) else "real"
        yield f"const {kind} {names[node]} = {self._at(view, where)};"

    def _new_name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _statements(self, loop: Loop, names: dict[Node, str], feature: str) -> Iterator[str]:
        """Reads, then operations, then writes: an array may be read and written in one loop."""
        own = set(loop.nodes)
        wanted = [arg for node in loop.nodes for arg in node.args]
        wanted += [node.args[0] for node in loop.sums] + [node for node, _ in loop.writes]
        for node in dict.fromkeys(wanted):
            if node not in own:
                yield from self._value(node, names, feature)
        for node in loop.nodes:
            operation = OPERATIONS[node.op]
            given = [names.get(arg) or self._row_names[arg] for arg in node.args]
            names[node] = self._new_name()
            kind = "int" if operation.is_condition else "__auto_type" if self._in_vectors else "real"
            yield f"const {kind} {names[node]} = {operation.c.format(*given)};"
        for node in loop.sums:
            yield f"{self._totals[node]} += {names.get(node.args[0]) or self._row_names[node.args[0]]};"
        for node, view in loop.writes:
            yield self._write(view, feature, names.get(node) or self._row_names[node])

    def _write(self, view: View, feature: str, name: str) -> str:
        if self._is_vector(feature):
            name += " - (vector){0}"  # a vector, even of a number; x - 0 is x for all x
        return f"{self._at(view, feature)} {'+=' if view.array.extent == 'sum' else '='} {name};"

    def _numbers(self, loop: Loop) -> Iterator[str]:
        """Of width 1: numbers of the row, known to all loops after."""
        for line in self._statements(loop, self._row_names, "0"):
            yield f"        {line}"

    def _loop(self, loop: Loop) -> Iterator[str]:
        """Over all features; where some are summed or repeated, block inside of block.

        Sums of arithmetic over whole vectors stay in a vector: gcc ends a `reduction` with an addition for each number.
        """
        sums = {node: self._new_name() for node in loop.sums if node.width == 1 or node.index == 1}
        self._row_names |= {node: name for node, name in sums.items() if node.width == 1}
        for node in loop.sums:
            if node not in sums:
                first = self._at(self.schedule.views[node], "j")
                yield f"        for (int64_t j = 0; j < {self._size(node.width)}; j++) {first} = 0;"
        dividing = [*(n for n in loop.sums if n.width > 1), *(n for n in loop.arguments() if n.op == "spread")]
        blocks = sorted(dividing[0].graph.blocks[loop.width] - {1, loop.width}, reverse=True) if dividing else []
        wide = bool(sums) and self.writes_sizes and [loop.width, *blocks][-1] % VECTOR == 0
        self._in_vectors = wide and all(OPERATIONS[node.op].is_arithmetic for node in loop.nodes)
        self._totals = {node: f"{sums[node]}s" if node in sums else self._total(node) for node in loop.sums}
        kind, zero, end = ("vector", "{0}", "total") if self._in_vectors else ("real", "0", "")
        for outside, block in pairwise([loop.width, *blocks, 1]):
            for node in sums:
                if node.args[0].width // node.width == outside:
                    yield f"        {kind} {self._totals[node]} = {zero};"
            if block == 1 and not self._in_vectors:
                added = ", ".join(self._totals[node] for node in sums)
                yield "#pragma omp simd" + (f" reduction(+ : {added})" if sums else "")
            name, number = self._block(block, loop.width), self._size(outside // block)
            begin = "0" if outside == loop.width else f"{self._block(outside, loop.width)} * {number}"
            step = " += LANES" if block == 1 and self._in_vectors else "++"
            yield f"        for (int64_t {name} = {begin}; {name} < {begin} + {number}; {name}{step}) {{"
        for line in self._statements(loop, {}, "j"):
            yield f"            {line}"
        self._in_vectors = False
        for outside in [*blocks[::-1], loop.width]:
            yield "        }"
            for node, name in sums.items():
                if node.args[0].width // node.width == outside:
                    yield f"        const real {name} = {end}({self._totals[node]});"
                    if node.width > 1:
                        number = self._block(outside, loop.width)
                        yield f"        {self._write(self.schedule.views[node], number, name)}"
        for node, view in loop.sums_written:
            yield f"        {self._write(view, '0', self._row_names[node])}"

    def _total(self, node: Node) -> str:
        """Where a sum is added up that has other features side by side."""
        return self._at(self.schedule.views[node], self._divided(node, node.width, node.args[0].width))

    def _divided(self, node: Node, few: int, many: int) -> str:
        """The feature of a sum, or of what is spread, that belongs to feature j of the `many`."""
        outer = self._block(node.index * (many // few), many)
        if node.index == 1:
            return outer
        return f"{outer} * {self._size(node.index)} + j - {self._block(node.index, many)} * {self._size(node.index)}"

    def _block(self, size: int, whole: int) -> str:
        """The number of the block of this size in which feature j is."""
        return "0" if size == whole else "j" if size == 1 else "q" + self._size(size).strip("n[]")
