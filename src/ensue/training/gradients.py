"""The gradients of a step, summed over micro-batches and ranks.

Rows are assigned to ranks here, and each rank reads only its own. The loss of any rows is divided by the predictions of
the whole batch, so that the sum of all gradients is that of the batch's mean loss.

- Micro-batches are computed one after the other, and each rank has a shard of the rows of each. A micro-batch has a
  random stream of its own, so that a rank may have no row of it.
- An exact run cuts the batch into `SHARDS` shards, whose gradients are added as a binary tree. Each rank has a subtree,
  and two ranks exchange their sums, then two pairs, and so on. So every number of ranks that divides `SHARDS` adds the
  same numbers in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.processor import Precision
from ensue.ranks import SHARDS, Ranks, shard
from ensue.tasks.contract.task import Task, UnreadBatch
from ensue.training.device import autocast, is_out_of_memory
from ensue.types import Loss, State, concatenate_rows, detach, map_state


class StepLoss(NamedTuple):
    """The loss of a batch, the state after it in the local rows, and whether a rank was asked to stop."""

    loss: Loss
    state: State
    stop: bool


class OutOfMemory(Exception):
    """A rank was out of memory. There are no gradients."""


class Gradients:
    """Computes the gradients of batches of `task`, together with the other ranks."""

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], *, seed: int, precision: Precision, ranks: Ranks
    ) -> None:
        self.adversarial = 0.0
        """How far vectors move in a second pass, in their mean norms; 0: there is no second pass."""
        self.model, self.task, self.seed, self.precision, self.ranks = model, task, seed, precision, ranks
        self.form = model
        """A model of the same form, for what does not depend on the weights."""
        self.device = next(model.parameters()).device
        self.total = torch.zeros((), device=self.device)
        self.count = 0
        self.flattened: list[bool] = []
        """Which parameters had a gradient when the gradients were flattened."""
        self._vector: Tensor | None = None
        """The flat gradients on a CPU, allocated once: a fragmented heap may have no room for another one."""

    def of(
        self, batch: UnreadBatch[Any], state: State, *, step: int, micro_batches: int, stop: bool = False
    ) -> StepLoss:
        """Sets the gradients of the batch's mean loss. `state` has the `local_rows`. Raises OutOfMemory."""
        compute = self._exactly if self.ranks.exact else self._by_micro_batch
        after, summed, failed = None, None, False
        try:
            seed_generators(self.device, step_seed(self.seed, step))  # a second attempt draws the same numbers
            rows = None
            if self.ranks.size > 1:
                rows = RowSlice(self.local_rows(batch.rows, micro_batches).to(self.device), batch.rows)
            with drawing_rows(rows):
                before = self.task.carried(self.form, batch, state)
            if not self.model.training:  # a walk over all modules
                self.model.train()
            self.total, self.count, self.flattened = torch.zeros((), device=self.device), 0, []
            summed, after = compute(batch, before, step, micro_batches)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = True
        stop = self._add(summed, failed=failed, stop=stop)
        return StepLoss(Loss(self.total, self.count), after, stop)

    def loss(self, batch: Any, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch, and the state after it."""
        return self.task.loss(self.model, batch, state)

    def full(self, model: nn.Module) -> nn.Module:
        """The model, or its average, with full parameters; all ranks call it."""
        return model

    def clip(self, most: float) -> float:
        """Scales the gradients so that their norm is `most` at most. Returns what it was."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), most))

    def local_rows(self, rows: int, micro_batches: int) -> Tensor:
        """The numbers of the rows of a batch that this rank works on, in their order."""
        return torch.cat([row_slice.of(torch.arange(rows)) for row_slice in self._row_slices(rows, micro_batches)])

    def _row_slices(self, rows: int, micro_batches: int) -> Iterator[RowSlice]:
        """The rows of this rank in each micro-batch, or in each of its shards of an exact run."""
        if self.ranks.exact:
            for index in range(SHARDS)[self.ranks.shard(SHARDS)]:
                yield _contiguous(shard(rows, index, SHARDS))
            return
        size = math.ceil(rows / micro_batches)
        for number, start in enumerate(range(0, rows, size)):
            total = min(size, rows - start)
            turn = (self.ranks.rank + number) % self.ranks.size  # where a micro-batch has few rows, each rank has some
            yield RowSlice(shard(total, turn, self.ranks.size), total, start)

    def _by_micro_batch(
        self, batch: UnreadBatch[Any], state: State, step: int, micro_batches: int
    ) -> tuple[None, State]:
        """Accumulate the gradients of the local rows. Returns the state after them."""
        states: list[State] = []
        begin = 0
        for number, row_slice in enumerate(self._row_slices(batch.rows, micro_batches)):
            if number:
                seed_generators(self.device, step_seed(self.seed, step, number))
            assert isinstance(row_slice.local, slice)
            end = begin + row_slice.local.stop - row_slice.local.start
            if begin == end:
                self._without_rows(batch, row_slice)
                continue
            with drawing_rows(row_slice if self.ranks.size > 1 else None):
                states.append(self._backward(batch.read(row_slice), state, slice(begin, end), batch.count))
            begin = end
        return None, _joined(states)

    def _without_rows(self, batch: UnreadBatch[Any], row_slice: RowSlice) -> None:
        """No-op: this rank has no rows of the micro-batch."""

    def _exactly(self, batch: UnreadBatch[Any], state: State, step: int, micro_batches: int) -> tuple[Tensor, State]:
        """The sum of the gradients of the local shards in a fixed order, and the state after them."""
        local, states = self.ranks.shard(SHARDS), list[State]()
        first, count = shard(batch.rows, local.start, SHARDS).start, math.ceil(micro_batches / SHARDS)

        def of_shard(index: int) -> Tensor:
            rows = shard(batch.rows, index, SHARDS)
            seed_generators(self.device, step_seed(self.seed, step, index + 1))
            for some in (shard(rows.stop - rows.start, number, count) for number in range(count)):
                start, stop = rows.start + some.start, rows.start + some.stop
                if start < stop:
                    read = batch.read(_contiguous(slice(start, stop)))
                    states.append(self._backward(read, state, slice(start - first, stop - first), batch.count))
            return self._flatten()

        return _tree(of_shard, local.start, local.stop), _joined(states)

    def _backward(self, batch: Any, state: State, rows: slice, count: int) -> State:
        """Accumulate the gradients of a batch, whose state is `rows` of the local one. Returns the state after it."""
        passes = self._two_passes if self.adversarial else self._pass
        loss, after = passes(batch, map_state(lambda leaf: leaf[rows], state), count)
        self.total, self.count = self.total + loss.total.detach(), self.count + loss.count
        return detach(after)

    def _pass(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        with autocast(self.precision, self.device):
            loss, after = self.loss(batch, state)
        (loss.total / count).backward()  # type: ignore[no-untyped-call]
        return loss, after

    def _two_passes(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        """A second pass moves the vectors of each row to where its loss rises most (Miyato et al. 2017, eq. 4)."""
        model, moves = cast("Any", self.model), list[Tensor]()
        vectors: nn.Module = (model.layers if isinstance(model.layers, SubwordEncoder) else model).features

        def stay(module: nn.Module, given: Any, x: Tensor) -> Tensor:
            moves.append(torch.zeros_like(x, requires_grad=True))
            return x + moves[-1]

        with vectors.register_forward_hook(stay):
            found = self._pass(batch, state, count)
        with vectors.register_forward_hook(lambda module, given, x: x + self.adversarial * _worst(x, moves.pop(0))):
            self._pass(batch, state, count)
        return found

    def _add(self, summed: Tensor | None, *, failed: bool, stop: bool) -> bool:
        """Sum losses and gradients over the ranks. Returns whether a rank was asked to stop."""
        if self.ranks.size == 1 and failed:
            raise OutOfMemory
        if self.ranks.size == 1 and summed is None:
            return stop
        local = [self.count, failed, stop, *self._has_gradient()]
        count, failures, stops, *known = self.ranks.add(torch.tensor(local, dtype=torch.float64)).tolist()
        if failures:
            raise OutOfMemory
        if summed is None:
            summed = self._flatten(self._vector)
            self._vector = summed if self.device.type == "cpu" else None
        self._unflatten(self.ranks.add(summed), known)
        self.count = int(count)
        return bool(stops)

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _has_gradient(self) -> list[bool]:
        """Which parameters have a gradient, or had one when the gradients were flattened."""
        now = [parameter.grad is not None for parameter in self._trained()]
        return [a or b for a, b in zip(now, self.flattened, strict=True)] if self.flattened else now

    def _flatten(self, into: Tensor | None = None) -> Tensor:
        """Flatten the gradients and the loss into one vector (`into`, if it has the size), and set `.grad` to None."""
        self.flattened = self._has_gradient()
        flat = []
        for parameter in self._trained():
            flat.append(torch.zeros_like(parameter).flatten() if parameter.grad is None else parameter.grad.flatten())
            parameter.grad = None
        flat.append(self.total.view(1))
        fits = into is not None and into.numel() == sum(tensor.numel() for tensor in flat)
        vector = torch.cat(flat, out=into if fits else None)
        self.total = torch.zeros_like(self.total)
        return vector

    def _unflatten(self, vector: Tensor, known: list[float]) -> None:
        """Set the gradients and the loss from the vector."""
        parameters = self._trained()
        *gradients, total = torch.split(vector, [*(parameter.numel() for parameter in parameters), 1])
        for parameter, gradient, is_known in zip(parameters, gradients, known, strict=True):
            parameter.grad = gradient.view_as(parameter) if is_known else None
        self.total = total.squeeze(0)


def _worst(x: Tensor, move: Any) -> Tensor:
    """The direction (B, T, d) in which the loss of each row rises most, with the mean norm of its vectors in x."""
    gradient: Tensor = move.grad
    real = gradient.any(-1)  # the loss does not depend on padding
    norm: Tensor = (x.detach().norm(dim=-1) * real).sum(1) / real.sum(1).clamp_min(1)
    return F.normalize(gradient.flatten(1), eps=1e-30).view_as(gradient) * norm[:, None, None]


def _contiguous(rows: slice) -> RowSlice:
    """The rows of a batch as a micro-batch, of which this rank has all."""
    return RowSlice(total=rows.stop - rows.start, start=rows.start)


def _joined(states: list[State]) -> State:
    return states[0] if len(states) == 1 else concatenate_rows(states) if states else None


def _tree(leaf: Callable[[int], Tensor], first: int, last: int) -> Tensor:
    """The sum of the leaves from `first` to before `last`: that of the first half and that of the second."""
    if last - first == 1:
        return leaf(first)
    middle = (first + last) // 2
    left = _tree(leaf, first, middle)
    return left.add_(_tree(leaf, middle, last))


def seed_generators(device: torch.device, seed: int) -> None:
    """Seeds the generators of the CPU and of `device`; torch.manual_seed would also set up other GPUs."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def step_seed(seed: int, step: int, shard: int = 0) -> int:
    """The seed of a step's random stream, from the run's seed, the step and the shard of the batch."""
    return int(np.random.SeedSequence((abs(seed), int(seed < 0), step, shard)).generate_state(1, np.uint64)[0] >> 1)
