"""Passes printed in Triton: their text; against `fold` through Triton's interpreter, and on a GPU if there is one."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn, sigmoid, tanh
from torch.nn import functional as F

from ensue import notices
from ensue.engine import execution, explain, triton_source, unroll
from ensue.engine.operations import OPERATIONS
from ensue.engine.plain_passes import PlainPasses
from ensue.engine.program import Program, build
from ensue.engine.schedule import Segment, schedule
from ensue.engine.storage import Arrays
from ensue.engine.trace import trace
from ensue.engine.triton_passes import TritonPasses, triton_passes
from ensue.engine.triton_source import BARRIER, Kernel, kernels
from ensue.nn import (
    GRU,
    LSTM,
    CoupledLSTM,
    Elman,
    ElmanState,
    LayerNormLSTM,
    PeepholeLSTM,
    ProjectedLSTM,
    Recurrent,
)
from ensue.nn.recurrent.depth_gated import DepthGatedLayer
from ensue.nn.recurrent.grid import GridLayer
from ensue.notices import Notice
from ensue.types import State, leaves, map_state

D_IN, D = 3, 5


class EveryOperation(Recurrent):
    """A step that holds each row of the table of operations."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d_in = self.d_out = d
        self.weight = nn.Parameter(torch.empty(d, d))
        self.vector = nn.Parameter(torch.empty(d))

    def init_state(self, batch_size: int, memory: object = None) -> ElmanState:
        return ElmanState(self.weight.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Tensor, state: State = None) -> tuple[Tensor, ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a = F.linear(h, self.weight) + x_t * self.vector
        size = a.abs() + 0.1
        smooth = size.log() - size.sqrt() / size.rsqrt() + a.sin() * a.cos() + a.erf().neg() + (-size).exp().detach()
        sides = torch.maximum(a, h).relu() + torch.minimum(a, self.vector)
        inside = torch.logical_and(a > -0.3, torch.logical_not(a >= 0.4))
        outside = torch.logical_or(a < -0.5, torch.logical_and(a != h, h <= a))
        sides = torch.where(torch.logical_or(outside, a == h), sides, a)
        y = torch.where(inside, smooth, sides) * sigmoid((a * a).mean(-1, keepdim=True))
        return y, ElmanState(tanh(torch.cat([y[:, 2:], y[:, :2] * 0.3], dim=1)))


CELLS: dict[str, Callable[[int], Recurrent]] = {
    "lstm": lambda d: LSTM(D_IN, d),
    "gru": lambda d: GRU(D_IN, d),
    "gru, reset before": lambda d: GRU(D_IN, d, reset="before"),
    "elman": lambda d: Elman(D_IN, d),
    "peephole": lambda d: PeepholeLSTM(D_IN, d),
    "peephole of one unit": lambda d: PeepholeLSTM(D_IN, 1),
    "coupled": lambda d: CoupledLSTM(D_IN, d),
    "layer norm": lambda d: LayerNormLSTM(D_IN, d),
    "projected": lambda d: ProjectedLSTM(D_IN, d, d_cell=d + 2),
    "depth-gated": DepthGatedLayer,
    "grid": GridLayer,
    "every operation": EveryOperation,
}
LENGTHS = {"dense": [3, 3, 3, 3], "ragged": [2, 4, 0, 1]}
TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-9}


@cache
def printed(cell: str) -> list[tuple[Segment, Kernel]]:
    program, found = build(trace(CELLS[cell](D))), []
    for name in ("forward", "inference", "backward"):
        plan = schedule(getattr(program, name))
        for segment, kernel in zip(plan.segments, kernels(name, plan, torch.float32), strict=True):
            if kernel is not None:
                found.append((segment, kernel))
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("cell", CELLS)
def test_every_write_is_printed_once(cell: str) -> None:
    for segment, kernel in printed(cell):
        (function,) = ast.parse(kernel.text).body
        assert isinstance(function, ast.FunctionDef)
        assert function.name == kernel.name
        stores = re.findall(r"tl\.store\((a\d+[^,]*),", kernel.text)
        assert len(set(stores)) == len(stores)
        views = [view for loops in segment.levels for loop in loops.values() for _, view in loop.writes]
        assert len(stores) == sum(view.array in kernel.arrays for view in views)
        assert all(view.array in kernel.arrays or view.array.name == "work" for view in views)


