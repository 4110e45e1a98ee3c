"""Marian translation models (Junczys-Dowmunt et al. 2018) in the format of transformers, such as opus-mt.

The two languages share one vocabulary. Each language has a SentencePiece model (`.spm`), a protocol-buffer message with
the pieces, their scores, and a character map.
"""

import base64
import struct
from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.data.detection.format_table import ALIGNED
from ensue.data.examples import PairLayout
from ensue.errors import DataError
from ensue.extensions.importing.family import (
    JOINED,
    BlockNames,
    Configuration,
    Conversion,
    Family,
    ParameterMapping,
    first_block,
    import_parameters,
    map_blocks,
    map_layer,
)
from ensue.extensions.importing.weight_files import check_finite, read_json_object, read_weights, weight_files
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.pieces import library_tokenizer
from ensue.text.published import BLANK, NumberedTokenizer
from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.training.imported import Imported, build_recipe, read_file

TASK = "sequence-to-sequence"
NAMES = BlockNames(
    attention_in=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), attention_out="self_attn.out_proj",
    norm_attention="self_attn_layer_norm", feedforward_in="fc1", feedforward_out="fc2",
    norm_feedforward="final_layer_norm",
)  # fmt: skip
MAX_LENGTH_RATIO = 3.0
"""The maximum number of output tokens per source token, the default of marian-decoder."""
IMPOSSIBLE_BIAS = -1e4
"""The bias of tokens that must not be generated. Their probability is then 0 in float32."""
END, PADDING = "</s>", "<pad>"
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
"""Types of SentencePiece pieces."""
UNKNOWN_SPELLING = "\ufdd0"
"""The spelling of the unknown piece. It is a Unicode noncharacter, so that `<unk>` in a text is ordinary text."""
Message = dict[int, list[Any]]
"""A protocol-buffer message: the values of each field, as integers or bytes."""


def recipe_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    config = Configuration({"scale_embedding": False, **config.content}, config.path)
    for name in ("scale_embedding", "static_position_embeddings", "share_encoder_decoder_embeddings",
                 "tie_word_embeddings"):  # fmt: skip
        config.expect(name, True)
    for name in ("normalize_before", "normalize_embedding", "add_final_layer_norm", "is_decoder"):
        config.expect(name, False)
    d_model = config.positive_int("d_model")
    return {
        "tokens": {"d_embedding": d_model, "tied": "all"},
        "search": {"beams": config.positive_int("num_beams", 4), "max_tokens": config.positive_int("max_length", 512)},
        **{side: {
            "kind": "transformer", "d_model": d_model, "positions": "sinusoidal", "norm": "post",
            "num_layers": config.positive_int(f"{side}_layers"),
            "num_heads": config.positive_int(f"{side}_attention_heads"),
            "d_feedforward": config.positive_int(f"{side}_ffn_dim"),
            "activation": config.activation("activation_function", "gelu"),
            "dropout": config.fraction("dropout", 0.1), "dropout_attention": config.fraction("attention_dropout"),
        } for side in ("encoder", "decoder")},
    }  # fmt: skip


def layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings of the layers. Features are reordered, since native positions have another order of sines."""
    order, mappings = _order_features(recipe), list[ParameterMapping]()
    for side in ("encoder", "decoder"):
        encoder, native = getattr(recipe, side), f"{side}.layers"
        mappings += map_blocks(encoder, f"{side}.layers.{{}}.", NAMES, native_prefix=native)
        for number in range(encoder.num_layers if side == "decoder" else 0):
            block, published = f"{native}.{first_block(encoder) + number}.", f"{side}.layers.{number}.encoder_attn"
            mappings += map_layer(f"{block}norm_cross_attention", f"{published}_layer_norm")
            mappings += map_layer(f"{block}cross_attention.project_in", f"{published}.q_proj")
            mappings += map_layer(f"{block}cross_attention.project_out", f"{published}.out_proj")
            mappings += map_layer(
                f"{block}cross_attention.project_memory", f"{published}.k_proj", f"{published}.v_proj",
                conversion=JOINED,
            )  # fmt: skip
    return [_reorder(mapping, order) for mapping in mappings]


def _order_features(recipe: Any) -> Tensor:
    """Return the published index of each native feature.

    Published position vectors have all sines before all cosines. Native position vectors have pairs (sine, cosine).
    """
    return torch.arange(recipe.tokens.d_embedding).view(2, -1).t().flatten()


INPUT_REORDERED = ("project_in", "project_memory", "feedforward.0")
"""The layers whose inputs are reordered. In all other layers, the outputs are reordered."""


def _reorder(mapping: ParameterMapping, order: Tensor) -> ParameterMapping:
    name, _, parameter = mapping.native.rpartition(".")
    read = mapping.conversion.read
    if not name.endswith(INPUT_REORDERED):
        return mapping._replace(conversion=Conversion(lambda published: read(published)[order]))
    if parameter == "bias":
        return mapping
    return mapping._replace(conversion=Conversion(lambda published: read(published)[:, order]))


MARIAN = Family(
    prefix="model.", is_masked=False, recipe_tables=recipe_tables, layout=layout,
    unused=("embed_positions.weight", "coder.embed_tokens.weight"), tied="lm_head.weight",
)  # fmt: skip


def import_marian(directory: Path, config: Configuration) -> Imported:
    """Read config.json, weights, *.spm and vocab.json. Raises DataError for missing or unsupported content."""
    files = weight_files(directory, "AutoModelForSeq2SeqLM")
    generation = directory / "generation_config.json"
    config = Configuration(config.content | (read_json_object(generation) if generation.exists() else {}), config.path)
    ids, symbols = _read_vocabulary(directory / "vocab.json", config)
    source, target = (_read_tokenizer(directory / f"{side}.spm", symbols) for side in ("source", "target"))
    tensors = MARIAN.rename_tensors(read_weights(files))
    published = {"kind": "published"}
    tables = {"task": TASK, "tokenizer": published, "target_tokenizer": published}
    recipe = build_recipe(tables | MARIAN.recipe_tables(config, tensors.keys()), directory)
    vectors = Conversion(lambda published: _select_rows(published[0], ids, 0.0)[:, _order_features(recipe)])
    biases = Conversion(lambda published: _select_rows(published[0].flatten(), ids, IMPOSSIBLE_BIAS))
    tokens = [
        ParameterMapping("source.weight", ("shared.weight",), vectors),
        ParameterMapping("head.bias", ("final_logits_bias",), biases),
    ]
    layout = [*tokens, *MARIAN.layout(recipe)]
    parameters = import_parameters(layout, tensors, files[0])
    check_finite(parameters, files[0])
    size = source.vocabulary_size
    keys = {
        "source_size": size, "target_size": size, "layout": PairLayout(ALIGNED).to_json(), "ratio": MAX_LENGTH_RATIO,
    }  # fmt: skip
    parts = EncoderDecoderParts(PairCoder(source, target))
    notes = MARIAN.note_unused(tensors, layout)
    return Imported(directory, tuple(files), "marian", recipe, parts, keys, parameters, notes)


def _read_vocabulary(path: Path, config: Configuration) -> tuple[list[int], list[str]]:
    """Return the published ids in the order of native ids (text tokens, begin, end), and the text tokens."""
    ids = read_json_object(path)
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise DataError("expected consecutive ids from 0", path)
    if missing := next((symbol for symbol in (END, PADDING) if symbol not in ids), None):
        raise DataError(f"the vocabulary has no {missing}", path)
    config.expect("decoder_start_token_id", ids[PADDING])
    config.expect("eos_token_id", ids[END])
    symbols = [symbol for symbol in sorted(ids, key=ids.__getitem__) if symbol not in (END, PADDING)]
    return [ids[symbol] for symbol in (*symbols, PADDING, END)], symbols


def _select_rows(published: Tensor, ids: list[int], fill_value: float) -> Tensor:
    """Return the rows of the ids, then rows of `fill_value` for the special tokens that Marian does not have."""
    if len(published) != len(ids):
        raise IndexError
    return torch.cat([published[ids], published.new_full((len(SPECIAL) - 2, *published.shape[1:]), fill_value)])


def _read_tokenizer(path: Path, symbols: list[str]) -> TokenizerWithSpecials:
    try:
        return TokenizerWithSpecials(NumberedTokenizer(library_tokenizer(_convert_model(read_file(path))), symbols))
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        reason = error if isinstance(error, ValueError) else "truncated or damaged"
        raise DataError(f"unsupported tokenizer: {reason}", path) from None


def _convert_model(model: bytes) -> dict[str, Any]:
    """Return the `tokenizer.json` equivalent to a SentencePiece model. Raises ValueError for an unsupported model."""
    fields = _parse_message(model)  # 1: pieces, 2: trainer_spec with 3: model_type (1: unigram), 3: normalizer_spec
    training, (normalization,) = _parse_message(fields.get(2, [b""])[0]), map(_parse_message, fields[3])
    if training.get(3, [1]) != [1] or any(normalization.get(field, [1]) != [1] for field in (3, 4, 5)):
        raise ValueError("expected a unigram model that adds a dummy prefix and removes extra whitespace")
    pieces: list[list[Any]] = []
    for piece in map(_parse_message, fields[1]):
        ((piece_type,), (score,)) = piece.get(3, [NORMAL]), struct.unpack("<f", piece.get(2, [bytes(4)])[0])
        if piece_type not in (NORMAL, UNKNOWN, CONTROL, UNUSED):
            raise ValueError("byte pieces and user-defined pieces are unsupported")
        if piece_type == NORMAL:
            pieces.append([piece[1][0].decode(), score])
    spaces = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
    characters = normalization.get(2, [b""])[0]
    normalizers = [
        *([{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(characters).decode()}] * bool(characters)),
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": BLANK},
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": spaces, "decoder": spaces,
        "model": {
            "type": "Unigram", "unk_id": 0, "byte_fallback": False,
            "vocab": [[UNKNOWN_SPELLING, min(score for _, score in pieces)], *pieces],
        },
    }  # fmt: skip


def _parse_message(message: bytes) -> Message:
    """Parse a protocol-buffer message. Raises ValueError for a damaged, IndexError for a truncated message."""
    fields: Message = {}
    position = 0

    def read_varint() -> int:
        nonlocal position
        value, shift = 0, 0
        while True:
            byte, position = message[position], position + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128 or shift > 63:
                return value

    while position < len(message):
        field, wire_type = divmod(read_varint(), 8)
        if wire_type not in (0, 1, 2, 5):
            raise ValueError("not a SentencePiece model")
        value: Any = read_varint() if wire_type in (0, 2) else {1: 8, 5: 4}[wire_type]
        if wire_type:  # not a varint: `value` is the number of bytes
            position, value = position + value, message[position : position + value]
            if position > len(message):
                raise IndexError("truncated")
        fields.setdefault(field, []).append(value)
    return fields
