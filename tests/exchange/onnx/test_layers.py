"""Every layer of the table of laws as an ONNX graph: one row and several, three lengths, ragged rows, from a state."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.nn import SequenceLayer
from ensue.nn.layer import blank
from ensue.tasks.portable import PortableFunction, TensorForm, state_forms, state_from, state_tensors
from ensue.types import Memory
from laws.table import SUBJECTS, Subject

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
pytest.importorskip("onnx", reason="onnx is not installed (pip install ensue[onnx])")

from ensue.exchange.onnx import checking, functions

QUICK = {"lstm", "clockwork", "attention rotary"}
CASES = [pytest.param(s, id=s.name, marks=[] if s.name in QUICK else [pytest.mark.slow]) for s in SUBJECTS]
S = 6


def whole(layer: SequenceLayer) -> PortableFunction:
    """From the beginning, over rows of different lengths, one of them empty."""
    forms = {"x": TensorForm(("batch", "time", layer.d_in)), "mask": TensorForm(("batch", "time"), torch.bool)}
    if layer.d_memory is not None:
        forms["memory"] = TensorForm(("batch", "source", layer.d_memory))
        forms["real"] = TensorForm(("batch", "source"), torch.bool)

    def run(layer: SequenceLayer, x: Tensor, mask: Tensor, **memory: Tensor) -> dict[str, Tensor]:
        start = layer.init_state(x.shape[0], Memory(memory["memory"], memory["real"])) if memory else None
        y, state = layer(x, start, mask=mask)
        return {"y": blank(y, mask), **state_tensors(state)}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.randint(1, length + 1, (batch, 1))
        lengths[1:2] = 0
        given = {"x": torch.randn(batch, length, layer.d_in), "mask": torch.arange(length) < lengths}
        memory = memory_of(layer, batch)
        return given if memory is None else {**given, "memory": memory.values, "real": memory.mask}

    return PortableFunction("whole", run, forms, sample)


def going_on(layer: SequenceLayer) -> PortableFunction:
    """From a state, whose leaves are inputs and outputs."""

    def run(layer: SequenceLayer, x: Tensor, **state: Any) -> dict[str, Tensor]:
        y, after = layer(x, state_from(layer.init_state(1), state))
        return {"y": y, **state_tensors(after, "next")}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        start = layer.init_state(batch, memory_of(layer, batch))
        _, state = layer(torch.randn(batch, 3, layer.d_in), start)
        return {"x": torch.randn(batch, length, layer.d_in), **state_tensors(state)}

    forms = {"x": TensorForm(("batch", "time", layer.d_in)), **state_forms(layer.init_state(2))}
    return PortableFunction("going on", run, forms, sample)


def memory_of(layer: SequenceLayer, batch: int) -> Memory | None:
    if layer.d_memory is None:
        return None
    return Memory(torch.randn(batch, S, layer.d_memory), torch.arange(S) < torch.randint(1, S + 1, (batch, 1)))


@pytest.mark.parametrize("subject", CASES)
def test_the_graph_is_the_layer(subject: Subject) -> None:
    layer = subject.build().float()
    for part in [whole(layer), *([going_on(layer)] if layer.is_causal else [])]:
        graph = functions.traced(layer, part.function, part.inputs, name=part.name)
        checking.check(checking.differences(graph, layer, part))
