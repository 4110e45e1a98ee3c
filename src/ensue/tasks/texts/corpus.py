"""Runs that learn from running text: their texts (a tokenizer; ids of training, validation and test), and their job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ensue.data.corpus.cache import TextToIds, tokenize, trained_tokenizer
from ensue.data.corpus.columns import ColumnSource, DatasetSource
from ensue.data.corpus.prepared import Prepared, digest_of, is_prepared, prepare
from ensue.data.corpus.token_file import TokenFile
from ensue.data.parallel import in_order
from ensue.data.row_files import DatasetName
from ensue.data.sources import TextSource
from ensue.errors import DataError, RecipeError
from ensue.recipe import Recipe
from ensue.recipe.tables import CorpusRecipe, DataRecipe, TokenizerRecipe
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks import task_entry
from ensue.tasks.contract.job import Job
from ensue.tasks.contract.model import check_same_shape
from ensue.tasks.texts.tokenizer import TokenizerParts, inherit, shared_rows
from ensue.text.tokenizers import Tokenizer

ModelT = TypeVar("ModelT", bound=nn.Module)
COUNTED = 1 << 22
COUNT_PIECE = 1 << 16


@dataclass(frozen=True)
class Corpus:
    """The tokenized texts of a run."""

    tokenizer: Tokenizer
    train: TokenFile
    valid: TokenFile | None
    test: TokenFile | None
    split: str
    """Where the validation text comes from, for people."""
    fingerprint: str
    """Tells whether the training text is still what it was."""


def read_corpus(
    data: CorpusRecipe,
    specification: TokenizerRecipe,
    tokenizer: Tokenizer | None = None,
    *,
    reader: Callable[[Tokenizer], TextToIds] = lambda tokenizer: tokenizer,
    begun: RunDirectory | None = None,
) -> Corpus:
    """Tokenize what the recipe names, with the given tokenizer or one trained on the training part alone.

    `reader` is for ids that are more than the tokenizer's own; `begun` is the run that goes on, whose text is divided
    as before. Raises `DataError` for a text that is of no use.
    """
    if is_prepared(data.train):
        return _prepared_corpus(data, specification, tokenizer, reader)
    source = training_source(data)
    held_out = TextSource(data.valid, encoding=data.encoding) if data.valid else None
    test = TextSource(data.test, encoding=data.encoding) if data.test else None
    stop = None if held_out else training_characters(source.count_characters(), data, begun)
    if tokenizer is None:
        tokenizer = trained_tokenizer(source, stop=stop, **specification.model_dump())
    reads = reader(tokenizer)
    if held_out:
        valid, split = tokenize(held_out, reads, stop=data.valid_characters), data.valid
    elif stop is not None:
        valid = tokenize(source, reads, start=stop, stop=stop + data.valid_characters)
        share = f"{data.valid_fraction:.0%}"
        if valid.characters == data.valid_characters:
            share = f"{valid.characters:,} characters"
        split = f"the last {share} of {data.train}"
    else:
        valid, split = None, "none"
    train = tokenize(source, reads, stop=stop)
    _check_distinct(train, reads, data.train)
    return Corpus(
        tokenizer=tokenizer,
        train=train,
        valid=valid if valid else None,
        test=tokenize(test, reads) if test else None,
        split=split,
        fingerprint=source.fingerprint(),
    )


def _prepared_corpus(
    data: CorpusRecipe,
    specification: TokenizerRecipe,
    tokenizer: Tokenizer | None,
    reader: Callable[[Tokenizer], TextToIds],
) -> Corpus:
    """The ids of a folder that `ensue prepare` has written. Raises DataError if they are not those of this recipe."""
    prepared = Prepared(data.train)
    own = prepared.tokenizer
    asked, table = specification.model_dump(), prepared.index["table"]
    for key in asked if tokenizer is None else ():
        if asked[key] != table.get(key):
            raise DataError(
                f"prepared with tokenizer.{key} = {table.get(key)!r:.60}, the recipe has {asked[key]!r:.60}", data.train
            )
    if tokenizer is not None and tokenizer.to_json() != own.to_json():
        raise DataError("prepared with another tokenizer than that of the run", data.train)
    reads = reader(own)
    if digest_of(reads.to_json()) != prepared.index["ids"]:
        raise DataError(
            "prepared for a recipe that reads texts otherwise (another task, or data.documents)", data.train
        )
    train, valid, test = prepared.tokens("train"), prepared.tokens("valid"), None
    if train is None:
        raise DataError("no ids in it", data.train)
    if data.valid:
        valid = tokenize(TextSource(data.valid, encoding=data.encoding), reads, stop=data.valid_characters)
    if data.test:
        test = tokenize(TextSource(data.test, encoding=data.encoding), reads)
    _check_distinct(train, reads, data.train)
    split = data.valid or (f"as prepared in {data.train}" if valid else "none")
    return Corpus(own, train, valid if valid else None, test, split, prepared.fingerprint())


def _check_distinct(train: TokenFile, reads: TextToIds, path: str) -> None:
    distinct = int(np.count_nonzero(count_tokens(train, reads.vocabulary_size)))
    if distinct < 2:
        raise DataError(f"nothing to learn: the text has {distinct} distinct symbol{'s' * (distinct != 1)}", path)


def training_source(data: DataRecipe) -> TextSource:
    """The training text. Raises DataError if the recipe names none."""
    if not data.train:
        raise DataError("no training text: --train PATH names a file, a folder or a glob")
    if is_prepared(data.train):
        raise DataError("ids that `ensue prepare` has written; expected text", data.train)
    return TextSource(data.train, encoding=data.encoding)


def training_characters(characters: int, data: CorpusRecipe, begun: RunDirectory | None = None) -> int | None:
    """How many characters are for training; None for all. The rest, for validation, is no more than is scored."""
    if not data.valid_fraction:
        return None
    least = int(characters * (1 - data.valid_fraction))
    if begun is not None:  # older runs do not say it; what was not scored was left out of both parts
        return int(begun.config.get("training_characters", least))
    return max(least, characters - data.valid_characters)


def count_tokens(tokens: TokenFile, vocabulary_size: int) -> NDArray[np.int64]:
    """How often each id occurs in pieces spread evenly over the text, COUNTED tokens in all or every one of fewer."""
    size = len(tokens)
    starts = range(0, size, COUNT_PIECE * max(1, size // COUNTED))
    pieces = (tokens.read(start, min(start + COUNT_PIECE, size)) for start in starts)
    return sum((np.bincount(ids, minlength=vocabulary_size) for ids in pieces), np.zeros(vocabulary_size, np.int64))


class CorpusJob(Job[ModelT]):
    """Trains a model on running text. A subclass reads the `corpus` and makes the `parts`."""

    corpus: Corpus
    parts: TokenizerParts
    recipe: Any

    @classmethod
    def reader_of(cls, recipe: Any) -> Callable[[Tokenizer], TextToIds] | None:
        """From a tokenizer of a recipe to what makes the ids of a run; None if it depends on all texts of the run."""
        return lambda tokenizer: tokenizer

    def given_tokenizer(self, run: RunDirectory | None) -> Tokenizer | None:
        """The tokenizer of a resumed run or, if taken over, of the origin. Raises RecipeError if it does not fit."""
        self.origins = origins_for(self.recipe.origins, run)
        for origin in self.origins:
            check_same_shape(self.recipe, origin, ("encoder", "tokens", "input"))
        if run is not None:
            return cast("Tokenizer", run.parts.tokenizer)
        return cast("Tokenizer", self.origins[0].run.parts.tokenizer) if self._takes_symbols else None

    @property
    def _takes_symbols(self) -> bool:
        """Whether the symbols are those of the run from which this one begins."""
        return bool(self.origins) and self.recipe.tuning.vocabulary == "origin"

    def build_model(self) -> ModelT:
        model = super().build_model()
        for origin in self.origins:
            self._rows = shared_rows(self.parts.symbols, origin.run.parts.symbols)
            if self._takes_symbols:  # two of them may look the same
                self._rows = np.arange(self.parts.vocabulary_size)
            self.inherited = inherit(model, origin.run.model(torch.device("cpu")), self._rows)
        return model

    def notes_on_origin(self) -> Iterator[str]:
        """A remark on what comes from another run."""
        for origin in self.origins:
            size, known = len(self._rows), int((self._rows >= 0).sum())
            yield f"begins from {origin.path}: {known:,} of {size:,} symbols have their vectors from there" + (
                "" if known == size else ", the others begin at the mean"
            )

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often each symbol of the model occurs in the training text, or in an even part of a long one."""
        return count_tokens(self.corpus.train, self.parts.vocabulary_size)

    @property
    def data(self) -> str:
        corpus = self.corpus
        return (
            f"{len(corpus.train):,} training tokens, {len(corpus.valid) if corpus.valid else 0:,} for validation, "
            f"{self.parts.vocabulary_size:,} symbols"
        )

    def notes_on_validation(self) -> Iterator[str]:
        """Remarks on a validation text that is missing, or has unknown tokens."""
        valid, tokenizer = self.corpus.valid, self.corpus.tokenizer
        if valid is None:
            yield "no validation text: the last weights are kept, and no score is measured"
        elif count := self.unknown_in(valid):
            unknown = tokenizer.symbol(tokenizer.unknown_id) if tokenizer.unknown_id is not None else ""
            yield f"{count:,} of {len(valid):,} validation tokens are unknown ({unknown})"

    def unknown_in(self, tokens: TokenFile) -> int:
        """How many of the tokens of a text are unknown."""
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
    recipe: Recipe,
    folder: Path,
    *,
    column: str = "",
    processes: int = 1,
    shard_tokens: int = 1 << 28,
    say: Callable[[str], object] = lambda line: None,
) -> Prepared:
    """Makes the tokenizer of a recipe and the ids of its training and validation texts, by several processes.

    What a run of the recipe computes from the folder is what it computes from the texts. A folder that was left in the
    middle is gone on with. Raises RecipeError for a task that does not read ids, and DataError.
    """
    job = task_entry(recipe.task).job_class
    reader = job.reader_of(recipe) if issubclass(job, CorpusJob) else None
    data: Any = recipe.data
    if reader is None:
        raise RecipeError(
            f"a {recipe.what} reads its texts itself; prepare is for models that learn from a stream of ids"
        )

    def source_of(location: str) -> TextSource:
        if DatasetName.parse(location):
            if not column:
                raise DataError("a data set has columns; --column names one", location)
            return DatasetSource(location, column)
        if column:
            return ColumnSource(location, column, encoding=data.encoding)
        return TextSource(location, encoding=data.encoding)

    if not column and not DatasetName.parse(data.train):
        training_source(data)  # raises if there is none
    elif not data.train:
        raise DataError("no training text: --train PATH names a file, a folder or a glob")
    source = source_of(data.train)
    stop = None if data.valid else training_characters(source.count_characters(), data)
    table: Any = recipe.tokenizer.model_dump()  # type: ignore[attr-defined]
    tokenizer = trained_tokenizer(source, stop=stop, **table)
    texts = {"train": (source, 0, stop)}
    if data.valid:
        texts["valid"] = (source_of(data.valid), 0, data.valid_characters)
    elif stop is not None:
        texts["valid"] = (source, stop, stop + data.valid_characters)
    reads = reader(tokenizer)
    plan = {
        "texts": {part: [text.fingerprint(), start, end] for part, (text, start, end) in texts.items()},
        "table": table,
    }
    return prepare(
        folder, plan, texts, tokenizer, reads, encode=partial(in_order, reads.encode, processes=processes),
        shard_tokens=shard_tokens, say=say,
    )  # fmt: skip
