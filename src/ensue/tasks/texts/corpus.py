"""Training on running text: the tokenizer, the tokenized texts, the base of jobs, and samples of words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.cache import json_digest
from ensue.data.corpus.cache import TextToIds, load_or_train_tokenizer, tokenize
from ensue.data.corpus.columns import ColumnSource, DatasetSource
from ensue.data.corpus.prepared import PreparedTokens, is_prepared, prepare
from ensue.data.mapped_file import NUM_PASSAGES, TokenFile
from ensue.data.parallel import ordered_map
from ensue.data.permutation import mix, random_numbers, uniform_floats
from ensue.data.sources import TextSource
from ensue.errors import DataError, RecipeError
from ensue.extension import is_address
from ensue.models.specification import WordHead
from ensue.nn import WordSample
from ensue.recipe import Recipe
from ensue.recipe.tables import CorpusRecipe, DataRecipe, TokenizerRecipe
from ensue.runs.directory import Origin, RunDirectory, origins_for
from ensue.tasks import task_entry
from ensue.tasks.contract.job import Job, check_same_shape
from ensue.tasks.texts.tokenizer import TokenizerParts, inherit, shared_rows
from ensue.text.tokenizers import Tokenizer

ModelT = TypeVar("ModelT", bound=nn.Module)
MAX_COUNTED_TOKENS = 1 << 22
COUNT_CHUNK_TOKENS = 1 << 16
"""Tokens are counted in evenly spaced chunks of this size."""


@dataclass
class Corpus:
    """The tokenized texts of a run."""

    tokenizer: Tokenizer
    train: TokenFile
    valid: TokenFile | None
    test: TokenFile | None
    split: str
    """A description of the source of the validation text."""
    fingerprint: str
    """The fingerprint of the training text, which changes with the text."""


def read_corpus(
    data: CorpusRecipe, specification: TokenizerRecipe, tokenizer: Tokenizer | None = None, *,
    reader: Callable[[Tokenizer], TextToIds] = lambda tokenizer: tokenizer, resumed: RunDirectory | None = None,
    origin: Origin | None = None, extend: bool = False,
) -> Corpus:  # fmt: skip
    """Return the tokenized texts of a recipe. Without a `tokenizer`, a new tokenizer is trained, or, with `extend`, the
    tokenizer of `origin` is extended. `reader` maps a tokenizer to the encoder of texts. `resumed` is a resumed run.
    New symbols and validation text come from text on which `origin` was not trained.
    """
    base: Tokenizer | None = origin.run.parts.tokenizer if extend and origin is not None else None
    if is_prepared(data.train):
        return _read_prepared_corpus(data, specification, tokenizer or base, reader)
    source = training_source(data)
    valid_source = TextSource(data.valid, encoding=data.encoding) if data.valid else None
    test = TextSource(data.test, encoding=data.encoding) if data.test else None
    new_source, num_old, location = source, 0, data.train if origin is None else origin.new_locations(data.train)
    if location != data.train and resumed is None:
        new_source = TextSource(location, encoding=data.encoding)
        num_old = source.num_characters - new_source.num_characters
    stop = None if valid_source else training_characters(source.num_characters, data, resumed, num_old=num_old)
    if tokenizer is None:
        new_stop = None if stop is None else max(1, stop - num_old)
        tokenizer = load_or_train_tokenizer(new_source, stop=new_stop, base=base, **specification.model_dump())
    encoder = reader(tokenizer)
    if valid_source:
        valid, split = tokenize(valid_source, encoder, stop=data.valid_characters), data.valid
    elif stop is not None:
        valid = tokenize(source, encoder, start=stop, stop=stop + data.valid_characters)
        share = f"{data.valid_fraction:.0%}"
        if valid.characters == data.valid_characters:
            share = f"{valid.characters:,} characters"
        split = f"the last {share} of {location}"
    else:
        valid, split = None, "none"
    train = tokenize(source, encoder, stop=stop)
    _check_distinct(train, encoder, data.train)
    test_tokens = tokenize(test, encoder) if test else None
    return Corpus(tokenizer, train, valid if valid else None, test_tokens, split, source.fingerprint())


def _read_prepared_corpus(
    data: CorpusRecipe, specification: TokenizerRecipe, tokenizer: Tokenizer | None,
    reader: Callable[[Tokenizer], TextToIds],
) -> Corpus:  # fmt: skip
    """Return the texts from a directory that `ensue prepare` has written."""
    prepared = PreparedTokens(data.train)
    prepared_tokenizer = prepared.tokenizer
    expected, table = specification.model_dump(), prepared.index["table"]
    for key in expected if tokenizer is None else ():
        if expected[key] != table.get(key):
            problem = f"prepared with tokenizer.{key} = {table.get(key)!r:.60}, the recipe has {expected[key]!r:.60}"
            raise DataError(problem, data.train)
    if tokenizer is not None and tokenizer.to_json() != prepared_tokenizer.to_json():
        raise DataError("prepared with a tokenizer that differs from the tokenizer of the run", data.train)
    encoder = reader(prepared_tokenizer)
    if json_digest(encoder.to_json()) != prepared.index["ids"]:
        problem = "prepared for a recipe with another encoding of texts (another task, or data.documents)"
        raise DataError(problem, data.train)
    train, valid, test = prepared.tokens("train"), prepared.tokens("valid"), None
    if train is None:
        raise DataError("no training ids; expected the output of `ensue prepare`", data.train)
    if data.valid:
        valid = tokenize(TextSource(data.valid, encoding=data.encoding), encoder, stop=data.valid_characters)
    if data.test:
        test = tokenize(TextSource(data.test, encoding=data.encoding), encoder)
    _check_distinct(train, encoder, data.train)
    split = data.valid or (f"as prepared in {data.train}" if valid else "none")
    return Corpus(prepared_tokenizer, train, valid if valid else None, test, split, prepared.fingerprint())


def _check_distinct(train: TokenFile, encoder: TextToIds, path: str) -> None:
    distinct = int(np.count_nonzero(count_tokens(train, encoder.vocabulary_size)))
    if distinct < 2:
        raise DataError(f"nothing to learn: the text has {distinct} distinct symbol{'s' * (distinct != 1)}", path)


def training_source(data: DataRecipe) -> TextSource:
    """Return the training text. Raise DataError for a recipe without a training text."""
    if not data.train:
        raise DataError("no training text: --train PATH names a file, a folder or a glob")
    if is_prepared(data.train):
        raise DataError("ids that `ensue prepare` has written; expected text", data.train)
    return TextSource(data.train, encoding=data.encoding)


def training_characters(
    characters: int, data: CorpusRecipe, resumed: RunDirectory | None = None, *, num_old: int = 0
) -> int | None:
    """Return the number of characters for training; None: all characters. The following characters are the validation
    text. The first `num_old` characters are the training text of the origin, and `resumed` is a resumed run.
    """
    if not data.valid_fraction:
        return None
    minimum = num_old + int((characters - num_old) * (1 - data.valid_fraction))
    if resumed is not None:  # runs of older versions lack the key, and trained on the minimum
        return int(resumed.config.get("training_characters", minimum))
    return max(minimum, characters - data.valid_characters)


def count_tokens(tokens: TokenFile, vocabulary_size: int) -> NDArray[np.int64]:
    """Return the count of each id in evenly spaced chunks, together fewer than 2 · `MAX_COUNTED_TOKENS` tokens."""
    size = len(tokens)
    starts = range(0, size, COUNT_CHUNK_TOKENS * max(1, size // MAX_COUNTED_TOKENS))
    chunks = (tokens.read(start, min(start + COUNT_CHUNK_TOKENS, size)) for start in starts)
    return sum((np.bincount(ids, minlength=vocabulary_size) for ids in chunks), np.zeros(vocabulary_size, np.int64))


class CorpusJob(Job[ModelT]):
    """The job of a model of running text. A subclass calls `read_corpus`, and creates the task."""

    data_name: ClassVar[str] = "corpus"
    examples: ClassVar[str] = "tokens"
    sample_size: ClassVar[int] = 4_096
    corpus: Corpus
    parts: TokenizerParts
    recipe: Any

    @classmethod
    def reader_of(cls, recipe: Any) -> Callable[[Tokenizer], TextToIds] | None:
        """Return the function from a tokenizer to the encoder of texts; None if the encoder depends on the texts."""
        return lambda tokenizer: tokenizer

    def stored_tokenizer(self, run: RunDirectory | None) -> Tokenizer | None:
        """Return the tokenizer of a resumed run or of the origin; None: train a tokenizer. Raise RecipeError if the
        shapes of the model and of the origin differ.
        """
        self.origins = origins_for(self.recipe.origins, run)
        for origin in self.origins:
            check_same_shape(self.recipe, origin, ("encoder", "tokens", "input"))
            kinds = {self.recipe.tokenizer.kind, origin.run.parts.tokenizer.kind}
            if self.recipe.tuning.vocabulary == "both" and len(kinds) > 1:
                names = " and ".join(sorted(kinds))
                raise RecipeError(f"tuning.vocabulary=both is for tokens of one kind; found {names} ({origin.path})")
        if run is not None:
            return cast("Tokenizer", run.parts.tokenizer)
        has_vocabulary = self.origins and self.recipe.tuning.vocabulary == "origin"
        return cast("Tokenizer", self.origins[0].run.parts.tokenizer) if has_vocabulary else None

    def read_corpus(self, recipe: Any, run: RunDirectory | None) -> None:
        """Read the texts of a recipe, or of a resumed run, with the symbols that `tuning.vocabulary` chooses."""
        self.recipe = recipe
        tokenizer, reader = self.stored_tokenizer(run), self.reader_of(recipe)
        assert reader is not None
        origin = next(iter(self.origins), None)
        extend = origin is not None and self.recipe.tuning.vocabulary == "both"
        self.corpus = read_corpus(
            recipe.data, recipe.tokenizer, tokenizer, reader=reader, resumed=run, origin=origin, extend=extend
        )
        self.parts = task_entry(recipe.task).parts_class(self.corpus.tokenizer)
        self.fingerprint = self.corpus.fingerprint

    @property
    def text_tokenizer(self) -> Any:
        """The tokenizer of the ids of the texts."""
        return self.corpus.tokenizer

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} subwords"

    def draw(self, data: TokenFile, count: int) -> TokenFile:
        start = int(np.random.default_rng(self.recipe.train.seed).random() * (len(data) - count))
        ids, tokenizer = data.read(start, start + count), self.text_tokenizer
        characters, unknown = len(tokenizer.decode(ids.tolist())), np.count_nonzero(ids == tokenizer.unknown_id)
        return TokenFile(ids, unknown=int(unknown), characters=characters)

    def build_model(self) -> ModelT:
        model = super().build_model()
        for origin in self.origins:
            self._rows = np.arange(self.parts.vocabulary_size)
            if self.recipe.tuning.vocabulary == "own":
                self._rows = shared_rows(self.parts.symbols, origin.run.parts.symbols)
            self._rows[self._rows >= origin.run.parts.vocabulary_size] = -1
            self.inherited = inherit(model, origin.run.model(torch.device("cpu")), self._rows)
        return model

    def notes_on_origin(self) -> Iterator[str]:
        """Yield a remark on the symbols whose vectors come from another run."""
        for origin in self.origins:
            size, num_known = len(self._rows), int((self._rows >= 0).sum())
            note = "" if num_known == size else ", other symbols begin at the mean"
            yield f"begins from {origin.path}: {num_known:,} of {size:,} symbols have vectors of that run{note}"

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of occurrences of each symbol in the training text; a long text is sampled (`count_tokens`)."""
        return count_tokens(self.corpus.train, self.parts.vocabulary_size)

    @property
    def data(self) -> str:
        train, valid = len(self.corpus.train), len(self.corpus.valid) if self.corpus.valid else 0
        return f"{train:,} training tokens, {valid:,} for validation, {self.parts.vocabulary_size:,} symbols"

    def notes_on_validation(self) -> Iterator[str]:
        """Yield remarks on a missing validation text, unknown tokens, and passages that are also training text."""
        valid, tokenizer = self.corpus.valid, self.corpus.tokenizer
        if valid is None:
            yield "no validation text: the last weights are kept, and no score is measured"
        elif count := self.unknown_in(valid):
            unknown = tokenizer.symbol(tokenizer.unknown_id) if tokenizer.unknown_id is not None else ""
            yield f"{count:,} of {len(valid):,} validation tokens are unknown ({unknown})"
        for name, text in (("validation", valid if self.recipe.data.valid else None), ("test", self.corpus.test)):
            if text is not None and (num_shared := self.corpus.train.num_shared(text)) > NUM_PASSAGES // 2:
                yield f"{num_shared} of {NUM_PASSAGES} passages of the {name} data are in the training data, too"

    def unknown_in(self, tokens: TokenFile) -> int:
        """Return the number of unknown tokens."""
        return tokens.unknown

    def prepare(self, model: Any) -> None:
        model.head.start_from_counts(torch.from_numpy(self.counts))

    def config(self) -> dict[str, Any]:
        corpus = self.corpus
        return {"vocabulary_size": corpus.tokenizer.vocabulary_size, "training_characters": corpus.train.characters}

    def data_lines(self) -> list[str]:
        corpus, data = self.corpus, self.recipe.data
        return [
            f"- training: `{data.train}`, {corpus.train.characters:,} characters, {len(corpus.train):,} tokens",
            f"- validation: {corpus.split}" + (f", {len(corpus.valid):,} tokens" if corpus.valid else ""),
            *([f"- test: `{data.test}`, {len(corpus.test):,} tokens"] if corpus.test else []),
        ]


