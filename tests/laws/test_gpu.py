"""Every layer on a CUDA device has the outputs, states and gradients that it has on a CPU, in float64."""

import copy
from collections.abc import Iterator
from functools import partial

import pytest
import torch

from ensue.nn import SequenceLayer
from ensue.testing.laws import B, Subject, float_leaves, gradients, inputs, memory_of, steps
from ensue.types import Memory

from .table import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("subject", CASES)
def test_every_layer_gives_the_numbers_of_a_cpu(subject: Subject) -> None:
    on_cpu, on_gpu = list(results(subject.layer, "cpu")), list(results(copy.deepcopy(subject.layer).cuda(), "cuda"))
    assert len(on_gpu) == len(on_cpu)
    for result, expected in zip(on_gpu, on_cpu, strict=True):
        assert result.is_cuda
        torch.testing.assert_close(result.cpu(), expected)


def results(layer: SequenceLayer, device: str) -> Iterator[torch.Tensor]:
    """Yield outputs, leaves of the state and gradients of a full sequence, then of its steps if the layer has any."""
    x = inputs(layer).detach().to(device).requires_grad_()
    memory = memory_of(layer)
    if memory is not None:
        mask = None if memory.mask is None else memory.mask.to(device)
        memory = Memory(memory.values.detach().to(device).requires_grad_(), mask)
    for run in (layer, partial(steps, layer))[: 1 + layer.is_causal]:
        y, state = run(x, layer.init_state(B, memory) if memory else None)
        yield from (y, *float_leaves(state), *gradients(layer, x, y, *float_leaves(state)))
