"""A schedule as C: one function that works out one position of `rows` rows.

    void NAME(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld, const real *const *packed,
              multiplication *multiply)

`p` are the arrays of the schedule in its order, each at the first row of the position, `ld` their rows' distances,
`packed` the matrices, for `multiply`. Sizes are not written into the text but stand in `n`, so that a cell is compiled
once for all its sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

from ensue.engine.graph import Node
from ensue.engine.operations import OPERATIONS
from ensue.engine.schedule import Loop, Schedule, Segment, View


class Source:
    """The text of a function, and the arrays, sizes and packed matrices that it wants at each call, in their order."""

    def __init__(self, name: str, schedule: Schedule) -> None:
        self.schedule = schedule
        self.sizes: list[int] = []
        self.matrices: dict[tuple[int, bool], tuple[int, int]] = {}
        """Which ones, whether transposed, and their sizes (k, n) then."""
        self.numbers = {array: number for number, array in enumerate(schedule.arrays)}
        self.work = [array for array in schedule.arrays if array.name == "work"]
        self._row_names: dict[Node, str] = {}
        self._rows_of: dict[str, str] = {}
        self._names = 0
        body = "\n".join(line for segment in schedule.segments for line in self._segment(segment))
        self.text = (
            f"static void {name}(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld,\n"
            f"{' ' * (len(name) + 13)}const real *const *packed,\n"
            f"{' ' * (len(name) + 13)}multiplication *multiply) {{\n{body}\n}}\n"
        )

    def _size(self, number: int) -> str:
        if number not in self.sizes:
            self.sizes.append(number)
        return f"n[{self.sizes.index(number)}]"

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
        return f"{name}[{feature}]"

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
        yield f"const real {names[node]} = {self._at(view, feature if node.width > 1 else '0')};"

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
            kind = "int" if operation.is_condition else "real"
            yield f"const {kind} {names[node]} = {operation.c.format(*given)};"
        for node in loop.sums:
            yield f"{self._row_names[node]} += {names.get(node.args[0]) or self._row_names[node.args[0]]};"
        for node, view in loop.writes:
            yield self._write(view, feature, names.get(node) or self._row_names[node])

    def _write(self, view: View, feature: str, name: str) -> str:
        return f"{self._at(view, feature)} {'+=' if view.array.extent == 'sum' else '='} {name};"

    def _numbers(self, loop: Loop) -> Iterator[str]:
        """Of width 1: numbers of the row, known to all loops after."""
        for line in self._statements(loop, self._row_names, "0"):
            yield f"        {line}"

    def _loop(self, loop: Loop) -> Iterator[str]:
        sums = []
        for node in loop.sums:
            self._row_names[node] = self._new_name()
            sums.append(self._row_names[node])
            yield f"        real {sums[-1]} = 0;"
        yield "#pragma omp simd" + (f" reduction(+ : {', '.join(sums)})" if sums else "")
        yield f"        for (int64_t j = 0; j < {self._size(loop.width)}; j++) {{"
        for line in self._statements(loop, {}, "j"):
            yield f"            {line}"
        yield "        }"
        for node, view in loop.sums_written:
            yield f"        {self._write(view, '0', self._row_names[node])}"
