"""From a recipe's `[data]` and `[tokenizer]` tables to token files and a language modeling task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ensue.data.batches import Blocks, Segments
from ensue.data.cache import tokenize, trained_tokenizer
from ensue.data.sources import TextSource
from ensue.data.token_file import TokenFile
from ensue.errors import DataError
from ensue.models.specification import TransformerSpecification
from ensue.recipe import Recipe
from ensue.tasks.language_modeling import LanguageModeling
from ensue.text.tokenizers import Tokenizer

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


def read_corpus(recipe: Recipe, tokenizer: Tokenizer | None = None) -> Corpus:
    """Tokenize what the recipe names, with the given tokenizer or one trained on the training part alone.

    Raises `DataError` for a text that cannot be read or used.
    """
    data = recipe.data
    if not data.train:
        raise DataError("no training text: --train PATH names a file, a folder or a glob")
    source = TextSource(data.train, encoding=data.encoding)
    held_out = TextSource(data.valid, encoding=data.encoding) if data.valid else None
    test = TextSource(data.test, encoding=data.encoding) if data.test else None
    stop = None if held_out else round_down(source.count_characters(), data.valid_fraction)
    if tokenizer is None:
        tokenizer = trained_tokenizer(source, stop=stop, **recipe.tokenizer.model_dump())
    if held_out:
        valid, split = tokenize(held_out, tokenizer, stop=data.valid_characters), data.valid
    elif stop is not None:
        valid = tokenize(source, tokenizer, start=stop, stop=stop + data.valid_characters)
        split = f"the last {data.valid_fraction:.0%} of {data.train}"
    else:
        valid, split = None, "none"
    train = tokenize(source, tokenizer, stop=stop)
    distinct = int(np.count_nonzero(count_tokens(train, tokenizer.vocabulary_size)))
    if distinct < 2:
        raise DataError(f"nothing to learn: the text has {distinct} distinct symbol{'s' * (distinct != 1)}", data.train)
    return Corpus(
        tokenizer=tokenizer,
        train=train,
        valid=valid if valid else None,
        test=tokenize(test, tokenizer) if test else None,
        split=split,
        fingerprint=source.fingerprint(),
    )


def round_down(characters: int, valid_fraction: float) -> int | None:
    """How many characters are for training; None for all."""
    return int(characters * (1 - valid_fraction)) if valid_fraction else None


def language_modeling(recipe: Recipe, corpus: Corpus) -> LanguageModeling:
    """The task: segments with carried state for recurrent models, shuffled blocks as long as attention's context."""
    attends = isinstance(recipe.model, TransformerSpecification)
    length = recipe.model.context if isinstance(recipe.model, TransformerSpecification) else recipe.train.segment_length
    cut = Blocks if attends else Segments
    return LanguageModeling(
        cut(corpus.train, batch_size=recipe.train.batch_size, segment_length=length, seed=recipe.train.seed),
        tokenizer=corpus.tokenizer,
        valid=corpus.valid,
        segment_length=length,
        sample_tokens=recipe.train.sample_tokens,
    )


def with_paths(recipe: Recipe, *, train: str = "", valid: str = "", test: str = "") -> Recipe:
    """The recipe with the texts that are given in place of its own."""
    given = {name: path for name, path in (("train", train), ("valid", valid), ("test", test)) if path}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=given)})


def count_tokens(tokens: TokenFile, vocabulary_size: int) -> NDArray[np.int64]:
    """How often each id occurs in pieces spread evenly over the text, COUNTED tokens in all or every one of fewer."""
    size = len(tokens)
    starts = range(0, size, COUNT_PIECE * max(1, size // COUNTED))
    pieces = (tokens.read(start, min(start + COUNT_PIECE, size)) for start in starts)
    return sum((np.bincount(ids, minlength=vocabulary_size) for ids in pieces), np.zeros(vocabulary_size, np.int64))
