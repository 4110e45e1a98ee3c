"""Feedback: a computation between two positions, from the output at a position to an input of the next position.

Attention inside a step is not a product with parameters, so the engine cannot trace it. `Feedback` computes attention
between two positions, in torch operations, with a custom derivative. The cell runs like all other cells: the gradient
of each matrix is one product over all positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ensue.engine.program import Array
from ensue.engine.runner import Runner, Values, differentiable_gradients
from ensue.engine.storage import Arrays, Packing, Storage, needs_history


class Feedback(ABC):
    """The computation between two positions, for one call of the layer. Rows are sorted, the longest first."""

    @abstractmethod
    def forward(self, t: int, h: Tensor) -> Tensor:
        """Return the input of the next position (rows, d_fed), from the outputs `h` (rows, d) of position `t`.

        For second derivatives, autograd differentiates these operations, and `backward` is not called.
        """

    @abstractmethod
    def backward(self, t: int, h: Tensor, y: Tensor, error: Tensor) -> Tensor:
        """Return the loss gradient of `h` from `error`, the loss gradient of `y`, which is `forward(t, h)`."""

    @abstractmethod
    def gradients(self) -> list[Tensor | None]:
        """Return the gradients of the tensors of the feedback. Called after `backward` at all positions."""


FeedbackFactory = Callable[[Sequence[Tensor], Packing], Feedback]
"""A function that builds the feedback of a call from tensors and the packing."""


def run_fed(
    runner: Runner, packing: Packing, tensors: Sequence[Tensor], make: FeedbackFactory, others: Sequence[Tensor],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the results (N, d_fed) of the feedback that `make` builds from `others`, and the final states."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *others)):
        counts = len(tensors), len(others)
        return _FedRecurrence.apply(runner, packing, make, counts, *tensors, *others, *parameters)  # type: ignore[no-untyped-call]
    return _forward(runner, packing, tensors, make(others, packing), save=False)[:-2]


def _forward(
    runner: Runner, packing: Packing, tensors: Sequence[Tensor], feedback: Feedback, *, save: bool
) -> tuple[Any, ...]:
    """Return the results of the feedback, the final states, the cell's outputs, and the saved arrays."""
    program, counts = runner.program, [*packing.counts.tolist(), 0]
    values = Values.of(tensors, runner.trace)
    start = values.states[0]
    fed, last = start.new_empty(packing.size, start.shape[1]), start.clone()

    def feed(arrays: Arrays, t: int) -> None:
        begin, count = int(packing.begins[t]), counts[t]
        y = feedback.forward(t, arrays[program.output].tensor[begin : begin + count])
        fed[begin : begin + count] = y
        storage = arrays[program.states[0]]
        row = t % 2 * packing.batch if storage.is_ring else begin
        storage.tensor[row : row + count] = y
        last[counts[t + 1] : count] = y[counts[t + 1] :]

    h, (_, *finals), arrays = runner.forward(values, packing, save=save, between=feed)
    return (fed, last, *finals, h, arrays)


class _FedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, runner: Runner, packing: Packing, make: FeedbackFactory, counts: tuple[int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        count, end = counts[0], sum(counts)
        ctx.feedback = make(tensors[count:end], packing)
        *results, h, ctx.arrays = _forward(runner, packing, tensors[:count], ctx.feedback, save=True)
        ctx.runner, ctx.packing, ctx.make, ctx.counts = runner, packing, make, counts
        ctx.save_for_backward(*tensors, results[0], h)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        runner, packing, count, end = ctx.runner, ctx.packing, ctx.counts[0], sum(ctx.counts)
        *tensors, fed, h = ctx.saved_tensors
        if needs_history(errors):
            gradients = differentiable_gradients(runner.trace, packing, tensors, errors, ctx.counts, ctx.make)
            return None, None, None, None, *gradients
        values = Values.of(tensors[:count], runner.trace)
        if ctx.arrays is None:  # in a second backward pass, since the first pass has overwritten the arrays
            ctx.feedback = ctx.make(tensors[count:end], packing)
            ctx.arrays = _forward(runner, packing, tensors[:count], ctx.feedback, save=True)[-1]
        arrays, ctx.arrays = {**ctx.arrays, runner.program.output: Storage(h)}, None
        needed = Values.of(ctx.needs_input_grad[4 : 4 + count], runner.trace)
        at_fed, *at_states = (error.resolve_neg().contiguous() for error in errors)
        at_h = torch.empty_like(h)
        carried = Array("error state", 0, fed.shape[1], "row")

        def feed_back(arrays: Arrays, t: int) -> None:
            rows = slice(int(packing.begins[t]), int(packing.begins[t] + packing.counts[t]))
            error = arrays[carried].tensor[: packing.counts[t]]
            at_h[rows] = ctx.feedback.backward(t, h[rows], fed[rows], at_fed[rows] + error)
            error.zero_()  # the feedback replaces this state, so no error passes to the position before

        gradients = runner.backward(values, packing, arrays, [at_h, *at_states], needed, feed_back)
        return None, None, None, None, *gradients, *ctx.feedback.gradients(), *[None] * (len(tensors) - end)
