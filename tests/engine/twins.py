"""Layers in the engine and in `fold`, its naive twin: cells, their arguments, and the comparison of results."""

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
    """Return whether there is a C compiler that works."""
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
    "inputs of a gated deltanet": lambda d_in, d: GatedDeltaInputs(d_in, 2 * d, num_heads=2),
    "recurrence of an hgrn2": lambda d_in, d: HGRN2Recurrence(d_in, 2 * d, num_heads=2),
    "gated delta rule": lambda d_in, d: GatedDeltaRule(8 * d + 4, 2 * d, num_heads=2),
    "inputs of an rwkv-7": lambda d_in, d: RWKV7Inputs(d_in, d, rank=2),
    "rule of an rwkv-7": lambda d_in, d: RWKV7Rule(6 * 3 * d, 3 * d, num_heads=3),
    "zoneout": lambda d_in, d: layers.Zoneout(layers.LSTM(d_in, d), hidden=0.3, cell=0.6),
    "zoneout with masks": lambda d_in, d: layers.Zoneout(layers.LSTM(d_in, d), hidden=0.3, cell=0.6).with_masks,
    "clockwork units": lambda d_in, d: ClockworkUnits(d),
}  # fmt: skip
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def built(name: str, d_in: int, d: int, dtype: torch.dtype = torch.float64) -> layers.Recurrent:
    """Return a new layer in evaluation, its parameters far from their initial values.

    In float32 they are half as large, since a layer that amplifies its state amplifies the rounding of both sides.
    """
    layer = CELLS[name](d_in, d).to(dtype).eval()
    scale = 0.5 if dtype == torch.float64 else 0.25
    generator = torch.Generator().manual_seed(d)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return layer


shared = cache(built)
"""`built` with a cache: equal calls return the same layer, which is traced once and must not be changed."""


def random_like(tensor: Tensor, seed: int) -> Tensor:
    return torch.randn(tensor.shape, dtype=tensor.dtype, generator=torch.Generator().manual_seed(seed))


class Arguments(NamedTuple):
    """Arguments of a layer."""

    x: Tensor
    state: State
    mask: Tensor | None


def arguments(layer: layers.Recurrent, batch: int, positions: int, *, is_ragged: bool = False) -> Arguments:
    """Return arguments with gradients. The lengths of ragged rows fall from `positions` to 0, again and again."""
    dtype = next(layer.parameters()).dtype
    x = random_like(torch.empty(batch, positions, layer.d_in, dtype=dtype), 1).requires_grad_()
    state = map_state(lambda leaf: random_like(leaf, leaf.shape[1]).requires_grad_(), layer.init_state(batch))
    lengths = positions - torch.arange(batch).mul(2).remainder(positions + 1)
    return Arguments(x, state, torch.arange(positions) < lengths.unsqueeze(1) if is_ragged else None)


def without_padding(y: Tensor, mask: Tensor | None) -> Tensor:
    """Return `y` with zeros at padding, where it is unspecified."""
    return y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)


def naive(layer: layers.Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    return layer.fold(x, state, mask=mask)


def engine(layer: layers.Recurrent, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    results = unroll(layer, x, state, mask)
    assert results is not None, explain(layer)
    return results


def total_of(results: list[Tensor]) -> Tensor:
    """Return the sum of all entries with random weights."""
    total = sum((result * random_like(result, seed)).sum() for seed, result in enumerate(results))
    assert isinstance(total, Tensor)
    return total


def run(run_layer: Callable[..., tuple[Tensor, State]], layer: layers.Recurrent, args: Arguments) -> list[Tensor]:
    y, final = run_layer(layer, *args)
    return [without_padding(y, args.mask), *leaves(final)]


def outcome(run_layer: Callable[..., tuple[Tensor, State]], layer: layers.Recurrent, args: Arguments) -> list[Tensor]:
    """Return outputs, final state, and the gradients of both by x, the state and the parameters."""
    results = run(run_layer, layer, args)
    sources = [args.x, *leaves(args.state), *layer.parameters()]
    gradients = torch.autograd.grad(total_of(results), sources, allow_unused=True, materialize_grads=True)
    return [*results, *gradients]


def close(results: list[Tensor], expected: list[Tensor], tolerance: float | None = None) -> None:
    """Assert equality within a tolerance relative to 1 + the largest number of each tensor."""
    for a, b in zip(results, expected, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        allowed = tolerance or TOLERANCE[b.dtype]
        error = ((a - b).abs().max() / (1 + b.abs().max())).item() if b.numel() else 0.0
        assert error <= allowed, f"off by {error:.1e}"


class Unrolled(nn.Module):
    """A layer in the engine as a module, so that its parameters can be arguments."""

    def __init__(self, layer: layers.Recurrent) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        return engine(self.layer, x, state, mask)
