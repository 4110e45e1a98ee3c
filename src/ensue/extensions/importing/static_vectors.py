"""Import of word vectors: fastText models, text and binary files of word2vec, text files of GloVe, and model2vec."""

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError, pluralize
from ensue.extensions.importing.family import Configuration
from ensue.extensions.importing.weight_files import check_finite, read_json_object, read_weights, weight_files
from ensue.tasks import task_entry
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.pieces import library_tokenizer
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import LINE_END, UNKNOWN, WordTokenizer
from ensue.training.imported import Imported, build_recipe

MAGIC_NUMBER, VERSIONS = 793712314, (11, 12)
ARGUMENTS = (
    "dim", "ws", "epoch", "minCount", "neg", "wordNgrams", "loss", "model", "bucket", "minn", "maxn", "lrUpdateRate"
)  # fmt: skip
MODEL_KINDS = {1: "cbow", 2: "skip-gram"}
MAX_DIMENSION = 1 << 16
MIN_ENTRY_BYTES = 10
"""The minimum size of a word's entry: a zero byte after the word, its count (8 bytes), and its type (1 byte)."""


class FastText(NamedTuple):
    """A fastText model."""

    arguments: dict[str, int]
    words: list[bytes]
    rows: NDArray[np.float32]
    """The vectors of words, then of n-gram buckets, memory-mapped from the file."""


class _BinaryReader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.offset = path, data, 0

    def unpack(self, format: str) -> tuple[float, ...]:
        """Read little-endian numbers; `format` is a format of the module `struct`."""
        self.check_size(struct.calcsize(f"<{format}"))
        numbers = struct.unpack_from(f"<{format}", self.data, self.offset)
        self.offset += struct.calcsize(f"<{format}")
        return numbers

    def read_size(self, format: str) -> int:
        (size,) = self.unpack(format)
        if size < 0:
            raise self.make_error(f"a size of {size:,}")
        return int(size)

    def read_word(self) -> bytes:
        """Read until a zero byte."""
        end = self.data.find(b"\0", self.offset)
        if end < 0:
            raise self.make_error("a word without an end")
        word = self.data[self.offset : end]
        self.offset = end + 1
        return word

    def check_size(self, count: int) -> None:
        """Raise DataError if the file has fewer than `count` bytes left."""
        if self.offset + count > len(self.data):
            raise self.make_error(f"{count:,} bytes expected from byte {self.offset:,} on, of {len(self.data):,}")

    def make_error(self, problem: str) -> DataError:
        return DataError(f"truncated or damaged: {problem}", self.path)


def read_fasttext(path: Path) -> FastText:
    """Read a fastText model. The sizes in its header are checked against the size of the file.

    Raises DataError for a truncated or damaged file, a quantized model, another version, and a classifier.
    """
    with path.open("rb") as file_handle:
        file = _BinaryReader(path, mmap.mmap(file_handle.fileno(), 0, access=mmap.ACCESS_READ))
    _, version = file.unpack("ii")
    if version not in VERSIONS:
        raise DataError(f"version {version} of fastText's models; expected 11 or 12", path)
    arguments = dict(zip(ARGUMENTS, map(int, file.unpack("12i")), strict=True))
    file.unpack("d")  # the threshold of subsampling
    if arguments["model"] not in MODEL_KINDS:
        raise DataError("a classifier of fastText is unsupported; expected word vectors", path)
    if not 0 < arguments["dim"] <= MAX_DIMENSION:
        raise DataError(f"truncated or damaged: vectors of {arguments['dim']:,} numbers", path)
    if not 0 <= arguments["minn"] <= max(arguments["maxn"], arguments["minn"]) <= 100 or arguments["maxn"] < 0:
        raise DataError(f"n-grams of {arguments['minn']} to {arguments['maxn']} characters are not supported", path)
    if arguments["maxn"] and arguments["bucket"] < 1:
        raise DataError(f"truncated or damaged: {arguments['bucket']:,} buckets for n-grams", path)
    words = _read_words(file)
    if file.unpack("?")[0]:
        raise DataError("a quantized model is unsupported; expected the original .bin", path)
    rows, dimension = file.read_size("q"), file.read_size("q")
    buckets = arguments["bucket"] if arguments["maxn"] else 0
    if dimension != arguments["dim"] or rows not in (len(words) + buckets, len(words) + arguments["bucket"]):
        raise file.make_error(f"{rows:,} × {dimension:,} numbers for {len(words):,} words of {arguments['dim']:,}")
    file.check_size(4 * rows * dimension)
    vectors = np.frombuffer(file.data, "<f4", rows * dimension, file.offset).reshape(rows, dimension)
    return FastText(arguments, words, vectors[: len(words) + buckets])


def _read_words(file: _BinaryReader) -> list[bytes]:
    size, num_words, num_labels = (file.read_size("i") for _ in range(3))
    file.read_size("q")  # the number of training tokens
    (num_pruned,) = file.unpack("q")
    if num_pruned > 0 or num_labels or size != num_words:
        raise DataError("a pruned model, or a model with labels, is unsupported", file.path)
    file.check_size(MIN_ENTRY_BYTES * size)
    words = []
    for _ in range(size):
        words.append(file.read_word())
        file.unpack("qb")  # count and type
    return words


TASK = "word-vectors"
END = b"</s>"
"""The word of fastText for a line end, which has no n-grams."""


