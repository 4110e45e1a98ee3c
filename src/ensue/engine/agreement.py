"""Passes in Triton are tried before a layer runs by them: they must compile, and agree with torch operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ensue.engine.packing import Packing
from ensue.engine.plain_passes import PlainPasses
from ensue.engine.runner import Runner, Values
from ensue.engine.storage import Storage
from ensue.notices import say_once

LENGTHS = (3, 1, 2)
"""Of the rows that are tried: ragged, so that rows end while others go on."""
TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-8}
"""Of the largest number that plain passes give."""


def agrees(runner: Runner, tensors: Sequence[Tensor], packing: Packing, name: str) -> bool:
    """Whether the passes of `runner` give the outputs, final states and gradients of plain passes on `tensors`.

    Where they do not, or do not run at all, a notice says so once in a process. `name` is the layer's.
    """
    try:
        found = _results(runner, tensors, packing)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a compiler and a driver may raise
        reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    else:
        expected = _results(
            Runner(runner.trace, runner.program, PlainPasses(runner.program), runner.dtype), tensors, packing
        )
        if all(map(_close, found, expected)):
            return True
        reason = "their numbers are not those of torch operations"
    say_once("triton", f"no Triton kernels for {name} ({reason}); it runs in torch operations, which is slower")
    return False


def _results(runner: Runner, tensors: Sequence[Tensor], packing: Packing) -> list[Tensor]:
    """What all three passes give."""
    program = runner.program
    values = Values.of(tensors, runner.trace)
    with torch.no_grad():
        inferred, ends, _ = runner.forward(values, packing, keep=False)
        output, finals, arrays = runner.forward(values, packing, keep=True)
        errors = [output.sin(), *(final.cos() for final in finals)]  # any numbers of their sizes
        needed = Values.of([True] * len(tensors), runner.trace)
        arrays = {**arrays, program.output: Storage(output.clone())}
        gradients = runner.backward(values, packing, arrays, errors, needed)
    return [inferred, *ends, output, *finals, *(part for part in gradients if part is not None)]


def _close(found: Tensor, expected: Tensor) -> bool:
    finite = expected[expected.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(found, expected, rtol=0, atol=TOLERANCES[found.dtype] * largest, equal_nan=True)
