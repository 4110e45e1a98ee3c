"""The job of training a masked language model: tokenizes texts, makes task and model, writes its part of the card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ensue.data.corpus.cache import TextToIds
from ensue.data.corpus.token_file import TokenFile
from ensue.errors import RecipeError
from ensue.metrics.language import MaskedScores
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.runs.directory import RunDirectory
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from ensue.tasks.masked_language_modeling.task import (
    MaskedLanguageModeling,
    filled_sample,
    masking_of,
    score,
    scored_examples,
    stream_of,
    training_examples,
)
from ensue.tasks.texts.corpus import CorpusJob, read_corpus
from ensue.text.tokenizers import Tokenizer


class MaskedLanguageModelingJob(CorpusJob[MaskedLanguageModel]):
    """Trains a masked language model."""

    unit: ClassVar[str] = "masked tokens"
    recipe: MaskedLanguageModelingRecipe
    parts: MaskedLanguageModelParts
    task: MaskedLanguageModeling

    @classmethod
    def reader_of(cls, recipe: MaskedLanguageModelingRecipe) -> Callable[[Tokenizer], TextToIds]:
        return partial(stream_of, recipe)

    def __init__(self, recipe: MaskedLanguageModelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        if not recipe.head.masked:
            raise RecipeError("head.masked = false: a model without a head for masks has nothing to learn")
        tokenizer = self.given_tokenizer(run)
        self.corpus = read_corpus(recipe.data, recipe.tokenizer, tokenizer, reader=self.reader_of(recipe), begun=run)
        self.parts = MaskedLanguageModelParts(self.corpus.tokenizer)
        self.fingerprint = self.corpus.fingerprint
        coder, corpus = self.parts.coder, self.corpus
        self.masking = masking_of(recipe, coder)
        valid = None if corpus.valid is None else self._scored(corpus.valid, recipe.data.valid or recipe.data.train)
        self.task = MaskedLanguageModeling(
            training_examples(recipe, corpus.train, coder),
            self.masking,
            batch_size=recipe.train.batch_size,
            block_tokens=recipe.block_tokens,
            validate=lambda model: None if valid is None else valid(model),
            sample=lambda model, seed: filled_sample(model, coder, corpus.valid or corpus.train, seed=seed),
        )

    def _scored(self, tokens: TokenFile, path: str) -> partial[MaskedScores]:
        """A function from the model to its scores on these tokens."""
        examples = scored_examples(self.recipe, tokens, self.parts.coder, path)
        return partial(score, examples=examples, masking=self.masking, tokens=len(tokens), unknown=tokens.unknown)

    @property
    def notes(self) -> list[str]:
        train, size = self.recipe.train, self.corpus.tokenizer.vocabulary_size
        notes, wanted = [], self.recipe.tokenizer.max_size
        if wanted is not None and size < wanted and not self.origins:
            notes.append(f"the text gives a vocabulary of {size:,}, not {wanted:,} (tokenizer.max_size)")
        if self.task.batch_size < train.batch_size:
            notes.append(f"the text gives {self.task.batch_size:,} examples for a batch, not {train.batch_size:,}")
        return [*notes, *self.notes_on_origin(), *self.notes_on_validation()]

    def protocol(self, model: MaskedLanguageModel) -> str:
        return f"validation: {protocol_of(self.recipe)}" if self.corpus.valid else ""

    def test(self, model: MaskedLanguageModel) -> MaskedScores | None:
        if self.corpus.test is None:
            return None
        return self._scored(self.corpus.test, self.recipe.data.test)(model)

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} subwords"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return [
            "| text | nats per masked token | perplexity | accuracy | masked tokens |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {numbers['masked_nats']:.4f} | {numbers['perplexity']:.2f} | {numbers['accuracy']:.4f} "
                f"| {numbers['masked']:,} |"
                for name, numbers in scores.items()
            ),
        ]


def protocol_of(recipe: MaskedLanguageModelingRecipe) -> str:
    """A sentence that says how texts are scored."""
    kind = "in pairs of segments" if recipe.data.next_sentence else f"in blocks of {recipe.block_tokens:,} tokens"
    return f"read once {kind}, {recipe.masking.share:.0%} of the tokens hidden, the same for every model"