@pytest.mark.parametrize("cell", CELLS)
def test_reads_and_writes_are_parted_by_barriers(cell: str) -> None:
    for _, kernel in printed(cell):
        before = ""
        for line in kernel.text.splitlines():
            access = re.search(rf"{re.escape(BARRIER)}|tl\.load|tl\.store", line)
            if access:
                assert {before, access[0]} != {"tl.load", "tl.store"}
                before = access[0]


def test_text_of_a_small_step() -> None:
    program = build(trace(Elman(D_IN, D)))
    (kernel,) = kernels("step", schedule(program.inference), torch.float64)
    assert kernel is not None
    names = [array.name for array in kernel.arrays]
    assert sorted(names) == ["hoisted", "output", "vector", "work"]
    body = [line.strip() for line in kernel.text.splitlines()[2:]]
    places = {name: f"a{place}" for place, name in enumerate(names)}
    head = {
        f"{a} = p{a[1:]}" + {"vector": "", "work": f" + row * ld{a[1:]}"}.get(name, f" + (at{a[1:]} + row) * ld{a[1:]}")
        for name, a in places.items()
    }
    assert body[0] == "row = tl.program_id(0).to(tl.int64)"
    assert set(body[1:5]) == head
    assert body[5:7] == ["j5 = tl.arange(0, 8)", "m5 = j5 < 5"]
    assert {line.split(" = ")[1] for line in body[7:10]} == {
        f"tl.load({places[name]} + j5, mask=m5, other=0.0)" for name in ("hoisted", "vector", "work")
    }
    assert body[-3:] == [
        "v6 = 2 * tl.sigmoid(2 * v5) - 1",
        BARRIER,
        f"tl.store({places['output']} + j5, v6, mask=m5)",
    ]


def test_constants_have_the_type_of_the_rest() -> None:
    program = build(trace(EveryOperation(D)))
    plan = schedule(program.inference)
    (kernel,) = kernels("step", plan, torch.float64)
    assert kernel is not None
    assert "tl.full((), 0.1, tl.float64)" in kernel.text
    assert "float32" not in kernel.text


def test_the_step_of_every_operation_has_every_operation() -> None:
    graph = trace(EveryOperation(D)).graph
    assert {node.op for node in graph._known.values()} >= OPERATIONS.keys() - {"copy"}  # which torch does not know


def agrees_with_fold(cell: str, d: int, dtype: torch.dtype, lengths: list[int], device: str) -> None:
    """Outputs, final states and all gradients, against `fold` in float64; from NaN at padding."""
    torch.manual_seed(0)
    slow = CELLS[cell](d).double()
    for parameter in slow.parameters():
        nn.init.normal_(parameter, std=0.7 / parameter.shape[-1] ** 0.5)
    fast = deepcopy(slow).to(device, dtype)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    x = torch.randn(*mask.shape, slow.d_in, dtype=torch.float64).masked_fill(~mask.unsqueeze(2), torch.nan)
    empty = slow.init_state(len(lengths))
    before = [torch.randn_like(leaf) for leaf in leaves(empty)]
    weights = [torch.randn(int(mask.sum()), slow.d_out, dtype=torch.float64), *map(torch.randn_like, before)]
    found = []
    for layer in (fast, slow):
        some = next(layer.parameters())
        given = [part.to(some).detach().requires_grad_() for part in (x, *before)]
        parts, place = iter(given[1:]), mask.to(some.device)
        state = map_state(lambda leaf, parts=parts: next(parts), empty)
        run = unroll(layer, given[0], state, place) if layer is fast else layer.fold(given[0], state, mask=mask)
        assert run is not None
        results = [run[0][place], *leaves(run[1])]
        total = sum((a * b.to(some)).sum() for a, b in zip(results, weights, strict=True))
        gradients = torch.autograd.grad(total, [*given, *layer.parameters()])
        found.append([part.detach().to("cpu", torch.float64) for part in (*results, *gradients)])
        if layer is fast:
            assert explain(layer) == "compiled (Triton)"
            with torch.no_grad():  # another pass, which keeps two positions of the states
                again = unroll(layer, given[0], state, place)
            assert again is not None
            torch.testing.assert_close([again[0][place], *leaves(again[1])], [part.detach() for part in results])
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance, msg=lambda text: f"{cell}, {lengths}: {text}")


