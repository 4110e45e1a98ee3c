"""Our tokenizers as files of the `tokenizers` library and of transformers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ensue.errors import EnsueError
from ensue.tasks.texts.framing import Framing
from ensue.text.characters import CharacterTokenizer
from ensue.text.masked_tokens import FRAMING, MaskedTokenizer
from ensue.text.pieces import import_library, library_tokenizer
from ensue.text.published import PublishedTokenizer
from ensue.text.subwords import SubwordTokenizer, byte_characters
from ensue.text.tokenizer import UNKNOWN as UNKNOWN_WORD
from ensue.text.tokenizer import Tokenizer
from ensue.text.tokens import EXPRESSIONS
from ensue.text.utf8 import ByteTokenizer
from ensue.text.wordpiece import BEGIN, MASK, PADDING, SEPARATOR, UNKNOWN, WordPieceTokenizer
from ensue.text.words import SPLITTERS, WordTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as LibraryTokenizer

_ESCAPED = re.compile(r"\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")
"""Characters in a regular expression as only Python writes them."""
NEW = ("<delimiter>", "<extract>")
"""The spelling of the signs that are new in a tuned causal model (Radford et al. 2018)."""
KEYS = {PADDING: "pad_token", BEGIN: "cls_token", SEPARATOR: "sep_token", MASK: "mask_token", UNKNOWN: "unk_token"}


def masked_files(coder: MaskedTokenizer, *, context: int) -> dict[str, Any]:
    """`tokenizer.json` and `tokenizer_config.json` of a model that fills in masks."""
    tokenizer = coder.tokenizer
    library = _library(tokenizer)
    spelled = {use: getattr(tokenizer, "special", {}).get(use, use) for use in FRAMING}
    library.add_special_tokens(list(spelled.values()))  # those that are not there yet come behind, in this order
    ids = (coder.padding_id, coder.begin_id, coder.separator_id, coder.mask_id)
    assert [library.token_to_id(spelled[use]) for use in FRAMING] == list(ids)
    begin, end = spelled[BEGIN], spelled[SEPARATOR]
    library.post_processor = import_library().processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, coder.begin_id), (end, coder.separator_id)],
    )
    if tokenizer.unknown_id is not None:
        spelled[UNKNOWN] = tokenizer.symbol(tokenizer.unknown_id)
    names = {KEYS[use]: token for use, token in spelled.items()}
    return _files(library, names, context=context, inputs=["input_ids", "token_type_ids", "attention_mask"])


def causal_files(tokenizer: Tokenizer, *, context: int) -> dict[str, Any]:
    """The files of a language model's tokenizer. The token before a text is the `bos_token_id` of its config.json."""
    names = {}
    if tokenizer.special_ids:
        names["bos_token"] = names["eos_token"] = tokenizer.symbol(tokenizer.start_id)
    if tokenizer.unknown_id is not None:
        names["unk_token"] = tokenizer.symbol(tokenizer.unknown_id)
    return _files(_library(tokenizer), names, context=context, inputs=["input_ids", "attention_mask"])


def tuned_files(framing: Framing, *, splitter: str | None, context: int) -> dict[str, Any]:
    """The files of a causal model whose layers were tuned. A text is cut into words first, if `splitter` says how, and
    stands between the signs of `framing`, of which two are new; without a splitter nothing stands behind it.
    """
    tokenizer, parts = framing.tokenizer, import_library()
    library = _of_subwords(tokenizer, before="") if isinstance(tokenizer, SubwordTokenizer) else _library(tokenizer)
    between, extract = NEW
    library.add_special_tokens([between, extract])
    assert [library.token_to_id(name) for name in NEW] == [*framing.between, *framing.end]
    begin = library.id_to_token(framing.begin[0])
    if splitter is not None:
        words = parts.pre_tokenizers.Split(_expression(rf"\s*(?:{EXPRESSIONS[splitter][0]})"), "isolated")
        inner = library.pre_tokenizer
        library.pre_tokenizer = parts.pre_tokenizers.Sequence([words, *([] if inner is None else [inner])])
    library.post_processor = parts.processors.TemplateProcessing(
        single=[begin, "$A", *([extract] if splitter is not None else [])],
        special_tokens=[(begin, framing.begin[0]), (extract, framing.end[0])],
    )
    names = {"pad_token": between, "eos_token": extract}
    return _files(library, names, context=context, inputs=["input_ids", "attention_mask"])


