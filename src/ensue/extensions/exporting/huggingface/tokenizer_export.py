"""Tokenizers as files of the `tokenizers` library and of transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ensue.errors import EnsueError
from ensue.tasks.texts.framing import Framing
from ensue.text.masked_tokens import FRAME_TOKENS, MaskedTokenizer
from ensue.text.pieces import import_library, library_tokenizer
from ensue.text.published import PublishedTokenizer
from ensue.text.subwords import SubwordTokenizer, byte_characters
from ensue.text.tokenizer import SPLITTERS, ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from ensue.text.tokenizer import UNKNOWN as UNKNOWN_WORD
from ensue.text.tokens import EXPRESSIONS
from ensue.text.wordpiece import BEGIN, MASK, PADDING, SEPARATOR, UNKNOWN, WordPieceTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

_ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
"""The pattern of Python's escapes of characters, which the regular expressions of the library do not support."""
TUNED_TOKENS = ("<delimiter>", "<extract>")
"""The names of the special tokens that fine-tuning adds to a causal model (Radford et al. 2018)."""
KEYS = {PADDING: "pad_token", BEGIN: "cls_token", SEPARATOR: "sep_token", MASK: "mask_token", UNKNOWN: "unk_token"}


def masked_files(coder: MaskedTokenizer, *, context: int) -> dict[str, Any]:
    """Return `tokenizer.json` and `tokenizer_config.json` of a masked language model."""
    tokenizer = coder.tokenizer
    library = _to_library(tokenizer)
    tokens = {role: getattr(tokenizer, "special", {}).get(role, role) for role in FRAME_TOKENS}
    library.add_special_tokens(list(tokens.values()))  # appends tokens that the vocabulary lacks, in this order
    ids = (coder.padding_id, coder.begin_id, coder.separator_id, coder.mask_id)
    assert [library.token_to_id(tokens[role]) for role in FRAME_TOKENS] == list(ids)
    begin, end = tokens[BEGIN], tokens[SEPARATOR]
    library.post_processor = import_library().processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, coder.begin_id), (end, coder.separator_id)],
    )
    if tokenizer.unknown_id is not None:
        tokens[UNKNOWN] = tokenizer.symbol(tokenizer.unknown_id)
    names = {KEYS[role]: token for role, token in tokens.items()}
    return _to_json(library, names, context=context, inputs=["input_ids", "token_type_ids", "attention_mask"])


def causal_files(tokenizer: Tokenizer, *, context: int) -> dict[str, Any]:
    """Return `tokenizer.json` and `tokenizer_config.json` of a causal language model."""
    names = {}
    if tokenizer.special_ids:
        names["bos_token"] = names["eos_token"] = tokenizer.symbol(tokenizer.start_id)
    if tokenizer.unknown_id is not None:
        names["unk_token"] = tokenizer.symbol(tokenizer.unknown_id)
    return _to_json(_to_library(tokenizer), names, context=context, inputs=["input_ids", "attention_mask"])


def tuned_files(framing: Framing, *, splitter: str | None, context: int) -> dict[str, Any]:
    """Return `tokenizer.json` and `tokenizer_config.json` of a fine-tuned causal model.

    Texts of a classifier are split into words by `splitter`, and end with a special token. Texts of a tagger, which
    has no splitter, do not end with a special token.
    """
    tokenizer, package = framing.tokenizer, import_library()
    library = _to_library(tokenizer, has_prefix=False)
    between, extract = TUNED_TOKENS
    library.add_special_tokens([between, extract])
    assert [library.token_to_id(name) for name in TUNED_TOKENS] == [*framing.between, *framing.end]
    begin = library.id_to_token(framing.begin[0])
    if splitter is not None:
        words = package.pre_tokenizers.Split(_to_regex(rf"\s*(?:{EXPRESSIONS[splitter][0]})"), "isolated")
        inner = library.pre_tokenizer
        library.pre_tokenizer = package.pre_tokenizers.Sequence([words, *([] if inner is None else [inner])])
    library.post_processor = package.processors.TemplateProcessing(
        single=[begin, "$A", *([extract] if splitter is not None else [])],
        special_tokens=[(begin, framing.begin[0]), (extract, framing.end[0])],
    )
    names = {"pad_token": between, "eos_token": extract}
    return _to_json(library, names, context=context, inputs=["input_ids", "attention_mask"])


