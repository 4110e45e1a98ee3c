"""Export of recurrent encoder-decoders to C: tokens, attention, and beam search."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.extensions.exporting.c.printing import CModel, Weights, add_hash_table, c_array, print_step, ranges
from ensue.extensions.exporting.c.tokens import detokenizer_constants, lexer_templates, token_bytes
from ensue.extensions.exporting.c.word_layers import BLOCK_COLUMNS, LayerSteps, iterate_layers, layer_table, pad_columns
from ensue.extensions.exporting.exporting import missing_options
from ensue.models.encoder_decoder import EncoderDecoder
from ensue.nn import AttentionalLayer, FromContext, InputFeeding, SequenceLayer, WithContext
from ensue.nn.attention import cross
from ensue.nn.pooling import LastPooling
from ensue.tasks.contract.description import ModelDescription, SourceInput, TextOutput
from ensue.text.special_tokens import TokenizerWithSpecials
from ensue.text.subwords import SubwordTokenizer
from ensue.text.tokenizer import ByteTokenizer, CharacterTokenizer, WordTokenizer
from ensue.text.tokenizers import Tokenizer
from ensue.text.vocabulary import Vocabulary
from ensue.types import State

MAX_BEAMS, MAX_ROWS = 32, 64
"""The maximum beam width, and the maximum number of hypotheses in a step."""
MAX_SOURCES = 16
"""The maximum number of sources in a batch."""
ATTENTIONS = {
    cross.DotAttention: 1,
    cross.BilinearAttention: 1,
    cross.MultiHeadCrossAttention: 1,
    cross.AdditiveAttention: 2,
}
SEARCH = {
    "width": "WIDTH", "n_best": "N_BEST", "length_penalty": "PENALTY", "min_tokens": "MIN_TOKENS",
    "max_tokens": "MAX_TOKENS", "no_repeat_ngram": "NO_REPEAT",
}  # fmt: skip
"""The options of the search in C, with the suffixes of their C constants."""
OPTIONS_WITHOUT_NOTE = ("coverage_penalty", "required")
"""The options that the C code does not have, and about which no note is written."""
USAGE = """\
    ./NAME < texts.txt                        the output for the text in each line
    ./NAME --beams 8 --n-best 3 < texts.txt   the three best outputs of a wider search, with scores
