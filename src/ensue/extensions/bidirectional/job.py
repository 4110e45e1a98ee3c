"""The job of training a bidirectional language model: reads texts, makes task and model, writes the card."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.corpus.token_file import TokenFile
from ensue.data.sources import TextSource
from ensue.errors import RecipeError
from ensue.extensions.bidirectional.layers import BidirectionalModel
from ensue.extensions.bidirectional.model import BidirectionalParts
from ensue.extensions.bidirectional.objectives import BidirectionalLanguageModeling, TwoWayRows, objective_of
from ensue.extensions.bidirectional.recipe import BidirectionalRecipe, NoOutput
from ensue.extensions.bidirectional.words import WordReader, WordText, distinct_words
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.task import Scores
from ensue.tasks.texts.corpus import CorpusJob, count_tokens, read_corpus
from ensue.text.words import WordTokenizer


class BidirectionalJob(CorpusJob[BidirectionalModel]):
    """Trains a bidirectional language model, or a model of contexts."""

    unit: ClassVar[str] = "predictions"
    recipe: BidirectionalRecipe
    parts: BidirectionalParts
    task: BidirectionalLanguageModeling

    @classmethod
    def reader_of(cls, recipe: BidirectionalRecipe) -> None:
        return None

    def __init__(self, recipe: BidirectionalRecipe, run: RunDirectory | None = None) -> None:
        if isinstance(recipe.head, NoOutput):
            raise RecipeError('a model with head.kind = "none" is not trained here; expected "softmax" or "context"')
        self.recipe, data = recipe, recipe.data
        tokenizer = run.parts.tokenizer if run else None
        self.corpus = read_corpus(data, recipe.tokenizer, tokenizer, reader=self._words_of, begun=run)
        assert isinstance(self.corpus.tokenizer, WordTokenizer)
        self.parts, self.fingerprint = BidirectionalParts(self.corpus.tokenizer), self.corpus.fingerprint
        self.reader = WordReader(self.corpus.tokenizer, recipe.words)
        self.text, train, self.objective = self._text(self.corpus.train), recipe.train, objective_of(recipe)
        cut = Segments if train.carry_state else Blocks
        valid = None if self.corpus.valid is None else self._text(self.corpus.valid)
        self.task = self.objective.task(
            cut(self.text.tokens, batch_size=train.batch_size, segment_length=train.segment_length, seed=train.seed),
            TwoWayRows(self.text, self.reader),
            self.counts,
            reset_state=train.reset_state,
            validate=lambda model: None if valid is None else self.objective.score(model, valid, self.reader),
        )

    def _words_of(self, tokenizer: Any) -> WordTokenizer:
        """A tokenizer of all words of the run's texts, whose characters are read if the softmax knows them or not."""
        data = self.recipe.data
        sources = [TextSource(path, encoding=data.encoding) for path in (data.train, data.valid, data.test) if path]
        self.words = distinct_words(TextSource.joined(sources), tokenizer)
        return self.words

    def _text(self, tokens: TokenFile) -> WordText:
        return WordText.of(tokens, self.words, self.parts.tokenizer)

    def unknown_in(self, tokens: TokenFile) -> int:
        return self._text(tokens).unknown

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        found = count_tokens(self.text.tokens, len(self.text.words))
        return np.bincount(self.text.ids, found, minlength=self.parts.vocabulary_size).astype(np.int64)

    @property
    def data(self) -> str:
        return f"{super().data}, {len(self.text.words):,} distinct words"

    @property
    def notes(self) -> list[str]:
        rows, wanted = self.task.batches.batch_size, self.recipe.train.batch_size
        few = [f"the text fills {rows} rows of a batch, not {wanted}"] if rows < wanted else []
        unknown = self.text.unknown / len(self.text.tokens)
        many = [f"{unknown:.1%} of the training words are predicted as <unk>"] if unknown > 0.01 else []
        return [*few, *self.objective.notes(len(self.counts)), *many, *self.notes_on_validation()]

    def protocol(self, model: BidirectionalModel) -> str:
        if self.corpus.valid is None:
            return ""
        return f"validation: {self.objective.protocol(len(self.corpus.valid))}"

    def prepare(self, model: BidirectionalModel) -> None:
        model.start_from_counts(torch.from_numpy(self.counts))

    def test(self, model: BidirectionalModel) -> Scores | None:
        if self.corpus.test is None:
            return None
        return self.objective.score(model, self._text(self.corpus.test), self.reader)

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} words"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return self.objective.score_lines(scores) or super().score_lines(scores)
