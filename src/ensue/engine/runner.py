"""The execution of a program over sequences, in C or in torch operations, with its gradient for autograd.

Products that do not depend on the position before are computed over all positions at once: W x before the forward loop,
and after the backward loop the error at x and the gradient of every matrix, `dU = Σ_t δ_t h_{t-1}ᵀ` (Werbos 1990).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ensue.engine.c_passes import LOOP, MULTIPLY, ONE_ROW, PACK, CompiledPasses, Plan, PlanRecorder
from ensue.engine.graph import OPERATIONS, Node, reachable
from ensue.engine.products import cached_for
from ensue.engine.program import Array, Product, Program, View
from ensue.engine.schedule import overlays
from ensue.engine.storage import Arrays, Finals, Packing, PassCallback, Storage, empty_rows, gradients_of, needs_history
from ensue.engine.trace import TracedStep
from ensue.types import map_state


class PlainPasses:
    """The passes of a program, in torch operations."""

    chunk = (0, 0)
    """No chunks: all states are stored."""

    def __init__(self, program: Program) -> None:
        self._passes = program.passes

    def run(
        self, name: str, arrays: Arrays, packing: Packing, matrices: Sequence[Tensor], *, finals: Finals,
        between: PassCallback | None = None,
    ) -> None:  # fmt: skip
        """Run a pass, and write the states (B, width) of each row at its last position to `finals`."""
        work = self._passes[name]
        counts = [*packing.counts.tolist(), 0]
        positions = range(len(packing.counts))
        for t in reversed(positions) if name == "backward" else positions:
            if between is not None and name == "backward":
                between(t)
            rows = {array: _select_rows(array, storage, packing, t) for array, storage in arrays.items()}
            position = _PositionValues(counts[t], {node: rows[array] for node, array in work.reads.items()}, matrices)
            results = [(position.result(node), array) for node, array in work.writes]
            for value, array in results:
                if array.extent == "sum":
                    rows[array] += value.sum(0)
                else:
                    rows[array].copy_(value)
            for array, final in finals:
                final[counts[t + 1] : counts[t]] = rows[array][counts[t + 1] :]
            if between is not None and name != "backward":
                between(t)

    @staticmethod
    def multiply(a: Tensor, b: Tensor, out: Tensor, *, accumulate: bool = False) -> None:
        """Write `a @ b` to `out`, or add it to `out`."""
        if accumulate:
            out.addmm_(a, b)
        else:
            torch.mm(a, b, out=out)


def _select_rows(array: Array, storage: Storage, packing: Packing, t: int) -> Tensor:
    if array.extent in ("vector", "sum"):
        return storage.tensor[:1]
    count = int(packing.counts[t])
    if array.extent == "row":
        return storage.tensor[:count]
    if array.extent == "previous":
        if t == 0:
            assert storage.start is not None
            return storage.start[:count]
        t -= 1
    begin = t % 2 * packing.batch if storage.is_ring else int(packing.begins[t])
    return storage.tensor[begin : begin + count]


class _PositionValues:
    """The values of a pass at one position, computed when they are read."""

    def __init__(self, rows: int, reads: dict[Node, Tensor], matrices: Sequence[Tensor]) -> None:
        self.rows, self.reads, self.matrices = rows, reads, matrices
        self.like = next(iter(reads.values()))
        self.values = dict(reads)

    def result(self, node: Node) -> Tensor:
        """Return a value (rows, width). Views are copied, since their sources may be overwritten."""
        value = self._expand(node)
        return value.clone() if node in self.reads or node.op == "slice" else value

    def _expand(self, node: Node) -> Tensor:
        return self._value(node).expand(self.rows, node.width)

    def _value(self, node: Node) -> Tensor:
        if node not in self.values:
            is_constant = node.op == "constant"
            # a number beyond float32 is an error in `new_full`, and infinite in a product
            self.values[node] = self.like.new_ones(1, 1) * node.number if is_constant else self._compute(node)
        return self.values[node]

    def _compute(self, node: Node) -> Tensor:
        if node.op in OPERATIONS:
            return OPERATIONS[node.op].plain(*map(self._value, node.args))
        if node.op == "cat":
            return torch.cat([self._expand(arg) for arg in node.args], dim=1)
        value = self._expand(node.args[0])
        if node.op == "slice":
            return value[:, node.index : node.index + node.width]
        if node.op == "sum":
            return value.reshape(len(value), -1, value.shape[1] // node.width, node.index).sum(2).flatten(1)
        if node.op == "spread":
            groups = value.reshape(len(value), -1, 1, node.index)
            return groups.expand(-1, -1, node.width // value.shape[1], -1).flatten(1)
        matrix = self.matrices[node.index]
        return value @ (matrix.t() if node.op == "product_t" else matrix)


Item = TypeVar("Item")
PositionCallback = Callable[[Arrays, int], None]
"""A function that is called between two positions, with the arrays of the pass and the number of the position."""


@dataclass(frozen=True)
class Values(Generic[Item]):
    """One item for each tensor that a program reads. The tensors have one type and device."""

    x: Item
    """(N, d_in), packed by `Packing`."""
    states: Sequence[Item]
    """(B, width), sorted by `Packing`."""
    vectors: Sequence[Item]
    """(1, width)"""
    matrices: Sequence[Item]
    """(k, n), of any strides."""

    @classmethod
    def of(cls, items: Sequence[Item], trace: TracedStep) -> "Values[Item]":
        """Split a list: x, the states, the vectors, the matrices."""
        vectors = 1 + len(trace.states)
        matrices = vectors + len(trace.vectors)
        end = matrices + len(trace.matrices)
        return cls(items[0], items[1:vectors], items[vectors:matrices], items[matrices:end])


MAX_PLANS = 256
"""The maximum number of plans of a runner: one for each number of rows and layout of the tensors."""


class Runner:
    """A traced step, its program, and the functions that run its passes: compiled C or torch operations."""

    def __init__(
        self, trace: TracedStep, program: Program, functions: CompiledPasses | PlainPasses | PlanRecorder,
        dtype: torch.dtype,
    ) -> None:  # fmt: skip
        self.trace, self.program, self.overlays = trace, program, overlays(program)
        self.functions, self.dtype = functions, dtype
        self.init_state = lru_cache(MAX_PLANS)(lambda rows: map_state(lambda leaf: leaf.expand(rows, -1), trace.zeros))
        """The initial state for a number of rows, if it is known; else None."""
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._previous = [Array("previous", number, a.width, "previous") for number, a in enumerate(program.states)]
        self._leaves = [array for array in program.forward.reads.values() if array.name in ("input", "vector")]
        nodes = reachable([trace.output, *trace.states])
        self._matrices = {node.index: (node.args[0].width, node.width) for node in nodes if node.op == "product"}

    def __call__(
        self, x: Tensor, states: Sequence[Tensor], packing: Packing, parameters: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the outputs (N, d_out) and the final states (B, width)."""
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (x, *states, *parameters)):
            weights = self.trace.weights(parameters)
            return _Recurrence.apply(self, packing, x, *states, *weights, *parameters)  # type: ignore[no-untyped-call]
        if isinstance(self.functions, CompiledPasses):
            return self.infer(x, states, packing, parameters) or ()
        values = Values.of([x, *states, *self.trace.weights(parameters)], self.trace)
        output, finals, _ = self.forward(values, packing, save=False)
        return (output, *finals)

    def infer(
        self, x: Tensor, states: Sequence[Tensor], packing: Packing, parameters: Sequence[Tensor], *,
        is_known: bool = False,
    ) -> list[Tensor] | None:  # fmt: skip
        """Run the compiled pass without gradients by a plan, which is made if it is missing; None if `is_known`."""
        assert isinstance(self.functions, CompiledPasses)
        frozen = cached_for(self, lambda: FrozenWeights(self.trace.weights(parameters)))
        weights = None if frozen is None else frozen.weights
        layouts = _layouts((x, *states, *(parameters if frozen is None else ())))
        key = packing.batch, len(packing.counts), frozen is None, *layouts
        plan = self._plans.get(key)
        if plan is None and is_known:
            return None
        if weights is None and (plan is None or plan.offsets is None):
            weights = self.trace.weights(parameters)
        if plan is None or (weights is not None and _layouts(weights) != plan.layouts):
            tensors = [tensor.view_as(tensor) for tensor in (x, *states, *(weights or ()))]  # distinct objects
            recorder = PlanRecorder(self.functions, self.program.output, tensors, is_frozen=frozen is not None)
            recording = Runner(self.trace, self.program, recorder, self.dtype)
            recording.forward(Values.of(tensors, self.trace), packing, save=False)
            offsets = _find_offsets(weights or (), parameters) if frozen is None else None
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan = recorder.plan._replace(layouts=_layouts(weights or ()), offsets=offsets)
        if weights is None:
            addresses = [parameters[number].data_ptr() + offset for number, offset in plan.offsets or ()]
        else:
            addresses = [weight.data_ptr() for weight in weights]
        scratch, output = x.new_empty(plan.sizes[0]), x.new_empty(packing.size, self.program.output.width)
        finals = [state.clone() for state in states]
        packed, phases = scratch, plan.phases
        if frozen is not None and not phases & ONE_ROW:
            packed, phases = (x.new_empty(plan.sizes[1]), PACK) if frozen.packed is None else (frozen.packed, 0)
        places = [scratch.data_ptr(), packed.data_ptr(), output.data_ptr(), *packing.addresses, x.data_ptr()]
        places += [*[state.data_ptr() for state in states], *addresses, *[final.data_ptr() for final in finals]]
        self.functions.run_plan(plan, places, packing, MULTIPLY | LOOP | phases)
        if frozen is not None and packed is not scratch:
            frozen.packed = packed
        return [output, *finals]

    def _check(self, values: Values[Tensor], packing: Packing) -> None:
        """Raise ValueError if the sizes of a tensor are not those in the trace."""
        states = zip(values.states, self.program.states, strict=True)
        checks = [(f"state {k}", state, (packing.batch, array.width)) for k, (state, array) in enumerate(states)]
        checks += [(f"matrix {k}", values.matrices[k], sizes) for k, sizes in self._matrices.items()]
        for array in self._leaves:
            is_input = array.name == "input"
            tensor = values.x if is_input else values.vectors[array.number]
            checks.append((f"{array.name} {array.number}", tensor, (packing.size if is_input else 1, array.width)))
        for name, tensor, sizes in checks:
            if tensor.shape != sizes:
                raise ValueError(f"{name} of the step was {sizes} when it was traced, and is {tuple(tensor.shape)} now")

    def forward(
        self, values: Values[Tensor], packing: Packing, *, save: bool, between: PositionCallback | None = None
    ) -> tuple[Tensor, list[Tensor], Arrays]:
        """Return outputs, final states and the arrays for `backward`. With `between`, final state 0 is not written."""
        self._check(values, packing)
        program, like = self.program, values.states[0]
        arrays = {program.output: Storage(like.new_empty(packing.size, program.output.width))}
        chunk_length, chunk_rows = self.functions.chunk if save and between is None else (0, 0)
        for array in program.states:
            buffer, size = None, packing.size if save else 2 * packing.batch
            if chunk_length and array in program.large:
                size = len(packing.counts) // chunk_length * packing.batch
                buffer = empty_rows(like, torch.get_num_threads() * chunk_length * chunk_rows, array.width)
            if array != program.output:
                arrays[array] = Storage(empty_rows(like, size, array.width), is_ring=not save, buffer=buffer)
        for product in program.products:
            if product.hoisted is not None:
                arrays[product.hoisted] = Storage(empty_rows(like, packing.size, product.hoisted.width))
                factor, matrix = _select_features(values.x, product.factor), values.matrices[product.matrix]
                self.functions.multiply(factor, matrix, arrays[product.hoisted].tensor)
        if save:
            self._allocate(program.saved, arrays, packing.size, like)
        finals = [start.clone() for start in values.states]
        ends = list(zip(program.states, finals, strict=True))[0 if between is None else 1 :]
        self.functions.run(
            "forward" if save else "inference", passed := {**arrays, **self._input_storages(values, arrays)}, packing,
            values.matrices, finals=ends, between=None if between is None else partial(between, passed),
        )  # fmt: skip
        output = arrays.pop(program.output).tensor
        return output, finals, arrays if save else {}

    def _allocate(self, missing: Sequence[Array], arrays: Arrays, size: int, like: Tensor) -> None:
        """Add storage for arrays of all positions; arrays with an overlay are views of other arrays."""
        for array in missing:
            if array in self.overlays and self.overlays[array].array in arrays:
                view = self.overlays[array]
                arrays[array] = Storage(arrays[view.array].tensor[:, view.start : view.start + view.width])
            elif array not in arrays:
                arrays[array] = Storage(empty_rows(like, size, array.width))

    def _input_storages(self, values: Values[Tensor], arrays: Arrays) -> Arrays:
        storages = {
            array: Storage(values.x if array.name == "input" else values.vectors[array.number])
            for array in self._leaves
        }
        for previous, array, start in zip(self._previous, self.program.states, values.states, strict=True):
            state = arrays[array]
            storages[previous] = Storage(state.tensor, start, state.is_ring, state.buffer)
        return storages

    def backward(
        self, values: Values[Tensor], packing: Packing, arrays: Arrays, errors: Sequence[Tensor], needed: Values[bool],
        between: PositionCallback | None = None,
    ) -> list[Tensor | None]:  # fmt: skip
        """Return the loss gradients of x, states, vectors and matrices. `errors` are the loss gradients of the results.

        The pass overwrites `arrays`.
        """
        program, like = self.program, values.states[0]
        output, *states = errors
        arrays = {**arrays, **self._input_storages(values, arrays)}
        arrays[Array("error output", 0, program.output.width, "position")] = Storage(output)
        for number, (error, array) in enumerate(zip(states, program.states, strict=True)):
            arrays[Array("error state", number, array.width, "row")] = Storage(error.clone())
        written = [array for _, array in program.backward.writes]
        for array in written:
            if array.extent == "sum":
                arrays[array] = Storage(like.new_zeros(torch.get_num_threads(), array.width))
        self._allocate([array for array in written if array.extent == "position"], arrays, packing.size, like)
        callback = None if between is None else partial(between, arrays)
        self.functions.run("backward", arrays, packing, values.matrices, finals=[], between=callback)
        tensors = {array: storage.tensor for array, storage in arrays.items()}
        x = self._error_at_x(values, tensors) if needed.x else None
        matrices = self._errors_at_matrices(values, packing, arrays, needed)
        before = [tensors[Array("error state", k, v.shape[1], "row")] for k, v in enumerate(values.states)]
        by_thread = [tensors.get(Array("error vector", k, v.shape[1], "sum")) for k, v in enumerate(values.vectors)]
        vectors = [None if errors is None else errors.sum(0, keepdim=True) for errors in by_thread]
        return [x, *before, *vectors, *matrices]

    def _error_at_x(self, values: Values[Tensor], tensors: dict[Array, Tensor]) -> Tensor:
        """Return the error at x: the error from direct uses of x, plus the errors from products with x."""
        d_in = values.x.shape[1]
        hoisted = [product for product in self.program.products if product.hoisted is not None]
        error = tensors.get(Array("error input", 0, d_in, "position"))
        is_new = error is None and len(hoisted) == 1 and hoisted[0].factor.width == d_in
        if error is None:
            error = torch.empty_like(values.x) if is_new else torch.zeros_like(values.x)
        for product in hoisted:
            matrix = values.matrices[product.matrix]
            self.functions.multiply(
                tensors[product.error], matrix.t(), _select_features(error, product.factor), accumulate=not is_new
            )
        return error

    def _errors_at_matrices(
        self, values: Values[Tensor], packing: Packing, arrays: Arrays, needed: Values[bool]
    ) -> list[Tensor | None]:
        errors: list[Tensor | None] = [None] * len(values.matrices)
        for product in self.program.products:
            if needed.matrices[product.matrix]:
                before, matrix = errors[product.matrix], values.matrices[product.matrix]
                out = matrix.new_empty(matrix.shape[1], matrix.shape[0]) if before is None else before.t()
                self._add_error_at_matrix(product, packing, arrays, out, accumulate=before is not None)
                errors[product.matrix] = out.t()
        return errors

    def _add_error_at_matrix(
        self, product: Product, packing: Packing, arrays: Arrays, out: Tensor, *, accumulate: bool
    ) -> None:
        """Write or add Σ_t error_t ⊗ factor_t, (n, k), to `out`."""
        error, storage = arrays[product.error].tensor, arrays[product.factor.array]
        factor = _select_features(storage.tensor, product.factor)
        if storage.start is None:
            self.functions.multiply(error.t(), factor, out, accumulate=accumulate)
            return
        first = int(packing.counts[0])
        start = _select_features(storage.start, product.factor)
        self.functions.multiply(error[:first].t(), start[:first], out, accumulate=accumulate)
        if packing.size > first:
            self.functions.multiply(error[first:].t(), factor[packing.before], out, accumulate=True)


