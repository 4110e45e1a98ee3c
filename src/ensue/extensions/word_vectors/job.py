"""The training job of word vectors."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.cache import load_or_train_tokenizer, tokenize
from ensue.data.division import SelectableList
from ensue.data.judgments import Judgment
from ensue.data.sources import TextSource
from ensue.errors import DataError, RecipeError
from ensue.extension import find_entry
from ensue.extensions.word_vectors import examples
from ensue.extensions.word_vectors.examples import LINE_END, UNKNOWN
from ensue.extensions.word_vectors.model import WordVectorParts
from ensue.extensions.word_vectors.pair_counts import count_pairs
from ensue.extensions.word_vectors.pipeline import MAX_QUESTIONS, WordTable, build_word_table, read_questions
from ensue.extensions.word_vectors.recipe import CountedVectorsTable, SampledVectorsTable, WordVectorsRecipe
from ensue.extensions.word_vectors.task import CountedTask, SampledTask
from ensue.runs.directory import RunDirectory, origins_for
from ensue.tasks.contract.job import Job
from ensue.tasks.contract.task import TaskScores
from ensue.tasks.texts.corpus import training_source


class WordVectorsJob(Job[Any]):
    """The training of word vectors by CBOW, skip-gram or GloVe."""

    unit = "words"
    examples = "questions"
    data_name = "questions"
    sample_size = MAX_QUESTIONS
    recipe: WordVectorsRecipe
    parts: WordVectorParts
    task: SampledTask | CountedTask

    def __init__(self, recipe: WordVectorsRecipe, run: RunDirectory | None = None) -> None:
        data = recipe.data
        if not isinstance(recipe.vectors, SampledVectorsTable | CountedVectorsTable):
            kind = recipe.vectors.kind
            raise RecipeError(f'vectors.kind "{kind}" cannot be trained; expected cbow, skip-gram or glove')
        self.vectors = recipe.vectors
        self.source = source = training_source(data)
        self.origins = origins_for(recipe.origins, run)
        self.recipe = recipe
        coder = self._make_sense_coder(source) if self.origins else None
        if run is not None:
            tokenizer: Any = run.parts.tokenizer
        elif coder is not None:
            tokenizer = coder.to_word_tokenizer()
        else:
            tokenizer = load_or_train_tokenizer(source, stop=None, **recipe.tokenizer.model_dump())
        self.unit = "pairs" if recipe.vectors.kind == "glove" else "words"  # type: ignore[misc]  # GloVe only
        self.parts, self.fingerprint = WordVectorParts(tokenizer), source.fingerprint()
        self.tokens = tokenize(source, coder or tokenizer)
        self.counts = self._count_ids()
        valid = self._read_questions(data.valid)
        self.questions = SimpleNamespace(valid=valid, test=self._read_questions(data.test))
        self.task = self._make_task("accuracy" if valid and valid[0].is_analogy else "spearman")
        if valid is not None:
            self.validate_on(valid)

    def _make_sense_coder(self, source: TextSource) -> Any:
        """Return a tokenizer whose ids are senses of words, by the vectors of the run `senses.from`."""
        make_coder: Any = find_entry("coder", "senses", Callable)  # type: ignore[arg-type]  # isinstance accepts it
        if make_coder is None:
            raise RecipeError("senses.from needs an extension that clusters senses of words; none is installed")
        (origin,) = self.origins
        return make_coder(source, origin, self.recipe)

    def encode(self, data: SelectableList[Judgment]) -> Callable[[Any], TaskScores]:
        return lambda model: build_word_table(model, self.parts.tokenizer, self.recipe.vectors).score(data)

    def _read_questions(self, location: str) -> SelectableList[Judgment] | None:
        """Return the questions in a location; None for "". Raises DataError if every question has an unknown word."""
        if not location:
            return None
        questions = read_questions(location, encoding=self.recipe.data.encoding)
        words = self.parts.tokenizer.vocabulary.symbols[LINE_END + 1 :]
        fallback = (lambda word: np.zeros(1, np.float32)) if getattr(self.recipe.vectors, "longest_ngram", 0) else None
        WordTable(words, np.zeros((len(words), 1), np.float32), fallback).check(questions, location)
        return questions

    def _count_ids(self) -> NDArray[np.int64]:
        """Count each id (V,). Raises DataError for fewer than two distinct words, or if no line has two known words."""
        data, has_pair, previous = self.recipe.data, False, LINE_END
        counts = np.zeros(self.parts.vocabulary_size, np.int64)
        for _, block in self.tokens.blocks():
            counts += np.bincount(block, minlength=len(counts))
            ids = np.append(previous, block[block > (LINE_END if data.across_lines else UNKNOWN)])
            has_pair |= bool(((ids[1:] > LINE_END) & (ids[:-1] > LINE_END)).any())
            previous = int(ids[-1])
        distinct = int(np.count_nonzero(counts[LINE_END + 1 :]))
        if distinct < 2:
            minimum = self.recipe.tokenizer.min_count
            words = f"{distinct} word{'s' * (distinct != 1)} that occur{'s' * (distinct == 1)} {minimum} times or more"
            raise DataError(f"nothing to learn: {words} (tokenizer.min_count); expected at least 2", data.train)
        if not has_pair:
            raise DataError("nothing to learn: no line has two known words; try data.across_lines = true", data.train)
        return counts

    def _make_task(self, judged_by: str) -> SampledTask | CountedTask:
        tokenizer: Any = self.parts.tokenizer
        table, train, across_lines = self.vectors, self.recipe.train, self.recipe.data.across_lines
        if table.kind == "glove":
            pairs = count_pairs(self.source, tokenizer, window=table.window, across_lines=across_lines)
            sizes: dict[str, Any] = {"batch_size": train.batch_size, "words": len(self.tokens)}
            weights: dict[str, Any] = {"largest_count": table.largest_count, "power": table.power}
            return CountedTask(pairs, **sizes, **weights, judged_by=judged_by)
        keep = examples.keep_probabilities(self.counts, table.subsample)
        sizes = {"words": train.batch_size, "window": table.window}
        contexts = examples.WordContexts(self.tokens, keep, **sizes, across_lines=across_lines, seed=train.seed)
        is_word = (np.arange(self.parts.vocabulary_size) > LINE_END) & (self.counts > 0)
        noise = examples.Noise(np.where(is_word, self.counts.astype(np.float64) ** table.noise_power, 0))
        sampling = examples.NegativeSampling(table.kind, table.window, table.negatives, noise)
        return SampledTask(contexts, sampling, judged_by=judged_by)

    @property
    def data(self) -> str:
        words, num_known = len(self.tokens) - int(self.counts[LINE_END]), int(self.counts[LINE_END + 1 :].sum())
        return f"{words:,} words, {num_known:,} of them in the vocabulary of {self.parts.vocabulary_size - 2:,}"

    @property
    def notes(self) -> list[str]:
        known, window = int(self.counts[LINE_END + 1 :].sum()), self.vectors.window
        notes = [f"the text has {known:,} known words, no more than a window of {window}"] if known <= window else []
        for origin in self.origins:
            new = self.parts.vocabulary_size - origin.run.parts.vocabulary_size
            notes.append(f"{new:,} vectors of second and further senses (senses.from {origin.path})")
        return notes if self.recipe.data.valid else [*notes, "no validation data: the last vectors are kept"]

    def config(self) -> dict[str, Any]:
        return {"vocabulary_size": self.parts.vocabulary_size}

    def about(self) -> str:
        return f"of {self.parts.vocabulary_size - 2:,} words"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        lines = ["| data | score | covered |", "|---|---|---|"]
        for data, row in scores.items():
            name, items = ("spearman", "pairs") if "spearman" in row else ("accuracy", "questions")
            lines.append(f"| {data} | {name} {row[name]:.4f} | {row['covered']:,} of {row[items]:,} {items} |")
        return lines
