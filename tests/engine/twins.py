"""Layers run by the engine and by `fold`, its naive twin: cells to run, what to run them on, and how to compare."""

import subprocess
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from ensue import nn as layers
from ensue.engine import explain, unroll
from ensue.engine.c_library import compiler
from ensue.nn.recurrent.clockwork import ClockworkUnits
from ensue.nn.recurrent.delta_rule import GatedDeltaInputs, GatedDeltaRule, HGRN2Recurrence, RWKV7Inputs, RWKV7Rule
from ensue.nn.recurrent.lstm_stacks import DepthGatedLayer, GridLayer, LSTMWithCellOutput
from ensue.types import State, leaves, map_state


def compiles() -> bool:
    """Whether there is a C compiler, and it does not fail, as `CC=/bin/false` does."""
    command = compiler()
    if command is None:
        return False
    return subprocess.run([*command, "-E", "-x", "c", "-"], input=b"", capture_output=True, check=False).returncode == 0


needs_compiler = pytest.mark.skipif(not compiles(), reason="no C compiler that works")

CELLS: dict[str, Callable[[int, int], layers.Recurrent]] = {
    "lstm": layers.LSTM, "gru after": layers.GRU, "gru before": lambda d_in, d: layers.GRU(d_in, d, reset="before"),
    "elman tanh": layers.Elman,
    "elman relu": lambda d_in, d: layers.Elman(d_in, d, activation="relu"), "peephole": layers.PeepholeLSTM,
    "coupled": layers.CoupledLSTM,
    "layer norm": layers.LayerNormLSTM, "projected": lambda d_in, d: layers.ProjectedLSTM(d_in, d, d_cell=2 * d + 1),
    "clipped": lambda d_in, d: layers.ProjectedLSTM(d_in, d, d_cell=2 * d + 1, clip_cell=0.3, clip_output=0.2),
    "lstm with cell output": LSTMWithCellOutput, "depth-gated": lambda d_in, d: DepthGatedLayer(d),
    "grid": lambda d_in, d: GridLayer(d), "mingru": layers.MinGRU, "minlstm": layers.MinLSTM, "lru": layers.LRU,
    "mogrifier": layers.MogrifierLSTM,
    "mogrifier of two rounds": lambda d_in, d: layers.MogrifierLSTM(d_in, d, rounds=2), "lem": layers.LEM,
    "slstm": lambda d_in, d: layers.SLSTM(d_in, 3 * d, num_heads=3),
    "mlstm": lambda d_in, d: layers.MLSTM(d_in, 2 * d, num_heads=2),
    "what a gated deltanet reads": lambda d_in, d: GatedDeltaInputs(d_in, 2 * d, num_heads=2),
    "recurrence of an hgrn2": lambda d_in, d: HGRN2Recurrence(d_in, 2 * d, num_heads=2),
    "gated delta rule": lambda d_in, d: GatedDeltaRule(8 * d + 4, 2 * d, num_heads=2),
    "what an rwkv-7 reads": lambda d_in, d: RWKV7Inputs(d_in, d, rank=2),
    "rule of an rwkv-7": lambda d_in, d: RWKV7Rule(6 * 3 * d, 3 * d, num_heads=3),
    "zoneout": lambda d_in, d: layers.Zoneout(layers.LSTM(d_in, d), hidden=0.3, cell=0.6),
    "zoneout, masks given": lambda d_in, d: layers.Zoneout(layers.LSTM(d_in, d), hidden=0.3, cell=0.6).with_masks,
    "clockwork units": lambda d_in, d: ClockworkUnits(d),
}  # fmt: skip
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def built(name: str, d_in: int, d: int, dtype: torch.dtype = torch.float64) -> layers.Recurrent:
    """In `eval`, every parameter far from where training begins. A new layer, which has not run.

    In float32 they are half as large: what amplifies its state amplifies the rounding of both sides.
    """
    layer = CELLS[name](d_in, d).to(dtype).eval()
    scale = 0.5 if dtype == torch.float64 else 0.25
    generator = torch.Generator().manual_seed(d)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return layer


kept = cache(built)
"""The same, for tests that leave it as it is: the next one need not trace it."""


def random_like(tensor: Tensor, seed: int) -> Tensor:
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=torch.Generator().manual_seed(seed))


class Given(NamedTuple):
    """What a layer is called with."""

    x: Tensor
    state: State
    mask: Tensor | None


def given(layer: layers.Recurrent, batch: int, positions: int, *, is_ragged: bool = False) -> Given:
    """Something to differentiate by; the lengths of ragged rows go from `positions` down to 0 and round again."""
    dtype = next(layer.parameters()).dtype
    x = random_like(torch.empty(batch, positions, layer.d_in, dtype=dtype), 1).requires_grad_()
    state = map_state(lambda leaf: random_like(leaf, leaf.shape[1]).requires_grad_(), layer.init_state(batch))
    lengths = positions - torch.arange(batch).mul(2).remainder(positions + 1)
    return Given(x, state, torch.arange(positions) < lengths.unsqueeze(1) if is_ragged else None)


def without_padding(y: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros there: it is unspecified."""
    return y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)


def naive(layer: layers.Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    return layer.fold(x, state, mask=mask)


def engine(layer: layers.Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    found = unroll(layer, x, state, mask)
    assert found is not None, explain(layer)
    return found


def total_of(results: list[Tensor]) -> Tensor:
    """One number that every entry of `results` has its own part in."""
    total = sum((result * random_like(result, seed)).sum() for seed, result in enumerate(results))
    assert isinstance(total, Tensor)
    return total


def run(how: Callable[..., tuple[Tensor, State]], layer: layers.Recurrent, args: Given) -> list[Tensor]:
    y, final = how(layer, *args)
    return [without_padding(y, args.mask), *leaves(final)]


def everything(how: Callable[..., tuple[Tensor, State]], layer: layers.Recurrent, args: Given) -> list[Tensor]:
    """Outputs, final state, and the gradients of both by x, the state and the parameters."""
    results = run(how, layer, args)
    sources = [args.x, *leaves(args.state), *layer.parameters()]
    found = torch.autograd.grad(total_of(results), sources, allow_unused=True, materialize_grads=True)
    return [*results, *found]


def close(found: list[Tensor], expected: list[Tensor], tolerance: float | None = None) -> None:
    """Each entry to a tolerance relative to 1 + the largest of its tensor."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        allowed = tolerance or TOLERANCE[b.dtype]
        error = ((a - b).abs().max() / (1 + b.abs().max())).item() if b.numel() else 0.0
        assert error <= allowed, f"off by {error:.1e}"


class Unrolled(nn.Module):
    """A layer, run by the engine, as a function of its parameters too."""

    def __init__(self, layer: layers.Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        return engine(self.layer, x, state, mask)
