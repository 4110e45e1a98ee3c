"""A Transformer encoder-decoder compiled from C (decoder_step.c), for beam search.

In torch a step takes about a hundred operations, and selecting rows copies all keys and values. Here a step is one call
of a C function, from ids to log-probabilities. The keys and values of a token are written once, to a slot of a shared
array. The state of a row has the numbers of its slots, so that selecting rows copies only these numbers. Another
function reads the sources, if the encoder is a Transformer with learned or sinusoidal positions, too. The weights are
packed for each search, or once for frozen models.
"""

import ctypes
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine import cached_for, has_hooks, has_int8
from ensue.engine.c_passes import int64_array
from ensue.engine.products import ProductKernel, library_with_products, parallel_rows, products
from ensue.engine.storage import address
from ensue.models.encoder_decoder import EncoderDecoder
from ensue.models.modules import Int8Linear, all_modules
from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention, Pointwise, TokenEmbedding, Transformer
from ensue.nn.attention import blocks
from ensue.nn.attention.positions import Frequencies, LearnedPositions, SinusoidalPositions
from ensue.nn.border import expect_mask, expect_range
from ensue.nn.draws import ElementDropout
from ensue.nn.heads.softmax import SoftmaxHead, TiedSoftmaxHead
from ensue.nn.taps import Tap, is_watched
from ensue.version import package_text

SUPPORTED_MODULES = {
    Transformer, blocks.PreNormBlock, blocks.PostNormBlock, blocks.PreNormDecoderBlock, blocks.PostNormDecoderBlock,
    MultiHeadAttention, MultiHeadCrossAttention, blocks.FeedForward, SinusoidalPositions, Frequencies, LearnedPositions,
    Pointwise, ElementDropout, TokenEmbedding, Tap, SoftmaxHead, TiedSoftmaxHead, nn.ModuleList, nn.Linear, Int8Linear,
    nn.LayerNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Identity,
}  # fmt: skip
"""The modules that decoder_step.c computes. Subclasses may differ and are not supported."""
ACTIVATIONS = ("relu", "gelu", "silu")
"""The nonlinearities, in the order of their numbers in decoder_step.c."""
COMPUTED_OPTIONS = ("num_heads", "d_feedforward", "dropout", "dropout_attention", "activation", "norm_epsilon")
"""The options of blocks that decoder_step.c supports; all other options must have their defaults."""
CHUNK_BITS = 8
"""Memory is allocated for chunks of 2^CHUNK_BITS slots; as many encodings of positions are computed at first."""


class SlotState(NamedTuple):
    """The state of R rows."""

    slots: Int[Tensor, "R S"]
    """The slots of the keys and values of the S tokens of each row."""
    texts: Int[Tensor, " R"]
    """The index of the source text of each row."""


def compile_decoder(
    model: nn.Module, sources: Tensor, mask: Bool[Tensor, "B S"] | None = None, contextual: Sequence[Tensor] = ()
) -> "tuple[CompiledDecoder, SlotState] | None":
    """Return the compiled decoder, and its initial state, for a search from `model.begin(...)`, in evaluation mode.

    Returns None without a C compiler, and for unsupported models: with other modules than `SUPPORTED_MODULES`, other
    types than float32 and float64, other devices than the CPU, watched taps, or hooks.
    """
    is_observed = is_watched(model) or any(map(has_hooks, all_modules(model)))
    if type(model) is not EncoderDecoder or is_observed or torch.is_autocast_enabled("cpu"):
        return None
    pack = partial(PackedModel, model)
    try:
        decoder = CompiledDecoder(model, cached_for(model, pack) or pack(), sources, mask, contextual)
    except (TypeError, ValueError):
        return None  # torch computes the model, or raises the error
    return decoder, decoder.start


def _is_supported(model: EncoderDecoder, *sides: nn.Module) -> bool:
    """Return whether C computes these modules, of which the last one is a stack of Transformer blocks."""
    modules: list[Any] = [module for side in (*sides, model.head) for module in all_modules(side)]
    is_projected = isinstance(model.head, TiedSoftmaxHead) and not isinstance(model.head.projection, nn.Identity)
    return (
        not is_projected
        and {type(module) for module in modules} <= SUPPORTED_MODULES
        and all(weight is not None for module in modules for weight in module._parameters.values())
        and len({module.eps for module in modules if isinstance(module, nn.LayerNorm)}) == 1
        and isinstance(sides[-1], Transformer)
        and _has_supported_layers(sides[-1], is_causal=sides[-1] is model.decoder)
    )


def _has_supported_layers(stack: Transformer, *, is_causal: bool) -> bool:
    first, *others = stack
    has_maps = any(isinstance(layer, Pointwise) and type(layer.module) is not ElementDropout for layer in others[:-1])
    kinds = {(type(layer), layer.d_in, layer.options) for layer in others if isinstance(layer, blocks.PostNormBlock)}
    if len(kinds) != 1 or has_maps or not isinstance(first, SinusoidalPositions | LearnedPositions):
        return False
    ((_, _, options),) = kinds
    computed = {name: getattr(options, name) for name in COMPUTED_OPTIONS}
    return options == blocks.BlockOptions(is_causal=is_causal, **computed) and options.activation in ACTIVATIONS


