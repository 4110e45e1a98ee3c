"""A step with something outside of it: what a position gives is turned into what the next one is fed.

Attention inside of a step is no product with parameters, so the engine cannot trace it. A `Feedback` does it between
two positions, in torch operations, and has its derivative written out. The cell around it runs as any other: its
gradients at matrices are one product over all positions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ensue.engine.packing import Packing
from ensue.engine.program import Array
from ensue.engine.runner import Runner, Values, differentiable_gradients
from ensue.engine.storage import Arrays, Storage, needs_history


class Feedback(ABC):
    """The computation between two positions, for one call. Rows are in the order of the packing, the longest first."""

    @abstractmethod
    def forward(self, t: int, h: Tensor) -> Tensor:
        """From the outputs h (rows, d) of position t to what is fed to the next position, (rows, d_fed).

        In torch operations that autograd can follow; with gradients enabled, nothing is kept for `backward`.
        """

    @abstractmethod
    def backward(self, t: int, h: Tensor, y: Tensor, error: Tensor) -> Tensor:
        """From the error at y, which `forward` gave for h, to the error at h."""

    @abstractmethod
    def gradients(self) -> list[Tensor | None]:
        """Of all tensors that it was made of, when all positions are through."""


Maker = Callable[[Sequence[Tensor], Packing], Feedback]
"""Makes the feedback of a call from its tensors."""


def run_fed(
    runner: Runner,
    packing: Packing,
    tensors: Sequence[Tensor],
    make: Maker,
    others: Sequence[Tensor],
    parameters: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """The inputs fed at each position (N, d_fed), and the final states, the first of which is the input fed last.

    `tensors` are those of the runner, `others` those of the feedback; `parameters` as in `Runner.__call__`.
    """
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *others)):
        counts = len(tensors), len(others)
        return _FedRecurrence.apply(runner, packing, make, counts, *tensors, *others, *parameters)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(runner, packing, tensors, make(others, packing), keep=False)[:-2]


def _forward(
    runner: Runner, packing: Packing, tensors: Sequence[Tensor], feedback: Feedback, *, keep: bool
) -> tuple[Any, ...]:
    """The inputs that are fed, the final states, the outputs of the cell, and the arrays for `backward`."""
    program, counts = runner.program, [*packing.counts.tolist(), 0]
    values = Values.of(tensors, runner.trace)
    start = values.states[0]
    fed, last = start.new_empty(packing.size, start.shape[1]), start.clone()

    def feed(arrays: Arrays, t: int) -> None:
        begin, count = int(packing.begins[t]), counts[t]
        y = feedback.forward(t, arrays[program.output].tensor[begin : begin + count])
        fed[begin : begin + count] = y
        storage = arrays[program.states[0]]
        place = t % 2 * packing.batch if storage.is_ring else begin
        storage.tensor[place : place + count] = y
        last[counts[t + 1] : count] = y[counts[t + 1] :]

    h, (_, *finals), arrays = runner.forward(values, packing, keep=keep, between=feed)
    return (fed, last, *finals, h, arrays)


class _FedRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, runner: Runner, packing: Packing, make: Maker, counts: tuple[int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        count, end = counts[0], sum(counts)
        ctx.feedback = make(tensors[count:end], packing)
        *results, h, ctx.arrays = _forward(runner, packing, tensors[:count], ctx.feedback, keep=True)
        ctx.runner, ctx.packing, ctx.make, ctx.counts = runner, packing, make, counts
        ctx.save_for_backward(*tensors, results[0], h)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        runner, packing, count, end = ctx.runner, ctx.packing, ctx.counts[0], sum(ctx.counts)
        *tensors, fed, h = ctx.saved_tensors
        if needs_history(errors):
            found = differentiable_gradients(runner.trace, packing, tensors, errors, ctx.counts, ctx.make)
            return None, None, None, None, *found
        values = Values.of(tensors[:count], runner.trace)
        if ctx.arrays is None:  # backward once more through the same graph: what was written over is made again
            ctx.feedback = ctx.make(tensors[count:end], packing)
            ctx.arrays = _forward(runner, packing, tensors[:count], ctx.feedback, keep=True)[-1]
        arrays, ctx.arrays = {**ctx.arrays, runner.program.output: Storage(h)}, None
        needed = Values.of(ctx.needs_input_grad[4 : 4 + count], runner.trace)
        at_fed, *at_states = (error.resolve_neg().contiguous() for error in errors)
        at_h = torch.empty_like(h)
        carried = Array("error state", 0, fed.shape[1], "row")

        def feed_back(arrays: Arrays, t: int) -> None:
            rows = slice(int(packing.begins[t]), int(packing.begins[t] + packing.counts[t]))
            error = arrays[carried].tensor[: packing.counts[t]]
            at_h[rows] = ctx.feedback.backward(t, h[rows], fed[rows], at_fed[rows] + error)
            error.zero_()  # what was fed is made here; nothing of it is carried on

        found = runner.backward(values, packing, arrays, [at_h, *at_states], needed, feed_back)
        return None, None, None, None, *found, *ctx.feedback.gradients(), *[None] * (len(tensors) - end)