def library_files(tokenizer: Tokenizer) -> Any:
    """The content of `tokenizer.json` that gives the ids of `encode`, without symbols around a text."""
    if isinstance(tokenizer, WordTokenizer):
        library = _of_words(tokenizer)
    elif isinstance(tokenizer, SubwordTokenizer):
        library = _of_subwords(tokenizer, before="")
    else:
        library = _library(tokenizer)
    return json.loads(library.to_str())


def _files(library: LibraryTokenizer, names: Mapping[str, str], *, context: int, inputs: list[str]) -> dict[str, Any]:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # another one drops the normalizer and the splitter
        **names,
        "model_max_length": context,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
    }
    return {"tokenizer.json": json.loads(library.to_str()), "tokenizer_config.json": config}


def _library(tokenizer: Tokenizer) -> LibraryTokenizer:
    """The library's tokenizer that gives the same ids. Raises EnsueError for a kind that it has not."""
    if isinstance(tokenizer, SubwordTokenizer):
        return _of_subwords(tokenizer, before=tokenizer.before)
    if isinstance(tokenizer, WordPieceTokenizer):
        library = _copy(tokenizer.library)
        library.decoder = import_library().decoders.WordPiece(cleanup=False)
        library.add_special_tokens([*FRAMING, UNKNOWN])
        return library
    if isinstance(tokenizer, PublishedTokenizer):
        return _copy(tokenizer.library)
    if isinstance(tokenizer, ByteTokenizer):
        return _of_bytes(lowercase=tokenizer.lowercase)
    if isinstance(tokenizer, CharacterTokenizer):
        return _of_characters(tokenizer)
    raise EnsueError(
        f"a tokenizer of {tokenizer.kind} is none of transformers; expected wordpiece, bpe, characters or bytes"
    )


def _copy(library: LibraryTokenizer) -> LibraryTokenizer:
    return library_tokenizer(json.loads(library.to_str()))


def _of_subwords(tokenizer: SubwordTokenizer, *, before: str) -> LibraryTokenizer:
    library, parts = _copy(tokenizer.library), import_library().normalizers
    steps = [parts.Lowercase()] if tokenizer.lowercase else []
    if before:
        steps.append(parts.Prepend(before))
    if steps:
        library.normalizer = parts.Sequence(steps)
    return library


def _of_bytes(*, lowercase: bool) -> LibraryTokenizer:
    library = import_library()
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    found: LibraryTokenizer = library.Tokenizer(library.models.BPE(vocabulary, []))
    found.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = library.decoders.ByteLevel()
    if lowercase:
        found.normalizer = library.normalizers.Lowercase()
    return found


def _of_words(tokenizer: WordTokenizer) -> LibraryTokenizer:
    """A line end is the token that it is in a text. How words are written in a line, the library cannot know."""
    library = import_library()
    _, _, *words = tokenizer.vocabulary.symbols
    vocabulary = {UNKNOWN_WORD: tokenizer.unknown_id, "\n": tokenizer.start_id}
    vocabulary |= {word: tokenizer.vocabulary.ids[word] for word in words}
    found: LibraryTokenizer = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token=UNKNOWN_WORD))
    found.pre_tokenizer = library.pre_tokenizers.Split(
        _expression(SPLITTERS[tokenizer.splitter]), "removed", invert=True
    )
    if tokenizer.lowercase:
        found.normalizer = library.normalizers.Lowercase()
    return found


def _expression(text: str) -> Any:
    """A regular expression of Python as the library has it."""
    return import_library().Regex(_ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), text))


def _of_characters(tokenizer: CharacterTokenizer) -> LibraryTokenizer:
    library = import_library()
    assert tokenizer.unknown_id is not None
    model = library.models.WordLevel(dict(tokenizer.vocabulary.ids), unk_token=tokenizer.symbol(tokenizer.unknown_id))
    found: LibraryTokenizer = library.Tokenizer(model)
    found.pre_tokenizer = library.pre_tokenizers.Split(library.Regex(r"[\s\S]"), "isolated")
    found.decoder = library.decoders.Fuse()
    if tokenizer.lowercase:
        found.normalizer = library.normalizers.Lowercase()
    return found
