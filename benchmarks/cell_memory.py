"""The memory of one training step of one layer, in a process of its own.

    python benchmarks/cell_memory.py CELL WAY T B D_IN D

CELL is one of `cell_layers.py`, or torch.nn.LSTM; WAY is `forward` or `loop`. Prints how many bytes the process grew by
at most between the beginning of forward and the end of backward: the peak of its resident memory over what it had with
layer and input made and everything loaded by a step of two positions. All that is allocated counts, by whomever: what
is kept for backward, the gradients, what libraries need to work. The peak is the kernel's (VmHWM), set back before the
step where it allows it, else ru_maxrss.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import torch
from cell_layers import CELLS
from torch import Tensor

from ensue.nn import Recurrent

VENDOR = "torch.nn.LSTM"
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def growth(cell: str, way: str, shape: tuple[int, int, int, int]) -> int:
    """`peak_growth` in a fresh process."""
    command = [sys.executable, __file__, cell, way, *map(str, shape)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def peak_growth(cell: str, way: str, shape: tuple[int, int, int, int]) -> int:
    T, B, d_in, d = shape
    torch.manual_seed(0)
    layer = torch.nn.LSTM(d_in, d, batch_first=True) if cell == VENDOR else CELLS[cell].build(d_in, d)

    def step(x: Tensor) -> None:
        y, _ = Recurrent.fold(layer, x) if way == "loop" else layer(x)
        torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y), materialize_grads=True)

    step(torch.randn(2, 2, d_in, requires_grad=True))
    x = torch.randn(B, T, d_in, requires_grad=True)
    before = resident_before()
    step(x)
    return peak() - before


def resident_before() -> int:
    """The memory from which a peak counts."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return peak()
    return status("VmRSS")


def peak() -> int:
    return status("VmHWM") if STATUS.exists() else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def status(name: str) -> int:
    """A number of /proc/self/status, in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{STATUS} has no {name}")
    return int(found[1]) * 1024


def main() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    cell, way, *shape = sys.argv[1:]
    T, B, d_in, d = map(int, shape)
    print(peak_growth(cell, way, (T, B, d_in, d)))


if __name__ == "__main__":
    main()
