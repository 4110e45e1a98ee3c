"""Every recurrent cell beside torch.nn.LSTM: forward and backward of one layer, one thread, in turns in one process.

    python benchmarks/cells.py [--tables cells recent stacks scans] [--cells NAME ...] [--shapes T,B,D_IN,D ...]

Timed are the outputs of a batch and the gradients by it and by all parameters; inference is the outputs under no_grad.
What takes less than 10 ms is called again and again for that long in each of its turns, as training does. On a CPU the
milliseconds are the process's own, and the last line says which share of the time it had the core.
Ratios are medians over turns: a layer's time to torch.nn.LSTM's in the same turn, but for scans per multiply-add of
the forward pass's matrix products, since backward counts alike for all. "loop ÷ forward" is how much longer `fold`
takes, the written-out loop under autograd. Before anything is printed each layer's `forward` is compared with its
`fold`: where they differ, nothing is printed but that. Names of cells are in `cell_layers.py`. torch.nn
reads batches first, too.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import cell_memory
import cell_picture
import torch
from cell_gate import Context, discrepancies
from cell_layers import CELLS, GATED, RECENT, SCANS, STACKS, Cell, full_elman, gates
from machine import describe_machine
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ensue.engine import executing
from ensue.nn import Recurrent
from ensue.training.machine import medium_is_exact

Shape = tuple[int, int, int, int]

TARGETS: dict[Shape, float] = {
    (100, 100, 512, 512): 1.0,
    (100, 64, 256, 256): 1.1,
    (25, 32, 256, 256): 1.3,
    (64, 12, 128, 128): 1.5,
    (128, 1, 256, 256): 1.5,
    (1024, 16, 768, 768): 1.5,
}
STACK_TARGET, INFERENCE_TARGET = 1.5, 1.3
SCAN_TARGETS = {("mingru", 8192): 3.0, ("minlstm", 8192): 3.0}
"""By cell and T."""
TURN = 10.0
"""Milliseconds for which a call is repeated in each turn."""
CPU_SHAPES = list(TARGETS)[:5]
CUDA_SHAPES = list(TARGETS)[5:]
SCAN_SHAPES = [(T, B, 256, 256) for T in (1024, 8192) for B in (1, 4)]
MEMORY_SHAPES = CPU_SHAPES[:2]
PLAIN_CELLS = ("gru-before", "peephole", "layer-norm")
GATE_SHAPES = [(5, 3, 8, 16), (25, 32, 256, 256), (8, 512, 32, 512)]
TOLERANCES = {"float32": 2e-5, "tf32": 2e-2, "bf16": 5e-2}
"""Of the largest number, by which `forward` may differ from the float32 `fold`."""
SEED = 0


@dataclass(frozen=True)
class Setting:
    """What is the same for all that is measured."""

    device: str
    precision: str
    ragged: bool
    seconds: float
    turns: int
    loop: bool

    @property
    def context(self) -> Context:
        if self.precision == "bf16":
            return partial(torch.autocast, self.device, torch.bfloat16)
        return nullcontext

    def lengths(self, T: int, B: int) -> Tensor | None:
        """Uniform from 1 to T, one row being the longest."""
        if not self.ragged:
            return None
        found = torch.randint(1, T + 1, (B,), generator=torch.Generator().manual_seed(SEED))
        found[0] = T
        return found


class Problem(NamedTuple):
    """A batch, and the errors at the outputs, zero at padding."""

    x: Tensor
    lengths: Tensor | None
    mask: Tensor | None
    errors: Tensor

    @classmethod
    def of(cls, setting: Setting, shape: Shape) -> Problem:
        T, B, d_in, d = shape
        x = torch.randn(B, T, d_in, device=setting.device, requires_grad=True)
        errors = torch.randn(B, T, d, device=setting.device)
        if (lengths := setting.lengths(T, B)) is None:
            return cls(x, None, None, errors)
        mask = (torch.arange(T) < lengths.unsqueeze(1)).to(setting.device)
        return cls(x, lengths, mask, errors * mask.unsqueeze(-1))


class Calls(NamedTuple):
    training: Callable[[], object]
    inference: Callable[[], object]
    loop: Callable[[], object] | None = None


def by_vendor(kind: type[nn.LSTM | nn.GRU], setting: Setting, problem: Problem) -> Calls:
    """torch.nn's layer; ragged rows are packed and the outputs padded again, as one writes it."""
    module = kind(problem.x.shape[2], problem.errors.shape[2], batch_first=True, device=setting.device)

    def run(x: Tensor) -> Tensor:
        if problem.lengths is None:
            return module(x)[0]
        packed = pack_padded_sequence(x, problem.lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    return Calls(training(module, run, setting, problem), inference(run, setting, problem))


def by_ensue(cell: Cell, setting: Setting, problem: Problem) -> Calls:
    sizes = problem.x.shape[2], problem.errors.shape[2]
    layer, used = cell.build(*sizes).to(setting.device), cell.build(*sizes).to(setting.device).eval()
    return Calls(
        training(layer, lambda x: layer(x, mask=problem.mask)[0], setting, problem),
        inference(lambda x: used(x, mask=problem.mask)[0], setting, problem),
        training(layer, lambda x: Recurrent.fold(layer, x, mask=problem.mask)[0], setting, problem),
    )


def training(
    module: nn.Module, run: Callable[[Tensor], Tensor], setting: Setting, problem: Problem
) -> Callable[[], object]:
    sources, context = [problem.x, *module.parameters()], setting.context

    def call() -> object:
        with context():
            y = run(problem.x)
        return torch.autograd.grad(y, sources, problem.errors.to(y.dtype), materialize_grads=True)

    return call


def inference(run: Callable[[Tensor], Tensor], setting: Setting, problem: Problem) -> Callable[[], object]:
    x, context = problem.x.detach(), setting.context

    def call() -> object:
        with torch.no_grad(), context():
            return run(x)

    return call


def in_turns(
    calls: Sequence[Callable[[], object]], setting: Setting, *, seconds: float, turns: int
) -> list[list[float]]:
    """Milliseconds of each, one after another in each turn so that whatever else the machine does meets all alike."""
    clock = milliseconds_on_gpu if setting.device == "cuda" else milliseconds
    times = [math.ceil(TURN / clock(call, 1)) for call in calls]
    found: list[list[float]] = [[] for _ in calls]
    begun = time.perf_counter()
    while len(found[0]) < turns or time.perf_counter() - begun < seconds:
        for call, number, each in zip(calls, times, found, strict=True):
            each.append(clock(call, number))
    return found


def milliseconds(call: Callable[[], object], number: int) -> float:
    """Of one call of so many: of the processor, for this process; a neighbor's turns on the core are no part of it."""
    started = time.process_time()
    for _ in range(number):
        call()
    return (time.process_time() - started) * 1e3 / number


def milliseconds_on_gpu(call: Callable[[], object], number: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(number):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / number


def ratio(ours: Iterable[float], theirs: Iterable[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


class Measured(NamedTuple):
    """Milliseconds turn by turn, and how much longer the loop takes, if that was asked."""

    training: list[float]
    inference: list[float]
    loop: float | None


def measure(calls: Mapping[str, Calls], setting: Setting) -> dict[str, Measured]:
    """All of them in the same turns, after a first call of each, which compiles what is to be compiled."""
    flat = [call for each in calls.values() for call in (each.training, each.inference)]
    for call in flat:
        call()
    times = in_turns(flat, setting, seconds=setting.seconds, turns=setting.turns)
    loops = [slower(each, setting) if setting.loop and each.loop else None for each in calls.values()]
    return dict(zip(calls, map(Measured, times[::2], times[1::2], loops), strict=True))


def slower(calls: Calls, setting: Setting) -> float:
    assert calls.loop is not None
    ours, loop = in_turns([calls.training, calls.loop], setting, seconds=setting.seconds / 20, turns=2)
    return ratio(loop, ours)


def cells_table(cells: Mapping[str, Cell], shape: Shape, setting: Setting, target: float | None) -> dict[str, float]:
    """Print a shape's table; returns the ratios per multiply-add."""
    T, B, d_in, d = shape
    problem = Problem.of(setting, shape)
    lengths = [T] * B if problem.lengths is None else problem.lengths.tolist()
    calls = {name: by_ensue(cell, setting, problem) for name, cell in cells.items()}
    vendor, *ours = measure({"": by_vendor(nn.LSTM, setting, problem), **calls}, setting).values()
    has_clock = "clockwork" in cells
    print(f"\nT {T}, B {B}, d_in {d_in}, d {d}\n")
    head = ["cell", "ms", "× nn.LSTM", "target", *(["as a full Elman"] if has_clock else [])]
    head += ["loop ÷ forward", "inference ms", "× nn.LSTM", "target"]
    print(row(head), row(["---"] * len(head)), sep="\n")
    blank = [""] * (1 + has_clock)
    print(row(["torch.nn.LSTM", ms(vendor.training), "1", *blank, "", ms(vendor.inference), "1", ""]))
    ratios = {}
    for (name, cell), found in zip(cells.items(), ours, strict=True):
        per_product = gates(4)(lengths, d_in, d) / cell.multiply_adds(lengths, d_in, d)
        plain = ratio(found.training, vendor.training)
        ratios[name] = plain * per_product
        full = times(plain * gates(4)(lengths, d_in, d) / full_elman(lengths, d_in, d)) if name == "clockwork" else ""
        reading = ratio(found.inference, vendor.inference) * per_product
        line = [name, ms(found.training), times(ratios[name]), judged(ratios[name], target)]
        line += [full] if has_clock else []
        line += [times(found.loop), ms(found.inference), times(reading), judged(reading, INFERENCE_TARGET)]
        print(row(line), flush=True)
    return ratios


def scans_table(cells: Mapping[str, Cell], shapes: Sequence[Shape], setting: Setting) -> None:
    head = ["T", "B", "cell", "ms", "nn.GRU ms", "nn.LSTM ms", "nn.GRU ÷ cell", "nn.LSTM ÷ cell", "target"]
    print("", row([*head, "loop ÷ forward"]), row(["---"] * (len(head) + 1)), sep="\n")
    for T, B, d_in, d in shapes:
        problem = Problem.of(setting, (T, B, d_in, d))
        vendors = {kind.__name__: by_vendor(kind, setting, problem) for kind in (nn.GRU, nn.LSTM)}
        calls = {name: by_ensue(cell, setting, problem) for name, cell in cells.items()}
        gru, lstm, *ours = measure(vendors | calls, setting).values()
        for name, found in zip(cells, ours, strict=True):
            gains = [ratio(vendor.training, found.training) for vendor in (gru, lstm)]
            target = SCAN_TARGETS.get((name, T))
            verdict = f"≥ {target:g} ×: {'yes' if min(gains) >= target else 'no'}" if target else ""
            numbers = map(ms, (found.training, gru.training, lstm.training))
            print(row([str(T), str(B), name, *numbers, *map(times, gains), verdict, times(found.loop)]), flush=True)


def memory_table(cells: Mapping[str, Cell], shapes: Sequence[Shape]) -> None:
    print(
        "Growth of the process's resident memory in a training step, at its peak; in parentheses numbers of float32 for"
    )
    print("each unit of d and position.\n")
    print("| T, B, d_in, d | cell | torch.nn.LSTM MB | written-out loop MB | forward MB | forward ÷ loop |")
    print("|---|---|---|---|---|---|")
    for shape in shapes:
        T, B, _, d = shape
        units, vendor = 4 * T * B * d, cell_memory.growth(cell_memory.VENDOR, "forward", shape)
        for name in cells:
            loop, ours = (cell_memory.growth(name, way, shape) for way in ("loop", "forward"))
            sizes = [f"{size / 1e6:,.0f} ({size / units:.1f})" for size in (vendor, loop, ours)]
            print(row([", ".join(map(str, shape)), name, *sizes, f"{ours / loop:.2f}"]), flush=True)


def row(parts: Iterable[str]) -> str:
    return f"| {' | '.join(parts)} |"


def ms(found: Sequence[float]) -> str:
    return f"{statistics.median(found):,.2f}"


def times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×"


def judged(value: float, target: float | None) -> str:
    return "" if target is None else f"≤ {target:.1f} ×: {'yes' if round(value, 2) <= target else 'no'}"


def refuse_what_differs(cells: Mapping[str, Cell], setting: Setting) -> None:
    for name, cell in cells.items():
        for T, B, d_in, d in GATE_SHAPES:
            torch.manual_seed(SEED)
            layer = cell.build(d_in, d).to(setting.device)
            tolerance, lengths = TOLERANCES[setting.precision], setting.lengths(T, B)
            found = list(discrepancies(layer, lengths, (T, B), context=setting.context, tolerance=tolerance))
            if found:
                raise SystemExit("\n".join(f"{name}: {line}" for line in found))


def read_shape(text: str) -> Shape:
    T, B, d_in, d = map(int, text.split(","))
    return T, B, d_in, d


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = ("cells", "recent", "stacks", "scans")
    parser.add_argument("--tables", nargs="+", choices=tables, help="default: all; with --ragged or plain: cells")
    parser.add_argument("--cells", nargs="+", choices=CELLS, metavar="NAME", help=f"of {', '.join(CELLS)}")
    parser.add_argument("--shapes", nargs="+", type=read_shape, metavar="T,B,D_IN,D", help="of all tables asked for")
    parser.add_argument("--seconds", type=float, default=30.0, help="at least, for all cells at one shape")
    parser.add_argument("--turns", type=int, default=5, help="at least, of each measurement")
    parser.add_argument("--without-loop", action="store_true", help="leave out the written-out loop")
    parser.add_argument("--execution", choices=("compiled", "plain"), default="compiled", help="plain: no compiler")
    parser.add_argument("--ragged", action="store_true", help="lengths uniform in 1 to T, beside packed sequences")
    parser.add_argument("--precision", choices=TOLERANCES, default="float32", help="bf16: all of it under autocast")
    parser.add_argument(
        "--onednn", action="store_true", help="torch's float32 products by oneDNN, as `ensue machine` may choose"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memory", action="store_true", help="the memory of a training step, instead of times")
    parser.add_argument("--plot", type=Path, metavar="PATH.svg", help="draw the ratios of the gated cells")
    return parser.parse_args()


def prepare(arguments: argparse.Namespace) -> Setting:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tf32 = arguments.precision == "tf32"
    if arguments.onednn and not medium_is_exact():
        raise SystemExit("--onednn: on this processor that is bfloat16")
    torch.set_float32_matmul_precision("high" if tf32 else "medium" if arguments.onednn else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    return Setting(
        arguments.device, arguments.precision, arguments.ragged,
        arguments.seconds, arguments.turns, not arguments.without_loop,
    )  # fmt: skip


def chosen(arguments: argparse.Namespace) -> dict[str, dict[str, Cell]]:
    """The cells of each table that is asked for."""
    narrow = arguments.ragged or arguments.execution == "plain"
    tables = arguments.tables or (["cells"] if narrow else ["cells", "recent", "stacks", "scans"])
    if arguments.memory:
        tables = arguments.tables or ["cells"]
    default = PLAIN_CELLS if arguments.execution == "plain" else CELLS
    names = arguments.cells or default
    groups = {"cells": GATED, "recent": RECENT, "stacks": STACKS, "scans": SCANS}
    found = {table: {n: cell for n, cell in groups[table].items() if n in names} for table in tables}
    return {table: cells for table, cells in found.items() if cells}


def time_tables(arguments: argparse.Namespace, setting: Setting, tables: Mapping[str, Mapping[str, Cell]]) -> None:
    ratios: dict[Shape, dict[str, float]] = {}
    shapes = arguments.shapes or (CUDA_SHAPES if setting.device == "cuda" else CPU_SHAPES)
    for shape in shapes if "cells" in tables else ():
        ratios[shape] = cells_table(tables["cells"], shape, setting, TARGETS.get(shape))
    for table in ("recent", "stacks"):
        for shape in shapes if table in tables else ():
            cells_table(tables[table], shape, setting, STACK_TARGET)
    if "scans" in tables:
        scans_table(tables["scans"], arguments.shapes or SCAN_SHAPES, setting)
    if arguments.plot and ratios:
        title = f"Forward and backward of one layer, {setting.precision}"
        cell_picture.draw(ratios, TARGETS, arguments.plot, title=title)


def main() -> None:
    arguments = read_arguments()
    setting, tables = prepare(arguments), chosen(arguments)
    with executing(arguments.execution):
        refuse_what_differs({name: cell for cells in tables.values() for name, cell in cells.items()}, setting)
        started, worked = time.perf_counter(), time.process_time()
        print(describe_machine(seed=SEED))
        rows = "lengths uniform in 1 to T, torch.nn packed" if setting.ragged else "full rows"
        print(f"{setting.device}, {setting.precision}, {arguments.execution}, {rows}")
        if arguments.memory:
            for cells in tables.values():
                memory_table(cells, arguments.shapes or MEMORY_SHAPES)
        else:
            time_tables(arguments, setting, tables)
            share = (time.process_time() - worked) / (time.perf_counter() - started)
            print(f"\nThe process had the processor for {share:.0%} of the time.")


if __name__ == "__main__":
    main()
