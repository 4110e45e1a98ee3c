"""Translators of Marian (Junczys-Dowmunt et al. 2018), as transformers has them; opus-mt is of this kind.

Both languages have one vocabulary, and each its own file of SentencePiece (`.spm`), a message of protocol buffers. Of
it are read the pieces with their scores, and the map of characters.
"""

from __future__ import annotations

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
from ensue.extensions.importing.family import Configuration, Family
from ensue.extensions.importing.layouts import JOINED, BlockNames, Form, Part, blocks, first_block, layer, to_ours
from ensue.extensions.importing.weight_files import (
    check_finite,
    read_json_object,
    read_weights,
    weight_files,
)
from ensue.tasks.sequence_to_sequence.model import EncoderDecoderParts
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.text.pieces import library_tokenizer
from ensue.text.published import BLANK, NumberedTokenizer
from ensue.text.special_tokens import SPECIAL, TokenizerWithSpecials
from ensue.training.imported import Imported, read_file, recipe_of

TASK = "sequence-to-sequence"
NAMES = BlockNames(
    attention_in=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_out="self_attn.out_proj",
    norm_attention="self_attn_layer_norm",
    first="fc1",
    second="fc2",
    norm_feedforward="final_layer_norm",
)
RATIO = 3.0
"""The most tokens of an output for each of its source, as marian-decoder has it."""
NEVER = -1e4
"""The score of a token that is never written; its probability is 0 in float32."""
END, PADDING = "</s>", "<pad>"
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5
"""Kinds of pieces."""
NOT_THERE = "\ufdd0"
"""The name of the unknown piece, which no text has by chance. What is spelled `<unk>` is text."""
Message = dict[int, list[Any]]
"""The values of each field of a message: whole numbers and bytes."""


def tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config = Configuration({"scale_embedding": False, **config.content}, config.path)
    for name in ("scale_embedding", "static_position_embeddings", "share_encoder_decoder_embeddings",
                 "tie_word_embeddings"):  # fmt: skip
        config.expect(name, True)
    for name in ("normalize_before", "normalize_embedding", "add_final_layer_norm", "is_decoder"):
        config.expect(name, False)
    d_model = config.whole("d_model")
    return {
        "tokens": {"d_embedding": d_model, "tied": "all"},
        "search": {"beams": config.whole("num_beams", 4), "max_tokens": config.whole("max_length", 512)},
        **{side: {
            "kind": "transformer",
            "d_model": d_model,
            "num_layers": config.whole(f"{side}_layers"),
            "num_heads": config.whole(f"{side}_attention_heads"),
            "d_feedforward": config.whole(f"{side}_ffn_dim"),
            "positions": "sinusoidal",
            "norm": "post",
            "activation": config.activation("activation_function", "gelu"),
            "dropout": config.share("dropout", 0.1),
            "dropout_attention": config.share("attention_dropout"),
        } for side in ("encoder", "decoder")},
    }  # fmt: skip


def layout(recipe: Any) -> list[Part]:
    """The parameters of the layers. Their positions are all sines, then all cosines; ours are pairs."""
    order, found = _order(recipe), list[Part]()
    for side in ("encoder", "decoder"):
        encoder, ours = getattr(recipe, side), f"{side}.layers"
        found += blocks(encoder, f"{side}.layers.{{}}.", NAMES, inside=ours)
        for number in range(encoder.num_layers if side == "decoder" else 0):
            own, theirs = f"{ours}.{first_block(encoder) + number}.", f"{side}.layers.{number}.encoder_attn"
            found += layer(f"{own}norm_cross_attention", f"{theirs}_layer_norm")
            found += layer(f"{own}cross_attention.project_in", f"{theirs}.q_proj")
            found += layer(f"{own}cross_attention.project_out", f"{theirs}.out_proj")
            found += layer(f"{own}cross_attention.project_memory", f"{theirs}.k_proj", f"{theirs}.v_proj", form=JOINED)
    return [_ordered(part, order) for part in found]


def _order(recipe: Any) -> Tensor:
    return torch.arange(recipe.tokens.d_embedding).view(2, -1).t().flatten()


READ = ("project_in", "project_memory", "feedforward.0")
"""The layers that read the features of a position; the others write them."""


def _ordered(part: Part, order: Tensor) -> Part:
    """The part with the features of positions in this order."""
    name, _, kind = part.ours.rpartition(".")
    if not name.endswith(READ):
        return part._replace(form=Form(lambda theirs: part.form.read(theirs)[order]))
    return part._replace(form=Form(lambda theirs: part.form.read(theirs)[:, order])) if kind == "weight" else part


MARIAN = Family(
    prefix="model.",
    is_masked=False,
    tables=tables,
    layout=layout,
    unused=("embed_positions.weight", "coder.embed_tokens.weight"),
    tied="lm_head.weight",
)


