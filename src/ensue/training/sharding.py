"""Gradients of a model whose parameters are sharded over the ranks, with FSDP2 of torch (Zhao et al. 2023).

A rank has a shard of each parameter, gradient and moment. The parameters of a layer are gathered before its forward and
its backward, and resharded after them. Those outside of the stack of layers, such as embeddings and the softmax, and
those of layers with a memory are gathered for the whole step.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ensue.errors import TrainingError
from ensue.models.levels import called_layers
from ensue.models.modules import copied
from ensue.nn import SequenceLayer
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.processor import Precision
from ensue.ranks import local_part
from ensue.tasks.contract.task import Batch, Task, UnreadBatch
from ensue.training.device import autocast
from ensue.training.gradients import Gradients, OutOfMemory, StepLoss
from ensue.training.processes import Processes
from ensue.types import Loss, State


class ShardedGradients(Gradients):
    """Gradients of a model whose parameters become DTensors on `device`."""

    ranks: Processes

    def __init__(
        self,
        model: nn.Module,
        task: Task[Any, Any],
        *,
        seed: int,
        precision: Precision,
        ranks: Processes,
        device: torch.device,
    ) -> None:
        # tensors of the same sizes that take no memory
        zeros = {p.dtype: torch.zeros((), dtype=p.dtype, device=device) for p in model.parameters()}
        form = copied(
            model, {name: zeros[p.dtype].expand(p.shape) for name, p in model.named_parameters()}
        )  # no memory
        self.root, self.scalars = _shard(_StepLoss(model, task), form, device)
        super().__init__(model, task, seed=seed, precision=precision, ranks=ranks)
        self.form = form

    def full(self, model: nn.Module) -> nn.Module:
        """A copy of the model, or of its average, with full parameters; all ranks call it."""
        return copied(self.form, {name: self.ranks.whole(p.detach()) for name, p in model.named_parameters()})

    def of(
        self, batch: UnreadBatch[Any], state: State, *, step: int, micro_batches: int, stop: bool = False
    ) -> StepLoss:
        def is_of_the_network(error: RuntimeError) -> bool:
            return isinstance(error, dist.DistError) or "gloo" in str(error)

        try:
            with warnings.catch_warnings(), self.ranks.answered(is_of_the_network):
                warnings.filterwarnings("ignore", ".*returned a view tensor", UserWarning)  # we change nothing in place
                return super().of(batch, state, step=step, micro_batches=micro_batches, stop=stop)
        except OutOfMemory:  # the other ranks wait in the middle of the step
            raise TrainingError(
                f"out of memory at step {step + 1}, which sharded processes cannot begin again; "
                "try more processes or a larger train.accumulate"
            ) from None

    def loss(self, batch: Any, state: State) -> tuple[Loss, State]:
        found: tuple[Loss, State] = self.root(batch, state)  # type: ignore[operator]
        if not torch.is_grad_enabled():  # no backward reshards
            self.root.reshard()
        return found

    def clip(self, most: float) -> float:
        parts = [local_part(p.grad) for p in self.model.parameters() if p.dim() and p.grad is not None]
        squares = sum((part.double().square().sum() for part in parts), torch.zeros((), dtype=torch.float64))
        alike = [scalar.grad for scalar in self.scalars if scalar.grad is not None]
        norm = math.sqrt(float(self.ranks.add(squares.cpu())) + sum(float(gradient) ** 2 for gradient in alike))
        for gradient in (*parts, *alike):
            gradient.mul_(min(1.0, most / (norm + 1e-6)))
        return norm

    def _without_rows(self, batch: UnreadBatch[Any], row_slice: RowSlice) -> None:
        """Take part in the all-gather of parameters and the reduction of gradients, and add nothing."""
        first = row_slice._replace(local=slice(0, 1))
        with drawing_rows(first), autocast(self.precision, self.device):
            loss, _ = self.loss(batch.read(first), None)
        (0 * loss.total).backward()  # type: ignore[no-untyped-call]

    def _add(self, summed: Tensor | None, *, failed: bool, stop: bool) -> bool:
        """Sum losses over the ranks, and gradients of scalars; FSDP2 has reduced the others."""
        if failed:
            raise OutOfMemory
        numbers = torch.tensor([float(self.total), self.count, stop], dtype=torch.float64)
        total, count, stops = self.ranks.add(numbers).tolist()
        self.total, self.count = self.total.new_tensor(total), int(count)
        for scalar in self.scalars:
            scalar.grad = self.ranks.add(torch.zeros_like(scalar) if scalar.grad is None else scalar.grad)
        return bool(stops)


class _StepLoss(nn.Module):
    """The loss of a task as a module, since FSDP2 gathers parameters when a module is called."""

    def __init__(self, model: nn.Module, task: Task[Any, Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, state: State) -> tuple[Loss, State]:
        return self.task.loss(self.model, batch, state)


def _shard(whole: _StepLoss, form: nn.Module, device: torch.device) -> tuple[FSDPModule, list[nn.Parameter]]:
    """Make the parameters DTensors. Returns the module, and the trained scalars, which are not sharded."""
    scalars = [parameter for parameter in whole.parameters() if not parameter.dim()]
    for scalar in scalars:
        scalar.data = scalar.data.to(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer, like in zip(called_layers(whole.model), called_layers(form), strict=True):
        if isinstance(like, SequenceLayer):
            layer.__dict__["init_state"] = like.init_state  # asked for outside of forward; it needs sizes alone
        fully_shard(layer, mesh=mesh, ignored_params=set(scalars))
    root = fully_shard(whole, mesh=mesh, ignored_params=set(scalars))
    for part in whole.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)  # a sum, as each loss is divided by the count of the whole batch
            part.set_force_sum_reduction_for_comms(True)
    if hasattr(root, "set_reduce_scatter_unused_params"):  # torch 2.8 has none
        root.set_reduce_scatter_unused_params(True)
    return root, [scalar for scalar in scalars if scalar.requires_grad]
