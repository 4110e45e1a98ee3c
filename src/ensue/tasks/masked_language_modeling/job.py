"""The jobs of training a masked language model, and sentence vectors: they make task and model, and write the card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ensue.data.corpus.cache import TextToIds
from ensue.data.corpus.token_file import TokenFile
from ensue.data.examples import Pair, PairSource
from ensue.data.examples.example import Pairs
from ensue.data.judgments import read_judged_texts
from ensue.errors import DataError, RecipeError
from ensue.metrics.language import MaskedScores
from ensue.metrics.words import TextSimilarityScores
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import Split
from ensue.tasks.contract.task import Scores
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts
from ensue.tasks.masked_language_modeling.pipeline import SentenceVectorsPipeline
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentenceVectorsRecipe
from ensue.tasks.masked_language_modeling.task import (
    EncodedPairs,
    MaskedLanguageModeling,
    SentenceVectors,
    filled_sample,
    masking_of,
    protocol_of,
    score,
    scored_examples,
    stream_of,
    training_examples,
)
from ensue.tasks.texts.corpus import CorpusJob, read_corpus
from ensue.text.tokenizers import Tokenizer, train_tokenizer


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
            raise RecipeError(
                "head.masked = false: a model without a head for masks has nothing to learn; with "
                'task = "sentence-vectors" it learns from pairs of texts'
            )
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
        return score_table(scores, MaskedScores.on_card, "text")


class SentenceVectorsJob(CorpusJob[MaskedLanguageModel]):
    """Trains vectors of texts on pairs that are alike.

    Validation and test data are pairs with judged similarities. If there are none, some pairs are kept, whose first
    texts have to find their partners.
    """

    unit: ClassVar[str] = "pairs"
    recipe: SentenceVectorsRecipe
    parts: MaskedLanguageModelParts
    task: SentenceVectors

    @classmethod
    def reader_of(cls, recipe: SentenceVectorsRecipe) -> None:
        return None

    def __init__(self, recipe: SentenceVectorsRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of pairs, or two files with a comma between")
        tokenizer = self.given_tokenizer(run)
        source = AlikeSource(
            data.train, sources=data.sources, targets=data.targets, group=data.group, encoding=data.encoding
        )
        self.layout, self.fingerprint = source.layout, source.fingerprint()
        every = Pairs(source)
        if not every:
            raise DataError("no pair in it", data.train)
        judged = data.valid
        table = data.model_copy(update={"valid": "", "test": "", **({"valid_fraction": 0.0} if judged else {})})
        self.split = Split.of(every, table, lambda _: Pairs(), examples="pairs")
        self.judged = read_judged_texts(judged, encoding=data.encoding) if judged else None
        self.tested = read_judged_texts(data.test, encoding=data.encoding) if data.test else None
        pairs = self.split.train
        if tokenizer is None:
            texts = (text + "\n" for pair in pairs for text in (*pair.sources, *pair.targets))
            tokenizer = train_tokenizer(chunks=texts, **recipe.tokenizer.model_dump())
        self.parts = MaskedLanguageModelParts(tokenizer)
        self.task = SentenceVectors(
            EncodedPairs(pairs, self.parts.coder, recipe.encoder.context),
            recipe,
            judged_by="accuracy" if self.judged is None else "spearman",
            validate=self._validated,
        )

    def _validated(self, model: MaskedLanguageModel) -> Scores | None:
        if self.judged is not None:
            return self._pipeline(model).similarity_scores(self.judged)
        return self._pipeline(model).partners_found(self.split.valid) if self.split.valid else None

    def _pipeline(self, model: MaskedLanguageModel) -> SentenceVectorsPipeline:
        return SentenceVectorsPipeline(model, self.parts.coder, self.recipe)

    @property
    def data(self) -> str:
        train, valid = self.split.train, self.judged.scores if self.judged else self.split.valid or []
        texts, size = len(self.task.pairs.ids), self.parts.vocabulary_size
        return f"{len(train):,} training pairs of {texts:,} texts, {len(valid):,} for validation; {size:,} subwords"

    @property
    def notes(self) -> list[str]:
        return [f"reads {self.layout}", *self.notes_on_origin(), *(self.split.notes if self.judged is None else [])]

    def prepare(self, model: Any) -> None:
        """Nothing is counted in the data."""

    def config(self) -> dict[str, Any]:
        return {"vocabulary_size": self.parts.tokenizer.vocabulary_size}

    def test(self, model: MaskedLanguageModel) -> TextSimilarityScores | None:
        return None if self.tested is None else self._pipeline(model).similarity_scores(self.tested)

    def about(self) -> str:
        return f"over {self.parts.vocabulary_size:,} subwords"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        rows = [(data, name, found[name]) for data, found in scores.items() for name in found]
        return ["| data | score | |", "|---|---|---|", *(f"| {data} | {name} | {x:.6g} |" for data, name, x in rows)]

    def data_lines(self) -> list[str]:
        data, held = self.recipe.data, self.recipe.data.valid or self.split.valid_from
        lines = [
            f"- training: `{data.train}` ({self.layout}), {len(self.split.train):,} pairs",
            f"- validation: {held}",
        ]
        return [*lines, *([f"- test: `{data.test}`"] if data.test else [])]


class AlikeSource(PairSource):
    """Texts that are alike, the first of the targets, and texts that are not, the others: each has its place."""

    def checked(self, pair: Pair) -> Pair:
        """Raises DataError if one of the targets is empty."""
        found = super().checked(pair)
        if len(found.targets) < max(len(pair.targets), len(self.layout.targets)):
            columns = ", ".join(map(str, self.layout.targets))
            raise DataError(f"an empty text; expected one in each of {columns}", pair.path, pair.line)
        return found