def import_marian(directory: Path, config: Configuration) -> Imported:
    """A directory with config.json, weights, *.spm and vocab.json. Raises DataError for missing or unknown parts."""
    files = weight_files(directory, "AutoModelForSeq2SeqLM")
    more = directory / "generation_config.json"
    config = Configuration(config.content | (read_json_object(more) if more.exists() else {}), config.path)
    ids, symbols = _numbered(directory / "vocab.json", config)
    source, target = (_tokenizer(directory / f"{side}.spm", symbols) for side in ("source", "target"))
    tensors = MARIAN.plain(read_weights(files))
    kind = {"kind": "published"}
    document = {"task": "sequence-to-sequence", "tokenizer": kind, "target_tokenizer": kind}
    recipe = recipe_of(document | MARIAN.tables(config, tensors.keys()), directory)
    vectors = Form(lambda theirs: _rows(theirs[0], ids, 0.0)[:, _order(recipe)])
    biases = Form(lambda theirs: _rows(theirs[0].flatten(), ids, NEVER))
    tokens = [Part("source.weight", ("shared.weight",), vectors), Part("head.bias", ("final_logits_bias",), biases)]
    layout = [*tokens, *MARIAN.layout(recipe)]
    ours = to_ours(layout, tensors, files[0])
    check_finite(ours, files[0])
    size, read = source.vocabulary_size, PairLayout(ALIGNED)
    keys = {"source_size": size, "target_size": size, "layout": read.to_json(), "ratio": RATIO}
    parts = EncoderDecoderParts(PairCoder(source, target))
    return Imported(directory, tuple(files), "marian", recipe, parts, keys, ours, MARIAN.left_out(tensors, layout))


def _numbered(path: Path, config: Configuration) -> tuple[list[int], list[str]]:
    """Their ids in our order, the begin and the end behind those of text; and the symbols of text."""
    ids = read_json_object(path)
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise DataError("expected the ids from 0 on, each once", path)
    if missing := next((symbol for symbol in (END, PADDING) if symbol not in ids), None):
        raise DataError(f"the vocabulary has no {missing}", path)
    config.expect("decoder_start_token_id", ids[PADDING])
    config.expect("eos_token_id", ids[END])
    symbols = [symbol for symbol in sorted(ids, key=ids.__getitem__) if symbol not in (END, PADDING)]
    return [ids[symbol] for symbol in (*symbols, PADDING, END)], symbols


def _rows(theirs: Tensor, ids: list[int], new: float) -> Tensor:
    """These rows, and `new` numbers for our signs that they have not. Raises IndexError for more or fewer rows."""
    if len(theirs) != len(ids):
        raise IndexError
    return torch.cat([theirs[ids], theirs.new_full((len(SPECIAL) - 2, *theirs.shape[1:]), new)])


def _tokenizer(path: Path, symbols: list[str]) -> TokenizerWithSpecials:
    """The pieces of a file of SentencePiece, with the ids of these symbols. Raises DataError."""
    try:
        return TokenizerWithSpecials(NumberedTokenizer(library_tokenizer(_pipeline(read_file(path))), symbols))
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        said = error if isinstance(error, ValueError) else "not a whole file of SentencePiece"
        raise DataError(f"no tokenizer that can be used: {said}", path) from None


def _pipeline(model: bytes) -> dict[str, Any]:
    """The `tokenizer.json` that cuts a text like this model of SentencePiece. Raises ValueError and others."""
    fields = _fields(model)
    training, (normalization,) = _fields(fields.get(2, [b""])[0]), map(_fields, fields[3])
    if training.get(3, [NORMAL]) != [1] or any(normalization.get(field, [1]) != [1] for field in (3, 4, 5)):
        raise ValueError("expected unigrams, a blank before a text, and no blanks around it")
    pieces: list[list[Any]] = []
    for piece in map(_fields, fields[1]):
        ((kind,), (score,)) = piece.get(3, [NORMAL]), struct.unpack("<f", piece.get(2, [bytes(4)])[0])
        if kind not in (NORMAL, UNKNOWN, CONTROL, UNUSED):
            raise ValueError("pieces of bytes, or that a user defined, are not supported")
        if kind == NORMAL:
            pieces.append([piece[1][0].decode(), score])
    blanks = {"type": "Metaspace", "replacement": BLANK, "prepend_scheme": "always", "split": True}
    characters = normalization.get(2, [b""])[0]
    normalizers = [
        *([{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(characters).decode()}] * bool(characters)),
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": BLANK},
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None,
        "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": blanks, "decoder": blanks,
        "model": {
            "type": "Unigram", "unk_id": 0, "byte_fallback": False,
            "vocab": [[NOT_THERE, min(score for _, score in pieces)], *pieces],
        },
    }  # fmt: skip


def _fields(message: bytes) -> Message:
    """The fields of a protocol-buffer message. Raises ValueError if it is damaged, IndexError if it is cut off."""
    found: Message = {}
    place = 0

    def whole() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte, place = message[place], place + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128 or shift > 63:
                return value

    while place < len(message):
        field, kind = divmod(whole(), 8)
        if kind not in (0, 1, 2, 5):
            raise ValueError("not a file of SentencePiece")
        value: Any = whole() if kind in (0, 2) else {1: 8, 5: 4}[kind]
        if kind:
            place, value = place + value, message[place : place + value]
            if place > len(message):
                raise IndexError("cut off")
        found.setdefault(field, []).append(value)
    return found
