"""The job of training a language model: tokenizes texts, makes task and model, and writes its part of the card."""

from __future__ import annotations

from typing import Any, ClassVar

from ensue.data.corpus.batches import Blocks, Segments
from ensue.metrics.language import LanguageScores
from ensue.models.language_model import LanguageModel
from ensue.models.specification import TransformerEncoder
from ensue.runs.card import score_table
from ensue.runs.directory import RunDirectory
from ensue.tasks.language_modeling.model import LanguageModelParts
from ensue.tasks.language_modeling.recipe import LanguageModelingRecipe
from ensue.tasks.language_modeling.task import LanguageModeling
from ensue.tasks.texts.corpus import Corpus, CorpusJob, read_corpus
from ensue.tasks.texts.drawn_words import SampledWords, notes_on_sampling, sampled_words
from ensue.tasks.texts.scoring import default_parts, describe_protocol, read


class LanguageModelingJob(CorpusJob[LanguageModel]):
    """Trains a language model."""

    unit: ClassVar[str] = "tokens"
    recipe: LanguageModelingRecipe
    task: LanguageModeling

    def __init__(self, recipe: LanguageModelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        self.corpus = read_corpus(recipe.data, recipe.tokenizer, self.given_tokenizer(run), begun=run)
        self.parts = LanguageModelParts(self.corpus.tokenizer)
        self.fingerprint = self.corpus.fingerprint
        self.task = language_modeling(recipe, self.corpus, sampled_words(recipe.head, self.counts, recipe.train.seed))

    @property
    def notes(self) -> list[str]:
        rows, wanted = self.task.batches.batch_size, self.recipe.train.batch_size
        few = [f"the text fills {rows} rows of a batch, not {wanted}"] if rows < wanted else []
        sampling = notes_on_sampling(self.recipe.head, self.parts.vocabulary_size)
        return [*few, *sampling, *self.notes_on_origin(), *self.notes_on_validation()]

    def protocol(self, model: LanguageModel) -> str:
        tokens = len(self.corpus.valid) if self.corpus.valid else 0
        return f"validation: {describe_protocol(model, default_parts(tokens))}" if tokens else ""

    def test(self, model: LanguageModel) -> LanguageScores | None:
        if self.corpus.test is None:
            return None
        return read(model, self.corpus.test, start_id=self.corpus.tokenizer.start_id)

    def about(self) -> str:
        kind = self.recipe.tokenizer.kind
        return f"over {self.corpus.tokenizer.vocabulary_size:,} {'subwords' if kind == 'bpe' else kind}"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        means = ("nats_per_token", "perplexity", "bits_per_character")
        formats = {**dict.fromkeys(means, ".4f"), "tokens": ",", "unknown": ","}
        return score_table(scores, {key: (key.replace("_", " "), form) for key, form in formats.items()}, "text")


def language_modeling(
    recipe: LanguageModelingRecipe, corpus: Corpus, sampled: SampledWords | None = None
) -> LanguageModeling:
    """The task: segments with carried state for recurrent models, shuffled blocks as long as attention's context."""
    attends = isinstance(recipe.encoder, TransformerEncoder)
    length = recipe.encoder.context if isinstance(recipe.encoder, TransformerEncoder) else recipe.train.segment_length
    cut = Blocks if attends else Segments
    return LanguageModeling(
        cut(corpus.train, batch_size=recipe.train.batch_size, segment_length=length, seed=recipe.train.seed),
        tokenizer=corpus.tokenizer,
        valid=corpus.valid,
        segment_length=length,
        sample_tokens=recipe.train.sample_tokens,
        reset_state=recipe.train.reset_state,
        sampled=sampled,
    )
