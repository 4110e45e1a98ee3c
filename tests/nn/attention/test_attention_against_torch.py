"""Self-attention and Transformer blocks equal those of torch.nn with the same weights."""

from typing import Any

import pytest
import torch
from torch import nn

from ensue.nn import MultiHeadAttention, PostNormBlock, PreNormBlock, watch
from nn.attention.torch_attention import FUTURE, HEADS, MASK, B, D, T, compare, copy_attention, randomized


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("is_watched", [False, True], ids=["kernel", "watched"])
def test_multi_head_attention_equals_that_of_torch(is_causal: bool, ragged: bool, is_watched: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(D, num_heads=HEADS, is_causal=is_causal).double()
    randomized(theirs)
    copy_attention(ours, theirs)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    expected, expected_weights = theirs(
        x, x, x, attn_mask=FUTURE if is_causal else None, key_padding_mask=~MASK if ragged else None,
        average_attn_weights=False,
    )  # fmt: skip
    mask = MASK if ragged else None
    if is_watched:
        with watch(ours) as seen:
            y, _ = ours(x, mask=mask)
        (weights,) = seen["weights"]
        queries = MASK[:, None, :, None] if ragged else torch.ones(1, dtype=torch.bool)
        torch.testing.assert_close(weights * queries, expected_weights * queries)
    else:
        y, _ = ours(x, mask=mask)
    compare(x, y, expected, ragged=ragged)


@pytest.mark.parametrize("ragged", [False, True], ids=["dense", "ragged"])
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("block", [PostNormBlock, PreNormBlock])
def test_transformer_blocks_equal_those_of_torch(block: Any, activation: str, is_causal: bool, ragged: bool) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(
        D, HEADS, dim_feedforward=12, dropout=0.0, activation=activation, batch_first=True,
        norm_first=block is PreNormBlock, dtype=torch.float64,
    )  # fmt: skip
    ours = block(D, num_heads=HEADS, d_feedforward=12, activation=activation, is_causal=is_causal).double()
    randomized(theirs)
    copy_attention(ours.attention, theirs.self_attn)
    ours.feedforward[0].load_state_dict(theirs.linear1.state_dict())
    ours.feedforward[3].load_state_dict(theirs.linear2.state_dict())
    ours.norm_attention.load_state_dict(theirs.norm1.state_dict())
    ours.norm_feedforward.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    expected = theirs(
        x, src_mask=FUTURE if is_causal else None, src_key_padding_mask=~MASK if ragged else None, is_causal=is_causal
    )
    y, _ = ours(x, mask=MASK if ragged else None)
    compare(x, y, expected, ragged=ragged)
