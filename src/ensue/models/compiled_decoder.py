"""A Transformer decoder whose step is compiled from C (decoder_step.c), for beam search.

In torch a step takes about a hundred operations, and selecting rows copies all keys and values. Here a step is one call
of a C function, from ids to log-probabilities. The keys and values of a token are written once, to a slot of a shared
array. The state of a row has the numbers of its slots, so that selecting rows copies only these numbers. The weights
are packed for each search, or once for frozen models.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.engine import cached_for, has_int8
from ensue.engine.products import ProductKernel, library_with_products, parallel_rows, products
from ensue.engine.storage import address
from ensue.models.encoder_decoder import EncoderDecoder
from ensue.models.modules import Int8Linear, all_modules
from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention, Pointwise, TokenEmbedding, Transformer
from ensue.nn.attention.blocks import DecoderBlockState, FeedForward, PostNormDecoderBlock, PreNormDecoderBlock
from ensue.nn.attention.positions import Frequencies, LearnedPositions, SinusoidalPositions
from ensue.nn.draws import ElementDropout
from ensue.nn.heads.softmax import SoftmaxHead, TiedSoftmaxHead
from ensue.nn.taps import Tap, is_watched
from ensue.types import State
from ensue.version import package_text

SUPPORTED_MODULES = {
    Transformer, PreNormDecoderBlock, PostNormDecoderBlock, MultiHeadAttention, MultiHeadCrossAttention,
    FeedForward, SinusoidalPositions, Frequencies, LearnedPositions, Pointwise, ElementDropout, TokenEmbedding, Tap,
    SoftmaxHead, TiedSoftmaxHead, nn.ModuleList, nn.Linear, Int8Linear, nn.LayerNorm, nn.ReLU, nn.GELU, nn.SiLU,
    nn.Identity,
}  # fmt: skip
"""The modules that decoder_step.c computes. Subclasses may differ and are not supported."""
ACTIVATIONS = ("relu", "gelu", "silu")
"""The nonlinearities, in the order of their numbers in decoder_step.c."""
CHUNK_BITS = 8
"""Memory is allocated for chunks of 2^CHUNK_BITS slots."""
ROW_PADDING = 16
"""The number of unused elements between the rows of an array, which avoid cache conflicts."""
MIN_POSITIONS = 64
"""The number of position encodings that are computed at first. It is doubled when more are needed."""


class SlotState(NamedTuple):
    """The state of R rows."""

    slots: Int[Tensor, "R S"]
    """The slots of the keys and values of the S tokens of each row."""
    texts: Int[Tensor, " R"]
    """The index of the source text of each row."""


def compile_decoder(model: nn.Module, state: State) -> "tuple[CompiledDecoder, SlotState] | None":
    """Return the compiled decoder, and its initial state, for a search from `state`, the result of `begin`.

    Returns None without a C compiler, and for unsupported models: with other modules than `SUPPORTED_MODULES`, other
    types than float32 and float64, other devices than the CPU, or watched taps.
    """
    if not isinstance(model, EncoderDecoder) or not _is_supported(model):
        return None
    choice = _choice(model)
    if functions(*choice) is None or products(*choice) is None:
        return None
    decoder = CompiledDecoder(model, [block for block in state if isinstance(block, DecoderBlockState)])
    return decoder, decoder.start


def _is_supported(model: EncoderDecoder) -> bool:
    modules = [module for side in (model.target, model.decoder, model.head) for module in all_modules(side)]
    if type(model) is not EncoderDecoder or is_watched(model) or torch.is_autocast_enabled("cpu"):
        return False
    has_hooks = any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    if has_hooks or not {type(module) for module in modules} <= SUPPORTED_MODULES:
        return False
    if isinstance(model.head, TiedSoftmaxHead) and not isinstance(model.head.projection, nn.Identity):
        return False
    return _is_supported_stack(model.decoder) and _has_supported_weights(modules)


def _is_supported_stack(decoder: nn.Module) -> bool:
    if not isinstance(decoder, Transformer):
        return False
    first, *others = decoder
    norms_input = any(isinstance(layer, Pointwise) and isinstance(layer.module, nn.LayerNorm) for layer in others[:-1])
    kinds = {layer.options.activation for layer in others if isinstance(layer, PostNormDecoderBlock)}
    has_blocks = bool(kinds) and kinds <= {*ACTIVATIONS}
    return isinstance(first, SinusoidalPositions | LearnedPositions) and has_blocks and not norms_input


def _has_supported_weights(modules: Sequence[nn.Module]) -> bool:
    weights = [weight for module in modules for weight in module._parameters.values() if weight is not None]
    norms = [module for module in modules if isinstance(module, nn.LayerNorm)]
    return (
        {weight.dtype for weight in weights} in ({torch.float32}, {torch.float64})
        and all(weight.is_cpu and not weight.is_neg() for weight in weights)
        and len({norm.eps for norm in norms}) == 1
        and all(norm.weight is not None and norm.bias is not None for norm in norms)
        and all(module.bias is not None for module in modules if isinstance(module, nn.Linear))
    )


@cache
def functions(dtype: torch.dtype, kernel: ProductKernel | None = None) -> ctypes.CDLL | None:
    """Return the compiled library; None without a compiler."""
    return library_with_products(package_text("models/decoder_step.c"), dtype, kernel)


def _choice(model: EncoderDecoder) -> tuple[torch.dtype, ProductKernel | None]:
    """Return the type of a model and the kernel of its products."""
    return model.head.bias.dtype, "int8" if model.head.in_int8 and has_int8() else None


class CompiledDecoder:
    """A compiled decoder for one search, which stores keys and values. `blocks` are the initial states of blocks."""

    returns_log_probabilities = True
    """Whether `step` returns log-probabilities rather than any scores of a softmax."""

    def __init__(self, model: EncoderDecoder, blocks: Sequence[DecoderBlockState]) -> None:
        layers = [layer for layer in model.decoder if isinstance(layer, PostNormDecoderBlock)]  # type: ignore[attr-defined]
        block, norm = layers[0], layers[0].norm_attention
        self.dtype, self.d, self.vocabulary_size = model.head.bias.dtype, block.d_in, model.vocabulary_size
        self._function = functions(*_choice(model)).decode  # type: ignore[union-attr]
        self.hidden, self.layers = block.d_feedforward, len(layers)
        shared = [state.memory for state in blocks]
        real = shared[0].content.real
        self._texts, self._source_length = real.shape
        self._lengths = real.sum(1)
        self._keys_and_values = [tensor.contiguous() for state in shared for tensor in state.content[:2]]
        self._packed, of_layers, self._outer = cached_for(model, partial(_pack, model)) or _pack(model)
        sizes = (self._texts, self._source_length, self.d)
        memory = [address("keys and values", tensor, self.dtype, sizes) for tensor in self._keys_and_values]
        table = [number for n, layer in enumerate(of_layers) for number in (*layer, *memory[2 * n : 2 * n + 2])]
        self._layers = (ctypes.c_void_p * len(table))(*table)
        self._constants = (ctypes.c_double * 2)(norm.eps, model.target.scale)
        self._sizes = [
            self.d, block.attention.num_heads, self.hidden, self.layers, self.vocabulary_size,
            isinstance(block, PreNormDecoderBlock), ACTIVATIONS.index(block.options.activation),
        ]  # fmt: skip
        self._positions = model.decoder.layers[0]  # type: ignore[index]
        self._encodings = torch.empty(0, self.d, dtype=self.dtype)
        self._log_p = torch.empty(0, self.vocabulary_size, dtype=self.dtype)
        self._chunks: list[Tensor] = []
        self._num_slots = 0
        self.start = SlotState(torch.empty(self._texts, 0, dtype=torch.int64), shared[0].rows)

    def step(self, ids_t: Int[Tensor, " R"], state: SlotState) -> tuple[Float[Tensor, "R V"], SlotState]:
        """Return the log-probabilities of the next token after one more token in each row, and the state. The next call
        overwrites the log-probabilities, since new memory for each call would take longer than the softmax.
        """
        rows, num_read = len(ids_t), state.slots.shape[1] + 1
        self._check(ids_t, state)
        new = torch.arange(self._num_slots, self._num_slots + rows).unsqueeze(1)
        self._num_slots += rows
        while len(self._chunks) << CHUNK_BITS < self._num_slots:
            self._chunks.append(torch.empty(1 << CHUNK_BITS, self.layers, 2, self.d, dtype=self.dtype))
        slots = torch.cat((state.slots, new), dim=1)
        if len(self._log_p) < rows:
            self._log_p = torch.empty(rows, self.vocabulary_size, dtype=self.dtype)
        log_p = self._log_p[:rows]
        self._decode(ids_t.contiguous(), slots, state.texts.contiguous(), num_read, log_p)
        return log_p, SlotState(slots, state.texts)

    def _decode(self, ids: Tensor, slots: Tensor, texts: Tensor, num_read: int, log_p: Tensor) -> None:
        encoding = self._encoding(num_read - 1)
        keys = -(-max(num_read, self._source_length) // 8) * 8
        ld, wide = (-(-size // 8) * 8 + ROW_PADDING for size in (self.d, max(3 * self.d, self.hidden)))
        shape = (ctypes.c_int64 * 10)(*self._sizes, num_read, self._source_length, CHUNK_BITS)
        outer = (ctypes.c_void_p * 6)(self._outer[0], encoding.data_ptr(), *self._outer[1:])
        chunks = (ctypes.c_void_p * len(self._chunks))(*(chunk.data_ptr() for chunk in self._chunks))

        def work(first: int, last: int, worker: int) -> None:
            rows = last - first
            workspace = torch.empty(rows * (2 * ld + wide) + 5 * keys, dtype=self.dtype)
            inputs = ids[first:last], slots[first:last], texts[first:last], self._lengths
            tensors = *inputs, workspace, log_p[first:last]
            self._function(
                shape, self._constants, self._layers, outer, chunks, *map(ctypes.c_int64, (rows, ld, wide)),
                *(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors),
            )  # fmt: skip

        parallel_rows(len(ids), work)

    def _check(self, ids: Tensor, state: SlotState) -> None:
        """Raise ValueError for inconsistent numbers of rows and indices out of range, which C does not check."""
        if not len(ids) == len(state.slots) == len(state.texts):
            raise ValueError(f"{len(ids)} ids for {len(state.slots)} rows")
        sizes = {"ids": self.vocabulary_size, "slots": self._num_slots, "texts": self._texts}
        for (name, count), numbers in zip(sizes.items(), (ids, *state), strict=True):
            if numbers.dtype is not torch.int64 or not numbers.is_cpu:
                raise TypeError(f"{name}: expected torch.int64 on cpu, found {numbers.dtype} on {numbers.device}")
            if numbers.numel():
                lowest, highest = map(int, numbers.aminmax())
                if lowest < 0 or highest >= count:
                    raise ValueError(f"{name}: expected 0 to {count - 1}, found {lowest} to {highest}")

    def _encoding(self, position: int) -> Tensor:
        positions: Any = self._positions
        while position >= len(self._encodings):
            count = max(MIN_POSITIONS, 2 * len(self._encodings))
            if isinstance(positions, LearnedPositions):
                count = max(position + 1, min(count, positions.max_positions))
            self._encodings = positions(torch.zeros(1, count, self.d, dtype=self.dtype))[0][0].detach().contiguous()
        return self._encodings[position]


@torch.no_grad()
def _pack(model: EncoderDecoder) -> tuple[list[Tensor], list[list[int]], list[int]]:
    """Return the packed weights of a decoder, and the addresses of the weights of each layer, and of embedding, final
    normalization and softmax, in the order of decoder_step.c.
    """
    tensors: list[Tensor] = []

    def plain(weight: Tensor) -> int:
        tensors.append(weight.detach().contiguous())
        return tensors[-1].data_ptr()

    def affine(weight: Tensor, bias: Tensor) -> list[int]:
        kernels = products(*_choice(model))
        assert kernels is not None
        tensors.append(kernels.packed(weight.detach().t(), (weight.shape[1], weight.shape[0])))
        return [tensors[-1].data_ptr(), plain(bias)]

    def norm(module: Any) -> list[int]:
        return [plain(module.weight), plain(module.bias)]

    def linear(module: Any) -> list[int]:
        return affine(module.weight, module.bias)

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
    return tensors, layers, [plain(model.target.weight), *ends, *affine(model.head.matrix(), model.head.bias)]
