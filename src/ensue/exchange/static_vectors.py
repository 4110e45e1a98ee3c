"""Files of word vectors as runs: fastText's models, word2vec's text and binary, GloVe's text, model2vec's tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError
from ensue.exchange.family import Configuration
from ensue.exchange.fasttext import FastText, is_fasttext, read_fasttext
from ensue.exchange.imported import Imported, recipe_of
from ensue.exchange.weight_files import check_finite, read_json_object, read_weights, weight_files
from ensue.tasks import task_entry
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.pieces import library_tokenizer
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import UNKNOWN
from ensue.text.words import LINE_END, WordTokenizer

TASK = "word-vectors"
END = b"</s>"
"""fastText's word for a line end, which has no n-grams."""


def import_vectors(path: Path) -> Imported:
    """A file of word vectors. Raises DataError for one that is none, cut off, or of several dimensions."""
    if _is_compressed(path) or not is_fasttext(path):
        return _of_rows(path)
    return _of_fasttext(path, read_fasttext(path))


def _of_rows(path: Path) -> Imported:
    if not _is_compressed(path) and _is_binary(path) and not _has_header(path):
        raise DataError(
            "neither a model of fastText, which begins with its sign (older ones have none, and are not read), nor "
            "vectors of word2vec, which begin with two numbers",
            path,
        )
    words, vectors = read_vectors(path)
    if not words:
        raise DataError("no word vectors in it", path)
    tokenizer, rows = _table(words, vectors)
    table = {"d_words": rows.shape[1]}
    return _imported(path, "a file of word vectors", table, tokenizer, rows, [])


def import_model2vec(directory: Path, config: Configuration) -> Imported:
    """A directory of model2vec (Tulkens & van Dongen 2024): vectors of pieces, whose mean is a text's. Raises DataError
    for what is missing or does not fit.

    Unknown pieces have no vector. Factors for pieces, and a table that several share, become rows.
    """
    files, path = weight_files(directory), directory / "tokenizer.json"
    tensors, content = read_weights(files), read_json_object(path)
    try:
        library = library_tokenizer(content | {"truncation": None, "padding": None})
        ids, model = library.get_vocab(), content["model"]
        unknown = model["vocab"][model["unk_id"]][0] if model.get("unk_id") is not None else model.get("unk_token")
        symbols = [symbol for symbol in sorted(ids, key=ids.__getitem__) if symbol not in (unknown, UNKNOWN, LINE_END)]
        tokenizer = NumberedTokenizer(library, [UNKNOWN, LINE_END, *symbols])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"no tokenizer that can be used: {error}", path) from None
    places = torch.tensor([ids[symbol] for symbol in symbols])
    try:
        table = tensors["embeddings"].float()
        rows = table[tensors["mapping"].long() if "mapping" in tensors else slice(None)]
        rows = rows * tensors["weights"].float().view(-1, 1) if "weights" in tensors else rows
        if rows.dim() != 2 or len(rows) != len(ids):
            raise IndexError(f"{len(ids):,} pieces, and vectors {tuple(rows.shape)}")
        rows = torch.cat([rows.new_zeros(2, rows.shape[1]), rows[places]])
    except (LookupError, RuntimeError) as error:
        raise DataError(f"no vectors of these pieces ({error})", files[0]) from None
    check_finite({"embeddings": rows}, files[0])
    vectors = {"kind": "static", "d_words": rows.shape[1], "unit_length": config.content.get("normalize") is True}
    recipe = recipe_of({"task": TASK, "tokenizer": {"kind": "published"}, "vectors": vectors}, directory)
    parts, keys = task_entry(TASK).parts_class(tokenizer), {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(directory, tuple(files), "model2vec", recipe, parts, keys, {"vectors": rows})


def _is_compressed(path: Path) -> bool:
    return path.suffix in (".gz", ".xz")


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(64)


def _has_header(path: Path) -> bool:
    """Whether a file says first how many vectors it has, as word2vec's do."""
    with path.open("rb") as file:
        fields = file.readline(64).split()
    return len(fields) == 2 and all(field.isdigit() for field in fields)


def _of_fasttext(path: Path, model: FastText) -> Imported:
    at = model.arguments
    decoded = [word.decode(errors="replace") for word in model.words]
    kept = [n for n, word in enumerate(model.words) if decoded[n].encode() == word and decoded[n].strip()]
    own = model.rows[: len(model.words)]
    tokenizer, rows = _table([decoded[n] for n in kept], own[kept])
    left = len(decoded) - len(kept)
    notes = [f"{left:,} words that are no UTF-8 were left out"] if left else []
    buckets = torch.from_numpy(model.rows[len(model.words) :].astype(np.float32))
    if not torch.isfinite(buckets).all():
        raise DataError("a number is not finite", path)
    table = {
        "d_words": at["dim"],
        "shortest_ngram": max(1, at["minn"]),
        "longest_ngram": at["maxn"],
        "ngram_buckets": max(1, at["bucket"]),
    }
    if at["maxn"] and END in model.words:
        _without_ngrams(tokenizer, rows, buckets, END.decode(), at)
    rows = torch.cat([rows, buckets])
    return _imported(path, f"fastText's model ({model.kind})", table, tokenizer, rows, notes)


def _without_ngrams(tokenizer: WordTokenizer, rows: Tensor, buckets: Tensor, word: str, at: dict[str, int]) -> None:
    """Changes the row of a word so that the mean with its n-grams is what the row was."""
    hashes, _ = ngram_hashes([word], max(1, at["minn"]), at["maxn"])
    ngrams = buckets[torch.from_numpy((hashes % at["bucket"]).astype(np.int64))]
    place = tokenizer.vocabulary.ids[word]
    rows[place] = rows[place] * (1 + len(ngrams)) - ngrams.sum(0)


def _table(words: list[str], vectors: NDArray[np.float32]) -> tuple[WordTokenizer, Tensor]:
    """The vocabulary, whose first two symbols are our own, and the row of each symbol. A vector for one of these two
    is theirs.
    """
    if not np.isfinite(vectors).all():
        raise DataError("a number is not finite")
    own = [UNKNOWN, LINE_END]
    places = {word: place for place, word in enumerate(words)}
    kept = [place for word, place in places.items() if word not in own]
    tokenizer = WordTokenizer([*own, *(words[place] for place in kept)])
    rows = torch.zeros(2 + len(kept), vectors.shape[1])
    rows[2:] = torch.from_numpy(np.ascontiguousarray(vectors[kept], np.float32))
    for symbol, place in ((number, places[word]) for number, word in enumerate(own) if word in places):
        rows[symbol] = torch.from_numpy(np.array(vectors[place], np.float32))
    return tokenizer, rows


def _imported(
    path: Path, what: str, table: dict[str, int], tokenizer: WordTokenizer, rows: Tensor, notes: list[str]
) -> Imported:
    words = {"kind": "words", "splitter": "whitespace", "lowercase": False}
    recipe = recipe_of({"task": TASK, "tokenizer": words, "vectors": {"kind": "static", **table}}, path)
    parts = task_entry(TASK).parts_class(tokenizer)
    vocabulary = {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(path, (path,), what, recipe, parts, vocabulary, {"vectors": rows}, notes)
