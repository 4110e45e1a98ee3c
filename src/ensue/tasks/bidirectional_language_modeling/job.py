"""The job of training a bidirectional language model: reads texts, makes task and model, writes the card."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.corpus.token_file import TokenFile
from ensue.data.sources import TextSource
from ensue.errors import RecipeError
from ensue.models.bidirectional import BidirectionalLanguageModel, BidirectionalModel, ContextModel
from ensue.models.word_specification import ContextOutput, NoOutput, SoftmaxOutput
from ensue.runs.directory import RunDirectory
from ensue.tasks.bidirectional_language_modeling.model import BidirectionalParts
from ensue.tasks.bidirectional_language_modeling.recipe import BidirectionalRecipe
from ensue.tasks.bidirectional_language_modeling.scoring import (
    describe_scoring,
    noise_of,
    score_both_ways,
    score_contexts,
)
from ensue.tasks.bidirectional_language_modeling.task import BidirectionalLanguageModeling, TwoWayRows
from ensue.tasks.bidirectional_language_modeling.words import WordReader, WordText, distinct_words
from ensue.tasks.contract.task import Scores
from ensue.tasks.texts.corpus import CorpusJob, count_tokens, read_corpus
from ensue.tasks.texts.drawn_words import notes_on_sampling, sampled_words
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
        self.text, train, head = self._text(self.corpus.train), recipe.train, recipe.head
        cut = Segments if train.carry_state else Blocks
        valid = None if self.corpus.valid is None else self._scored(self.corpus.valid)
        context = head if isinstance(head, ContextOutput) else None
        self.task = BidirectionalLanguageModeling(
            cut(self.text.tokens, batch_size=train.batch_size, segment_length=train.segment_length, seed=train.seed),
            TwoWayRows(self.text, self.reader),
            sampled=sampled_words(head, self.counts, train.seed) if isinstance(head, SoftmaxOutput) else None,
            noise=None if context is None else (noise_of(self.counts, context.noise_power), context.negatives),
            reset_state=train.reset_state,
            validate=lambda model: None if valid is None else valid(model),
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

    def _scored(self, tokens: TokenFile) -> Any:
        """A function from the model to its scores on these tokens."""
        text, head = self._text(tokens), self.recipe.head
        if isinstance(head, ContextOutput):
            noise, length = noise_of(self.counts, head.noise_power), self.recipe.train.segment_length
            return partial(
                score_contexts, text=text, reader=self.reader, noise=noise, negatives=head.negatives, length=length
            )
        return lambda model: score_both_ways(model, model.head, text, self.reader)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        found = count_tokens(self.text.tokens, len(self.text.words))
        return np.bincount(self.text.ids, found, minlength=self.parts.vocabulary_size).astype(np.int64)

    @property
    def data(self) -> str:
        return f"{super().data}, {len(self.text.words):,} distinct words"

    @property
    def notes(self) -> list[str]:
        rows, wanted, head = self.task.batches.batch_size, self.recipe.train.batch_size, self.recipe.head
        few = [f"the text fills {rows} rows of a batch, not {wanted}"] if rows < wanted else []
        sampling = notes_on_sampling(head, len(self.counts)) if isinstance(head, SoftmaxOutput) else []
        unknown = self.text.unknown / len(self.text.tokens)
        many = [f"{unknown:.1%} of the training words are predicted as <unk>"] if unknown > 0.01 else []
        return [*few, *sampling, *many, *self.notes_on_validation()]

    def protocol(self, model: BidirectionalModel) -> str:
        if self.corpus.valid is None:
            return ""
        length = self.recipe.train.segment_length if isinstance(self.recipe.head, ContextOutput) else None
        return f"validation: {describe_scoring(len(self.corpus.valid), length=length)}"

    def prepare(self, model: BidirectionalModel) -> None:
        counts = torch.from_numpy(self.counts)
        if isinstance(model, ContextModel):
            model.counts.copy_(counts)
        elif isinstance(model, BidirectionalLanguageModel) and model.head is not None:
            model.head.start_from_counts(counts)

    def test(self, model: BidirectionalModel) -> Scores | None:
        found: Scores | None = None if self.corpus.test is None else self._scored(self.corpus.test)(model)
        return found

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} words"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        if isinstance(self.recipe.head, ContextOutput):
            return super().score_lines(scores)
        lines = [
            "| text | nats per token | perplexity | forward | backward | tokens | unknown |",
            "|---|---|---|---|---|---|---|",
        ]
        for name, found in scores.items():
            numbers = [found[key] for key in ("perplexity", "perplexity_forward", "perplexity_backward")]
            shown = " | ".join("-" if number is None else f"{number:.2f}" for number in numbers)
            lines.append(
                f"| {name} | {found['nats_per_token']:.4f} | {shown} | {found['tokens']:,} | {found['unknown']:,} |"
            )
        return lines