def _select_features(tensor: Tensor, view: View) -> Tensor:
    return tensor[:, view.start : view.start + view.width]


def differentiable_gradients(
    trace: TracedStep, packing: Packing, tensors: Sequence[Tensor], errors: Sequence[Tensor], counts: tuple[int, int],
    make: Callable[[Sequence[Tensor], Packing], Any] | None = None,
) -> list[Tensor | None]:  # fmt: skip
    """Return differentiable gradients, by running the recorded step at each position under autograd.

    The gradients of vectors and matrices are None, since the parameters from which they are computed get gradients.
    """
    states = len(trace.states)

    def fold(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        before: Sequence[Tensor] = rest[:states]
        feedback = None if make is None else make(rest[states : states + counts[1]], packing)
        values, outputs, finals = trace.values(rest[states + counts[1] :]), [], []
        for t, (begin, count) in enumerate(zip(packing.begins.tolist(), packing.counts.tolist(), strict=True)):
            finals.append([state[count:] for state in before])
            y, *before = trace.step(values, x[begin : begin + count], [state[:count] for state in before])
            if feedback is not None:
                y = before[0] = feedback.forward(t, y)
            outputs.append(y)
        return (torch.cat(outputs), *(torch.cat(rows) for rows in zip(before, *reversed(finals), strict=True)))

    gradients = gradients_of(fold, [*tensors[: states + 1], *tensors[counts[0] :]], errors)
    return [*gradients[: states + 1], *[None] * (counts[0] - states - 1), *gradients[states + 1 :]]


@dataclass
class FrozenWeights:
    """The weights of a layer that do not change, and after the first call the packed matrices."""

    weights: list[Tensor]
    packed: Tensor | None = None


def _layouts(tensors: Sequence[Tensor]) -> list[object]:
    """Return the attributes on which a plan depends."""
    return [(x.shape, x.stride(), x.dtype, x.is_cpu, x.is_neg()) for x in tensors]


def _find_offsets(weights: Sequence[Tensor], parameters: Sequence[Tensor]) -> list[tuple[int, int]] | None:
    """Return the offsets of a `Plan`; None unless all weights are views of parameters."""
    numbers = {tensor.untyped_storage().data_ptr(): number for number, tensor in enumerate(parameters)}
    owners = [numbers.get(weight.untyped_storage().data_ptr()) for weight in weights]
    if len(numbers) < len(parameters):  # several parameters share memory, so a weight may be a view of any of them
        return None
    pairs = [(k, weight) for k, weight in zip(owners, weights, strict=True) if k is not None]
    offsets = [(k, weight.data_ptr() - parameters[k].data_ptr()) for k, weight in pairs]
    return offsets if len(offsets) == len(weights) else None


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: Runner, packing: Packing, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Run the program; `tensors` are the tensors of `Runner.__call__`, then the parameters."""
        output, finals, ctx.arrays = runner.forward(Values.of(tensors, runner.trace), packing, save=True)
        ctx.runner, ctx.packing = runner, packing
        ctx.save_for_backward(*tensors, output)
        return (output, *finals)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        runner: Runner = ctx.runner
        *tensors, output = ctx.saved_tensors
        parameters = len(runner.trace.parameters)
        if needs_history(errors):
            counts = len(tensors) - parameters, 0
            return None, None, *differentiable_gradients(runner.trace, ctx.packing, tensors, errors, counts)
        values = Values.of(tensors, runner.trace)
        if ctx.arrays is None:  # in a second backward pass, since the first pass has overwritten the arrays
            ctx.arrays = runner.forward(values, ctx.packing, save=True)[2]
        arrays, ctx.arrays = {**ctx.arrays, runner.program.output: Storage(output)}, None
        needed = Values.of(ctx.needs_input_grad[2:], runner.trace)
        errors = tuple(error.resolve_neg().contiguous() for error in errors)
        return None, None, *runner.backward(values, ctx.packing, arrays, errors, needed), *[None] * parameters
