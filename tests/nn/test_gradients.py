"""Derivatives equal finite differences, for every layer of the table of laws."""

import pytest
import torch
from torch import Tensor, nn

from ensue.nn import SequenceLayer
from ensue.nn.recurrent.zoneout import ZoneoutWithMasks
from ensue.testing.laws import Subject
from ensue.types import Memory, State, leaves
from laws.table import SUBJECTS

MASK = torch.tensor([[True, True, True], [True, False, False]])


class FromMemory(nn.Module):
    """A layer as a function of its input and of the memory, if it attends to one."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *memory: Tensor) -> tuple[Tensor, State]:
        state = self.layer.init_state(len(x), Memory(memory[0], MASK[:, 1:])) if memory else None
        return self.layer(x, state, mask=MASK)  # type: ignore[no-any-return]


OF_PARTS = {
    "attention after the cells", "bidirectional mean", "bidirectional product", "bidirectional sum", "depth-gated",
    "grid",
    "input feeding of a stack", "input feeding of an lstm", "lstm from context", "stack of bidirectionals",
    "stack of lstms", "transformer both ways", "transformer decoder sinusoidal pre", "transformer rotary post",
    "transformer sinusoidal post", "zoneout lstm",
}  # fmt: skip
"""Layers whose parts are tested alone; the laws compare the gradients of their executions."""
ESTIMATED = {"hard attention", "hard attention before the cell"}
"""Layers with discontinuous outputs; tests/models/test_captioner.py tests their gradient estimates."""
CASES = [
    pytest.param(
        subject,
        id=subject.name.replace(" ", "_"),
        marks=[pytest.mark.slow] if subject.is_slow or subject.name in OF_PARTS else [],
    )
    for subject in SUBJECTS
    if subject.name not in ESTIMATED
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("subject", CASES)
def test_gradients_of_inputs_and_parameters_equal_finite_differences(subject: Subject) -> None:
    layer = subject.layer
    x = torch.randn(2, 3, layer.d_in, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    module = FromMemory(layer)
    names = [name for name, _ in module.named_parameters()]
    memory = [] if layer.d_memory is None else [torch.randn(2, 2, layer.d_memory, dtype=torch.float64)]
    features = layer.zoneout.d_in if isinstance(layer, ZoneoutWithMasks) else layer.d_in
    x, masks = x.split((features, layer.d_in - features), dim=-1)

    def function(x: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        parameters = dict(zip(names, others[len(memory) :], strict=True))
        x = torch.cat((x, masks), dim=-1)
        y, state = torch.func.functional_call(module, parameters, (x, *others[: len(memory)]))
        return y[MASK], *(leaf for leaf in leaves(state) if leaf.is_floating_point())

    sources = [x.requires_grad_(), *(part.requires_grad_() for part in memory), *layer.parameters()]
    assert torch.autograd.gradcheck(function, sources, fast_mode=True)
