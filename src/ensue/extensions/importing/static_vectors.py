"""Files of word vectors as runs: fastText's models, word2vec's text and binary, GloVe's text, model2vec's tables."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError
from ensue.extensions.importing.family import Configuration
from ensue.extensions.importing.weight_files import check_finite, read_json_object, read_weights, weight_files
from ensue.tasks import task_entry
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.pieces import library_tokenizer
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import UNKNOWN
from ensue.text.words import LINE_END, WordTokenizer
from ensue.training.imported import Imported, recipe_of

MAGIC, VERSIONS = 793712314, (11, 12)
ARGUMENTS = (
    "dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model", "bucket", "minn", "maxn", "lrUpdateRate"
)  # fmt: skip
KINDS = {1: "cbow", 2: "skip-gram"}
LARGEST_DIMENSION = 1 << 16
SHORTEST_ENTRY = 10
"""Bytes of a word's entry at least: the end of the word, its count, its type."""


class FastText(NamedTuple):
    """The words as in the file, and the rows (words + buckets, d), still in the file."""

    arguments: dict[str, int]
    words: list[bytes]
    rows: NDArray[np.float32]

    @property
    def kind(self) -> str:
        """The model: skip-gram or CBOW."""
        return KINDS[self.arguments["model"]]


class _File:
    """The bytes of a file from front to back. Raises DataError where they end too soon."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.place = path, data, 0

    def numbers(self, form: str) -> tuple[float, ...]:
        self.need(struct.calcsize(f"<{form}"))
        found = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def whole(self, form: str) -> int:
        """A whole number from 0 on."""
        (found,) = self.numbers(form)
        if found < 0:
            raise self.damaged(f"a size of {found:,}")
        return int(found)

    def until_zero(self) -> bytes:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise self.damaged("a word without an end")
        found = self.data[self.place : end]
        self.place = end + 1
        return found

    def need(self, count: int) -> None:
        if self.place + count > len(self.data):
            raise self.damaged(f"{count:,} bytes expected from byte {self.place:,} on, {len(self.data):,} in all")

    def damaged(self, what: str) -> DataError:
        return DataError(f"cut off or altered: {what}", self.path)


def is_fasttext(path: Path) -> bool:
    """Whether a file begins as fastText's models do."""
    with path.open("rb") as file:
        return file.read(4) == struct.pack("<i", MAGIC)


def read_fasttext(path: Path) -> FastText:
    """The model of a file. Sizes are compared with that of the file before anything is read.

    Raises DataError for a file that is cut off or altered, quantized, of another version, and for a classifier.
    """
    with path.open("rb") as opened:
        file = _File(path, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    _, version = file.numbers("ii")
    if version not in VERSIONS:
        raise DataError(f"version {version} of fastText's models; expected 11 or 12", path)
    arguments = dict(zip(ARGUMENTS, map(int, file.numbers("12i")), strict=True))
    file.numbers("d")  # the threshold of subsampling
    _check(arguments, path)
    words = _words(file)
    if file.numbers("?")[0]:
        raise DataError("a quantized model, which is not read; expected the .bin that it was made of", path)
    rows, dimension = file.whole("q"), file.whole("q")
    buckets = arguments["bucket"] if arguments["maxn"] else 0
    if dimension != arguments["dim"] or rows not in (len(words) + buckets, len(words) + arguments["bucket"]):
        raise file.damaged(f"{rows:,} × {dimension:,} numbers for {len(words):,} words of {arguments['dim']:,}")
    file.need(4 * rows * dimension)
    found = np.frombuffer(file.data, "<f4", rows * dimension, file.place).reshape(rows, dimension)
    return FastText(arguments, words, found[: len(words) + buckets])


def _check(arguments: dict[str, int], path: Path) -> None:
    if arguments["model"] not in KINDS:
        raise DataError("no word vectors but a classifier of fastText, which is not read", path)
    if not 0 < arguments["dim"] <= LARGEST_DIMENSION:
        raise DataError(f"cut off or altered: vectors of {arguments['dim']:,} numbers", path)
    if not 0 <= arguments["minn"] <= max(arguments["maxn"], arguments["minn"]) <= 100 or arguments["maxn"] < 0:
        raise DataError(f"n-grams of {arguments['minn']} to {arguments['maxn']} characters are not supported", path)
    if arguments["maxn"] and arguments["bucket"] < 1:
        raise DataError(f"cut off or altered: {arguments['bucket']:,} buckets for n-grams", path)


def _words(file: _File) -> list[bytes]:
    size, words, labels = (file.whole("i") for _ in range(3))
    file.whole("q")  # tokens of the text
    (pruned,) = file.numbers("q")
    if pruned > 0 or labels or size != words:
        raise DataError("a pruned model or one with labels, which is not read", file.path)
    file.need(SHORTEST_ENTRY * size)
    found = []
    for _ in range(size):
        found.append(file.until_zero())
        file.numbers("qb")
    return found


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
        mapping = tensors.get("mapping", torch.arange(len(table)))
        is_whole = mapping.shape == (len(ids),) and not mapping.is_floating_point()
        if not is_whole or not 0 <= mapping.min() <= mapping.max() < len(table):
            raise IndexError(f"{len(ids):,} pieces, and a mapping {tuple(mapping.shape)} to {len(table):,} rows")
        rows = table[mapping.long()]
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
    """The vocabulary, after two symbols of our own, and the row of each symbol; theirs for these two if it has them."""
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
