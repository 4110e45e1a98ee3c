"""The memory of one training step of one layer, in a separate process.

    python benchmarks/cell_memory.py CELL METHOD T B D_IN D

CELL is a cell of `cell_layers.py`, or torch.nn.LSTM. METHOD is `forward` or `loop`. The script prints the growth in
bytes: the peak of resident memory during forward and backward, minus the resident memory before. Before, the layer and
the input exist, and a step with two positions has loaded all libraries. The growth includes all allocations: tensors
that are saved for backward, gradients, and workspaces of libraries. The peak is VmHWM, which is reset before the step
if the kernel allows it, or else ru_maxrss.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from cell_layers import CELLS
from torch import Tensor

from ensue.nn import Recurrent

PEER = "torch.nn.LSTM"
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(cell: str, method: str, shape: tuple[int, int, int, int]) -> int:
    """Return the growth in bytes, measured in a new process."""
    command = [sys.executable, __file__, cell, method, *map(str, shape)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def peak_growth(cell: str, method: str, shape: tuple[int, int, int, int]) -> int:
    """Return the growth of this process in bytes."""
    T, B, d_in, d = shape
    torch.manual_seed(0)
    layer: Any = torch.nn.LSTM(d_in, d, batch_first=True) if cell == PEER else CELLS[cell].build(d_in, d)

    def step(x: Tensor) -> None:
        y, _ = Recurrent.fold(layer, x) if method == "loop" else layer(x)
        torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y), materialize_grads=True)

    step(torch.randn(2, 2, d_in, requires_grad=True))
    x = torch.randn(B, T, d_in, requires_grad=True)
    before = reset_peak()
    step(x)
    return peak() - before


def reset_peak() -> int:
    """Reset the peak of resident memory if the kernel allows it. Return the current peak in bytes."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return peak()
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM") if STATUS.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def status(name: str) -> int:
    """Return a value of /proc/self/status in bytes."""
    match = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if match is None:
        raise SystemExit(f"{STATUS} has no {name}")
    return int(match[1]) * 1024


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    cell, method, *shape = sys.argv[1:]
    T, B, d_in, d = map(int, shape)
    print(peak_growth(cell, method, (T, B, d_in, d)))


if __name__ == "__main__":
    main()
