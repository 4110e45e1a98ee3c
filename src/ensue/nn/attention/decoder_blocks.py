"""Transformer blocks that attend to a memory between self-attention and feed-forward."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.nn.attention.blocks import PostNormBlock
from ensue.nn.attention.cross import MultiHeadCrossAttention
from ensue.nn.attention.multi_head import KVState
from ensue.types import Memory, Shared, State


class DecoderBlockState(NamedTuple):
    """The positions that a block has read, and the memory."""

    past: KVState
    memory: Shared


class PostNormDecoderBlock(PostNormBlock):
    """Self-attention, attention to the memory m, feed-forward (Vaswani et al. 2017, section 3.1):

    u = LayerNorm(x + SelfAttn(x))    z = LayerNorm(u + CrossAttn(u, m))    y = LayerNorm(z + FFN(z))
    """

    def __init__(self, d_model: int, *, d_memory: int | None = None, **options: Any) -> None:
        """`options` are those of `BlockOptions`; such a block is causal. Without `d_memory`, that is `d_model`."""
        super().__init__(d_model, **options)
        self.d_memory = d_model if d_memory is None else d_memory
        attention = self.attention
        self.cross_attention = MultiHeadCrossAttention(
            d_model, self.d_memory, num_heads=attention.num_heads, dropout=attention.dropout
        )
        self.norm_cross_attention = nn.LayerNorm(d_model, self.norm_attention.eps)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> DecoderBlockState:  # type: ignore[override]
        return DecoderBlockState(
            self.attention.init_state(batch_size), self.cross_attention.init_state(batch_size, memory)
        )

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(x, past, mask=mask)
        u = self.norm_attention(x + self.dropout(attended))
        read, memory = self.cross_attention(u, memory, mask=mask)
        z = self.norm_cross_attention(u + self.dropout(read))
        return self.norm_feedforward(z + self.dropout(self.feedforward(z))), DecoderBlockState(past, memory)

    def extra_repr(self) -> str:
        attention = self.attention
        return (
            f"d_model={self.d_in}, num_heads={attention.num_heads}, d_feedforward={self.d_feedforward}, "
            f"d_memory={self.d_memory}, dropout={attention.dropout}, activation={self.activation!r}, "
            f"rotary={attention.rotary is not None}"
        )


class PreNormDecoderBlock(PostNormDecoderBlock):
    """`u = x + SelfAttn(LayerNorm(x))`, `z = u + CrossAttn(LayerNorm(u), m)`, `y = z + FFN(LayerNorm(z))`."""

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], State]:
        past, memory = (None, None) if state is None else state
        attended, past = self.attention(self.norm_attention(x), past, mask=mask)
        u = x + self.dropout(attended)
        read, memory = self.cross_attention(self.norm_cross_attention(u), memory, mask=mask)
        z = u + self.dropout(read)
        return z + self.dropout(self.feedforward(self.norm_feedforward(z))), DecoderBlockState(past, memory)
