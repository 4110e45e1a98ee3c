"""Poolings equal their formulas for each row, for full sequences and in segments."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ensue import nn as layers
from ensue.types import detach, select_rows

D = 4


def attention(pooling: layers.AttentionPooling, h: Tensor) -> Tensor:
    u = torch.tanh(h @ pooling.linear.weight.T + pooling.linear.bias)
    return torch.softmax(u @ pooling.vector.weight[0], dim=0) @ h


def several() -> layers.Poolings:
    return layers.Poolings(
        [layers.MeanPooling(D), layers.LastPooling(D, bidirectional=True), layers.AttentionPooling(D, d_attention=3)]
    )


Formula = Callable[[layers.Pooling, Tensor], Tensor]
"""The result of a pooling for the real positions (T, d) of one row, with T > 0."""

FORMULAS: dict[str, tuple[Callable[[], layers.Pooling], Formula]] = {
    "first": (lambda: layers.FirstPooling(D), lambda _, h: h[0]),
    "last": (lambda: layers.LastPooling(D), lambda _, h: h[-1]),
    "both ends": (
        lambda: layers.LastPooling(D, bidirectional=True),
        lambda _, h: torch.cat((h[-1, : D // 2], h[0, D // 2 :])),
    ),
    "mean": (lambda: layers.MeanPooling(D), lambda _, h: h.mean(0)),
    "max": (lambda: layers.MaxPooling(D), lambda _, h: h.amax(0)),
    "attention": (lambda: layers.AttentionPooling(D), attention),  # type: ignore[dict-item]
    "several": (
        several,
        lambda p, h: torch.cat((h.mean(0), h[-1, : D // 2], h[0, D // 2 :], attention(list(p)[2], h))),  # type: ignore
    ),
}
POOLINGS = pytest.mark.parametrize(("make", "formula"), FORMULAS.values(), ids=FORMULAS)


def built(make: Callable[[], layers.Pooling]) -> layers.Pooling:
    torch.manual_seed(0)
    return make().double()


def rows(lengths: list[int], filling: float = torch.nan) -> tuple[Tensor, Tensor]:
    mask = torch.arange(max(lengths, default=0)) < torch.tensor(lengths).unsqueeze(1)
    h = torch.randn(*mask.shape, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return h.masked_fill(~mask.unsqueeze(2), filling).requires_grad_(), mask


@POOLINGS
def test_values_and_gradients_equal_the_formula(make: Callable[[], layers.Pooling], formula: Formula) -> None:
    """Padding is NaN. A row without real positions gives zeros."""
    pooling, lengths = built(make), [5, 2, 0, 3, 1]
    h, mask = rows(lengths)
    result = pooling(h, mask)
    zeros = torch.zeros(pooling.d_out, dtype=torch.float64)
    expected = torch.stack([formula(pooling, h[b, :n]) if n else zeros for b, n in enumerate(lengths)])
    torch.testing.assert_close(result, expected)
    weights, sources = torch.randn_like(result), [h, *pooling.parameters()]
    gradients = torch.autograd.grad((result * weights).sum(), sources)
    torch.testing.assert_close(gradients, torch.autograd.grad((expected * weights).sum(), sources))
    assert gradients[0].isfinite().all()
    dense = h[:2, :2].detach()
    torch.testing.assert_close(pooling(dense), pooling(dense, torch.ones(2, 2, dtype=torch.bool)))


@pytest.mark.sampled(2)
@POOLINGS
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(0, 8), min_size=1, max_size=4), cuts=st.lists(st.integers(0, 8), max_size=3))
def test_segments_give_the_result_of_the_full_sequence(
    make: Callable[[], layers.Pooling], formula: Formula, lengths: list[int], cuts: list[int]
) -> None:
    """Some segments are empty or begin after the end of some rows."""
    pooling, (h, mask) = built(make), rows([*lengths, 1])
    state, borders = pooling.init_state(len(h)), sorted({0, *cuts, mask.shape[1]})
    for begin, end in [*itertools.pairwise(borders), (0, 0)]:
        state = pooling.update(state, h[:, begin:end], mask[:, begin:end])
    expected, result = pooling(h, mask), pooling.result(state)
    torch.testing.assert_close(result, expected)
    sources = [h, *pooling.parameters()]
    gradients, expected_gradients = (
        torch.autograd.grad(y.square().sum(), sources, allow_unused=True, materialize_grads=True)
        for y in (result, expected)
    )
    torch.testing.assert_close(gradients, expected_gradients)


@POOLINGS
def test_updates_do_not_change_earlier_states(make: Callable[[], layers.Pooling], formula: Formula) -> None:
    """Rows of a state can be selected, and the state can be detached."""
    pooling, (h, mask) = built(make), rows([5, 2, 4])
    state = pooling.update(pooling.init_state(3), h[:, :2], mask[:, :2])
    before = pooling.result(state)
    chosen = torch.tensor([2, 0])
    rest = pooling.update(select_rows(state, chosen), h[chosen, 2:], mask[chosen, 2:])
    torch.testing.assert_close(pooling.result(rest), pooling(h, mask)[chosen])
    torch.testing.assert_close(pooling.result(state), before, rtol=0, atol=0)
    assert not pooling.result(detach(state)).requires_grad


@POOLINGS
def test_a_state_of_none_is_the_initial_state(make: Callable[[], layers.Pooling], formula: Formula) -> None:
    """A segment without positions changes no state."""
    pooling, (h, mask) = built(make), rows([3, 2, 0])
    for length in (3, 0):
        segment = h[:, :length], mask[:, :length]
        state, initial = (pooling.update(state, *segment) for state in (None, pooling.init_state(3)))
        torch.testing.assert_close(pooling.result(state), pooling.result(initial), rtol=0, atol=0)
    assert pooling.update(state, h[:, :0]) is state


@POOLINGS
def test_padding_has_no_gradient(make: Callable[[], layers.Pooling], formula: Formula) -> None:
    gradients = []
    for filling in (5.0, -7.0):
        h, mask = rows([3, 1, 0], filling)
        (gradient,) = torch.autograd.grad(built(make)(h, mask).square().sum(), h)
        assert not gradient[~mask].any()
        gradients.append(gradient)
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_among_equal_maxima_the_first_has_the_gradient(cut: int) -> None:
    h = torch.tensor([[[1.0], [2.0], [2.0], [2.0]]]).expand(1, 4, D).clone().requires_grad_()
    pooling = layers.MaxPooling(D)
    state = pooling.init_state(1)
    for part in (h[:, :cut], h[:, cut:]):
        state = pooling.update(state, part)
    (gradient,) = torch.autograd.grad(pooling.result(state).sum(), h)
    assert gradient[0, :, 0].tolist() == [0, 1, 0, 0]


def test_last_pooling_of_both_directions_reads_their_final_states() -> None:
    torch.manual_seed(0)
    layer, (h, mask) = layers.Bidirectional(layers.LSTM(D, 3), layers.LSTM(D, 3)), rows([5, 2, 1])
    y, (rightward, leftward) = layer(h.float(), mask=mask)
    pooled = layers.LastPooling(6, bidirectional=True)(y, mask)
    torch.testing.assert_close(pooled, torch.cat((rightward.h, leftward.h), dim=1))


def test_large_scores_do_not_overflow() -> None:
    pooling = layers.AttentionPooling(D)
    with torch.no_grad():
        pooling.vector.weight.fill_(1e4)
    h = torch.cat((torch.full((1, 2, D), -9.0), torch.full((1, 1, D), 9.0)), dim=1)
    for first, last in ((0, 1), (2, 0)):
        state = pooling.update(pooling.init_state(1), h[:, first : first + 1])
        result = pooling.result(pooling.update(state, h[:, last:]))
        assert result.isfinite().all()


@pytest.mark.parametrize("name", FORMULAS)
def test_half_precision_features_are_summed_in_float32(name: str) -> None:
    torch.manual_seed(0)
    pooling = FORMULAS[name][0]()
    h = torch.randn(2, 300, D).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        result = pooling(h)
    assert result.dtype == torch.float32
    tolerance = 1e-2 if "att" in name or "sev" in name else 1e-6
    torch.testing.assert_close(result, pooling(h.float()), rtol=0, atol=tolerance)


def test_wrong_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="bidirectional pooling needs an even number of features, found 5"):
        layers.LastPooling(5, bidirectional=True)
    with pytest.raises(ValueError, match="concatenated poolings must read the same number of features"):
        layers.Poolings([layers.MeanPooling(3), layers.MaxPooling(4)])
    with pytest.raises(ValueError, match="concatenated poolings"):
        layers.Poolings([])