def prepare_corpus(
    recipe: Recipe, folder: Path, *, column: str = "", processes: int = 1, shard_tokens: int = 1 << 28,
    notify: Callable[[str], object] = lambda line: None,
) -> PreparedTokens:  # fmt: skip
    """Write the tokenizer of a recipe, and the ids of its training and validation texts, into a folder. `column` is the
    column of texts in a table; "" is for plain text. `notify` is called with lines about the progress.
    """
    job = task_entry(recipe.task).job_class
    reader = job.reader_of(recipe) if issubclass(job, CorpusJob) else None
    data: Any = recipe.data
    if reader is None:
        expected = "prepare is for models that learn from a stream of ids"
        raise RecipeError(f"a {recipe.what} does not read a stream of ids; {expected}")

    def source_of(location: str) -> TextSource:
        if is_address(location):
            if not column:
                raise DataError("a data set has columns; expected --column NAME", location)
            return DatasetSource(location, column)
        if column:
            return ColumnSource(location, column, encoding=data.encoding)
        return TextSource(location, encoding=data.encoding)

    if not data.train or not (column or is_address(data.train)):
        training_source(data)  # raises DataError without a training text
    source = source_of(data.train)
    stop = None if data.valid else training_characters(source.num_characters, data)
    table: Any = recipe.tokenizer.model_dump()  # type: ignore[attr-defined]
    tokenizer = load_or_train_tokenizer(source, stop=stop, **table)
    texts = {"train": (source, 0, stop)}
    if data.valid:
        texts["valid"] = (source_of(data.valid), 0, data.valid_characters)
    elif stop is not None:
        texts["valid"] = (source, stop, stop + data.valid_characters)
    encoder = reader(tokenizer)
    fingerprints = {name: [text.fingerprint(), start, end] for name, (text, start, end) in texts.items()}
    plan = {"texts": fingerprints, "table": table}
    return prepare(
        folder, plan, texts, tokenizer, encoder, encode=partial(ordered_map, encoder.encode, processes=processes),
        shard_tokens=shard_tokens, notify=notify,
    )  # fmt: skip


