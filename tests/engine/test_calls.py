"""The gate of the speed of single calls: shapes that have reached torch.nn stay there, with room of 15 %."""

import importlib
from functools import partial
from itertools import product

import pytest
import torch

from engine.twins import needs_compiler
from ensue import nn
from pages import REPOSITORY

MIN_RATIO = 0.85


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("d", [64, 128, 256, 512])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "Elman"])
@torch.inference_mode()
def test_calls_are_as_fast_as_those_of_torch(name: str, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRU and Elman of one position have not reached it (docs/benchmarks.md). Slow shapes are timed again."""
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    calls = importlib.import_module("calls")
    layer, peer = getattr(nn, name)(d, d), calls.PEERS[name](d, d, batch_first=True)
    below = {}
    for batch, length in product((1, 8, 32, 64), (1, 10, 30, 100) if name == "LSTM" else (10, 30, 100)):
        x = torch.randn(batch, length, d)
        for seconds in (0.05, 0.5, 2.0):
            ours, theirs = calls.least_times([partial(layer, x), partial(peer, x)], seconds)
            below[batch, length] = theirs / ours
            if theirs >= MIN_RATIO * ours:
                del below[batch, length]
                break
    assert not below
