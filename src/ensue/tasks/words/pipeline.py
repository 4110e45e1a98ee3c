"""Base of the pipelines of taggers and classifiers, and the contextual vectors that the layers of other runs compute.

Contextual vectors are float16. They are computed once for equal texts of a data set.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.cache import cache_directory, mark_used, size_limit, write_cached
from ensue.data.compact_texts import Ragged
from ensue.data.files import Data
from ensue.data.lines import Lines
from ensue.data.sources import is_typed
from ensue.data.vectors import VectorIndex
from ensue.errors import EnsueError, RecipeError, check_type
from ensue.inspection.features import ReadWords
from ensue.models import word_features
from ensue.models.layer_outputs import LayersShape
from ensue.models.modules import device_of
from ensue.models.subword_encoder import Subwords
from ensue.models.word_features import FormCache, FormTable, WordFeatures
from ensue.models.word_specification import ContextualSpecification
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.notices import warn_once
from ensue.runs.directory import Origin, RunDirectory, origins_in
from ensue.stored import copy_with
from ensue.tasks import task_entries
from ensue.tasks.contract.chunks import Shard, chunks
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.lexicon import NEW_CHARACTERS, NEW_WORDS, NO_VECTOR, Lexicon, UnknownCounts

CACHE_VERSION = 1
"""The version in the cache key, to be raised when a change of the code changes vectors."""
CHUNK_WORDS = 8_192
"""The approximate number of words whose vectors are computed at once."""
MAX_FLOAT16 = float(np.finfo(np.float16).max)

Float16Array = NDArray[np.float16]
ProgressCallback = Callable[[str, float], None]
"""A function of a description of the work and of its completed share."""


class WordLayers(ABC):
    """The vectors of the words of texts in the layers of one run."""

    @abstractmethod
    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Float16Array:
        """Return the vectors (B, T, L, d) of the words of `texts`, indices of texts, with zeros at padding. T is the
        length of the longest text of `among`, by default of `texts`.
        """

    def batch(self, texts: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Tensor:
        """Return the vectors (B, T, L, d) of a slice of the texts as float32 on a device (see `rows`)."""
        return torch.from_numpy(self.rows(row_slice.select(texts), among=texts)).to(device).float()


@dataclass(frozen=True)
class CachedVectors(WordLayers):
    """Vectors in a memory-mapped file of the cache."""

    file: Float16Array
    """The vectors (R, L, d); row 0 is zero."""
    numbers: Ragged
    """For each text, the rows of its words in `file`."""

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Float16Array:
        return self.file[self.numbers.padded(texts, among=among)]


class TextsOfForms:
    """A sequence of texts as lists of words, stored as indices into the word forms `forms`."""

    def __init__(self, words: Ragged, forms: Sequence[str]) -> None:
        self.words, self.forms = words, forms

    def __getitem__(self, text: int) -> list[str]:
        return [self.forms[form] for form in self.words[text].tolist()]

    def __len__(self) -> int:
        return len(self.words)


class OriginVectors:
    """The vectors that a model takes from `layers` of another run, with pooling of subwords."""

    def __init__(self, origin: Origin, pipeline: ContextualPipeline, layers: tuple[int, ...], pooling: str) -> None:
        self.origin, self.pipeline, self.layers, self.pooling = origin, pipeline, layers, pooling
        self.path, self.shape = origin.path, LayersShape(len(layers), pipeline.d_layers)

    def move(self, device: torch.device) -> None:
        """Move the model of the run to a device."""
        if device_of(self.pipeline.model) != device:
            self.pipeline = type(self.pipeline).of(self.origin.run, device)

    def compute(self, texts: Sequence[Sequence[str]]) -> list[Float16Array]:
        """Return the vectors (T, L, d) of the words of each text."""
        all_layers = self.pipeline.layers_of_words(texts, pooling=self.pooling)
        return [to_float16(layers[list(self.layers)].transpose(1, 0, 2)) for layers in all_layers]

    def load_or_compute(self, words: Ragged, forms: Sequence[str], progress: ProgressCallback) -> WordLayers:
        """Return the vectors of texts from the cache; missing vectors are computed and written first."""
        device = device_of(self.pipeline.model).type  # part of the key, since devices round differently
        key = [self.origin.fingerprint, self.layers, self.pooling, device]
        report = partial(progress, f"layers of {self.path}")
        vectors = cached_vectors(words, forms, self.compute, shape=self.shape, key=key, progress=report)
        if vectors is None:
            warn_once(f"layers of {self.path}", _ADVICE.format(path=self.path, words=len(words.values)))
            return ComputedVectors(self, TextsOfForms(words, forms))
        return vectors


_ADVICE = (
    "features.contextual: the layers of {path} for {words:,} words are more than the cache holds, and are computed "
    "again in each epoch; fewer features.contextual_layers or a larger ENSUE_CACHE_LIMIT avoid this"
)


class ContextualFeatures:
    """The runs whose layers are features, in the order of the recipe."""

    def __init__(self, origins: Iterable[OriginVectors] = ()) -> None:
        self.origins = tuple(origins)
        self.shapes = tuple(origin.shape for origin in self.origins)
        self._lazy: list[LazyVectors] = []

    @classmethod
    def of(cls, features: ContextualSpecification, origins: Sequence[Origin], device: torch.device) -> Self:
        """Return the features of the runs in `features.contextual` of a recipe."""
        by_path = {origin.path: origin for origin in origins}
        return cls(_load_origin_vectors(by_path[path], features, device) for path in features.contextual)

    @classmethod
    def within(cls, run: RunDirectory, device: torch.device) -> Self:
        """Return the features of the runs that are stored inside the run of a model."""
        recipe: Any = run.recipe
        return cls.of(recipe.features, origins_in(run), device)

    def lazy_vectors(self, words: Ragged, forms: Sequence[str]) -> tuple[WordLayers, ...]:
        """Return the vectors of a data set with texts as indices into word forms, for `precompute` to compute."""
        vectors = tuple(LazyVectors(origin, words, forms) for origin in self.origins)
        self._lazy += vectors
        return vectors

    def precompute(self, device: torch.device, progress: ProgressCallback) -> None:
        """Compute on a device all vectors that `lazy_vectors` returned and that are missing in the cache."""
        for origin in self.origins:
            origin.move(device)
        for vectors in self._lazy:
            vectors.precompute(progress)
        self._lazy = []

    def vectors_on_demand(self, texts: Sequence[Sequence[str]]) -> tuple[WordLayers, ...]:
        """Return the vectors of texts, computed whenever a batch is read."""
        return tuple(ComputedVectors(origin, texts) for origin in self.origins)


NO_CONTEXT = ContextualFeatures()
"""No features from other runs."""


class LazyVectors(WordLayers):
    """The vectors of a data set, computed or read from the cache at first use."""

    def __init__(self, origin: OriginVectors, words: Ragged, forms: Sequence[str]) -> None:
        self.origin, self.words, self.forms = origin, words, forms
        self._vectors: WordLayers | None = None

    def precompute(self, progress: ProgressCallback) -> WordLayers:
        """Return the vectors, and report the progress of their computation."""
        if self._vectors is None:
            self._vectors = self.origin.load_or_compute(self.words, self.forms, progress)
        return self._vectors

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Float16Array:
        return self.precompute(lambda what, share: None).rows(texts, among=among)


@dataclass(frozen=True)
class ComputedVectors(WordLayers):
    """Vectors that are computed whenever a batch is read."""

    origin: OriginVectors
    texts: Sequence[Sequence[str]] | TextsOfForms

    def rows(self, texts: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> Float16Array:
        sentences = [self.texts[text] for text in texts.tolist()]
        width = max((len(self.texts[text]) for text in (texts if among is None else among).tolist()), default=0)
        padded = np.zeros((len(sentences), width, *self.origin.shape), np.float16)
        for row, vectors in zip(padded, self.origin.compute(sentences), strict=True):
            row[: len(vectors)] = vectors
        return padded


def cached_vectors(
    words: Ragged, forms: Sequence[str], compute: Callable[[Sequence[Sequence[str]]], Sequence[Float16Array]], *,
    shape: tuple[int, ...], key: Sequence[Any], progress: Callable[[float], None],
) -> CachedVectors | None:  # fmt: skip
    """Return the vectors of texts, indices into `forms`, from the cache; None if they exceed the limit of the cache.
    Missing vectors are computed by `compute` and written. `shape` is the shape of the vectors of a word. `key`
    identifies `compute` in the cache, and `progress` is called with the share of words that are written.
    """
    # the distinct texts in order of first occurrence, and the rows of their words in the file
    starts, first_rows, firsts, next_row = [], {}, [], 1
    for text, length in enumerate(words.lengths.tolist()):
        content = words[text].tobytes()
        if content not in first_rows:
            first_rows[content] = next_row
            next_row += length
            firsts.append(text)
        starts.append(first_rows[content])
    shifts = np.repeat(np.array(starts, np.int64) - words.starts[:-1], words.lengths)
    positions = np.arange(words.starts[0], words.starts[-1]) if len(words) else np.zeros(0, np.int64)
    rows = Ragged((positions + shifts).astype(np.int64), words.starts - words.starts[0])
    distinct = Ragged.of(words[text] for text in firsts)
    texts, count = TextsOfForms(distinct, forms), len(distinct.values)
    file_shape = (1 + count, *shape)
    if np.prod(file_shape, dtype=np.float64) * np.dtype(np.float16).itemsize > size_limit():
        return None
    digest = hashlib.sha256(json.dumps(list(forms)).encode())
    for array in (distinct.values, distinct.starts):
        digest.update(array.astype("<i8").tobytes())
    name = hashlib.sha256(json.dumps([CACHE_VERSION, *key, digest.hexdigest()]).encode()).hexdigest()[:32] + ".npy"

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.lib.format.write_array_header_1_0(stream, {"descr": "<f2", "fortran_order": False, "shape": file_shape})
            stream.write(np.zeros(shape, "<f2").tobytes())
            num_written = 0
            for chunk in chunks(map(texts.__getitem__, range(len(texts))), len, chunk_words=CHUNK_WORDS):
                for vectors in compute(chunk):
                    stream.write(vectors.astype("<f2").tobytes())
                num_written += sum(map(len, chunk))
                progress(num_written / max(1, count))

    file = _open_mapped(cache_directory() / name, file_shape)
    if file is None:
        file = _open_mapped(write_cached(name, write), file_shape)
    assert file is not None
    return CachedVectors(file, rows)


def _open_mapped(path: Path, shape: tuple[int, ...]) -> Float16Array | None:
    """Return a memory-mapped file of the cache; None if it is missing or damaged."""
    try:
        mark_used(path)
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return vectors if vectors.shape == shape and vectors.dtype == np.float16 else None


def to_float16(vectors: NDArray[np.float32]) -> Float16Array:
    """Return the vectors as float16, clipped to the range of float16."""
    return vectors.clip(-MAX_FLOAT16, MAX_FLOAT16).astype(np.float16)


def _load_origin_vectors(origin: Origin, features: ContextualSpecification, device: torch.device) -> OriginVectors:
    entry = origin.run.entry
    if not issubclass(entry.pipeline_class, ContextualPipeline):
        kinds = [other.what for other in task_entries() if issubclass(other.pipeline_class, ContextualPipeline)]
        raise RecipeError(
            f"features.contextual: {origin.path} is a run of a {entry.what}, which gives no vectors of words in their "
            f"sentences; expected a {' or a '.join(kinds)}"
        )
    pipeline = entry.pipeline_class.of(origin.run, device)
    layers, count = features.contextual_layers or range(pipeline.num_layers), pipeline.num_layers
    if unknown := [layer for layer in layers if not -count <= layer < count]:
        expected = f"{origin.path} has the layers 0 to {count - 1}"
        raise RecipeError(f"features.contextual_layers: {expected}; found {unknown[0]}")
    return OriginVectors(origin, pipeline, tuple(layer % count for layer in layers), features.contextual_pooling)


MAX_PAGE_WORDS = 10_000
"""The maximum number of words in an inspected text."""
T = TypeVar("T")
AnswerT = TypeVar("AnswerT")


class WordPipeline(Predictor):
    """The base of the pipelines of taggers and classifiers, which split texts into words with features."""

    recipe: WordsRecipe

    def __init__(
        self, model: Any, lexicon: Lexicon, labels: Any, *, recipe: Any, config: Mapping[str, Any] | None = None,
        contextual: ContextualFeatures = NO_CONTEXT, subwords: SubwordReader | None = None,
        run: str | Path | None = None,
    ) -> None:  # fmt: skip
        super().__init__(model.eval())
        has_bag = getattr(model, "bag", None) is not None
        self.reader = FeatureReader(model.features, lexicon, device_of(model), has_bag=has_bag)
        self.labels, self.config, self.subwords = labels, config or {}, subwords
        self._splitter: str = recipe.data.splitter
        self.recipe, self.contextual, self.run = recipe, contextual, run
        self.max_words = recipe.max_words

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Self:
        parts: WordParts = run.parts
        return cls(
            run.model(device), parts.lexicon, parts.labels, recipe=run.recipe, config=run.config, run=run.path,
            contextual=ContextualFeatures.within(run, device), subwords=parts.subwords(run.recipe),
        )  # fmt: skip

    @property
    def splitter(self) -> str:
        """The name of the splitter of running text into words; "whitespace" is for tokenized text."""
        return self._splitter

    def with_splitter(self, splitter: str) -> Self:
        """Return a copy of the model with another splitter."""
        check_type("the splitter", splitter, str, "its name")
        return copy_with(self, _splitter=splitter)

    @abstractmethod
    def source(
        self, location: Data | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool
    ) -> Any:
        """Return the texts of a file, with the columns that both the training data and the file have."""

    def _open_batches(self, location: str, format: str | None, encoding: str) -> tuple[Any, Iterable[Iterable[Any]]]:
        """Return the source of a location, and its texts in batches: one text from a terminal, or all texts."""
        source = self._open_source(location, format=format, encoding=encoding)
        return source, ([text] for text in source) if is_typed(location) else [source]

    def _answer_chunks(
        self, chunks: Callable[[], Iterator[T]], shard: Shard, words_of: Callable[[T], list[Sequence[str]]],
        answers: Callable[[T, FormTable, Ragged], Iterator[AnswerT]],
    ) -> Iterator[AnswerT]:  # fmt: skip
        """Yield the answers for a shard of chunks. Earlier chunks are read, too: indices of words depend on them."""
        indices = shard.chunks(chunks)
        for index, chunk in enumerate(chunks()):
            if index >= indices.stop:
                return
            forms, numbers = self.reader.read(words_of(chunk))
            if index >= indices.start:
                yield from answers(chunk, forms, numbers)

    def lacking(self, *, least: int = 0) -> str:
        return self.reader.unknown_counts.line(min_words=least)

    def with_vectors(self, file: str | Path) -> Self:
        """Return a copy of the model that looks up unknown words in `file`, the pretrained vectors of training."""
        return copy_with(self, reader=self.reader.with_vectors(file))

    def use_vectors(self, file: str | Path) -> None:
        """Look up unknown words in `file`, the pretrained vectors of training."""
        self.reader = self.reader.with_vectors(file)

    def read_words(
        self, texts: Sequence[Sequence[str]], columns: dict[str, tuple[str, ...]] | None = None
    ) -> list[ReadWords]:
        """Return the inputs of each text for an inspection page. Raise EnsueError for empty or too long texts."""
        for words in texts:
            if not words:
                raise EnsueError("nothing to inspect: the text has no words")
            self.recipe.check_length(len(words))
            if len(words) > MAX_PAGE_WORDS:
                raise EnsueError(f"the text has {len(words):,} words; at most {MAX_PAGE_WORDS:,} can be inspected")
        features, lexicon = self.reader.memory.read([word for words in texts for word in words])
        device, norms, read = device_of(self.model), self._compute_norms(texts), []
        for side, words in enumerate(texts):
            computed = zip(self.contextual.origins, self.contextual.vectors_on_demand([words]), strict=True)
            layers = {run.path: vectors.batch(np.zeros(1, np.int64), device) for run, vectors in computed}
            read.append(
                ReadWords(
                    features, lexicon, words, columns, contextual=layers, subwords=self._unknown_batcher(texts, side),
                    norms=norms[side], device=device,
                )
            )  # fmt: skip
        return read

    @torch.inference_mode()
    def _compute_norms(self, texts: Sequence[Sequence[str]]) -> list[list[float]]:
        """Return the norms of the outputs of fine-tuned layers for the words of each text."""
        if self.subwords is None:
            return [[] for _ in texts]
        subwords = self.subwords.batch_with_unknown([texts], device_of(self.model))
        norms = self.model.layers(subwords)[0, subwords.first_word_slot :].norm(dim=-1).tolist()
        starts = [sum(map(len, texts[:side])) for side in range(len(texts))]
        return [norms[start : start + len(text)] for start, text in zip(starts, texts, strict=True)]

    def _unknown_batcher(
        self, texts: Sequence[Sequence[str]], side: int
    ) -> Callable[[Sequence[Sequence[str | None]]], Subwords] | None:
        """Return a function from variants of the text at `side` to batches; None without fine-tuned layers."""
        reader, device = self.subwords, device_of(self.model)
        if reader is None:
            return None
        before, after = texts[:side], texts[side + 1 :]
        return lambda variants: reader.batch_with_unknown([[*before, text, *after] for text in variants], device)


class FeatureReader:
    """A thread-safe reader of words for a tagger or classifier, with cached features. `has_bag` is whether the model
    has a bag of n-grams, which depends on the words of the vocabulary.
    """

    def __init__(
        self, features: WordFeatures, lexicon: Lexicon, device: torch.device, *, has_bag: bool = False
    ) -> None:
        self.features, self.lexicon, self.unknown_counts = features, lexicon, UnknownCounts()
        self.memory = FormCache(features, lexicon, device)
        self._uses_words = has_bag or features.words is not None

    def read(self, texts: Sequence[Sequence[str]]) -> tuple[FormTable, Ragged]:
        """Return an immutable table of word forms, and each text as indices into the table."""
        table, numbers = self.memory.look_up([word for text in texts for word in text])
        self._count(table, numbers)
        return table, Ragged(numbers, np.cumsum([0, *map(len, texts)], dtype=np.int64))

    def with_vectors(self, file: str | Path) -> Self:
        """Return a copy of the reader with the pretrained vectors of unknown words from `file`."""
        if self.features.vectors is None:
            raise EnsueError(f"{file}: the model was trained without pretrained vectors")
        index, expected = VectorIndex(file), self.features.vectors.embedding_dim
        if index.dimension != expected:
            raise EnsueError(f"{file}: vectors of {index.dimension} numbers; the model has {expected}")
        memory = FormCache(self.features, self.lexicon, self.memory.device, vectors=index)
        return copy_with(self, memory=memory, unknown_counts=UnknownCounts())

    def _count(self, table: FormTable, numbers: NDArray[np.int32]) -> None:
        """Count the words that lack a pretrained vector, a known character or an entry in the vocabulary."""
        lacks = table.lacks.cpu().numpy()[numbers]
        for name, bit, is_used in (
            (NO_VECTOR, word_features.NO_VECTOR, self.features.vectors is not None),
            (NEW_CHARACTERS, word_features.NEW_CHARACTER, self.features.characters is not None),
            (NEW_WORDS, word_features.NEW_WORD, self._uses_words),
        ):
            if is_used:
                self.unknown_counts.add(name, int(np.count_nonzero(lacks & bit)), len(numbers))