class SampledWords:
    """Stratified samples of `size` words, for a sampled softmax. The expected number of occurrences of a word with
    count c is proportional to (c + 1)^power, and at most 1. The cumulative sums of these expectations divide the range
    from 0 to `size` into an interval for each word. Each unit interval has one random point, whose word is drawn.
    """

    def __init__(self, counts: NDArray[np.int64], *, size: int, power: float, seed: int) -> None:
        if not 1 <= size <= len(counts):
            raise ValueError(f"{size:,} words are drawn; expected 1 to {len(counts):,}")
        self.size, self.seed = size, seed
        weights = np.power(counts + 1.0, power)
        order = np.argsort(-weights, kind="stable")
        descending = weights[order]
        sums = np.cumsum(descending[::-1])[::-1]  # each weight plus all smaller weights
        is_below_one = descending * (size - np.arange(len(order))) < sums
        num_capped = int(np.argmax(is_below_one)) if size < len(order) else size
        self.expected = np.ones(len(weights))
        if len(uncapped := order[num_capped:]):
            self.expected[uncapped] = weights[uncapped] * (size - num_capped) / sums[num_capped]
        self._order = np.argsort(-self.expected, kind="stable")
        self._ends = np.cumsum(self.expected[self._order])

    def draw(self, step: int, device: torch.device) -> WordSample:
        """Return the sample of a step."""
        intervals = np.arange(self.size)
        points = intervals + uniform_floats(random_numbers(mix(self.seed, step), intervals))
        ids = self._order[np.minimum(np.searchsorted(self._ends, points, side="right"), len(self._order) - 1)]
        log_expected = np.log(self.expected[ids]).astype(np.float32)
        return WordSample(torch.from_numpy(ids).to(device), torch.from_numpy(log_expected).to(device))


def sampled_words(head: WordHead, counts: NDArray[np.int64], seed: int) -> SampledWords | None:
    """Return the sampler of words from the counts of the vocabulary; None if the softmax is over all words."""
    if not 0 < head.sampled < len(counts):
        return None
    return SampledWords(counts, size=head.sampled, power=head.sampled_power, seed=seed)


def notes_on_sampling(head: WordHead, vocabulary_size: int) -> list[str]:
    """Return a remark if `head.sampled` has no effect."""
    if head.sampled < vocabulary_size:
        return []
    return [f"the vocabulary has {vocabulary_size:,} symbols, no more than head.sampled: the softmax is full"]