def library_files(tokenizer: Tokenizer) -> Any:
    """Return the content of a `tokenizer.json` that gives the ids of `tokenizer.encode`, without special tokens."""
    if isinstance(tokenizer, WordTokenizer):
        return json.loads(_from_words(tokenizer).to_str())
    return json.loads(_to_library(tokenizer, has_prefix=False).to_str())


def _to_json(library: LibraryTokenizer, names: Mapping[str, str], *, context: int, inputs: list[str]) -> dict[str, Any]:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # other classes replace the normalizer and the pre-tokenizer
        **names,
        "model_max_length": context,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
    }
    return {"tokenizer.json": json.loads(library.to_str()), "tokenizer_config.json": config}


def _to_library(tokenizer: Tokenizer, *, has_prefix: bool = True) -> LibraryTokenizer:
    if isinstance(tokenizer, SubwordTokenizer):
        return _from_subwords(tokenizer, prefix=tokenizer.before if has_prefix else "")
    if isinstance(tokenizer, WordPieceTokenizer):
        library = _copy(tokenizer.library)
        library.decoder = import_library().decoders.WordPiece(cleanup=False)
        library.add_special_tokens([*FRAME_TOKENS, UNKNOWN])
        return library
    if isinstance(tokenizer, PublishedTokenizer):
        return _copy(tokenizer.library)
    if isinstance(tokenizer, ByteTokenizer):
        return _from_bytes(lowercase=tokenizer.lowercase)
    if isinstance(tokenizer, CharacterTokenizer):
        return _from_characters(tokenizer)
    raise EnsueError(f'unsupported kind of tokenizer "{tokenizer.kind}"; expected wordpiece, bpe, characters or bytes')


def _copy(library: LibraryTokenizer) -> LibraryTokenizer:
    return library_tokenizer(json.loads(library.to_str()))


def _from_subwords(tokenizer: SubwordTokenizer, *, prefix: str) -> LibraryTokenizer:
    library, normalizers = _copy(tokenizer.library), import_library().normalizers
    steps = [normalizers.Lowercase()] if tokenizer.lowercase else []
    if prefix:
        steps.append(normalizers.Prepend(prefix))
    if steps:
        library.normalizer = normalizers.Sequence(steps)
    return library


def _from_model(model: Any, *, lowercase: bool) -> LibraryTokenizer:
    library: LibraryTokenizer = import_library().Tokenizer(model)
    if lowercase:
        library.normalizer = import_library().normalizers.Lowercase()
    return library


def _from_bytes(*, lowercase: bool) -> LibraryTokenizer:
    package = import_library()
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    library = _from_model(package.models.BPE(vocabulary, []), lowercase=lowercase)
    library.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = package.decoders.ByteLevel()
    return library


def _from_words(tokenizer: WordTokenizer) -> LibraryTokenizer:
    """Return a word tokenizer whose line ends are tokens. It has no decoder, since spaces are not tokens."""
    package = import_library()
    _, _, *words = tokenizer.vocabulary.symbols
    vocabulary = {UNKNOWN_WORD: tokenizer.unknown_id, "\n": tokenizer.start_id}
    vocabulary |= {word: tokenizer.vocabulary.ids[word] for word in words}
    library = _from_model(package.models.WordLevel(vocabulary, unk_token=UNKNOWN_WORD), lowercase=tokenizer.lowercase)
    splitter = _to_regex(SPLITTERS[tokenizer.splitter])
    library.pre_tokenizer = package.pre_tokenizers.Split(splitter, "removed", invert=True)
    return library


def _to_regex(pattern: str) -> Any:
    return import_library().Regex(_ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), pattern))


def _from_characters(tokenizer: CharacterTokenizer) -> LibraryTokenizer:
    package = import_library()
    assert tokenizer.unknown_id is not None
    model = package.models.WordLevel(dict(tokenizer.vocabulary.ids), unk_token=tokenizer.symbol(tokenizer.unknown_id))
    library = _from_model(model, lowercase=tokenizer.lowercase)
    library.pre_tokenizer = package.pre_tokenizers.Split(package.Regex(r"[\s\S]"), "isolated")
    library.decoder = package.decoders.Fuse()
    return library
