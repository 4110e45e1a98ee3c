"""The training jobs of masked language models and sentence vectors."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ensue.data.corpus.cache import TextToIds
from ensue.data.division import SelectableList
from ensue.data.examples import Pair, PairSource
from ensue.data.examples.layout import Pairs
from ensue.data.judgments import Judgment, read_judged_texts
from ensue.data.mapped_file import TokenFile
from ensue.errors import DataError, IncompleteError, RecipeError
from ensue.metrics.scores import MaskedScores
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import Split
from ensue.tasks.contract.job import Job
from ensue.tasks.contract.task import TaskScores
from ensue.tasks.masked_language_modeling import task as masked
from ensue.tasks.masked_language_modeling.model import MaskedLanguageModelParts
from ensue.tasks.masked_language_modeling.pipeline import SentenceVectorsPipeline
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentenceVectorsRecipe
from ensue.tasks.texts.corpus import CorpusJob
from ensue.text.tokenizers import Tokenizer, train_tokenizer


class MaskedLanguageModelingJob(CorpusJob[MaskedLanguageModel]):
    """The training of a masked language model."""

    unit: ClassVar[str] = "masked tokens"
    recipe: MaskedLanguageModelingRecipe
    parts: MaskedLanguageModelParts
    task: masked.MaskedLanguageModeling

    @classmethod
    def reader_of(cls, recipe: MaskedLanguageModelingRecipe) -> Callable[[Tokenizer], TextToIds]:
        return partial(masked.stream_of, recipe)

    def __init__(self, recipe: MaskedLanguageModelingRecipe, run: RunDirectory | None = None) -> None:
        if not recipe.head.masked:
            raise RecipeError(
                "head.masked = false: a model without a head for masks has nothing to learn; with "
                'task = "sentence-vectors" it learns from pairs of texts'
            )
        self.read_corpus(recipe, run)
        coder, corpus = self.parts.coder, self.corpus
        self.masking = masked.masking_of(recipe, coder)
        valid = None if corpus.valid is None else self.encode(corpus.valid)
        examples = masked.examples_of(recipe, corpus.train, coder, recipe.data.train, are_scored=False)
        self.task = masked.MaskedLanguageModeling(
            examples, self.masking, batch_size=recipe.train.batch_size, block_tokens=recipe.block_tokens, valid=valid,
            sample=lambda model, seed: masked.predict_sample(model, coder, corpus.valid or corpus.train, seed=seed),
        )  # fmt: skip

    def encode(self, data: TokenFile) -> partial[MaskedScores]:
        table = self.recipe.data
        path = table.test if data is self.corpus.test else table.valid or table.train
        examples = masked.examples_of(self.recipe, data, self.parts.coder, path, are_scored=True)
        return partial(masked.score, examples=examples, masking=self.masking, tokens=len(data), unknown=data.unknown)

    @property
    def notes(self) -> list[str]:
        train, size = self.recipe.train, self.corpus.tokenizer.vocabulary_size
        notes, max_size = [], self.recipe.tokenizer.max_size
        if max_size is not None and size < max_size and not self.origins:
            notes.append(f"the text gives a vocabulary of {size:,}, not {max_size:,} (tokenizer.max_size)")
        if self.task.batch_size < train.batch_size:
            notes.append(f"the text gives {self.task.batch_size:,} examples for a batch, not {train.batch_size:,}")
        return [*notes, *self.notes_on_origin(), *self.notes_on_validation()]

    def protocol(self, model: MaskedLanguageModel) -> str:
        return f"validation: {masked.describe_protocol(self.recipe)}" if self.corpus.valid else ""

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores, MaskedScores.on_card, "text")


class SentenceVectorsJob(CorpusJob[MaskedLanguageModel]):
    """The training of sentence vectors on pairs of similar texts. Validation and test data are pairs with judged
    similarities. Without validation data, a share of the training pairs is held out. The score is then the share of
    first texts whose nearest second text is the second text of the pair.
    """

    unit: ClassVar[str] = "pairs"
    examples: ClassVar[str] = "pairs"
    data_name: ClassVar[str] = "split"
    sample_size: ClassVar[int] = 64
    recipe: SentenceVectorsRecipe
    parts: MaskedLanguageModelParts
    task: masked.SentenceVectors

    @classmethod
    def reader_of(cls, recipe: SentenceVectorsRecipe) -> None:
        return None

    def __init__(self, recipe: SentenceVectorsRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of pairs, or two files, separated by a comma")
        tokenizer = self.stored_tokenizer(run)
        source = SimilarPairSource(
            data.train, sources=data.sources, targets=data.targets, group=data.group, encoding=data.encoding,
            incomplete=data.incomplete,
        )  # fmt: skip
        self.layout, self.fingerprint = source.layout, source.fingerprint()
        pairs = Pairs(source)
        if not pairs:
            raise DataError("no pairs", data.train)
        table = data.model_copy(update={"valid": "", "test": "", **({"valid_fraction": 0.0} if data.valid else {})})
        split: Any = Split.of(pairs, table, lambda _: Pairs(), examples="pairs")
        split.valid = read_judged_texts(data.valid, encoding=data.encoding) if data.valid else split.valid
        split.test = read_judged_texts(data.test, encoding=data.encoding) if data.test else None
        self.split, pairs = split, split.train
        if tokenizer is None:
            texts = (text + "\n" for pair in pairs for text in (*pair.sources, *pair.targets))
            tokenizer = train_tokenizer(chunks=texts, **recipe.tokenizer.model_dump())
        self.parts = MaskedLanguageModelParts(tokenizer)
        encoded = masked.EncodedTextPairs(pairs, self.parts.coder, recipe.encoder.context)
        judged_by = "spearman" if data.valid else "accuracy"
        self.task = masked.SentenceVectors(encoded, recipe, judged_by=judged_by)
        if split.valid:
            self.validate_on(split.valid)

    draw = Job.draw  # draws pairs; `CorpusJob.draw` draws a passage of a text

    def encode(self, data: SelectableList[Judgment] | Pairs) -> Callable[[MaskedLanguageModel], TaskScores]:
        def score(model: MaskedLanguageModel) -> TaskScores:
            pipeline = SentenceVectorsPipeline(model, self.parts.coder, self.recipe)
            return pipeline.partner_accuracy(data) if isinstance(data, Pairs) else pipeline.similarity_scores(data)

        return score

    @property
    def data(self) -> str:
        train, valid = self.split.train, self.split.valid or []
        texts, size = len(self.task.pairs.ids), self.parts.vocabulary_size
        return f"{len(train):,} training pairs of {texts:,} texts, {len(valid):,} for validation; {size:,} subwords"

    @property
    def notes(self) -> list[str]:
        split = self.split
        notes = [f"reads {self.layout}", *self.notes_on_origin(), *([] if self.recipe.data.valid else split.notes)]
        pairs = {frozenset((*pair.sources, target)) for pair in self.split.train for target in pair.targets}
        for name, data in (("validation", split.valid if self.recipe.data.valid else None), ("test", split.test)):
            texts = [pair.texts for pair in data or ()]
            if num_shared := sum(frozenset(pair) in pairs for pair in texts):
                notes.append(f"{num_shared:,} of {len(texts):,} pairs of the {name} data are in the training data, too")
        return notes

    def prepare(self, model: Any) -> None:
        """Do nothing: the model needs no counts."""

    def config(self) -> dict[str, Any]:
        return {"vocabulary_size": self.parts.tokenizer.vocabulary_size}

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        rows = [(data, name, row[name]) for data, row in scores.items() for name in row]
        return ["| data | score | |", "|---|---|---|", *(f"| {data} | {name} | {x:.6g} |" for data, name, x in rows)]

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        return [
            f"- training: `{data.train}` ({self.layout}), {len(self.split.train):,} pairs",
            f"- validation: {data.valid or self.split.valid_from}",
            *([f"- test: `{data.test}`"] if data.test else []),
        ]


class SimilarPairSource(PairSource):
    """Pairs of a text and its targets. The first target is similar to the text, and other targets are not similar."""

    def checked(self, pair: Pair) -> Pair:
        """Raise DataError if a target is empty."""
        checked = super().checked(pair)
        if len(checked.targets) < max(len(pair.targets), len(self.layout.targets)):
            message = f"an empty text; expected one in each of {', '.join(map(str, self.layout.targets))}"
            raise IncompleteError(message, pair.path, pair.line, missing="text")
        return checked