@cache
def functions(dtype: torch.dtype, kernel: ProductKernel | None = None) -> ctypes.CDLL | None:
    """Return the compiled library; None without a compiler."""
    library = library_with_products(package_text("models/decoder_step.c"), dtype, kernel)
    for function in () if library is None else (library.encode, library.decode):
        function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64], ctypes.c_int64
    return library


class PackedModel:
    """The packed weights of an encoder-decoder. Raises TypeError or ValueError for a model that C does not compute."""

    @torch.no_grad()
    def __init__(self, model: EncoderDecoder) -> None:
        kernel: ProductKernel | None = "int8" if model.head.in_int8 and has_int8() else None
        self.dtype, self.tensors = model.head.bias.dtype, list[Tensor]()
        if self.dtype not in (torch.float32, torch.float64) or not _is_supported(model, model.target, model.decoder):
            raise TypeError(f"decoder_step.c does not compute {type(model).__name__}")
        self.functions, self.products = functions(self.dtype, kernel), products(self.dtype, kernel)
        if self.functions is None or self.products is None:
            raise TypeError("without a C compiler")
        self.decoder = Side(self, model.target, model.decoder)
        has_encoder = model.contextual is None and _is_supported(model, model.source, model.encoder)
        self.encoder = Side(self, model.source, model.encoder) if has_encoder else None
        self.scores = self.add(model.head.matrix(), model.head.bias, self.decoder.vocabulary_size, self.decoder.d)

    def keep(self, tensor: Tensor, *sizes: int, dtype: torch.dtype | None = None) -> int:
        """Keep a reference to a tensor, which must have these sizes, and return its address."""
        self.tensors.append(tensor.contiguous())
        return address("a weight", self.tensors[-1], dtype or self.dtype, sizes)

    def add(self, weight: Tensor, bias: Tensor, rows: int, *columns: int) -> tuple[int, int]:
        """Keep a weight, packed if it is a matrix, and its bias. Return their addresses."""
        packed: Any = self.products.packed(weight.t(), (*columns, rows)) if columns else weight  # type: ignore
        return self.keep(packed, len(packed) if columns else rows), self.keep(bias, rows)

    def run(self, name: str, numbers: "ctypes.Array[ctypes.c_int64]", rows: int) -> bool:
        """Run `encode` or `decode` over texts or rows, in parallel. Return whether a number is out of range."""
        function, codes = getattr(self.functions, name), list[int]()
        parallel_rows(rows, lambda first, last, _: codes.append(function(ctypes.addressof(numbers), first, last)))
        if min(codes) < 0:
            raise MemoryError
        return any(codes)


class Side:
    """An encoder or decoder: the numbers of the struct `side` of decoder_step.c, and the encodings of positions."""

    def __init__(self, packed: PackedModel, embedding: Any, stack: Any) -> None:
        layers: list[Any] = [layer for layer in stack if isinstance(layer, blocks.PostNormBlock)]
        block, last, self.vocabulary_size = layers[0], list(stack)[-1], embedding.vocabulary_size
        self.positions, self.d, self.num_layers = stack.layers[0], block.d_in, len(layers)
        weights = [number for layer in layers for number in self._weights(packed, layer)]
        floats = torch.tensor([block.norm_attention.eps, embedding.scale], dtype=torch.float64)
        is_pre = isinstance(block, blocks.PreNormBlock | blocks.PreNormDecoderBlock)
        norm = packed.add(last.module.weight, last.module.bias, self.d) if is_pre else (0, 0)
        self.numbers = int64_array([
            self.d, block.attention.num_heads, block.d_feedforward, len(layers), self.vocabulary_size, is_pre,
            ACTIVATIONS.index(block.options.activation), packed.keep(floats, 2, dtype=floats.dtype),
            packed.keep(torch.tensor(weights), len(weights), dtype=torch.int64),
            packed.keep(embedding.weight, self.vocabulary_size, self.d), *norm,
        ])  # fmt: skip
        self._encodings = torch.empty(0, self.d, dtype=packed.dtype)

    def _weights(self, packed: PackedModel, block: Any) -> list[int]:
        """Return the addresses of the struct `layer`."""
        d, hidden, attention = self.d, block.d_feedforward, block.attention
        maps: list[tuple[Any, ...]] = [
            (block.norm_attention, d), (block.norm_feedforward, d), (attention.project_in, 3 * d, d),
            (attention.project_out, d, d), (block.feedforward[0], hidden, d), (block.feedforward[3], d, hidden),
        ]  # fmt: skip
        if isinstance(block, blocks.PostNormDecoderBlock):
            cross = block.cross_attention
            maps += [(block.norm_cross_attention, d), (cross.project_in, d, d), (cross.project_out, d, d)]
            maps.append((cross.project_memory, 2 * d, block.d_memory))
        numbers = [number for module, *sizes in maps for number in packed.add(module.weight, module.bias, *sizes)]
        return numbers + [0] * (20 - len(numbers))  # an encoder's layer has no attention to a memory

    def encodings(self, count: int) -> Tensor:
        """Return the encodings of at least `count` positions."""
        if count > len(self._encodings):
            size = max(1 << CHUNK_BITS, 2 * count)
            size = max(count, min(size, getattr(self.positions, "max_positions", size)))
            self._encodings = self.positions(self._encodings.new_zeros(1, size, self.d))[0][0].detach().contiguous()
        return self._encodings


