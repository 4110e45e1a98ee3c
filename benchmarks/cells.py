"""Recurrent cells beside torch.nn.LSTM: forward and backward of one layer, in one thread, in turns in one process.

    python benchmarks/cells.py [--tables cells recent stacks scans] [--cells NAME ...] [--shapes T,B,D_IN,D ...]

Training is the outputs of a batch, and the gradients with respect to the batch and all parameters. Inference is the
outputs under no_grad. In each turn, a call is repeated for at least 10 ms. On a CPU, milliseconds are processor time of
the process; the last line shows the share of the time in which the process had a core.

A ratio is the median over turns of the time of a layer divided by the time of torch.nn.LSTM in the same turn. Except
for scans, both times are divided by the multiply-adds of the matrix products in the forward pass; the backward pass
takes twice as many for all cells. "loop ÷ forward" compares `fold`, the plain loop under autograd, with `forward`.
Before the measurement `forward` of each layer is compared with `fold`; if they differ, the script fails with the
differences. `cell_layers.py` has the names of the cells. torch.nn has the batch first, too.
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
from typing import Any, NamedTuple

import cell_memory
import cell_picture
import torch
from cell_gate import Context, discrepancies
from cell_layers import CELLS, GATED, RECENT, SCANS, STACKS, Cell, full_elman, gates
from machine import describe_machine
from timing import elapsed, ratios, take_turns
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
"""Targets by cell and T."""
MIN_TURN_MILLISECONDS = 10.0
"""The time for which a call is repeated in each turn."""
CPU_SHAPES = list(TARGETS)[:5]
CUDA_SHAPES = list(TARGETS)[5:]
SCAN_SHAPES = [(T, B, 256, 256) for T in (1024, 8192) for B in (1, 4)]
MEMORY_SHAPES = CPU_SHAPES[:2]
TABLES = {"cells": GATED, "recent": RECENT, "stacks": STACKS, "scans": SCANS}
PLAIN_CELLS = ("gru-before", "peephole", "layer-norm")
GATE_SHAPES = [(5, 3, 8, 16), (25, 32, 256, 256), (8, 512, 32, 512)]
TOLERANCES = {"float32": 2e-5, "tf32": 2e-2, "bf16": 5e-2}
"""The maximum difference of `forward` from the float32 `fold`, as a share of the largest value."""
SEED = 0


@dataclass(frozen=True)
class Setting:
    """The options of all measurements."""

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
        """Return random lengths from 1 to T, the first of which is T; None for full rows."""
        if not self.ragged:
            return None
        lengths = torch.randint(1, T + 1, (B,), generator=torch.Generator().manual_seed(SEED))
        lengths[0] = T
        return lengths


class Problem(NamedTuple):
    """A batch, and the gradients of the outputs, which are zero at padding."""

    x: Tensor
    lengths: Tensor | None
    mask: Tensor | None
    gradients: Tensor

    @classmethod
    def draw(cls, setting: Setting, shape: Shape) -> Problem:
        """Return a random problem of a shape."""
        T, B, d_in, d = shape
        x = torch.randn(B, T, d_in, device=setting.device, requires_grad=True)
        gradients = torch.randn(B, T, d, device=setting.device)
        if (lengths := setting.lengths(T, B)) is None:
            return cls(x, None, None, gradients)
        mask = (torch.arange(T) < lengths.unsqueeze(1)).to(setting.device)
        return cls(x, lengths, mask, gradients * mask.unsqueeze(-1))


class Calls(NamedTuple):
    training: Callable[[], object]
    inference: Callable[[], object]
    loop: Callable[[], object] | None = None


def torch_calls(kind: type[nn.LSTM | nn.GRU], setting: Setting, problem: Problem) -> Calls:
    """Return the calls of a layer of torch.nn. Ragged rows are packed, and the outputs are padded."""
    module = kind(problem.x.shape[2], problem.gradients.shape[2], batch_first=True, device=setting.device)

    def run(x: Tensor) -> Tensor:
        if problem.lengths is None:
            return module(x)[0]
        packed = pack_padded_sequence(x, problem.lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(module(packed)[0], batch_first=True, total_length=x.shape[1])[0]

    return Calls(training_call(module, run, setting, problem), inference_call(run, setting, problem))


def ensue_calls(cell: Cell, setting: Setting, problem: Problem) -> Calls:
    """Return the calls of a layer of ensue."""
    sizes = problem.x.shape[2], problem.gradients.shape[2]
    layer: Any = cell.build(*sizes).to(setting.device)
    in_inference = cell.build(*sizes).to(setting.device).eval()
    return Calls(
        training_call(layer, lambda x: layer(x, mask=problem.mask)[0], setting, problem),
        inference_call(lambda x: in_inference(x, mask=problem.mask)[0], setting, problem),
        training_call(layer, lambda x: Recurrent.fold(layer, x, mask=problem.mask)[0], setting, problem),
    )


def training_call(
    module: nn.Module, run: Callable[[Tensor], Tensor], setting: Setting, problem: Problem
) -> Callable[[], object]:
    sources, context = [problem.x, *module.parameters()], setting.context

    def call() -> object:
        with context():
            y = run(problem.x)
        return torch.autograd.grad(y, sources, problem.gradients.to(y.dtype), materialize_grads=True)

    return call


def inference_call(run: Callable[[Tensor], Tensor], setting: Setting, problem: Problem) -> Callable[[], object]:
    x, context = problem.x.detach(), setting.context

    def call() -> object:
        with torch.no_grad(), context():
            return run(x)

    return call


def in_turns(
    calls: Sequence[Callable[[], object]], setting: Setting, *, seconds: float, turns: int
) -> list[list[float]]:
    """Return the milliseconds of each call, turn by turn."""
    clock = milliseconds_on_gpu if setting.device == "cuda" else milliseconds
    repetitions = [math.ceil(MIN_TURN_MILLISECONDS / clock(call, 1)) for call in calls]
    measures = {place: partial(clock, *pair) for place, pair in enumerate(zip(calls, repetitions, strict=True))}
    return list(take_turns(measures, turns, seconds=seconds).values())


def milliseconds(call: Callable[[], object], number: int) -> float:
    """Return the processor time of one call, as the mean of `number` calls."""

    def repeat() -> None:
        for _ in range(number):
            call()

    return elapsed(repeat) * 1e3 / number


def milliseconds_on_gpu(call: Callable[[], object], number: int) -> float:
    """Return the time of one call on the GPU, as the mean of `number` calls."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(number):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / number


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Return the median ratio over turns."""
    return statistics.median(ratios(numerators, denominators))


class Times(NamedTuple):
    """Milliseconds turn by turn, and the time of the loop divided by that of `forward`, if it was measured."""

    training: list[float]
    inference: list[float]
    loop: float | None


def measure(calls: Mapping[str, Calls], setting: Setting) -> dict[str, Times]:
    """Measure all calls in the same turns, after a first call of each, which compiles the cell."""
    flat = [call for cell in calls.values() for call in (cell.training, cell.inference)]
    for call in flat:
        call()
    times = in_turns(flat, setting, seconds=setting.seconds, turns=setting.turns)
    loops = [loop_ratio(cell, setting) if setting.loop and cell.loop else None for cell in calls.values()]
    return dict(zip(calls, map(Times, times[::2], times[1::2], loops), strict=True))


def loop_ratio(calls: Calls, setting: Setting) -> float:
    """Return the time of the loop divided by that of `forward`."""
    assert calls.loop is not None
    forward, loop = in_turns([calls.training, calls.loop], setting, seconds=setting.seconds / 20, turns=2)
    return ratio(loop, forward)


def cells_table(cells: Mapping[str, Cell], shape: Shape, setting: Setting, target: float | None) -> dict[str, float]:
    """Print the table of a shape. Return the ratios per multiply-add."""
    T, B, d_in, d = shape
    problem = Problem.draw(setting, shape)
    lengths = [T] * B if problem.lengths is None else problem.lengths.tolist()
    lstm_products = gates(4)(lengths, d_in, d)
    calls = {name: ensue_calls(cell, setting, problem) for name, cell in cells.items()}
    reference, *measured = measure({"": torch_calls(nn.LSTM, setting, problem), **calls}, setting).values()
    has_clock = "clockwork" in cells
    print(f"\nT {T}, B {B}, d_in {d_in}, d {d}\n")
    head = ["cell", "ms", "× nn.LSTM", "target", *(["as a full Elman"] if has_clock else [])]
    head += ["loop ÷ forward", "inference ms", "× nn.LSTM", "target"]
    print(row(head), row(["---"] * len(head)), sep="\n")
    blank = [""] * (1 + has_clock)
    print(row(["torch.nn.LSTM", ms(reference.training), "1", *blank, "", ms(reference.inference), "1", ""]))
    cell_ratios = {}
    for (name, cell), times in zip(cells.items(), measured, strict=True):
        per_product = lstm_products / cell.multiply_adds(lengths, d_in, d)
        plain = ratio(times.training, reference.training)
        cell_ratios[name] = plain * per_product
        inference_ratio = ratio(times.inference, reference.inference) * per_product
        line = [name, ms(times.training), format_ratio(cell_ratios[name]), verdict(cell_ratios[name], target)]
        if has_clock:
            elman_products = full_elman(lengths, d_in, d)
            line.append(format_ratio(plain * lstm_products / elman_products) if name == "clockwork" else "")
        line += [format_ratio(times.loop), ms(times.inference), format_ratio(inference_ratio)]
        print(row([*line, verdict(inference_ratio, INFERENCE_TARGET)]), flush=True)
    return cell_ratios


def scans_table(cells: Mapping[str, Cell], shapes: Sequence[Shape], setting: Setting) -> None:
    """Print the table of scans."""
    head = ["T", "B", "cell", "ms", "nn.GRU ms", "nn.LSTM ms", "nn.GRU ÷ cell", "nn.LSTM ÷ cell", "target"]
    print("", row([*head, "loop ÷ forward"]), row(["---"] * (len(head) + 1)), sep="\n")
    for T, B, d_in, d in shapes:
        problem = Problem.draw(setting, (T, B, d_in, d))
        references = {kind.__name__: torch_calls(kind, setting, problem) for kind in (nn.GRU, nn.LSTM)}
        calls = {name: ensue_calls(cell, setting, problem) for name, cell in cells.items()}
        gru, lstm, *measured = measure(references | calls, setting).values()
        for name, times in zip(cells, measured, strict=True):
            gains = [ratio(reference.training, times.training) for reference in (gru, lstm)]
            target = SCAN_TARGETS.get((name, T))
            judgment = f"≥ {target:g} ×: {'yes' if min(gains) >= target else 'no'}" if target else ""
            numbers = map(ms, (times.training, gru.training, lstm.training))
            print(
                row([str(T), str(B), name, *numbers, *map(format_ratio, gains), judgment, format_ratio(times.loop)]),
                flush=True,
            )


def memory_table(cells: Mapping[str, Cell], shapes: Sequence[Shape]) -> None:
    """Print the table of memory."""
    print(
        "Peak growth of resident memory in a training step; in parentheses the number of float32 values for each unit"
    )
    print("of d and position.\n")
    print("| T, B, d_in, d | cell | torch.nn.LSTM MB | written-out loop MB | forward MB | forward ÷ loop |")
    print("|---|---|---|---|---|---|")
    for shape in shapes:
        T, B, _, d = shape
        units, peer = 4 * T * B * d, cell_memory.growth(cell_memory.PEER, "forward", shape)
        for name in cells:
            loop, forward = (cell_memory.growth(name, method, shape) for method in ("loop", "forward"))
            sizes = [f"{size / 1e6:,.0f} ({size / units:.1f})" for size in (peer, loop, forward)]
            print(row([", ".join(map(str, shape)), name, *sizes, f"{forward / loop:.2f}"]), flush=True)


def row(parts: Iterable[str]) -> str:
    return f"| {' | '.join(parts)} |"


def ms(milliseconds: Sequence[float]) -> str:
    return f"{statistics.median(milliseconds):,.2f}"


def format_ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} ×"


def verdict(value: float, target: float | None) -> str:
    return "" if target is None else f"≤ {target:.1f} ×: {'yes' if round(value, 2) <= target else 'no'}"


def check_forward(cells: Mapping[str, Cell], setting: Setting) -> None:
    """Raise SystemExit if `forward` of a layer differs from its `fold`."""
    for name, cell in cells.items():
        for T, B, d_in, d in GATE_SHAPES:
            torch.manual_seed(SEED)
            layer = cell.build(d_in, d).to(setting.device)
            tolerance, lengths = TOLERANCES[setting.precision], setting.lengths(T, B)
            lines = list(discrepancies(layer, lengths, (T, B), context=setting.context, tolerance=tolerance))
            if lines:
                raise SystemExit("\n".join(f"{name}: {line}" for line in lines))


def read_shape(text: str) -> Shape:
    T, B, d_in, d = map(int, text.split(","))
    return T, B, d_in, d


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tables", nargs="+", choices=TABLES, help="default: all; with --ragged, --memory or plain execution: cells"
    )
    parser.add_argument("--cells", nargs="+", choices=CELLS, metavar="NAME", help=f"of {', '.join(CELLS)}")
    parser.add_argument("--shapes", nargs="+", type=read_shape, metavar="T,B,D_IN,D", help="the shapes of all tables")
    parser.add_argument("--seconds", type=float, default=30.0, help="the minimum time for all cells at one shape")
    parser.add_argument("--turns", type=int, default=5, help="the minimum number of turns")
    parser.add_argument("--without-loop", action="store_true", help="do not measure the loop")
    parser.add_argument("--execution", choices=("compiled", "plain"), default="compiled", help="plain: no compiler")
    parser.add_argument("--ragged", action="store_true", help="lengths uniform in 1 to T, beside packed sequences")
    parser.add_argument("--precision", choices=TOLERANCES, default="float32", help="bf16: under autocast")
    parser.add_argument(
        "--onednn", action="store_true", help="torch's float32 products by oneDNN, as `ensue machine` may choose"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--memory", action="store_true", help="measure the memory of a training step instead of times")
    parser.add_argument("--plot", type=Path, metavar="PATH.svg", help="draw the ratios of the table 'cells'")
    return parser.parse_args()


def prepare(arguments: argparse.Namespace) -> Setting:
    """Configure torch. Return the options of the measurements."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    tf32 = arguments.precision == "tf32"
    if arguments.onednn and not medium_is_exact():
        raise SystemExit("--onednn: on this processor oneDNN multiplies in bfloat16")
    torch.set_float32_matmul_precision("high" if tf32 else "medium" if arguments.onednn else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    return Setting(
        arguments.device, arguments.precision, arguments.ragged,
        arguments.seconds, arguments.turns, not arguments.without_loop,
    )  # fmt: skip


def select_cells(arguments: argparse.Namespace) -> dict[str, dict[str, Cell]]:
    """Return the cells of each table."""
    is_plain = arguments.execution == "plain"
    tables = arguments.tables or (["cells"] if arguments.ragged or arguments.memory or is_plain else TABLES)
    names = arguments.cells or (PLAIN_CELLS if is_plain else CELLS)
    selected = {table: {n: cell for n, cell in TABLES[table].items() if n in names} for table in tables}
    return {table: cells for table, cells in selected.items() if cells}


def time_tables(arguments: argparse.Namespace, setting: Setting, tables: Mapping[str, Mapping[str, Cell]]) -> None:
    """Print the tables of times, and draw the ratios if --plot is given."""
    by_shape: dict[Shape, dict[str, float]] = {}
    shapes = arguments.shapes or (CUDA_SHAPES if setting.device == "cuda" else CPU_SHAPES)
    for shape in shapes if "cells" in tables else ():
        by_shape[shape] = cells_table(tables["cells"], shape, setting, TARGETS.get(shape))
    for table in ("recent", "stacks"):
        for shape in shapes if table in tables else ():
            cells_table(tables[table], shape, setting, STACK_TARGET)
    if "scans" in tables:
        scans_table(tables["scans"], arguments.shapes or SCAN_SHAPES, setting)
    if arguments.plot and by_shape:
        title = f"Forward and backward of one layer, {setting.precision}"
        cell_picture.draw(by_shape, TARGETS, arguments.plot, title=title)


def main() -> None:
    arguments = read_arguments()
    setting, tables = prepare(arguments), select_cells(arguments)
    with executing(arguments.execution):
        check_forward({name: cell for cells in tables.values() for name, cell in cells.items()}, setting)
        start, processor_start = time.perf_counter(), time.process_time()
        print(describe_machine(seed=SEED))
        rows = "lengths uniform in 1 to T, torch.nn packed" if setting.ragged else "full rows"
        print(f"{setting.device}, {setting.precision}, {arguments.execution}, {rows}")
        if arguments.memory:
            for cells in tables.values():
                memory_table(cells, arguments.shapes or MEMORY_SHAPES)
        else:
            time_tables(arguments, setting, tables)
            share = (time.process_time() - processor_start) / (time.perf_counter() - start)
            print(f"\nThe process had a core for {share:.0%} of the time.")


if __name__ == "__main__":
    main()
