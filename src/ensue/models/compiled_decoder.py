"""A Transformer decoder that steps in C (decoder_step.c), for searches: from ids to the scores of the next token.

A step in torch is some hundred operations, and selecting rows copies all keys and values that were read. Here a step is
one call. The keys and values of a token are written once, to a place that is never written again; a row knows the
places of its tokens, so that rows are selected by their numbers. The weights are packed for each search, or once where
they are held.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.engine import cached_for
from ensue.engine.c_library import library
from ensue.engine.products import in_parts, products
from ensue.engine.storage import address
from ensue.models.encoder_decoder import EncoderDecoder
from ensue.models.modules import parts_of
from ensue.nn import (
    DecoderBlockState,
    ElementDropout,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    MultiHeadCrossAttention,
    Pointwise,
    PostNormDecoderBlock,
    PreNormDecoderBlock,
    SinusoidalPositions,
    SoftmaxHead,
    TiedSoftmaxHead,
    TokenEmbedding,
    Transformer,
)
from ensue.nn.attention.positions import Frequencies
from ensue.nn.taps import Tap, is_watched
from ensue.types import State
from ensue.version import package_text

PARTS = {
    Transformer, PreNormDecoderBlock, PostNormDecoderBlock, MultiHeadAttention, MultiHeadCrossAttention,
    FeedForward, SinusoidalPositions, Frequencies, LearnedPositions, Pointwise, ElementDropout, TokenEmbedding, Tap,
    SoftmaxHead, TiedSoftmaxHead, nn.ModuleList, nn.Linear, nn.LayerNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Identity,
}  # fmt: skip
"""The modules that decoder_step.c knows. A subclass may compute something else."""
ACTIVATIONS = ("relu", "gelu", "silu")
"""The nonlinearities, in the order of their numbers there."""
SHIFT = 8
"""Places come in chunks of 2^SHIFT."""
GAP = 16
"""Numbers between rows of arrays."""
POSITIONS = 64
"""Encodings of positions that are worked out at first; then twice as many, and so on."""


class Written(NamedTuple):
    """The state of R rows: what they have written, and the text that each attends to."""

    places: Int[Tensor, "R S"]
    """Where the keys and values of the S tokens of each row are."""
    texts: Int[Tensor, " R"]


class _Packed(NamedTuple):
    """The weights of a decoder as C reads them."""

    tensors: list[Tensor]
    layers: list[list[int]]
    """The addresses of each layer, in the order of decoder_step.c."""
    outer: list[int]


def compiled(model: nn.Module, state: State) -> tuple[CompiledDecoder, Written] | None:
    """The model for stepping from `state`, what its `begin` returned, and the state that goes with it.

    None for a model that is not a Transformer of known parts in float32 or float64 on a CPU, while it is watched, and
    where there is no compiler.
    """
    if not isinstance(model, EncoderDecoder) or not _is_known(model):
        return None
    dtype = model.head.bias.dtype
    if functions(dtype) is None or products(dtype) is None:
        return None
    decoder = CompiledDecoder(model, [part for part in state if isinstance(part, DecoderBlockState)])
    return decoder, decoder.start


def _is_known(model: EncoderDecoder) -> bool:
    parts = _parts(model)
    if type(model) is not EncoderDecoder or is_watched(model) or torch.is_autocast_enabled("cpu"):
        return False
    if any(type(part) not in PARTS or part._forward_hooks or part._forward_pre_hooks for part in parts):
        return False
    if isinstance(model.head, TiedSoftmaxHead) and not isinstance(model.head.projection, nn.Identity):
        return False
    return _is_known_stack(model.decoder) and _are_known_numbers(parts)


def _is_known_stack(decoder: nn.Module) -> bool:
    """Positions, dropout, blocks, and perhaps a norm."""
    if not isinstance(decoder, Transformer):
        return False
    first, *others = decoder
    norms_input = any(isinstance(layer, Pointwise) and isinstance(layer.module, nn.LayerNorm) for layer in others[:-1])
    kinds = {layer.options.activation for layer in others if isinstance(layer, PostNormDecoderBlock)}
    has_blocks = bool(kinds) and kinds <= {*ACTIVATIONS}
    return isinstance(first, SinusoidalPositions | LearnedPositions) and has_blocks and not norms_input


def _parts(model: EncoderDecoder) -> list[nn.Module]:
    return [part for side in (model.target, model.decoder, model.head) for part in parts_of(side)]


def _weights(parts: Sequence[nn.Module]) -> list[Tensor]:
    return [weight for part in parts for weight in part._parameters.values() if weight is not None]


def _are_known_numbers(parts: Sequence[nn.Module]) -> bool:
    weights = _weights(parts)
    norms = [part for part in parts if isinstance(part, nn.LayerNorm)]
    return (
        {weight.dtype for weight in weights} in ({torch.float32}, {torch.float64})
        and all(weight.is_cpu and not weight.is_neg() for weight in weights)
        and len({norm.eps for norm in norms}) == 1
        and all(norm.weight is not None and norm.bias is not None for norm in norms)
        and all(part.bias is not None for part in parts if isinstance(part, nn.Linear))
    )


@cache
def functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled function; None without a compiler."""
    return library(package_text("models/decoder_step.c"), dtype)