class CompiledDecoder:
    """A compiled decoder for one search, which stores the keys and values of sources and of tokens."""

    returns_log_probabilities = True
    """Whether `step` returns log-probabilities rather than logits."""

    def __init__(
        self, model: EncoderDecoder, packed: PackedModel, sources: Tensor, mask: Tensor | None,
        contextual: Sequence[Tensor],
    ) -> None:  # fmt: skip
        self._packed, self._decoder, self.vocabulary_size = packed, packed.decoder, packed.decoder.vocabulary_size
        (self._texts, longest), d, encoder = sources.shape, packed.decoder.d, None if contextual else packed.encoder
        expect_mask("compile_decoder", mask, sources)
        lengths = torch.full((self._texts,), longest) if mask is None else mask.sum(1)
        if encoder is None:
            state = model.begin(sources, mask, contextual)
            starts = torch.arange(self._texts) * longest
            contents = [block.memory.content for block in state if isinstance(block, blocks.DecoderBlockState)]
            keys = [torch.stack(content[:2], 2).flatten(0, 1) for content in contents]
        else:
            starts = lengths.cumsum(0) - lengths
            ids = sources.flatten() if mask is None else sources[mask]
            keys = [torch.empty(len(ids), 2, d, dtype=packed.dtype) for _ in range(self._decoder.num_layers)]
        sizes = self._texts * longest if encoder is None else len(ids), 2, d
        table = int64_array(address("keys and values", tensor, packed.dtype, sizes) for tensor in keys)
        self._memory = keys, lengths, starts, table
        memory = self._texts, longest, starts.data_ptr(), lengths.data_ptr(), ctypes.addressof(table)
        if encoder is not None:
            encodings, ids_address = encoder.encodings(longest), address("sources", ids, torch.int64, (len(ids),))
            numbers = ctypes.addressof(self._decoder.numbers), ids_address, encodings.data_ptr()
            if packed.run("encode", int64_array([*encoder.numbers, *memory, *numbers]), self._texts):
                expect_range("compile_decoder", "sources", ids, encoder.vocabulary_size - 1)
        self._constants = [*self._decoder.numbers, *memory, *packed.scores, CHUNK_BITS]
        self._chunks, self._num_slots, self._log_p = list[Tensor](), 0, torch.empty(0, 0, dtype=packed.dtype)
        self.start = SlotState(torch.empty(self._texts, 0, dtype=torch.int64), torch.arange(self._texts))

    def step(self, ids_t: Int[Tensor, " R"], state: SlotState) -> tuple[Float[Tensor, "R V"], SlotState]:
        """Return the log-probabilities of the next token after one more token in each row, and the state. The next call
        overwrites the log-probabilities, since new memory for each call would take longer than the softmax.
        """
        ids, before, texts = ids_t.contiguous(), state.slots.contiguous(), state.texts.contiguous()
        rows, num_read, dtype = len(texts), before.shape[1] + 1, self._packed.dtype
        addresses = [
            address("ids", ids, torch.int64, (rows,)), address("slots", before, torch.int64, (rows, num_read - 1)),
            address("texts", texts, torch.int64, (rows,)),
        ]  # fmt: skip
        while len(self._chunks) << CHUNK_BITS < self._num_slots + rows:
            self._chunks.append(torch.empty(1 << CHUNK_BITS, self._decoder.num_layers, 2, self._decoder.d, dtype=dtype))
            self._chunk_table = int64_array(chunk.data_ptr() for chunk in self._chunks)
        if len(self._log_p) < rows:
            self._log_p = torch.empty(rows, self.vocabulary_size, dtype=dtype)
        slots, log_p = torch.empty(rows, num_read, dtype=torch.int64), self._log_p[:rows]
        encodings = self._decoder.encodings(num_read)
        position = encodings.data_ptr() + (num_read - 1) * self._decoder.d * dtype.itemsize
        pointers = slots.data_ptr(), position, ctypes.addressof(self._chunk_table), log_p.data_ptr()
        numbers = [*self._constants, self._num_slots, num_read, rows, *addresses, *pointers]
        if self._packed.run("decode", int64_array(numbers), rows):
            expect_range("CompiledDecoder.step", "ids", ids, self.vocabulary_size - 1)
            expect_range("CompiledDecoder.step", "slots", before, self._num_slots - 1)
            expect_range("CompiledDecoder.step", "texts", texts, self._texts - 1)
        self._num_slots += rows
        return log_p, SlotState(slots, texts)
