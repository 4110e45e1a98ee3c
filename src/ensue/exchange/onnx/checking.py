"""A graph compared with the model, at other sizes than it was traced with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.exchange.onnx.graph import Unexportable
from ensue.tasks.contract.portable import PortableFunction

SIZES = ((1, 1), (7, 1), (1, 4), (7, 5), (7, 13))
"""Rows and positions: one of each and several, and three lengths."""
TOLERANCE = 1e-5
"""The largest difference, relative to the largest number of an output where that is above 1."""


def session(model: onnx.ModelProto, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """The graph in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Difference(NamedTuple):
    """How far an output of a graph is from the model's, at some size, and how far it may be."""

    where: str
    found: float
    bound: float


def check(differences: Iterable[Difference]) -> None:
    """Raises Unexportable for one that is too large."""
    for where, found, bound in differences:
        if not found <= bound:
            raise Unexportable(f"{where} differs by {found:.2g} from the model's")


@torch.inference_mode()
def differences(graph: onnx.ModelProto, model: nn.Module, part: PortableFunction) -> list[Difference]:
    """Of each output of the graph, at each of the sizes. Raises Unexportable for an output of another shape."""
    running, found = session(graph), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for rows, positions in SIZES:
            inputs = part.sample(rows, positions)
            wanted = part.function(model, **inputs)
            arrays = running.run(list(wanted), {name: inputs[name].numpy() for name in part.inputs})
            for (name, tensor), array in zip(wanted.items(), arrays, strict=True):
                where, expected = f"{part.name}: {name} of {rows} rows of {positions} positions", tensor.numpy()
                if array.shape != expected.shape or array.dtype != expected.dtype:
                    raise Unexportable(f"{where} is {array.dtype} {array.shape}, not {expected.dtype} {expected.shape}")
                found.append(Difference(where, _largest(array, expected), _bound(expected)))
    return found


def _largest(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """The largest difference; equal infinities have none."""
    differ = found != expected
    with np.errstate(invalid="ignore"):
        return float(np.abs(found[differ].astype(np.float64) - expected[differ]).max(initial=0.0))


def _bound(expected: NDArray[Any]) -> float:
    """The largest difference that is allowed."""
    if expected.dtype.kind != "f":
        return 0.0
    return TOLERANCE * max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
