"""Every layer of the table of laws as an ONNX graph: one row and several, three lengths, ragged rows, from a state."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from ensue.models.tag_heads import CRFTagHead
from ensue.nn import Parallel, SequenceLayer
from ensue.nn.layer import mask_padding
from ensue.tasks.contract.description import TensorFunction, TensorSpec, state_from, state_specs, state_tensors
from ensue.testing.laws import Subject
from ensue.types import Memory, State
from laws.table import SUBJECTS

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
pytest.importorskip("onnx", reason="onnx is not installed (pip install ensue[onnx])")

from ensue.extensions.exporting.onnx import functions, writing
from ensue.extensions.exporting.onnx.graph import Unexportable

QUICK = {"lstm", "clockwork", "attention rotary"}
CASES = [pytest.param(s, id=s.name, marks=[] if s.name in QUICK else [pytest.mark.slow]) for s in SUBJECTS]
S = 6


@pytest.mark.parametrize(("kind", "name"), [override[:2] for override in functions.OVERRIDES], ids=str)
def test_the_functions_that_tracing_replaces_exist(kind: type, name: str) -> None:
    assert hasattr(kind, name) or f"self.{name}" in inspect.getsource(kind)


def from_beginning(layer: SequenceLayer) -> TensorFunction:
    """Return the layer as a function of rows of different lengths, one of them empty."""
    forms = {"x": TensorSpec(("batch", "time", layer.d_in)), "mask": TensorSpec(("batch", "time"), torch.bool)}
    if layer.d_memory is not None:
        forms["memory"] = TensorSpec(("batch", "source", layer.d_memory))
        forms["real"] = TensorSpec(("batch", "source"), torch.bool)

    def run(layer: SequenceLayer, x: Tensor, mask: Tensor, **memory: Tensor) -> dict[str, Tensor]:
        start = layer.init_state(x.shape[0], Memory(memory["memory"], memory["real"])) if memory else None
        y, state = layer(x, start, mask=mask)
        return {"y": mask_padding(y, mask), **state_tensors(state)}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.randint(1, length + 1, (batch, 1))
        lengths[1:2] = 0
        inputs = {"x": torch.randn(batch, length, layer.d_in), "mask": torch.arange(length) < lengths}
        memory = memory_of(layer, batch)
        return inputs if memory is None else {**inputs, "memory": memory.values, "real": memory.mask}

    return TensorFunction("whole", run, forms, sample)


def from_state(layer: SequenceLayer) -> TensorFunction:
    """Return the layer as a function that continues from a state, whose tensors are inputs and outputs."""

    def run(layer: SequenceLayer, x: Tensor, **state: Any) -> dict[str, Tensor]:
        y, after = layer(x, state_from(layer.init_state(1), state))
        return {"y": y, **state_tensors(after, "next")}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        start = layer.init_state(batch, memory_of(layer, batch))
        _, state = layer(torch.randn(batch, 3, layer.d_in), start)
        return {"x": torch.randn(batch, length, layer.d_in), **state_tensors(state)}

    forms = {"x": TensorSpec(("batch", "time", layer.d_in)), **state_specs(layer.init_state(2))}
    return TensorFunction("going on", run, forms, sample)


def memory_of(layer: SequenceLayer, batch: int) -> Memory | None:
    if layer.d_memory is None:
        return None
    return Memory(torch.randn(batch, S, layer.d_memory), torch.arange(S) < torch.randint(1, S + 1, (batch, 1)))


@pytest.mark.parametrize("subject", CASES)
def test_the_graph_computes_the_layer(subject: Subject) -> None:
    layer = subject.build().float()
    for part in [from_beginning(layer), *([from_state(layer)] if layer.is_causal else [])]:
        graph = functions.trace_function(layer, part.function, part.inputs, name=part.name)
        writing.check_differences(writing.measure_differences(graph, layer, part))


class DependsOnValues(Parallel):
    """A layer whose operations depend on a number."""

    d_in = d_out = 4

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return (x if float(x.sum()) > 0 else -x), None


class DependsOnSizes(Parallel):
    """A layer whose operations depend on the number of positions."""

    d_in = d_out = 4

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return (2 * x if x.shape[1] > 4 else x), None


class TowardsZero(DependsOnSizes):
    """A layer that rounds a quotient towards zero, which differs from `Floor` below zero."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return torch.div(x, 2, rounding_mode="trunc"), None


class Looping(DependsOnSizes):
    """A layer with a loop of Python over positions."""

    def forward(self, x: Tensor, state: State = None, *, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return torch.stack([2 * x[:, t] for t in range(x.shape[1])], dim=1), None


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (DependsOnValues(), "_local_scalar_dense, which depends on values"),
        (DependsOnSizes(), "y of 1 rows of 1 positions differs by"),
        (TowardsZero(), "division that rounds towards zero"),
        pytest.param(Looping(), "more than 20,000 operations; a Python loop", marks=pytest.mark.slow),
    ],
)
def test_layers_that_cannot_be_traced_are_refused(layer: SequenceLayer, expected: str) -> None:
    part = from_beginning(layer)
    with pytest.raises(Unexportable, match=expected):
        writing.check_differences(
            writing.measure_differences(
                functions.trace_function(layer, part.function, part.inputs, name="refused"), layer, part
            )
        )


def test_paths_with_equal_scores_are_the_same() -> None:
    """Scores are small integers, so that several paths are often the best."""
    head = CRFTagHead(3, 5)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in head.crf.parameters():
            parameter.copy_(torch.randint(3, parameter.shape, generator=generator))

    def run(head: CRFTagHead, emissions: Tensor, mask: Tensor) -> dict[str, Tensor]:
        return {"tags": head.best(emissions, mask)}

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        lengths = torch.randint(length + 1, (batch, 1))
        emissions = torch.randint(3, (batch, length, 5)).float()
        return {"emissions": emissions, "mask": torch.arange(length) < lengths}

    forms = {"emissions": TensorSpec(("batch", "time", 5)), "mask": TensorSpec(("batch", "time"), torch.bool)}
    part = TensorFunction("path", run, forms, sample)
    graph = functions.trace_function(head, run, forms, name="path")
    writing.check_differences(writing.measure_differences(graph, head, part))
