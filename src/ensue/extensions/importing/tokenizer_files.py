"""Import of published tokenizers."""

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
from ensue.text.wordpiece import BEGIN, INSIDE, MASK, MAX_WORD_LENGTH, PADDING, SEPARATOR, UNKNOWN, WordPieceTokenizer
from ensue.training.imported import read_file

MASKED_TOKENS = {
    PADDING: (("pad_token",), ("[PAD]", "<pad>")), BEGIN: (("cls_token", "bos_token"), ("[CLS]", "<s>")),
    SEPARATOR: (("sep_token", "eos_token"), ("[SEP]", "</s>")), MASK: (("mask_token",), ("[MASK]", "<mask>")),
    UNKNOWN: (("unk_token",), ("[UNK]", "<unk>")),
}  # fmt: skip
"""The special tokens of a masked language model, with their keys in tokenizer_config.json, and their default names."""
CAUSAL_TOKENS = {START: (("bos_token", "eos_token"), ("<|endoftext|>",)), UNKNOWN: (("unk_token",), ("<unk>",))}
"""The special tokens of a causal language model."""
_CONVERSION = 'AutoTokenizer.from_pretrained("{0}").save_pretrained("{0}")'


def read_tokenizer(directory: Path, *, is_masked: bool) -> Tokenizer:
    """Read a tokenizer: `tokenizer.json`, or an older `vocab.txt`, or `vocab.json` with `merges.txt`.

    BERT's WordPiece for masked models needs no library; all other tokenizers use the library `tokenizers`. Raises
    DataError if the tokenizer is missing or unreadable, or lacks special tokens that the model needs.
    """
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (directory / name).exists():
            config |= {key: value for key, value in read_json_object(directory / name).items() if value is not None}
    config = {key: value.get("content") if isinstance(value, dict) else value for key, value in config.items()}
    path = directory / "tokenizer.json"
    if path.exists():
        content = read_json_object(path)
    elif (directory / "vocab.txt").exists():
        path = directory / "vocab.txt"
        content = _convert_vocabulary(path, lowercase=config.get("do_lower_case", True) is not False)
    elif (directory / "vocab.json").is_file() and (directory / "merges.txt").is_file():
        path = directory / "vocab.json"
        content = _convert_merges(directory)
    else:
        raise DataError(f"no tokenizer.json; transformers writes it: {_CONVERSION.format(directory)}", directory)
    try:
        return _build_tokenizer(content | {"truncation": None, "padding": None}, config, is_masked=is_masked)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"unsupported tokenizer: {error}", path) from None


def _build_tokenizer(content: dict[str, Any], config: Mapping[str, str], *, is_masked: bool) -> Tokenizer:
    if is_masked and (symbols := _read_wordpiece(content)) is not None:
        return WordPieceTokenizer(symbols, lowercase=content["normalizer"]["lowercase"])
    library = library_tokenizer(content)
    special = _find_special_tokens(library.get_vocab(), config, MASKED_TOKENS if is_masked else CAUSAL_TOKENS)
    if missing := next((role for role in MASKED_TOKENS if is_masked and role not in special and role != UNKNOWN), None):
        raise ValueError(f"no special token for {missing}")
    if is_byte_level(content):
        return SubwordTokenizer(library, special=special or {START: "Ċ"})
    return PublishedTokenizer(library, special=special)


def _find_special_tokens(
    vocabulary: Mapping[str, int], config: Mapping[str, str], roles: Mapping[str, tuple[Sequence[str], Sequence[str]]]
) -> dict[str, str]:
    """Return the published token for each special token of ensue: the first of its names in the vocabulary."""
    tokens = {}
    for role, (keys, defaults) in roles.items():
        names = [*(config.get(key) for key in keys), *defaults]
        token = next((name for name in names if isinstance(name, str) and name in vocabulary), None)
        if token is not None:
            tokens[role] = token
    return tokens


def _read_wordpiece(content: Mapping[str, Any]) -> list[str] | None:
    """Return the vocabulary of a `tokenizer.json`; None if it is not equivalent to a WordPiece tokenizer of ensue."""
    model, normalizer = content.get("model") or {}, content.get("normalizer") or {}
    is_equivalent = (
        model.get("type") == "WordPiece"
        and model.get("unk_token") == UNKNOWN
        and model.get("continuing_subword_prefix", INSIDE) == INSIDE
        and model.get("max_input_chars_per_word", MAX_WORD_LENGTH) == MAX_WORD_LENGTH
        and normalizer.get("type") == "BertNormalizer"
        and normalizer.get("clean_text") is True
        and normalizer.get("handle_chinese_chars") is True
        and normalizer.get("strip_accents") is None
        and (content.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
    )
    if not is_equivalent:
        return None
    ids = model["vocab"]
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or []}
    if any(ids.get(token) != id for token, id in added.items()):
        return None
    if not {PADDING, UNKNOWN, BEGIN, SEPARATOR, MASK} <= ids.keys() or sorted(ids.values()) != list(range(len(ids))):
        return None
    return sorted(ids, key=ids.get)


def _convert_vocabulary(path: Path, *, lowercase: bool) -> dict[str, Any]:
    """Return the `tokenizer.json` equivalent to a `vocab.txt`."""
    text = read_file(path).decode(errors="replace").replace("\r\n", "\n")
    symbols = text.removesuffix("\n").split("\n")  # not splitlines: other line separators may be symbols
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


def _convert_merges(directory: Path) -> dict[str, Any]:
    """Return the `tokenizer.json` equivalent to `vocab.json` with `merges.txt`."""
    library = import_library()
    try:
        with library_errors():
            model = library.models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt"))
    except ValueError as error:
        raise DataError(f"not a vocabulary of subwords ({error})", directory / "vocab.json") from None
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    vocabulary = tokenizer.get_vocab()
    special = {name for roles in (MASKED_TOKENS, CAUSAL_TOKENS) for _, names in roles.values() for name in names}
    tokenizer.add_special_tokens([name for name in sorted(special) if name in vocabulary])
    return json.loads(tokenizer.to_str())
