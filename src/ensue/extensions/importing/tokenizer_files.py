"""The tokenizer of a published model as one of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.errors import DataError
from ensue.extensions.importing.weight_files import read_json_object
from ensue.text.pieces import START, import_library, library_errors, library_tokenizer
from ensue.text.published import PublishedTokenizer
from ensue.text.subwords import SubwordTokenizer, is_byte_level
from ensue.text.tokenizer import Tokenizer
from ensue.text.wordpiece import BEGIN, INSIDE, LONGEST_WORD, MASK, PADDING, SEPARATOR, UNKNOWN, WordPieceTokenizer
from ensue.training.imported import read_file

FRAME = {
    PADDING: (("pad_token",), ("[PAD]", "<pad>")),
    BEGIN: (("cls_token", "bos_token"), ("[CLS]", "<s>")),
    SEPARATOR: (("sep_token", "eos_token"), ("[SEP]", "</s>")),
    MASK: (("mask_token",), ("[MASK]", "<mask>")),
    UNKNOWN: (("unk_token",), ("[UNK]", "<unk>")),
}
"""The special tokens of a model that fills in masks: the keys of tokenizer_config.json that name each, and what they
are called where no key does.
"""
BEGINNING = {
    START: (("bos_token", "eos_token"), ("<|endoftext|>",)),
    UNKNOWN: (("unk_token",), ("<unk>",)),
}
"""Special tokens of a language model."""
_SAVE = 'AutoTokenizer.from_pretrained("{0}").save_pretrained("{0}")'


def read_tokenizer(directory: Path, *, is_masked: bool) -> Tokenizer:
    """The tokenizer of a directory: `tokenizer.json`, or an older `vocab.txt`, or `vocab.json` with `merges.txt`.

    WordPiece as published becomes ours, byte-level subwords too; others stay the library's. Raises DataError if there
    is none, for one that cannot be read, and for one without the special tokens that the model needs.
    """
    config = _config(directory)
    path = directory / "tokenizer.json"
    if path.exists():
        content = read_json_object(path)
    elif (directory / "vocab.txt").exists():
        path = directory / "vocab.txt"
        content = _of_vocabulary(path, lowercase=config.get("do_lower_case", True) is not False)
    elif (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        path = directory / "vocab.json"
        content = _of_merges(directory)
    else:
        raise DataError(f"no tokenizer.json; transformers writes it: {_SAVE.format(directory)}", directory)
    try:
        return _restored(content | {"truncation": None, "padding": None}, config, is_masked=is_masked)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"no tokenizer that can be used: {error}", path) from None


def _restored(content: dict[str, Any], config: Mapping[str, str], *, is_masked: bool) -> Tokenizer:
    if is_masked and (symbols := _wordpiece(content)) is not None:
        return WordPieceTokenizer(symbols, lowercase=content["normalizer"]["lowercase"])
    library = library_tokenizer(content)
    special = _special(library.get_vocab(), config, FRAME if is_masked else BEGINNING)
    if missing := next((use for use in FRAME if is_masked and use not in special and use != UNKNOWN), None):
        raise ValueError(f"it has no special token for {missing}")
    if is_byte_level(content):
        return SubwordTokenizer(library, special=special or {START: "Ċ"})
    return PublishedTokenizer(library, special=special)


def _config(directory: Path) -> dict[str, Any]:
    """The directory's special tokens, by key, each as a string."""
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).exists():
            found |= {key: value for key, value in read_json_object(directory / name).items() if value is not None}
    return {key: value.get("content") if isinstance(value, dict) else value for key, value in found.items()}


def _special(
    vocabulary: Mapping[str, int],
    config: Mapping[str, str],
    uses: Mapping[str, tuple[Sequence[str], Sequence[str]]],
) -> dict[str, str]:
    """The special tokens of the vocabulary by what they are for."""
    found = {}
    for use, (keys, names) in uses.items():
        named = [*(config.get(key) for key in keys), *names]
        token = next((name for name in named if isinstance(name, str) and name in vocabulary), None)
        if token is not None:
            found[use] = token
    return found


def _wordpiece(content: Mapping[str, Any]) -> list[str] | None:
    """The symbols of a tokenizer that is our WordPiece exactly; None for others."""
    model, normalizer = content.get("model") or {}, content.get("normalizer") or {}
    is_ours = (
        model.get("type") == "WordPiece"
        and model.get("unk_token") == UNKNOWN
        and model.get("continuing_subword_prefix", INSIDE) == INSIDE
        and model.get("max_input_chars_per_word", LONGEST_WORD) == LONGEST_WORD
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and normalizer.get("handle_chinese_chars") is True
        and normalizer.get("strip_accents") is None
        and (content.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
    )
    if not is_ours:
        return None
    ids = model["vocab"]
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    if any(ids.get(token) != id for token, id in added.items()):
        return None
    if not {PADDING, UNKNOWN, BEGIN, SEPARATOR, MASK} <= ids.keys() or sorted(ids.values()) != list(range(len(ids))):
        return None
    return sorted(ids, key=ids.get)


def _of_vocabulary(path: Path, *, lowercase: bool) -> dict[str, Any]:
    """The published WordPiece of a vocabulary with a symbol on each line."""
    text = read_file(path).decode(errors="replace").replace("\r\n", "\n")
    symbols = text.removesuffix("\n").split("\n")  # other ends of lines are symbols
    return {
        "normalizer": {
            "type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {
            "type": "WordPiece", "unk_token": UNKNOWN, "vocab": {symbol: id for id, symbol in enumerate(symbols)},
        },
    }  # fmt: skip


def _of_merges(directory: Path) -> dict[str, Any]:
    """The published byte-level subwords of a vocabulary and its merges."""
    library = import_library()
    try:
        with library_errors():
            model = library.models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt"))
    except ValueError as error:
        raise DataError(f"not a vocabulary of subwords ({error})", directory / "vocab.json") from None
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    known = tokenizer.get_vocab()
    special = {name for names in (FRAME, BEGINNING) for _, tokens in names.values() for name in tokens}
    tokenizer.add_special_tokens([name for name in sorted(special) if name in known])
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    return content
