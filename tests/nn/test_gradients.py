"""Derivatives against finite differences, for every layer of the law table."""

import pytest
import torch
from torch import Tensor

from ensue.nn.recurrent.zoneout import GivenMasks
from ensue.types import leaves
from laws.table import SUBJECTS, Subject

MASK = torch.tensor([[True, True, True], [True, False, False]])


CASES = [
    pytest.param(subject, id=subject.name.replace(" ", "_"), marks=[pytest.mark.slow] if subject.is_slow else [])
    for subject in SUBJECTS
]


@pytest.mark.parametrize("subject", CASES)
def test_inputs_and_parameters(subject: Subject) -> None:
    layer = subject.layer
    x = torch.randn(2, 3, layer.d_in, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    names = [name for name, _ in layer.named_parameters()]
    features = layer.zoneout.d_in if isinstance(layer, GivenMasks) else layer.d_in
    x, masks = x.split((features, layer.d_in - features), dim=-1)

    def function(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, parameters, strict=True))
        y, state = torch.func.functional_call(layer, given, (torch.cat((x, masks), dim=-1),), {"mask": MASK})
        return y[MASK], *(leaf for leaf in leaves(state) if leaf.is_floating_point())

    sources = [x.requires_grad_(), *layer.parameters()]
    assert torch.autograd.gradcheck(function, sources, fast_mode=True)
