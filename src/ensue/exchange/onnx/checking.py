"""A graph compared with the model, at other sizes than it was traced with."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.exchange.onnx.graph import Unexportable
from ensue.tasks.portable import PortableFunction

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


def check(graph: onnx.ModelProto, model: nn.Module, part: PortableFunction) -> float:
    """The largest difference of the graph's outputs from those of the model. Raises Unexportable if it is too large."""
    running, largest = session(graph), 0.0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for rows, positions in SIZES:
            largest = max(largest, _difference(running, model, part, rows, positions))
    return largest


@torch.inference_mode()
def _difference(
    running: onnxruntime.InferenceSession, model: nn.Module, part: PortableFunction, rows: int, positions: int
) -> float:
    inputs = part.sample(rows, positions)
    wanted = part.function(model, **inputs)
    found = running.run(list(wanted), {name: inputs[name].numpy() for name in part.inputs})
    largest = 0.0
    for (name, tensor), array in zip(wanted.items(), found, strict=True):
        expected = tensor.numpy()
        where = f"{part.name}: {name} of {rows} rows of {positions} positions"
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise Unexportable(f"{where} is {array.dtype} {array.shape}, not {expected.dtype} {expected.shape}")
        difference = _largest(array, expected)
        if not difference <= _bound(expected):
            raise Unexportable(f"{where} differs by {difference:.2g} from the model's")
        largest = max(largest, difference)
    return largest


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
