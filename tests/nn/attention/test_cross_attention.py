"""Cross-attention equals each kind's equation, decoder blocks equal torch.nn, and beams copy no keys."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue import nn as layers
from ensue.nn.attention import cross
from ensue.types import Memory, select_rows

from .torch_attention import FUTURE, HEADS, MASK, B, D, T, compare, copy_attention, randomized

S = 4
SOURCE_MASK = torch.arange(S) < torch.tensor([[4], [1], [2]])


def numbers(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def dot(layer: Any, x: Tensor, h: Tensor) -> Tensor:
    return sum(x[k] * h[k] for k in range(len(x)))  # type: ignore[return-value]


def bilinear(layer: layers.BilinearAttention, x: Tensor, h: Tensor) -> Tensor:
    w = layer.project_memory.weight
    return sum(x[i] * w[i, j] * h[j] for i in range(len(x)) for j in range(len(h)))  # type: ignore[return-value]


def additive(layer: layers.AdditiveAttention, x: Tensor, h: Tensor) -> Tensor:
    inside = layer.project_in.weight @ x + layer.project_memory.weight @ h + layer.project_memory.bias
    return sum(v * torch.tanh(z) for v, z in zip(layer.vector.weight[0], inside, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("layer", "score"),
    [
        (layers.DotAttention(5, 5), dot),
        (layers.BilinearAttention(4, 5), bilinear),
        (layers.AdditiveAttention(4, 5, d_attention=6), additive),
    ],
    ids=["dot", "bilinear", "additive"],
)
@pytest.mark.parametrize("is_watched", [False, True], ids=["kernel", "watched"])
def test_contexts_and_weights_equal_their_equations(
    layer: layers.CrossAttention, score: Callable[..., Tensor], is_watched: bool
) -> None:
    torch.manual_seed(0)
    layer = layer.double()
    randomized(layer)
    x, h = numbers(B, T, layer.d_in), numbers(B, S, 5)
    state = layer.init_state(B, Memory(h, SOURCE_MASK))
    if is_watched:
        with layers.watch(layer, "weights") as seen:
            y, _ = layer(x, state)
    else:
        y, _ = layer(x, state)
    for row in range(B):
        length = int(SOURCE_MASK[row].sum())
        for t in range(T):
            e = [math.exp(score(layer, x[row, t], h[row, s]).item()) for s in range(length)]
            a = [part / sum(e) for part in e]
            torch.testing.assert_close(y[row, t], sum(a[s] * h[row, s] for s in range(length)))
            if is_watched:
                assert seen["weights"][0][row, 0, t].tolist() == pytest.approx([*a, *[0.0] * (S - length)])


def copy_cross_attention(ours: layers.MultiHeadCrossAttention, theirs: nn.MultiheadAttention) -> None:
    queries, keys, values = theirs.in_proj_weight.chunk(3)
    bias = theirs.in_proj_bias
    ours.project_in.load_state_dict({"weight": queries, "bias": bias[:D]})
    ours.project_memory.load_state_dict({"weight": torch.cat((keys, values)), "bias": bias[D:]})
    ours.project_out.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("is_watched", [False, True], ids=["kernel", "watched"])
def test_multi_head_cross_attention_equals_that_of_torch(ragged: bool, is_watched: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)
    ours = layers.MultiHeadCrossAttention(D, D, num_heads=HEADS).double()
    randomized(theirs)
    copy_cross_attention(ours, theirs)
    x, h = numbers(B, T, D).requires_grad_(), numbers(B, S, D)
    mask = SOURCE_MASK if ragged else None
    expected, weights = theirs(x, h, h, key_padding_mask=None if mask is None else ~mask, average_attn_weights=False)
    if is_watched:
        with layers.watch(ours) as seen:
            y, _ = ours(x, ours.init_state(B, Memory(h, mask)))
        torch.testing.assert_close(seen["weights"][0], weights)
    else:
        y, _ = ours(x, ours.init_state(B, Memory(h, mask)))
    compare(x, y, expected, ragged=False)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("block", [layers.PostNormDecoderBlock, layers.PreNormDecoderBlock])
def test_decoder_blocks_equal_those_of_torch(block: Any, ragged: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(
        D, HEADS, dim_feedforward=12, dropout=0.0, activation="gelu", batch_first=True,
        norm_first=block is layers.PreNormDecoderBlock, dtype=torch.float64,
    )  # fmt: skip
    ours = block(D, num_heads=HEADS, d_feedforward=12, activation="gelu").double()
    randomized(theirs)
    copy_attention(ours.attention, theirs.self_attn)
    copy_cross_attention(ours.cross_attention, theirs.multihead_attn)
    pairs = [("norm1", "norm_attention"), ("norm2", "norm_cross_attention"), ("norm3", "norm_feedforward")]
    for name, our_name in pairs:
        getattr(ours, our_name).load_state_dict(getattr(theirs, name).state_dict())
    ours.feedforward[0].load_state_dict(theirs.linear1.state_dict())
    ours.feedforward[3].load_state_dict(theirs.linear2.state_dict())
    x, h = numbers(B, T, D).requires_grad_(), numbers(B, S, D)
    expected = theirs(
        x,
        h,
        tgt_mask=FUTURE,
        tgt_key_padding_mask=~MASK if ragged else None,
        memory_key_padding_mask=~SOURCE_MASK if ragged else None,
    )
    state = ours.init_state(B, Memory(h, SOURCE_MASK if ragged else None))
    y, _ = ours(x, state, mask=MASK if ragged else None)
    compare(x, y, expected, ragged=ragged)


def test_a_beam_copies_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hypotheses of each text stay adjacent; only another order of texts selects keys."""
    layer = layers.Transformer(8, num_heads=2, num_layers=2, d_memory=8, positions="rotary").eval()
    state = layer.init_state(2, Memory(torch.randn(2, 5, 8)))
    calls: list[Tensor] = []

    def counted(state: Any, rows: Tensor) -> Any:
        calls.append(rows)
        return select_rows(state, rows)

    monkeypatch.setattr(cross, "select_rows", counted)
    with torch.no_grad():
        _, beam = layer.step(torch.randn(6, 8), select_rows(state, torch.tensor([0, 0, 0, 1, 1, 1])))
        _, beam = layer.step(torch.randn(6, 8), select_rows(beam, torch.tensor([2, 2, 0, 3, 5, 4])))
        assert not calls
        layer.step(torch.randn(6, 8), select_rows(beam, torch.tensor([3, 0, 1, 2, 4, 5])))
    assert len(calls) == 2