class FailingPasses(TritonPasses):
    """Kernels that do not compile."""

    def __init__(self, program: Program) -> None:
        pass

    def run(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("out of resource: shared memory\nRequired: 1")


class WrongPasses(TritonPasses):
    """Plain passes with an error in one of them."""

    def __init__(self, program: Program, wrong: str) -> None:
        self.program, self.wrong, self.plain = program, wrong, PlainPasses(program)

    def run(self, name: str, arrays: Arrays, *given: Any, **options: Any) -> None:
        self.plain.run(name, arrays, *given, **options)
        if name == self.wrong:
            _, array = self.program.passes[name].writes[0]
            arrays[array].tensor.mul_(1.01)


@pytest.mark.parametrize("wrong", [None, "forward", "inference", "backward"])
def test_kernels_that_fail_are_not_used(wrong: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they do not compile or give other numbers: the layer runs in torch operations, and that is said once."""

    def passes(program: Program, *_: Any) -> TritonPasses:
        return FailingPasses(program) if wrong is None else WrongPasses(program, wrong)

    monkeypatch.setattr(execution, "c_passes", passes)
    monkeypatch.setattr("ensue.notices._said", set())
    layer, x = PeepholeLSTM(D_IN, D), torch.randn(2, 4, D_IN)
    why = "RuntimeError: out of resource: shared memory" if wrong is None else "numbers are not those of torch"
    with pytest.warns(Notice, match=rf"^no Triton kernels for PeepholeLSTM \(.*{why}.*\); it runs in torch") as said:
        y, _ = layer(x)
    assert len(said) == 1
    torch.testing.assert_close(y, layer.fold(x)[0])
    assert explain(layer).startswith("in torch operations")
    PeepholeLSTM(D_IN, D)(x)  # warnings are errors here


def test_kernels_that_agree_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "c_passes", lambda program, *_: WrongPasses(program, "none"))
    layer, state = PeepholeLSTM(D_IN, D), torch.get_rng_state()
    assert explain(layer) == "compiled (Triton)"
    assert torch.equal(torch.get_rng_state(), state)  # what is tried draws no number of a training step


def interpreted() -> None:
    """What a process does in which Triton was made to interpret: there kernels run on a CPU."""
    execution.c_passes = lambda program, dtype, *_: triton_passes(program, dtype)  # type: ignore[assignment]
    for cell, dtype, lengths in product(CELLS, TOLERANCES, LENGTHS.values()):
        agrees_with_fold(cell, D, dtype, lengths, "cpu")
    for planted in ("tl.sigmoid({0})", "tl.no_such_function({0})"):  # another function than tanh; one that is none
        triton_source.OPERATIONS = OPERATIONS | {"tanh": replace(OPERATIONS["tanh"], triton=planted)}
        notices.forget_what_was_said()
        with pytest.warns(Notice, match="no Triton kernels for PeepholeLSTM"):
            assert explain(PeepholeLSTM(D_IN, D)).startswith("in torch operations")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton here")
def test_through_the_interpreter() -> None:
    command = f"from {__name__} import interpreted; interpreted()"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("d", [D, 300], ids=["one warp", "several warps"])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_on_a_gpu(cell: str, d: int, dtype: torch.dtype, lengths: list[int]) -> None:
    if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        pytest.skip("no GPU here, or no Triton")
    agrees_with_fold(cell, d, dtype, lengths, "cuda")
