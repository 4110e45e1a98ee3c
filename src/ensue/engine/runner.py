"""Runs a program over whole sequences, and is its gradient for autograd.

A product that does not need the position before is one product over all positions: W x in front of the forward loop,
behind the backward loop the error at x and the gradient of every matrix, `dU = Σ_t δ_t h_{t-1}ᵀ` (Werbos 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ensue.engine.c_passes import CompiledPasses
from ensue.engine.graph import reachable
from ensue.engine.overlays import overlays
from ensue.engine.packing import Packing
from ensue.engine.plain_passes import PlainPasses
from ensue.engine.products import PackedWeights
from ensue.engine.program import Array, Product, Program, View
from ensue.engine.storage import Arrays, Finals, Storage, gradients_of, needs_history, room
from ensue.engine.trace import TracedStep

Item = TypeVar("Item")
AmongArrays = Callable[[Arrays, int], None]
"""A call between two positions, with the arrays of the pass."""


@dataclass(frozen=True)
class Values(Generic[Item]):
    """Something for each tensor that a program is run on; the tensors are of one type and device."""

    x: Item
    """(N, d_in), as `Packing` packs it."""
    states: Sequence[Item]
    """(B, width), in the order of `Packing`."""
    vectors: Sequence[Item]
    """(1, width)"""
    matrices: Sequence[Item]
    """(k, n), of any strides."""

    @classmethod
    def of(cls, items: Sequence[Item], trace: TracedStep) -> Values[Item]:
        """From a list: x, the states, the vectors, the matrices."""
        parts, begin = [], 1
        for group in (trace.states, trace.vectors, trace.matrices):
            parts.append(items[begin : begin + len(group)])
            begin += len(group)
        return cls(items[0], *parts)


class Runner:
    """A traced step, its program and what runs its passes: compiled C or torch operations."""

    def __init__(
        self,
        trace: TracedStep,
        program: Program,
        functions: CompiledPasses | PlainPasses,
        dtype: torch.dtype,
    ) -> None:
        self.trace, self.program, self.overlays = trace, program, overlays(program)
        self.functions, self.dtype = functions, dtype
        self._leaves = [array for array in program.forward.reads.values() if array.name in ("input", "vector")]
        nodes = reachable([trace.output, *trace.states])
        self._matrices = {node.index: (node.args[0].width, node.width) for node in nodes if node.op == "product"}

    def __call__(
        self,
        tensors: Sequence[Tensor],
        packing: Packing,
        kept: PackedWeights | None = None,
        *,
        parameters: Sequence[Tensor],
    ) -> tuple[Tensor, ...]:
        """The outputs (N, d_out) and the final states (B, width). `kept` is for weights that are held.

        `parameters` are what the step reads of its layer: gradients of gradients go there, past `tensors`.
        """
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _Recurrence.apply(self, packing, *tensors, *parameters)  # type: ignore[no-any-return, no-untyped-call]
        output, finals, _ = self.forward(Values.of(tensors, self.trace), packing, keep=False, kept=kept)
        return (output, *finals)

    def _check(self, values: Values[Tensor], packing: Packing) -> None:
        """Raises `ValueError` where something has other sizes than when the step was traced."""
        states = zip(values.states, self.program.states, strict=True)
        given = [(f"state {k}", state, (packing.batch, array.width)) for k, (state, array) in enumerate(states)]
        given += [(f"matrix {k}", values.matrices[k], sizes) for k, sizes in self._matrices.items()]
        for array in self._leaves:
            is_input = array.name == "input"
            tensor = values.x if is_input else values.vectors[array.number]
            given.append((f"{array.name} {array.number}", tensor, (packing.size if is_input else 1, array.width)))
        for name, tensor, sizes in given:
            if tensor.shape != sizes:
                raise ValueError(f"{name} of the step was {sizes} when it was traced, and is {tuple(tensor.shape)} now")

    def forward(
        self, values: Values[Tensor], packing: Packing, *, keep: bool, between: AmongArrays | None = None,
        kept: PackedWeights | None = None,
    ) -> tuple[Tensor, list[Tensor], Arrays]:  # fmt: skip
        """The outputs, the final states, and the arrays that `backward` will want.

        With `between`, which writes what the first state is at each position, that one's end is not kept. Raises
        `ValueError` where something has other sizes than when the step was traced.
        """
        self._check(values, packing)
        program, like = self.program, values.states[0]
        arrays = {program.output: Storage(like.new_empty(packing.size, program.output.width))}
        every, block = self.functions.chunk if keep and between is None else (0, 0)
        for array in program.states:
            few = every if array in program.large else 0
            size = len(packing.counts) // few * packing.batch if few else packing.size if keep else 2 * packing.batch
            buffer = room(like, torch.get_num_threads() * every * block, array.width) if few else None
            arrays.setdefault(array, Storage(room(like, size, array.width), is_ring=not keep, buffer=buffer))
        for product in program.products:
            if product.hoisted is not None:
                arrays[product.hoisted] = Storage(room(like, packing.size, product.hoisted.width))
                factor, matrix = _features(values.x, product.factor), values.matrices[product.matrix]
                self.functions.multiply(factor, matrix, arrays[product.hoisted].tensor, kept=kept)
        if keep:
            self._make_room(program.kept, arrays, packing.size, like)
        finals = [start.clone() for start in values.states]
        ends = list(zip(program.states, finals, strict=True))[0 if between is None else 1 :]
        name, given = "forward" if keep else "inference", {**arrays, **self._read(values, arrays)}
        self._run(name, given, packing, values, ends, between, kept)
        output = arrays.pop(program.output).tensor
        return output, finals, arrays if keep else {}

    def _make_room(self, wanted: Sequence[Array], arrays: Arrays, size: int, like: Tensor) -> None:
        """Storage for arrays of all positions: inside of others where that may be."""
        for array in wanted:
            if array in self.overlays and self.overlays[array].array in arrays:
                view = self.overlays[array]
                host = arrays[view.array].tensor
                arrays[array] = Storage(host[:, view.start : view.start + view.width])
            elif array not in arrays:
                arrays[array] = Storage(room(like, size, array.width))

    def _read(self, values: Values[Tensor], arrays: Arrays) -> Arrays:
        """The inputs of a pass, and the states as the position after reads them."""
        found = {
            array: Storage(values.x if array.name == "input" else values.vectors[array.number])
            for array in self._leaves
        }
        for number, (array, start) in enumerate(zip(self.program.states, values.states, strict=True)):
            state = arrays[array]
            found[Array("previous", number, array.width, "previous")] = Storage(
                state.tensor, start, state.is_ring, state.buffer
            )
        return found

    def backward(
        self,
        values: Values[Tensor],
        packing: Packing,
        arrays: Arrays,
        errors: Sequence[Tensor],
        needed: Values[bool],
        between: AmongArrays | None = None,
    ) -> list[Tensor | None]:
        """From the errors at the outputs and final states to those at all values that are `needed`.

        What `arrays` hold is written over.
        """
        program, like = self.program, values.states[0]
        output, *states = errors
        arrays = {**arrays, **self._read(values, arrays)}
        arrays[Array("error output", 0, program.output.width, "position")] = Storage(output)
        for number, (error, array) in enumerate(zip(states, program.states, strict=True)):
            arrays[Array("error state", number, array.width, "row")] = Storage(error.clone())
        written = [array for _, array in program.backward.writes]
        for array in written:
            if array.extent == "sum":
                arrays[array] = Storage(like.new_zeros(torch.get_num_threads(), array.width))
        self._make_room([array for array in written if array.extent == "position"], arrays, packing.size, like)
        self._run("backward", arrays, packing, values, [], between)
        found = {array: storage.tensor for array, storage in arrays.items()}
        x = self._error_at_x(values, found) if needed.x else None
        matrices = self._errors_at_matrices(values, packing, arrays, needed)
        before = [found[Array("error state", k, v.shape[1], "row")] for k, v in enumerate(values.states)]
        sums = [found.get(Array("error vector", k, v.shape[1], "sum")) for k, v in enumerate(values.vectors)]
        return [x, *before, *(None if part is None else part.sum(0, keepdim=True) for part in sums), *matrices]

    def _run(
        self,
        name: str,
        arrays: Arrays,
        packing: Packing,
        values: Values[Tensor],
        finals: Finals,
        between: AmongArrays | None,
        kept: PackedWeights | None = None,
    ) -> None:
        if between is None:
            self.functions.run(name, arrays, packing, values.matrices, finals=finals, kept=kept)
        else:
            at = partial(between, arrays)
            self.functions.run(name, arrays, packing, values.matrices, finals=finals, between=at)

    def _error_at_x(self, values: Values[Tensor], found: dict[Array, Tensor]) -> Tensor:
        """The sum of the error where the step reads x itself, and of that through its products with x."""
        d_in = values.x.shape[1]
        hoisted = [product for product in self.program.products if product.hoisted is not None]
        error = found.get(Array("error input", 0, d_in, "position"))
        is_new = error is None and len(hoisted) == 1 and hoisted[0].factor.width == d_in
        if error is None:
            error = torch.empty_like(values.x) if is_new else torch.zeros_like(values.x)
        for product in hoisted:
            matrix = values.matrices[product.matrix]
            self.functions.multiply(
                found[product.error], matrix.t(), _features(error, product.factor), accumulate=not is_new
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
        """Σ over positions of error ⊗ factor, (n, k)."""
        error, storage = arrays[product.error].tensor, arrays[product.factor.array]
        factor = _features(storage.tensor, product.factor)
        if storage.start is None:
            self.functions.multiply(error.t(), factor, out, accumulate=accumulate)
            return
        first = int(packing.counts[0])
        start = _features(storage.start, product.factor)
        self.functions.multiply(error[:first].t(), start[:first], out, accumulate=accumulate)
        if packing.size > first:
            self.functions.multiply(error[first:].t(), factor[packing.before], out, accumulate=True)


def _features(tensor: Tensor, view: View) -> Tensor:
    return tensor[:, view.start : view.start + view.width]


def differentiable_gradients(
    trace: TracedStep,
    packing: Packing,
    tensors: Sequence[Tensor],
    errors: Sequence[Tensor],
    counts: tuple[int, int],
    make: Callable[[Sequence[Tensor], Packing], Any] | None = None,
) -> list[Tensor | None]:
    """The gradients of `tensors` by the recorded step at each position: those of a runner, those that `make` makes a
    feedback of, `counts` of each, and parameters. Vectors and matrices, which are made of parameters, get None.
    """
    states = len(trace.states)

    def fold(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        before: Sequence[Tensor] = rest[:states]
        feedback = None if make is None else make(rest[states : states + counts[1]], packing)
        values, outputs, ended = trace.values(rest[states + counts[1] :]), [], []
        for t, (begin, count) in enumerate(zip(packing.begins.tolist(), packing.counts.tolist(), strict=True)):
            ended.append([state[count:] for state in before])
            y, *before = trace.step(values, x[begin : begin + count], [state[:count] for state in before])
            if feedback is not None:
                y = before[0] = feedback.forward(t, y)
            outputs.append(y)
        return (torch.cat(outputs), *(torch.cat(rows) for rows in zip(before, *reversed(ended), strict=True)))

    found = gradients_of(fold, [*tensors[: states + 1], *tensors[counts[0] :]], errors)
    return [*found[: states + 1], *[None] * (counts[0] - states - 1), *found[states + 1 :]]


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, runner: Runner, packing: Packing, *tensors: Tensor) -> tuple[Tensor, ...]:
        """`tensors` are those of `Runner.forward`, then the parameters."""
        output, finals, ctx.arrays = runner.forward(Values.of(tensors, runner.trace), packing, keep=True)
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
        if ctx.arrays is None:  # backward once more through the same graph: what was written over is made again
            ctx.arrays = runner.forward(values, ctx.packing, keep=True)[2]
        arrays, ctx.arrays = {**ctx.arrays, runner.program.output: Storage(output)}, None
        needed = Values.of(ctx.needs_input_grad[2:], runner.trace)
        errors = tuple(error.resolve_neg().contiguous() for error in errors)
        return None, None, *runner.backward(values, ctx.packing, arrays, errors, needed), *[None] * parameters
