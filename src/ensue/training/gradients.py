"""The gradients of a training step, summed over micro-batches and ranks.

`Gradients` assigns rows to ranks, and each rank reads only its own rows. The summed loss of each micro-batch is divided
by the number of predictions of the full batch, so that the gradients add up to the gradient of the batch's mean loss.

- Micro-batches are computed in order, and each rank has a shard of the rows of each micro-batch. The random stream is
  seeded for each micro-batch, so that a rank can skip micro-batches in which it has no rows.
- An exact run splits the batch into `NUM_SHARDS` shards and adds their gradients as a binary tree. Each rank computes a
  subtree. Then ranks exchange their sums in pairs, pairs of pairs, and so on. So the same numbers are added in the same
  order for every number of ranks that divides `NUM_SHARDS`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.processor import Precision
from ensue.ranks import NUM_SHARDS, ProcessGroup, shard
from ensue.tasks.contract.task import LazyBatch, Task
from ensue.training.device import autocast, is_out_of_memory
from ensue.types import Loss, State, concatenate_rows, detach, map_state


class OutOfMemory(Exception):
    """An error of a rank that is out of memory. The gradients are incomplete."""


class Gradients:
    """The gradients of batches of `task`, computed with the other ranks of the process group."""

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], *, seed: int, precision: Precision, group: ProcessGroup
    ) -> None:
        self.adversarial = 0.0
        """The norm of adversarial perturbations, relative to the mean norm of the vectors; 0: no adversarial pass."""
        self.model, self.task, self.seed, self.precision, self.group = model, task, seed, precision, group
        self.skeleton = model
        """A model with the full shapes of the parameters, for values that do not depend on the weights."""
        self.device = next(model.parameters()).device
        self.total = torch.zeros((), device=self.device)
        self.count = 0
        self.flattened: list[bool] = []
        """Whether each parameter had a gradient when the gradients were flattened; empty before."""
        self._vector: Tensor | None = None
        """The flat gradients on a CPU, allocated once, since a fragmented heap may have no room for a second vector."""

    def compute(
        self, batch: LazyBatch[Any], state: State, *, step: int, micro_batches: int, stop: bool = False
    ) -> tuple[Loss, State, bool]:
        """Set `.grad` to the gradients of the batch's mean loss. `state` is the carried state of the `local_rows`.

        Returns the loss, the next state of the local rows, and whether a rank was asked to stop. Raises OutOfMemory on
        all ranks if one rank is out of memory.
        """
        accumulate = self._add_shards if self.group.exact else self._add_micro_batches
        next_state, summed, failed = None, None, False
        try:
            seed_generators(self.device, step_seed(self.seed, step))  # a repeated step draws the same numbers
            rows = None
            if self.group.size > 1:
                rows = RowSlice(self.local_rows(batch.rows, micro_batches).to(self.device), batch.rows)
            with drawing_rows(rows):
                state = self.task.carry_state(self.skeleton, batch, state)
            if not self.model.training:  # train() is slow, since it visits all modules
                self.model.train()
            self.total, self.count, self.flattened = torch.zeros((), device=self.device), 0, []
            summed, next_state = accumulate(batch, state, step, micro_batches)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = True
        stop = self._reduce(summed, failed=failed, stop=stop)
        return Loss(self.total, self.count), next_state, stop

    def loss(self, batch: Any, state: State) -> tuple[Loss, State]:
        """Return the summed loss of a batch, and the next state."""
        return self.task.loss(self.model, batch, state)

    def gather_parameters(self, model: nn.Module) -> nn.Module:
        """Return `model` with full parameters; all ranks must call this."""
        return model

    def clip(self, max_norm: float) -> float:
        """Scale the gradients to a norm of at most `max_norm`. Returns the norm before scaling."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm))

    def local_rows(self, rows: int, micro_batches: int) -> Tensor:
        """Return the row numbers of this rank in a batch of `rows` rows, in the order of computation."""
        return torch.cat([row_slice.select(torch.arange(rows)) for row_slice in self._row_slices(rows, micro_batches)])

    def _row_slices(self, rows: int, micro_batches: int) -> Iterator[RowSlice]:
        """Yield the rows of this rank in each micro-batch, or each shard of this rank in an exact run."""
        if self.group.exact:
            for index in range(NUM_SHARDS)[self.group.shard(NUM_SHARDS)]:
                yield _make_contiguous(shard(rows, index, NUM_SHARDS))
            return
        size = math.ceil(rows / micro_batches)
        for number, start in enumerate(range(0, rows, size)):
            total = min(size, rows - start)
            if self.group.size == 1:
                yield RowSlice(slice(0, total), total, start)
                continue
            index = (self.group.rank + number) % self.group.size  # rotates, to balance small micro-batches
            yield RowSlice(shard(total, index, self.group.size), total, start)

    def _add_micro_batches(
        self, batch: LazyBatch[Any], state: State, step: int, micro_batches: int
    ) -> tuple[None, State]:
        states: list[State] = []
        begin = 0
        for number, row_slice in enumerate(self._row_slices(batch.rows, micro_batches)):
            if number:
                seed_generators(self.device, step_seed(self.seed, step, number))
            assert isinstance(row_slice.local, slice)
            end = begin + row_slice.local.stop - row_slice.local.start
            if begin == end:
                self._skip_micro_batch(batch, row_slice)
                continue
            with drawing_rows(row_slice if self.group.size > 1 else None):
                states.append(self._backward(batch.read(row_slice), state, slice(begin, end), batch.count))
            begin = end
        return None, _join_states(states)

    def _skip_micro_batch(self, batch: LazyBatch[Any], row_slice: RowSlice) -> None:
        """No-op: this rank has no rows of the micro-batch."""

    def _add_shards(self, batch: LazyBatch[Any], state: State, step: int, micro_batches: int) -> tuple[Tensor, State]:
        """Return the gradients of the local shards, added in a fixed order, and the next state of the local rows."""
        local, states = self.group.shard(NUM_SHARDS), list[State]()
        first, count = shard(batch.rows, local.start, NUM_SHARDS).start, math.ceil(micro_batches / NUM_SHARDS)

        def shard_gradients(index: int) -> Tensor:
            rows = shard(batch.rows, index, NUM_SHARDS)
            seed_generators(self.device, step_seed(self.seed, step, index + 1))
            for micro_rows in (shard(rows.stop - rows.start, number, count) for number in range(count)):
                start, stop = rows.start + micro_rows.start, rows.start + micro_rows.stop
                if start < stop:
                    micro_batch = batch.read(_make_contiguous(slice(start, stop)))
                    states.append(self._backward(micro_batch, state, slice(start - first, stop - first), batch.count))
            return self._flatten()

        return _tree_sum(shard_gradients, local.start, local.stop), _join_states(states)

    def _backward(self, batch: Any, state: State, rows: slice, count: int) -> State:
        """Accumulate the gradients of a micro-batch with the state `state[rows]`. Returns the next state."""
        run_pass = self._adversarial_pass if self.adversarial else self._run_pass
        loss, next_state = run_pass(batch, map_state(lambda leaf: leaf[rows], state), count)
        self.total, self.count = self.total + loss.total.detach(), self.count + loss.count
        return detach(next_state)

    def _run_pass(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        with autocast(self.precision, self.device):
            loss, next_state = self.loss(batch, state)
        (loss.total / count).backward()  # type: ignore[no-untyped-call]
        return loss, next_state

    def _adversarial_pass(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        """Add the gradients of a second pass with adversarial perturbations (Miyato et al. 2017, eq. 4)."""
        model, perturbations = cast("Any", self.model), list[Tensor]()
        vectors: nn.Module = (model.layers if isinstance(model.layers, SubwordEncoder) else model).features

        def record(module: nn.Module, inputs: Any, x: Tensor) -> Tensor:
            perturbations.append(torch.zeros_like(x, requires_grad=True))
            return x + perturbations[-1]

        def perturb(module: nn.Module, inputs: Any, x: Tensor) -> Tensor:
            return x + self.adversarial * _scaled_gradient(x, perturbations.pop(0))

        with vectors.register_forward_hook(record):
            result = self._run_pass(batch, state, count)
        with vectors.register_forward_hook(perturb):
            self._run_pass(batch, state, count)
        return result

    def _reduce(self, summed: Tensor | None, *, failed: bool, stop: bool) -> bool:
        """All-reduce losses and gradients. Returns whether a rank was asked to stop."""
        if self.group.size == 1 and failed:
            raise OutOfMemory
        if self.group.size == 1 and summed is None:
            return stop
        local = [self.count, failed, stop, *self._has_gradient()]
        count, failures, stops, *has_gradient = self.group.all_reduce(torch.tensor(local, dtype=torch.float64)).tolist()
        if failures:
            raise OutOfMemory
        if summed is None:
            summed = self._flatten(self._vector)
            self._vector = summed if self.device.type == "cpu" else None
        parameters = self._trainable_parameters()
        *gradients, total = torch.split(
            self.group.all_reduce(summed), [*(parameter.numel() for parameter in parameters), 1]
        )
        for parameter, gradient, is_set in zip(parameters, gradients, has_gradient, strict=True):
            parameter.grad = gradient.view_as(parameter) if is_set else None
        self.total = total.squeeze(0)
        self.count = int(count)
        return bool(stops)

    def _trainable_parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _has_gradient(self) -> list[bool]:
        """Return whether each parameter has a gradient, or had a gradient when the gradients were flattened."""
        current = [parameter.grad is not None for parameter in self._trainable_parameters()]
        return [a or b for a, b in zip(current, self.flattened, strict=True)] if self.flattened else current

    def _flatten(self, out: Tensor | None = None) -> Tensor:
        """Flatten the gradients and the loss into one vector (`out`, if the sizes match), and set `.grad` to None."""
        self.flattened = self._has_gradient()
        flat = []
        for parameter in self._trainable_parameters():
            flat.append(torch.zeros_like(parameter).flatten() if parameter.grad is None else parameter.grad.flatten())
            parameter.grad = None
        flat.append(self.total.view(1))
        fits = out is not None and out.numel() == sum(tensor.numel() for tensor in flat)
        vector = torch.cat(flat, out=out if fits else None)
        self.total = torch.zeros_like(self.total)
        return vector


def _scaled_gradient(x: Tensor, perturbation: Any) -> Tensor:
    """Return each row's gradient (B, T, d), scaled to the mean norm of the row's vectors in x."""
    gradient: Tensor = perturbation.grad
    mask = gradient.any(-1)  # excludes padding, on which the loss does not depend
    norm: Tensor = (x.detach().norm(dim=-1) * mask).sum(1) / mask.sum(1).clamp_min(1)
    return F.normalize(gradient.flatten(1), eps=1e-30).view_as(gradient) * norm[:, None, None]


def _make_contiguous(rows: slice) -> RowSlice:
    return RowSlice(total=rows.stop - rows.start, start=rows.start)


def _join_states(states: list[State]) -> State:
    return states[0] if len(states) == 1 else concatenate_rows(states) if states else None


def _tree_sum(leaf: Callable[[int], Tensor], first: int, last: int) -> Tensor:
    """Return the sum of the leaves from `first` to `last` (exclusive), added as a binary tree."""
    if last - first == 1:
        return leaf(first)
    middle = (first + last) // 2
    return _tree_sum(leaf, first, middle).add_(_tree_sum(leaf, middle, last))


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed the generators of the CPU and of `device`. torch.manual_seed would also initialize all other GPUs."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def step_seed(seed: int, step: int, number: int = 0) -> int:
    """Return the seed of a random stream, from the run's seed, the step and the number of a micro-batch or shard."""
    return int(np.random.SeedSequence((abs(seed), int(seed < 0), step, number)).generate_state(1, np.uint64)[0] >> 1)