"""


class CellsWithQuery(nn.Module):
    """A layer of decoder cells, whose output is followed by the query of an attention that projects queries."""

    def __init__(self, cells: SequenceLayer, attention: cross.CrossAttention | None) -> None:
        super().__init__()
        self.cells, self.attention = cells, attention
        self.d_in, self.d_out = cells.d_in, cells.d_out
        self.has_queries = not isinstance(attention, cross.DotAttention | cross.BilinearAttention | None)
        if self.has_queries:
            self.d_out += self._query(torch.zeros(1, cells.d_out)).shape[1]

    def init_state(self, batch_size: int) -> State:
        return self.cells.init_state(batch_size)

    def step(self, x_t: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self.cells.step(x_t, state)
        return torch.cat((h, self._query(h)), 1) if self.has_queries else h, state

    def _query(self, h: Tensor) -> Tensor:
        assert self.attention is not None
        return self.attention.queries(h.unsqueeze(1)).squeeze(1)


class TokenScoreLayer(nn.Module):
    """The output layer, from context and cell output to the scores of tokens.

    The number of scores is padded to a multiple of BLOCK_COLUMNS. The state is the vector for input feeding.
    """

    def __init__(self, attentional: AttentionalLayer | None, head: Any, d_context: int, d_cells: int) -> None:
        super().__init__()
        self.attentional, self.head, self.d_context = attentional, head, d_context
        self.d_in, self.d_fed = d_context + d_cells, head.d_in
        padding = -head.vocabulary_size % BLOCK_COLUMNS
        self.weight = nn.Parameter(F.pad(head.matrix().detach(), (0, 0, 0, padding)))
        self.bias = nn.Parameter(F.pad(head.bias.detach(), (0, padding)))
        self.d_out = len(self.bias)

    def init_state(self, batch_size: int) -> Tensor:
        return self.bias.new_zeros(batch_size, self.d_fed)

    def step(self, x_t: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        y = x_t
        if self.attentional is not None:
            context, h = x_t[:, : self.d_context], x_t[:, self.d_context :]
            context = self.attentional.attention.finished(context.unsqueeze(1)).squeeze(1)
            y = torch.tanh(self.attentional.combine(torch.cat((context, h), 1)))
        return F.linear(self.head.features(y), self.weight, self.bias), y


def transducer_source(description: ModelDescription, weights: Weights) -> CModel:
    """Return the C source of an encoder-decoder. Raises `Untraceable` or ValueError for an unsupported model."""
    source, output = cast(SourceInput, description.input), cast(TextOutput, description.output)
    model = description.model
    if type(model) is not EncoderDecoder:
        raise ValueError("it has a copy mechanism or no encoder")
    if model.contextual is not None:
        raise ValueError("features from another model are unsupported")
    decoder, attentional = _match_decoder(model.decoder)
    notes = missing_options(output.search, [*SEARCH, "forbidden"], OPTIONS_WITHOUT_NOTE)
    search = {name: setting.value for name, setting in output.search.items()}
    weights.constants |= {
        "ROWS": MAX_SOURCES, "D_SOURCE": model.source.d_out,
        "D_TARGET": model.target.d_out, "D_ENCODED": decoder.d_memory,
        "AT_SOURCES": weights.add_rows(model.source.weight * model.source.scale),
        "AT_TARGETS": weights.add_rows(model.target.weight * model.target.scale),
        "SOURCE_TOKENS": model.source.vocabulary_size,
        "FEEDS": int(any(isinstance(layer, InputFeeding) for layer in iterate_layers(model.decoder))),
        "READS_CONTEXT": int(attentional is None), "IS_IN_HALVES": int(decoder.bidirectional),
        "RATIO": repr(float(output.ratio)), "MORE_TOKENS": output.more_tokens, "MAX_READ": source.max_read,
        **{f"DEFAULT_{name}": search[key] for key, name in SEARCH.items()},
        "DEFAULT_PENALTY": repr(float(search["length_penalty"])),
    }  # fmt: skip
    if search["width"] > MAX_BEAMS:
        raise ValueError(f"its search has {search['width']:,} beams; expected at most {MAX_BEAMS} in C")
    steps = LayerSteps(weights, MAX_SOURCES)
    table = layer_table(model.encoder, steps)
    weights.constants |= steps.sizes()
    if any(len(phrase) != 1 for phrase in search["forbidden"]):
        raise ValueError("its search forbids phrases of several tokens")
    forbidden = c_array("uint32_t", "FORBIDDEN", [phrase[0] for phrase in search["forbidden"]])
    templates = [
        *("stored.h", "rows.h", "utf8.h", "lexicon.h", "sink.h"), *_token_templates(source, output.coder, weights),
        forbidden, *("layers.h", "mixing.h"), *(step.text for step in steps.steps), table,
        *_print_decoder(model, decoder, attentional, weights), "transducing.h",
    ]  # fmt: skip
    return CModel(
        [*dict.fromkeys(templates)], interface="transducing",
        values={"TEXTS": source.num_texts, "BEAMS": MAX_BEAMS, "ROWS": MAX_ROWS}, usage=USAGE, notes=notes,
    )  # fmt: skip


def _match_decoder(layers: SequenceLayer) -> tuple[FromContext, AttentionalLayer | None]:
    """Return the cells and the attentional layer of a decoder. Raises ValueError for an unsupported decoder."""
    attentional: AttentionalLayer | None = None
    match list(iterate_layers(layers)):
        case [FromContext() as decoder, AttentionalLayer() as attentional]:
            pass
        case [InputFeeding(cell=FromContext() as decoder, attentional=attentional)]:
            pass
        case [WithContext(layer=FromContext() as decoder)]:
            pass
        case _:
            raise ValueError("its decoder is not recurrent")
    if not isinstance(decoder.pooling, LastPooling):
        raise ValueError("its decoder starts from a vector other than the last outputs of the encoder")
    if attentional is not None and type(attentional.attention) not in ATTENTIONS:
        raise ValueError(f"its attention is {type(attentional.attention).__name__}")
    return decoder, attentional


@torch.no_grad()
def _print_decoder(
    model: EncoderDecoder, decoder: FromContext, attentional: AttentionalLayer | None, weights: Weights
) -> list[str]:
    attention, constants = cast(Any, attentional and attentional.attention), weights.constants
    d_memory, d_cells = decoder.layer.d_memory or decoder.d_memory, decoder.layer.d_out
    assert d_memory is not None
    cells = CellsWithQuery(decoder.layer, attention)
    d_key = (cells.d_out - d_cells if cells.has_queries else d_cells) if attention else 0
    has_values = isinstance(attention, cross.MultiHeadCrossAttention)
    d_value = (d_key if has_values else d_memory) if attention else 0
    scores = TokenScoreLayer(attentional, model.head, d_value, d_cells)
    layers = {"_cells": cells, "_scores": scores}
    steps = [print_step(layer, weights, rows=MAX_ROWS, number=name) for name, layer in layers.items()]
    starts: Any = decoder.starts
    widths = [start.out_features for start in starts]
    if sum(widths) != steps[0].leaves:
        raise ValueError("the initial state of its decoder does not depend on the source")
    begin = pad_columns(torch.cat([start.weight for start in starts]))
    memory = getattr(attention, "project_memory", None)
    constants |= {
        "D_X": cells.d_in, "D_CELLS": d_cells, "D_STEP": cells.d_out, "D_KEY": d_key, "D_VALUE": d_value,
        "AT_QUERY": d_cells if cells.has_queries else 0, "D_FED": scores.d_fed, "TARGETS": model.vocabulary_size,
        "WIDE_TARGETS": scores.d_out, "CELLS_HOISTED": steps[0].hoisted, "SCORES_HOISTED": steps[1].hoisted,
        "LEAVES": steps[0].leaves, "WORK": max(*(step.work for step in steps), begin.shape[1]),
        "WIDE_STARTS": begin.shape[1], "AT_BEGIN": weights.add_matrix(begin),
        "AT_BEGIN_BIAS": weights.add(torch.cat([start.bias for start in starts])),
        "ATTENTION": ATTENTIONS[type(attention)] if attention else 0, "HAS_VALUES": int(has_values),
        "HEADS": attention.num_heads if attention else 1, "SCALE": repr(float(attention.scale if attention else 1)),
        "WIDE_MEMORY": 0, "AT_MEMORY": 0, "AT_MEMORY_BIAS": 0, "AT_VECTOR": 0,
    }  # fmt: skip
    if memory is not None:
        padded = pad_columns(memory.weight)
        bias = torch.zeros(memory.out_features) if memory.bias is None else memory.bias
        constants |= {"WIDE_MEMORY": padded.shape[1], "AT_MEMORY": weights.add_matrix(padded)}
        constants["AT_MEMORY_BIAS"] = weights.add(bias)
    if isinstance(attention, cross.AdditiveAttention):
        constants["AT_VECTOR"] = weights.add(attention.vector.weight)
    return [*(step.text for step in steps), c_array("int", "LEAF_WIDTHS", widths)]


def _token_templates(texts: SourceInput, target: TokenizerWithSpecials, weights: Weights) -> list[str]:
    source = texts.coder
    lexer = lexer_templates(source.tokenizer, weights)
    symbols = [_decode_token(target.tokenizer, id) for id in range(target.tokenizer.vocabulary_size)]
    names = max(texts.names, default=-1) + 1
    weights.constants |= detokenizer_constants(target.tokenizer, symbols, weights) | {
        "ADDS_BLANK": int(source.tokenizer.before == " "), "TAKES_BLANK": int(target.tokenizer.before == " "),
        "SOURCE_END": source.end_id, "SEPARATOR": source.separator_id, "UNKNOWN_NAME": source.unknown_name_id,
        "MAX_TOKENS": texts.max_tokens, "BEGIN": target.begin_id, "END": target.end_id,
        "MAX_WRITTEN_BYTES": 1 + max(len(symbol.decode("utf-8", "replace").encode()) for symbol in symbols),
    }  # fmt: skip
    tables = c_array("uint8_t", "IS_NAME", [int(column in texts.names) for column in range(max(names, 1))])
    patterns = {"BETWEEN": texts.between_names, "WHITE": r"\s"}
    tables += "".join(f"static const uint32_t {name}[] = {{{ranges(text)}}};\n" for name, text in patterns.items())
    return [*lexer, tables + add_hash_table("KNOWN_NAME", Vocabulary(["", *source.names.symbols]), weights), "blanks.h"]


def _decode_token(tokenizer: Tokenizer, id: int) -> bytes:
    if isinstance(tokenizer, ByteTokenizer | SubwordTokenizer):
        return token_bytes(tokenizer, id)
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        return tokenizer.decoder().feed(id).encode("utf-8", "surrogatepass")
    raise ValueError(f"unsupported target tokenizer {tokenizer.kind}")
