"""The passes of a program in C: code generation, compilation and calls.

    void NAME(int64_t rows, const int64_t *n, real *const *p, const int64_t *ld, const real *const *packed,
              multiplication *multiply)

`p` has for each array of the schedule the address of the first row at the position, `ld` the row strides of the arrays,
and `packed` the matrices for `multiply`. Sizes are read from `n`, so that a cell is compiled once for all sizes. If a
state is a matrix with a multiple of VECTOR columns, sizes are constants in the C code, so that loops have no remainder.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from struct import pack
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.engine.c_library import library
from ensue.engine.graph import OPERATIONS, Node
from ensue.engine.products import ProductKernel, ProductKernels, parallel_rows, products
from ensue.engine.program import MAX_CACHED_PROGRAMS, Array, Program
from ensue.engine.schedule import Loop, Schedule, Segment, View, schedule
from ensue.engine.storage import Arrays, Finals, Packing, PassCallback, Storage, address, address_of_rows, chunk_sizes

VECTOR = 16
"""A multiple of the vector length, in elements, of all supported processors."""


class PassSource:
    """The C code of a function, and its arguments in order: arrays, sizes and packed matrices."""

    def __init__(
        self, name: str, schedule: Schedule, recompute: Schedule | None = None, *, writes_sizes: bool = False
    ) -> None:
        """Generate the function NAME from `schedule`, and NAME_recompute, with the same arguments, from `recompute`."""
        plans = {name: schedule} | ({} if recompute is None else {f"{name}_recompute": recompute})
        self.schedule = schedule
        self.sizes: list[int] = []
        self.writes_sizes = writes_sizes
        self.matrices: dict[tuple[int, bool], tuple[int, int]] = {}
        """The sizes (k, n) of each matrix, by its number and whether it is transposed."""
        arrays = dict.fromkeys(array for plan in plans.values() for array in plan.arrays)
        self.numbers = {array: number for number, array in enumerate(arrays)}
        self.work = [array for array in arrays if array.name == "work"]
        self._row_names: dict[Node, str] = {}
        self._rows_of: dict[str, str] = {}
        self._totals: dict[Node, str] = {}
        self._names = 0
        self._in_vectors = False
        """Whether the loop that is being generated computes LANES features at a time."""
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
            loops = [loop for level in segment.levels for loop in level.values()]
            lines = [line for loop in loops for line in (self._scalars if loop.width == 1 else self._loop)(loop)]
            yield "    for (int64_t r = 0; r < rows; r++) {"
            yield from (f"        real *const {name} = {row};" for row, name in self._rows_of.items())
            yield from lines
            yield "    }"

    def _at(self, view: View, feature: str) -> str:
        """Return an element of a view. The address of the row is a variable, so that compilers do not reload it."""
        number = self.numbers[view.array]
        row = "" if view.array.extent in ("vector", "sum") else f" + r * ld[{number}]"
        name = self._rows_of.setdefault(f"p[{number}]{row}{self._offset(view)}", f"a{len(self._rows_of)}")
        return f"*(vector *)&{name}[{feature}]" if self._is_vector(feature) else f"{name}[{feature}]"

    def _is_vector(self, feature: str) -> bool:
        """Return whether a feature index depends on j, and so refers to LANES features."""
        return self._in_vectors and "j" in feature

    def _value(self, node: Node, names: dict[Node, str], feature: str) -> Iterator[str]:
        """Yield the declaration of a value that is read from an array, if it has no name yet."""
        if node in names or node in self._row_names:
            return
        if node.op == "constant":
            names[node] = f"(real){node.number!r}".replace("inf", "INFINITY").replace("nan", "NAN")
            return
        names[node] = self._new_name()
        view = self.schedule.view(node)
        assert view is not None, node
        if node.op == "spread" and node not in self.schedule.views:
            feature = self._narrow_index(node, node.args[0].width, node.width)
        index = feature if node.width > 1 else "0"
        c_type = "vector" if self._is_vector(index) else "real"
        yield f"const {c_type} {names[node]} = {self._at(view, index)};"

    def _new_name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def _statements(self, loop: Loop, names: dict[Node, str], feature: str) -> Iterator[str]:
        """Yield reads, then operations, then writes, since a loop may read and write the same array."""
        computed = set(loop.nodes)
        arguments = [arg for node in loop.nodes for arg in node.args]
        arguments += [node.args[0] for node in loop.sums] + [node for node, _ in loop.writes]
        for node in dict.fromkeys(arguments):
            if node not in computed:
                yield from self._value(node, names, feature)
        for node in loop.nodes:
            operation = OPERATIONS[node.op]
            operands = [names.get(arg) or self._row_names[arg] for arg in node.args]
            names[node] = self._new_name()
            c_type = "int" if operation.is_condition else "__auto_type" if self._in_vectors else "real"
            yield f"const {c_type} {names[node]} = {operation.c.format(*operands)};"
        for node in loop.sums:
            yield f"{self._totals[node]} += {names.get(node.args[0]) or self._row_names[node.args[0]]};"
        for node, view in loop.writes:
            yield self._write(view, feature, names.get(node) or self._row_names[node])

    def _write(self, view: View, feature: str, name: str) -> str:
        if self._is_vector(feature):
            name += " - (vector){0}"  # makes a vector of a number; x - 0 is x for all x
        return f"{self._at(view, feature)} {'+=' if view.array.extent == 'sum' else '='} {name};"

    def _scalars(self, loop: Loop) -> Iterator[str]:
        """Yield the statements of width 1: scalars of the row, which later loops read."""
        return (f"        {line}" for line in self._statements(loop, self._row_names, "0"))

    def _loop(self, loop: Loop) -> Iterator[str]:
        """Yield the loop over all features; for sums and spreads, nested loops over blocks of features."""
        sums = {node: self._new_name() for node in loop.sums if node.width == 1 or node.index == 1}
        self._row_names |= {node: name for node, name in sums.items() if node.width == 1}
        for node in loop.sums:
            if node not in sums:
                first = self._at(self.schedule.views[node], "j")
                yield f"        for (int64_t j = 0; j < {self._size(node.width)}; j++) {first} = 0;"
        dividing = [*(n for n in loop.sums if n.width > 1), *(n for n in loop.arguments() if n.op == "spread")]
        blocks = sorted(dividing[0].graph.blocks[loop.width] - {1, loop.width}, reverse=True) if dividing else []
        wide = bool(sums) and self.writes_sizes and [loop.width, *blocks][-1] % VECTOR == 0
        self._in_vectors = wide and all("(" not in OPERATIONS[node.op].c for node in loop.nodes)
        self._totals = {node: f"{sums[node]}s" if node in sums else self._total(node) for node in loop.sums}
        c_type, zero, end = ("vector", "{0}", "total") if self._in_vectors else ("real", "0", "")
        for outside, block in pairwise([loop.width, *blocks, 1]):
            for node in sums:
                if node.args[0].width // node.width == outside:
                    yield f"        {c_type} {self._totals[node]} = {zero};"
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
        """Return the element to which a sum of several features is added."""
        return self._at(self.schedule.views[node], self._narrow_index(node, node.width, node.args[0].width))

    def _narrow_index(self, node: Node, narrow: int, wide: int) -> str:
        """Return the index of a sum's result, or of a spread's argument, for feature j of the wider node."""
        outer = self._block(node.index * (wide // narrow), wide)
        if node.index == 1:
            return outer
        return f"{outer} * {self._size(node.index)} + j - {self._block(node.index, wide)} * {self._size(node.index)}"

    def _block(self, size: int, width: int) -> str:
        """Return the loop variable that counts the blocks of `size` features."""
        return "0" if size == width else "j" if size == 1 else "q" + self._size(size).strip("n[]")


EXTENTS = {"position": 0, "previous": 1, "row": 2, "vector": 3, "sum": 4}
RING_EXTENTS = {"position": 5, "previous": 6}
CHUNKED_EXTENTS = {"position": 7, "previous": 8}
"""The numbers of extents in loop.h. Arrays store all positions, two positions (RING), or one per chunk (CHUNKED)."""
ENTRY = """
PUBLIC void {name}(const range *of, const array *a, const final_state *finals, const int64_t *n, const real *const
                   *packed, multiplication *multiply) {{
    run({name}_step, {recompute}, of, a, finals, n, packed, multiply);
}}
"""


PLAN, SCRATCH, PACKED, OUTPUT, COUNTS, BEGINS, X = range(7)
"""The bases of addresses in a plan. States, vectors, matrices and final states follow x."""
PACK, MULTIPLY, LOOP, AT_ONCE, ONE_ROW = 1, 2, 4, 8, 16
"""The phases and options of `run_plan` in products.c."""
HEADER_NUMBERS = 8
Address = tuple[int, int]
"""A base, and an offset in bytes."""


class Plan(NamedTuple):
    """The pass without gradients for tensors of certain layouts, in the form that `run_plan` of products.c reads.

    `sizes` are the numbers of elements of temporary arrays and of cached packed matrices, `layouts` the layouts of the
    weights. `phases` are the options for matrices that are not cached. `offsets` have for each weight the index of a
    parameter and an offset in bytes; None if weights are not views of parameters.
    """

    table: "ctypes.Array[ctypes.c_int64]"
    sizes: Sequence[int]
    phases: int
    layouts: Sequence[object] = ()
    offsets: Sequence[tuple[int, int]] | None = None


class CompiledPasses:
    """The compiled passes of a program, from `c_passes`."""

    def __init__(
        self, sources: dict[str, PassSource], functions: ctypes.CDLL, products: ProductKernels, chunk: tuple[int, int]
    ) -> None:
        self.sources, self.products, self.chunk = sources, products, chunk
        self.functions = {name: functions[name] for name in sources}
        for function in self.functions.values():
            function.argtypes = [ctypes.c_void_p] * 6
        self.multiply, self.bf16_kernel = products.multiply, products.kernel

    def run(
        self, name: str, arrays: Arrays, packing: Packing, matrices: Sequence[Tensor], *, finals: Finals,
        between: PassCallback | None = None,
    ) -> None:  # fmt: skip
        """Run a pass, like `PlainPasses.run`."""
        source, dtype = self.sources[name], self.products.dtype
        like = next(iter(arrays.values())).tensor
        numbers, batch = source.numbers, packing.batch
        per_thread = [len(storage.tensor) for array, storage in arrays.items() if array.extent == "sum"]
        chunk_length, chunk_rows = self.chunk if between is None else (0, 0)
        buffers = (storage.buffer for storage in arrays.values() if storage.buffer is not None)
        per_thread += [len(buffer) // (chunk_length * chunk_rows) for buffer in buffers]
        # Arrays may have been allocated for fewer threads than torch uses now.
        workers = max(1, min([torch.get_num_threads(), batch, *per_thread]))
        work = {array: Storage(like.new_empty(batch, array.width)) for array in source.work}
        storages, chunk = work | arrays, (chunk_length, chunk_rows)
        structs = [_build_struct(array, storages[array], packing, dtype, workers, chunk) for array in numbers]
        ends = [
            (numbers[array], array.width, address(array, final, dtype, (batch, array.width))) for array, final in finals
        ]
        packed = [
            self.products.packed(matrices[k].t() if transposed else matrices[k], sizes, f"matrix {k} of the step")
            for (k, transposed), sizes in source.matrices.items()
        ]
        tables = [
            *(int64_array(chain.from_iterable(rows)) for rows in (structs, ends)),
            int64_array(source.sizes), int64_array(matrix.data_ptr() for matrix in packed),
        ]  # fmt: skip
        function = self.functions[name]

        is_backward, positions = name == "backward", len(packing.counts)

        def run_rows(begin: int, end: int, first: int, last: int, worker: int) -> None:
            rows = (begin, end, batch, first, last, worker, is_backward)
            fields = (positions, *rows, len(numbers), len(finals), chunk_length, chunk_rows)
            range_ = int64_array((*fields, *packing.addresses))
            function(range_, *tables, self.products.multiply_packed)

        if between is None:
            parallel_rows(batch, partial(run_rows, 0, positions), max_workers=workers)
            return
        for position in range(positions):
            if is_backward:
                between(positions - 1 - position)
            parallel_rows(batch, partial(run_rows, position, position + 1), max_workers=workers)
            if not is_backward:
                between(position)

    def run_plan(self, plan: Plan, addresses: Sequence[int], packing: Packing, phases: int) -> None:
        """Run phases of a plan. `addresses` are the addresses of all bases except PLAN."""
        bases, run = pack(f"{1 + len(addresses)}q", 0, *addresses), self.products.run_plan
        if torch.get_num_threads() == 1 or phases & ONE_ROW:
            run(plan.table, len(plan.table) // 2, bases, phases, 0, 0, 0)
            return
        for phase, rows in ((PACK, 1), (MULTIPLY, packing.size), (LOOP, packing.batch)):
            if phases & phase:
                parallel_rows(rows, partial(run, plan.table, len(plan.table) // 2, bases, phase))


class PlanRecorder:
    """Passes that record the plan of a call instead of running the call, with the same checks of tensors.

    `values` are x, the states, the vectors and the matrices, all distinct. If `is_frozen`, packed matrices are cached.
    """

    chunk = (0, 0)

    def __init__(self, passes: CompiledPasses, output: Array, values: Sequence[Tensor], *, is_frozen: bool) -> None:
        self.passes, self.source, self.dtype = passes, passes.sources["inference"], passes.products.dtype
        self.output, self.values, self.packed_base = output, values, PACKED if is_frozen else SCRATCH
        self.sizes = {SCRATCH: 0, PACKED: 0}
        self.storages: dict[int, tuple[Address, Tensor]] = {}
        self.products: list[int | Address] = []
        self.has_one_row = passes.bf16_kernel is None and len(values[0]) == 1

    def allocate(self, base: int, size: int) -> Address:
        """Allocate `size` numbers, aligned to VECTOR numbers, and return their address."""
        before = self.sizes[base]
        self.sizes[base] += -(-size // VECTOR) * VECTOR
        return base, before * self.dtype.itemsize

    def locate(self, tensor: Tensor) -> Address:
        """Return the address of one of the values or of a temporary tensor."""
        for base, value in enumerate(self.values, X):
            if value is tensor:
                return base, 0
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.storages:
            self.storages[storage.data_ptr()] = self.allocate(SCRATCH, storage.nbytes() // self.dtype.itemsize), tensor
        (base, offset), _ = self.storages[storage.data_ptr()]
        return base, offset + tensor.data_ptr() - storage.data_ptr()

    def pack(self, matrix: Tensor, shape: tuple[int, int], transposed: bool = False) -> tuple[int | Address, ...]:
        """Return the fields of a `packing` of products.c."""
        rows = matrix.t() if transposed else matrix
        address("a matrix of the step", rows, self.dtype, shape, strided=True)
        self.has_one_row = self.has_one_row and rows.stride(0) == 1
        to = self.allocate(self.packed_base, self.passes.products.size_of_packed(*shape))
        return *shape, self.locate(matrix), *rows.stride(), to

    def multiply(self, a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
        """Record the product of x, or of some of its features, and a matrix, for all positions."""
        address_of_rows("x", a, self.dtype, len(a), len(b))
        factor = (X, a.data_ptr() - self.values[0].data_ptr()), a.stride(0)
        self.products += (*self.pack(b, (len(b), b.shape[1])), len(a), *factor, self.locate(out), out.stride(0))

    def run(
        self, name: str, arrays: Arrays, packing: Packing, matrices: Sequence[Tensor], *, finals: Finals,
        between: PassCallback | None = None,
    ) -> None:  # fmt: skip
        """Record the loop over positions, and set `plan`."""
        numbers, positions, batch, output = self.source.numbers, len(packing.counts), packing.batch, arrays[self.output]
        self.storages[output.tensor.data_ptr()] = (OUTPUT, 0), output.tensor
        storages = {array: Storage(output.tensor.new_empty(batch, array.width)) for array in self.source.work} | arrays
        packings = [self.pack(matrices[k], shape, is_t) for (k, is_t), shape in self.source.matrices.items()]
        structs = [_build_struct(a, storages[a], packing, self.dtype, 1, self.chunk, self.locate) for a in numbers]
        for array, final in finals:
            address(array, final, self.dtype, (batch, array.width))
        ends = [(numbers[a], a.width, (base, 0)) for base, (a, _) in enumerate(finals, X + len(self.values))]
        range_ = positions, 0, positions, batch, 0, batch, 0, 0, len(structs), len(ends), *self.chunk
        fields: list[Iterable[int | Address]] = [chain(*packings), self.products, (*range_, (COUNTS, 0), (BEGINS, 0))]
        sections = [*map(list, [*fields, chain(*structs), chain(*ends), self.source.sizes])]
        starts = accumulate(map(len, sections[:-1]), initial=HEADER_NUMBERS)
        function = ctypes.cast(self.passes.functions[name], ctypes.c_void_p).value or 0
        items = [len(packings), function, *((PLAN, 8 * start) for start in starts), *chain(*sections)]
        addresses = [item if isinstance(item, tuple) else (-1, item) for item in items]
        phases = ONE_ROW if self.has_one_row else PACK | AT_ONCE
        self.plan = Plan(int64_array(chain(*zip(*addresses, strict=True))), [*self.sizes.values()], phases)


def c_passes(program: Program, dtype: torch.dtype, kernel: ProductKernel | None = None) -> CompiledPasses | None:
    """Return the compiled passes; None without a compiler, or for a type other than float32 and float64."""
    if dtype not in (torch.float32, torch.float64):
        return None
    sources = _sources(program)
    multiplication, functions = products(dtype, kernel), library(c_text(sources, program), dtype)
    if multiplication is None or functions is None:
        return None
    large = sum(array.width for array in program.large)
    return CompiledPasses(sources, functions, multiplication, chunk_sizes(large, dtype.itemsize) if large else (0, 0))


@lru_cache(MAX_CACHED_PROGRAMS)
def _sources(program: Program) -> dict[str, PassSource]:
    recompute = schedule(program.recompute) if program.large else None
    blocks = [min(node.graph.blocks.get(node.width, {1}) - {1}, default=1) for node, _ in program.recompute.writes]
    writes_sizes = any(size % VECTOR == 0 for size in blocks)
    return {
        name: PassSource(
            f"{name}_step", schedule(work), recompute if name == "backward" else None, writes_sizes=writes_sizes
        )
        for name, work in program.passes.items()
    }


def c_text(sources: dict[str, PassSource], program: Program) -> str:
    """Return the C code of a program: each pass and its entry point."""
    recompute = {"backward": "backward_step_recompute"} if program.large else {}
    entries = {name: ENTRY.format(name=name, recompute=recompute.get(name, "NULL")) for name in sources}
    return "".join(source.text + entries[name] for name, source in sources.items())


def int64_array(numbers: Iterable[int]) -> "ctypes.Array[ctypes.c_int64]":
    """Return numbers as an array for C."""
    values = tuple(numbers)
    return (ctypes.c_int64 * len(values))(*values)


def _build_struct(
    array: Array, storage: Storage, packing: Packing, dtype: torch.dtype, workers: int, chunk: tuple[int, int],
    locate: Callable[[Tensor], Any] = Tensor.data_ptr,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the fields of an array's struct in loop.h. Raises ValueError if C would read beyond the array."""
    buffer, rows = 0, 2 * packing.batch if storage.is_ring else packing.size
    if storage.buffer is not None:
        rows, buffer_rows = len(packing.counts) // chunk[0] * packing.batch, workers * chunk[0] * chunk[1]
        buffer = address_of_rows(f"the buffer of {array}", storage.buffer, dtype, buffer_rows, array.width)
        if storage.buffer.stride(0) != storage.tensor.stride(0):
            raise ValueError(f"{array} and its buffer should have the same row stride")
    if array.extent not in ("position", "previous"):
        rows = {"row": packing.batch, "vector": 1, "sum": workers}[array.extent]
    address_of_rows(array, storage.tensor, dtype, rows, array.width)
    start: tuple[Any, int] = (0, 0)
    if array.extent == "previous":
        assert storage.start is not None
        address_of_rows(array, storage.start, dtype, packing.batch, array.width)
        start = locate(storage.start), storage.start.stride(0)
    extents = RING_EXTENTS if storage.is_ring else EXTENTS if storage.buffer is None else CHUNKED_EXTENTS
    return locate(storage.tensor), storage.tensor.stride(0), *start, extents[array.extent], buffer
