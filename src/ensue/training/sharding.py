"""The gradients of a model whose parameters are sharded over the ranks, with torch's FSDP2 (Zhao et al. 2023).

Each rank has a shard of each parameter, gradient and moment. The parameters of a layer are gathered before the layer's
forward and backward passes, and resharded after each pass. Parameters of layers with a memory, and parameters outside
of the stack of layers, such as embeddings and the softmax, are gathered for the complete step.
"""

import math
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from ensue.errors import TrainingError
from ensue.models.modules import copy_with_parameters
from ensue.nn import SequenceLayer
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.processor import Precision
from ensue.ranks import local_shard
from ensue.tasks.contract.task import Batch, LazyBatch, Task
from ensue.training.device import autocast
from ensue.training.gradients import Gradients, OutOfMemory
from ensue.training.optimizer import called_layers
from ensue.training.processes import DistributedGroup
from ensue.types import Loss, State


class ShardedGradients(Gradients):
    """The gradients of a model whose parameters become DTensors on `device`."""

    group: DistributedGroup

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], *, seed: int, precision: Precision, group: DistributedGroup,
        device: torch.device,
    ) -> None:  # fmt: skip
        zeros = {p.dtype: torch.zeros((), dtype=p.dtype, device=device) for p in model.parameters()}
        # views of a scalar need no memory
        expanded = {name: zeros[p.dtype].expand(p.shape) for name, p in model.named_parameters()}
        skeleton = copy_with_parameters(model, expanded)
        self.root, self.scalars = _shard(_StepLoss(model, task), skeleton, device)
        super().__init__(model, task, seed=seed, precision=precision, group=group)
        self.skeleton = skeleton

    def gather_parameters(self, model: nn.Module) -> nn.Module:
        tensors = {name: self.group.full_tensor(p.detach()) for name, p in model.named_parameters()}
        return copy_with_parameters(self.skeleton, tensors)

    def compute(
        self, batch: LazyBatch[Any], state: State, *, step: int, micro_batches: int, stop: bool = False
    ) -> tuple[Loss, State, bool]:
        def is_network_error(error: RuntimeError) -> bool:
            return isinstance(error, dist.DistError) or "gloo" in str(error)

        try:
            with warnings.catch_warnings(), self.group.detect_lost_ranks(is_network_error):
                # tensors are not changed in place, so that views are harmless
                warnings.filterwarnings("ignore", ".*returned a view tensor", UserWarning)
                return super().compute(batch, state, step=step, micro_batches=micro_batches, stop=stop)
        except OutOfMemory:  # the step cannot be repeated, since other ranks wait in one of its collective operations
            raise TrainingError(
                f"out of memory at step {step + 1}; try more processes or a larger train.accumulate"
            ) from None

    def loss(self, batch: Any, state: State) -> tuple[Loss, State]:
        loss_and_state: tuple[Loss, State] = self.root(batch, state)  # type: ignore[operator]
        if not torch.is_grad_enabled():  # FSDP2 reshards only after a backward pass
            self.root.reshard()
        return loss_and_state

    def clip(self, max_norm: float) -> float:
        shards = [local_shard(p.grad) for p in self.model.parameters() if p.dim() and p.grad is not None]
        squares = sum((shard.double().square().sum() for shard in shards), torch.zeros((), dtype=torch.float64))
        replicated = [scalar.grad for scalar in self.scalars if scalar.grad is not None]
        norm = math.sqrt(float(self.group.all_reduce(squares.cpu())) + sum(float(grad) ** 2 for grad in replicated))
        for gradient in (*shards, *replicated):
            gradient.mul_(min(1.0, max_norm / (norm + 1e-6)))
        return norm

    def _skip_micro_batch(self, batch: LazyBatch[Any], row_slice: RowSlice) -> None:
        """Take part in the all-gather of parameters and the all-reduce of gradients, with a loss of zero."""
        first = row_slice._replace(local=slice(0, 1))
        with drawing_rows(first), autocast(self.precision, self.device):
            loss, _ = self.loss(batch.read(first), None)
        (0 * loss.total).backward()  # type: ignore[no-untyped-call]

    def _reduce(self, summed: Tensor | None, *, failed: bool, stop: bool) -> bool:
        """All-reduce the losses and the gradients of scalars. FSDP2 has already reduced all other gradients."""
        if failed:
            raise OutOfMemory
        numbers = torch.tensor([float(self.total), self.count, stop], dtype=torch.float64)
        total, count, stops = self.group.all_reduce(numbers).tolist()
        self.total, self.count = self.total.new_tensor(total), int(count)
        for scalar in self.scalars:
            scalar.grad = self.group.all_reduce(torch.zeros_like(scalar) if scalar.grad is None else scalar.grad)
        return bool(stops)


class _StepLoss(nn.Module):
    """The loss of a task as a module, since FSDP2 gathers parameters when a module is called."""

    def __init__(self, model: nn.Module, task: Task[Any, Any]) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Batch, state: State) -> tuple[Loss, State]:
        return self.task.loss(self.model, batch, state)


def _shard(loss: _StepLoss, skeleton: nn.Module, device: torch.device) -> tuple[FSDPModule, list[nn.Parameter]]:
    """Convert the parameters to DTensors. Returns the root module, and the trained scalars, which are not sharded."""
    scalars = [parameter for parameter in loss.parameters() if not parameter.dim()]
    for scalar in scalars:
        scalar.data = scalar.data.to(device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer, like in zip(called_layers(loss.model), called_layers(skeleton), strict=True):
        if isinstance(like, SequenceLayer):
            layer.__dict__["init_state"] = like.init_state  # runs outside of forward, and needs only sizes
        fully_shard(layer, mesh=mesh, ignored_params=set(scalars))
    root = fully_shard(loss, mesh=mesh, ignored_params=set(scalars))
    for module in loss.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # a sum: each loss is divided by the count of the full batch
            module.set_force_sum_reduction_for_comms(True)
    if hasattr(root, "set_reduce_scatter_unused_params"):  # torch 2.8 lacks this method
        root.set_reduce_scatter_unused_params(True)
    return root, [scalar for scalar in scalars if scalar.requires_grad]