class CompiledDecoder:
    """Steps a model whose blocks are in the states `blocks`, before the first token.

    It holds what its rows have written, so it is for one search.
    """

    def __init__(self, model: EncoderDecoder, blocks: Sequence[DecoderBlockState]) -> None:
        layers = [layer for layer in model.decoder if isinstance(layer, PostNormDecoderBlock)]  # type: ignore[attr-defined]
        block, norm = layers[0], layers[0].norm_attention
        self.dtype, self.d, self.vocabulary_size = model.head.bias.dtype, block.d_in, model.vocabulary_size
        self.hidden, self.layers = block.d_feedforward, len(layers)
        shared = [state.memory for state in blocks]
        real = shared[0].content.real
        self._texts, self._memory = real.shape
        self._lengths = real.sum(1)
        self._read = [part.contiguous() for state in shared for part in state.content[:2]]
        packed = cached_for(model, partial(_pack, model)) or _pack(model)
        sizes = (self._texts, self._memory, self.d)
        ends = [address("keys and values", part, self.dtype, sizes) for part in self._read]
        table = [number for n, layer in enumerate(packed.layers) for number in (*layer, *ends[2 * n : 2 * n + 2])]
        self._layers, self._outer = (ctypes.c_void_p * len(table))(*table), packed.outer
        self._numbers = (ctypes.c_double * 2)(norm.eps, model.target.scale)
        self._sizes = [
            self.d, block.attention.num_heads, self.hidden, self.layers, self.vocabulary_size,
            isinstance(block, PreNormDecoderBlock), ACTIVATIONS.index(block.options.activation),
        ]  # fmt: skip
        self._packed, self._positions = packed, model.decoder.layers[0]  # type: ignore[index]
        self._encodings = torch.empty(0, self.d, dtype=self.dtype)
        self._chunks: list[Tensor] = []
        self._used = 0
        self.start = Written(torch.empty(self._texts, 0, dtype=torch.int64), shared[0].rows)

    def step(self, ids_t: Int[Tensor, " R"], state: Written) -> tuple[Float[Tensor, "R V"], Written]:
        """The scores of the next token after one more token in each row, and the state after it."""
        rows, read = len(ids_t), state.places.shape[1] + 1
        self._check(ids_t, state)
        new = torch.arange(self._used, self._used + rows).unsqueeze(1)
        self._reserve(self._used + rows)
        places = torch.cat((state.places, new), dim=1)
        scores = torch.empty(rows, self.vocabulary_size, dtype=self.dtype)
        self._decode(ids_t.contiguous(), places, state.texts.contiguous(), read, scores)
        return scores, Written(places, state.texts)

    def _decode(self, ids: Tensor, places: Tensor, texts: Tensor, read: int, scores: Tensor) -> None:
        encoding = self._encoding(read - 1)
        function, most = functions(self.dtype).decode, -(-max(read, self._memory) // 8) * 8  # type: ignore[union-attr]
        ld, wide = (-(-size // 8) * 8 + GAP for size in (self.d, max(3 * self.d, self.hidden)))
        shape = (ctypes.c_int64 * 10)(*self._sizes, read, self._memory, SHIFT)
        outer = (ctypes.c_void_p * 6)(self._outer[0], encoding.data_ptr(), *self._outer[1:])
        chunks = (ctypes.c_void_p * len(self._chunks))(*(chunk.data_ptr() for chunk in self._chunks))

        def work(first: int, last: int, worker: int) -> None:
            rows = last - first
            room = torch.empty(rows * (2 * ld + wide) + 5 * most, dtype=self.dtype)
            parts = ids[first:last], places[first:last], texts[first:last], self._lengths, room, scores[first:last]
            function(
                shape, self._numbers, self._layers, outer, chunks, *map(ctypes.c_int64, (rows, ld, wide)),
                *(ctypes.c_void_p(part.data_ptr()) for part in parts),
            )  # fmt: skip

        in_parts(len(ids), work)

    def _check(self, ids: Tensor, state: Written) -> None:
        """C checks nothing. Raises ValueError for rows that do not fit, or numbers of what is not there."""
        if not len(ids) == len(state.places) == len(state.texts):
            raise ValueError(f"{len(ids)} ids for {len(state.places)} rows")
        for name, numbers, count in (
            ("ids", ids, self.vocabulary_size),
            ("places", state.places, self._used),
            ("texts", state.texts, self._texts),
        ):
            if numbers.dtype is not torch.int64 or not numbers.is_cpu:
                raise TypeError(f"{name} are expected in torch.int64 on cpu, found {numbers.dtype} on {numbers.device}")
            if numbers.numel():
                least, most = map(int, numbers.aminmax())
                if least < 0 or most >= count:
                    raise ValueError(f"{name} are expected from 0 to {count - 1}, found {least} to {most}")

    def _reserve(self, places: int) -> None:
        while len(self._chunks) << SHIFT < places:
            self._chunks.append(torch.empty(1 << SHIFT, self.layers, 2, self.d, dtype=self.dtype))
        self._used = places

    def _encoding(self, position: int) -> Tensor:
        """The vector of a position (counted from 0). Raises `ContextError` after the last that was learned."""
        positions: Any = self._positions
        while position >= len(self._encodings):
            count = max(POSITIONS, 2 * len(self._encodings))
            if isinstance(positions, LearnedPositions):
                count = max(position + 1, min(count, positions.max_positions))
            self._encodings = positions(torch.zeros(1, count, self.d, dtype=self.dtype))[0][0].detach().contiguous()
        return self._encodings[position]


@torch.no_grad()
def _pack(model: EncoderDecoder) -> _Packed:
    tensors: list[Tensor] = []

    def plain(weight: Tensor) -> int:
        tensors.append(weight.detach().contiguous())
        return tensors[-1].data_ptr()

    def affine(weight: Tensor, bias: Tensor) -> list[int]:
        multiplied = products(weight.dtype)
        assert multiplied is not None
        tensors.append(multiplied.packed(weight.detach().t(), (weight.shape[1], weight.shape[0])))
        return [tensors[-1].data_ptr(), plain(bias)]

    def norm(part: Any) -> list[int]:
        return [plain(part.weight), plain(part.bias)]

    def linear(part: Any) -> list[int]:
        return affine(part.weight, part.bias)

    last = list(model.decoder)[-1]  # type: ignore[call-overload]
    layers = [
        [
            *norm(block.norm_attention), *linear(block.attention.project_in), *linear(block.attention.project_out),
            *norm(block.norm_cross_attention), *linear(block.cross_attention.project_in),
            *linear(block.cross_attention.project_out), *norm(block.norm_feedforward), *linear(block.feedforward[0]),
            *linear(block.feedforward[3]),
        ]
        for block in model.decoder  # type: ignore[attr-defined]
        if isinstance(block, PostNormDecoderBlock)
    ]  # fmt: skip
    ends = norm(last.module) if isinstance(last, Pointwise) else [0, 0]
    outer = [plain(model.target.weight), *ends, *affine(model.head.matrix(), model.head.bias)]
    return _Packed(tensors, layers, outer)
