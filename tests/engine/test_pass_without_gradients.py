"""The pass without gradients reads the weights of today, whatever happened to them between calls."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from ensue.engine import executing
from ensue.nn import GRU, LSTM, SequenceLayer

B, T, D = 3, 5, 8


def assign(change: Callable[[Tensor], Tensor]) -> Callable[[LSTM], None]:
    def changed(layer: LSTM) -> None:
        layer.weight_hidden.data = change(layer.weight_hidden.data)

    return changed


def tie(layer: LSTM) -> None:
    """Both matrices are views of one memory."""
    both = torch.randn(2, *layer.weight_hidden.shape)
    layer.weight_input.data, layer.weight_hidden.data = both


def swap(layer: LSTM) -> None:
    layer.weight_input.data, layer.weight_hidden.data = layer.weight_hidden.data, layer.weight_input.data


CHANGES: dict[str, Callable[[LSTM], object]] = {
    "in place": lambda layer: layer.weight_hidden.data.mul_(2),
    "other memory": assign(lambda data: data * 2),
    "other strides": assign(lambda data: (data * 2).t().contiguous().t()),
    "every second row": assign(lambda data: torch.randn(2 * len(data), D)[::2]),
    "after an offset": assign(lambda data: torch.randn(1 + len(data), D)[1:]),
    "one memory": tie,
    "swapped": swap,
    "a new parameter": lambda layer: setattr(layer, "bias", nn.Parameter(torch.randn(4 * D))),
    "a computed weight": lambda layer: weight_norm(layer, "weight_hidden"),
}


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_changed_weights_are_read(change: str, is_warm: bool) -> None:
    torch.manual_seed(0)
    layer, x = LSTM(D, D), torch.randn(B, T, D)
    if is_warm:
        layer(x)
    CHANGES[change](layer)
    for _ in range(2):
        (y, state), (expected, last) = layer(x), layer.fold(x)
        torch.testing.assert_close((y, *state), (expected, *last))
        layer.weight_input.data = 2 * layer.weight_input.data


@pytest.mark.parametrize("layer_class", [LSTM, GRU])
@torch.no_grad()
def test_results_share_no_memory(layer_class: type[SequenceLayer]) -> None:
    """Neither with each other nor with the given state, for any sizes and with padding, in one thread and in two."""
    torch.manual_seed(0)
    layer = layer_class(D, 16)
    for batch, positions in ((1, 1), (1, 9), (2, 1), (5, 3), (3, 5)):
        x, mask = (
            torch.randn(batch, positions, D),
            torch.arange(positions) < torch.randint(0, positions + 1, (batch, 1)),
        )
        for rows in (None, mask):
            _, state = layer(x)
            before = [leaf.clone() for leaf in ([state] if isinstance(state, Tensor) else state)]
            results = layer(x, state, mask=rows)
            with executing("fold"):
                torch.testing.assert_close(results, layer(x, state, mask=rows))
            leaves = [results[0], *([results[1]] if isinstance(state, Tensor) else results[1])]
            assert len({leaf.untyped_storage().data_ptr() for leaf in leaves}) == len(leaves)
            assert all(map(torch.equal, before, [state] if isinstance(state, Tensor) else state))