def import_vectors(path: Path) -> Imported:
    """Import a file of word vectors. Raises DataError for other files and for damaged files."""
    if path.suffix not in (".gz", ".xz"):
        with path.open("rb") as file:
            head = file.read(64)
        if head[:4] == struct.pack("<i", MAGIC_NUMBER):
            return _import_fasttext(path, read_fasttext(path))
        header = head.partition(b"\n")[0].split()
        if b"\0" in head and not (len(header) == 2 and all(field.isdigit() for field in header)):
            raise DataError(
                "neither a model of fastText (version 11 or 12) nor vectors of word2vec, which begin with two numbers",
                path,
            )
    words, vectors = read_vectors(path)
    if not words:
        raise DataError("no word vectors found", path)
    tokenizer, rows = _build_vocabulary(words, vectors)
    return _import_rows(path, "a file of word vectors", {"d_words": rows.shape[1]}, tokenizer, rows, [])


def import_model2vec(directory: Path, config: Configuration) -> Imported:
    """Import a directory of model2vec (Tulkens & van Dongen 2024). The vector of a text is the mean over its subwords.

    Raises DataError for missing, damaged or unsupported files.
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
        raise DataError(f"unsupported tokenizer: {error}", path) from None
    published_ids = torch.tensor([ids[symbol] for symbol in symbols])
    try:
        table = tensors["embeddings"].float()
        mapping = tensors.get("mapping", torch.arange(len(table)))
        has_all_ids = mapping.shape == (len(ids),) and not mapping.is_floating_point()
        if not has_all_ids or not 0 <= mapping.min() <= mapping.max() < len(table):
            raise IndexError(f"{len(ids):,} pieces, and a mapping {tuple(mapping.shape)} to {len(table):,} rows")
        rows = table[mapping.long()]
        rows = rows * tensors["weights"].float().view(-1, 1) if "weights" in tensors else rows
        if rows.dim() != 2 or len(rows) != len(ids):
            raise IndexError(f"{len(ids):,} pieces, and vectors {tuple(rows.shape)}")
        rows = torch.cat([rows.new_zeros(2, rows.shape[1]), rows[published_ids]])
    except (LookupError, RuntimeError) as error:
        raise DataError(f"no vectors of these pieces ({error})", files[0]) from None
    check_finite({"embeddings": rows}, files[0])
    vectors = {"kind": "static", "d_words": rows.shape[1], "unit_length": config.content.get("normalize") is True}
    recipe = build_recipe({"task": TASK, "tokenizer": {"kind": "published"}, "vectors": vectors}, directory)
    parts, keys = task_entry(TASK).parts_class(tokenizer), {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(directory, tuple(files), "model2vec", recipe, parts, keys, {"vectors": rows})


def _import_fasttext(path: Path, model: FastText) -> Imported:
    arguments = model.arguments
    decoded = [word.decode(errors="replace") for word in model.words]
    valid = [n for n, word in enumerate(model.words) if decoded[n].encode() == word and decoded[n].strip()]
    tokenizer, rows = _build_vocabulary([decoded[n] for n in valid], model.rows[: len(model.words)][valid])
    num_omitted = len(decoded) - len(valid)
    notes = [f"{pluralize(num_omitted, 'word')} left out, not in UTF-8"] if num_omitted else []
    buckets = torch.from_numpy(model.rows[len(model.words) :].astype(np.float32))
    if not torch.isfinite(buckets).all():
        raise DataError("a number is not finite", path)
    table = {
        "d_words": arguments["dim"], "shortest_ngram": max(1, arguments["minn"]), "longest_ngram": arguments["maxn"],
        "ngram_buckets": max(1, arguments["bucket"]),
    }  # fmt: skip
    if arguments["maxn"] and END in model.words:
        # END has no n-grams in fastText. With this row, the mean of its row and its n-grams is its published vector.
        hashes, _ = ngram_hashes([END.decode()], table["shortest_ngram"], arguments["maxn"])
        ngrams = buckets[torch.from_numpy((hashes % arguments["bucket"]).astype(np.int64))]
        row = tokenizer.vocabulary.ids[END.decode()]
        rows[row] = rows[row] * (1 + len(ngrams)) - ngrams.sum(0)
    rows = torch.cat([rows, buckets])
    return _import_rows(path, f"fastText's model ({MODEL_KINDS[arguments['model']]})", table, tokenizer, rows, notes)


def _build_vocabulary(words: list[str], vectors: NDArray[np.float32]) -> tuple[WordTokenizer, Tensor]:
    """Return a tokenizer with two special tokens before the words, and the vector of each token, 0 by default."""
    if not np.isfinite(vectors).all():
        raise DataError("a number is not finite")
    special = [UNKNOWN, LINE_END]
    row_of = {word: row for row, word in enumerate(words)}
    ordinary = [row for word, row in row_of.items() if word not in special]
    tokenizer = WordTokenizer([*special, *(words[row] for row in ordinary)])
    rows = torch.zeros(2 + len(ordinary), vectors.shape[1])
    rows[2:] = torch.from_numpy(np.ascontiguousarray(vectors[ordinary], np.float32))
    for id, token in enumerate(special):
        if token in row_of:
            rows[id] = torch.from_numpy(np.array(vectors[row_of[token]], np.float32))
    return tokenizer, rows


def _import_rows(
    path: Path, kind: str, table: dict[str, int], tokenizer: WordTokenizer, rows: Tensor, notes: list[str]
) -> Imported:
    words = {"kind": "words", "splitter": "whitespace", "lowercase": False}
    recipe = build_recipe({"task": TASK, "tokenizer": words, "vectors": {"kind": "static", **table}}, path)
    parts = task_entry(TASK).parts_class(tokenizer)
    vocabulary = {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(path, (path,), kind, recipe, parts, vocabulary, {"vectors": rows}, notes)
