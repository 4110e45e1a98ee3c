"""The job of training word vectors: counts the text, makes task and model, and writes its part of the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.cache import counted_pairs, tokenize, trained_tokenizer
from ensue.data.judgments import Analogies, Questions, read_questions
from ensue.data.sources import TextSource
from ensue.errors import DataError, RecipeError
from ensue.extension import find_entry
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.contract.job import Job
from ensue.tasks.contract.task import Scores
from ensue.tasks.texts.corpus import training_source
from ensue.tasks.texts.drawn_words import Noise
from ensue.tasks.vectors.word_table import WordTable
from ensue.tasks.word_vectors.examples import LINE_END, UNKNOWN, NegativeSampling, WordContexts, kept_shares
from ensue.tasks.word_vectors.model import WordVectorParts
from ensue.tasks.word_vectors.pipeline import table_of
from ensue.tasks.word_vectors.recipe import CountedVectorsTable, SampledVectorsTable, WordVectorsRecipe
from ensue.tasks.word_vectors.task import CountedTask, SampledTask

PIECE = 1 << 20


class WordVectorsJob(Job[Any]):
    """Trains word vectors."""

    unit = "words"
    recipe: WordVectorsRecipe
    parts: WordVectorParts

    def __init__(self, recipe: WordVectorsRecipe, run: RunDirectory | None = None) -> None:
        data = recipe.data
        if not isinstance(recipe.vectors, SampledVectorsTable | CountedVectorsTable):
            kind = recipe.vectors.kind
            raise RecipeError(f'vectors.kind is "{kind}", of vectors from elsewhere; expected cbow, skip-gram or glove')
        self.vectors = recipe.vectors
        self.source = source = training_source(data)
        self.origins = origins_for(recipe.origins, run)
        self.recipe = recipe
        coder = self._sense_coder(source) if self.origins else None
        if run is not None:
            tokenizer: Any = run.parts.tokenizer
        elif coder is not None:
            tokenizer = coder.named()
        else:
            tokenizer = trained_tokenizer(source, stop=None, **recipe.tokenizer.model_dump())
        self.unit = "pairs" if recipe.vectors.kind == "glove" else "words"  # type: ignore[misc]  # of GloVe alone
        self.parts, self.fingerprint = WordVectorParts(tokenizer), source.fingerprint()
        self.tokens = tokenize(source, coder or tokenizer)
        self.counts = self._counted()
        valid, self._test = self._questions(data.valid), self._questions(data.test)
        self.task = self._task(
            (lambda model: self._score(model, valid, data.valid)) if valid else None,
            "accuracy" if valid and isinstance(valid[0], Analogies) else "spearman",
        )

    def _sense_coder(self, source: TextSource) -> Any:
        """The coder that reads the text as senses of words, by the vectors of the run from which this one begins."""
        coder_of: Any = find_entry("coder", "senses", Callable)  # type: ignore[arg-type]  # isinstance takes it
        if coder_of is None:
            raise RecipeError("senses.from needs an extension that finds senses of words; none is installed")
        (origin,) = self.origins
        return coder_of(source, origin, self.recipe)

    def _questions(self, location: str) -> list[Questions]:
        """The questions of a location; none for "". Raises DataError if no word has a vector."""
        if not location:
            return []
        questions = read_questions(location, encoding=self.recipe.data.encoding)
        if not getattr(self.recipe.vectors, "longest_ngram", 0):
            words = self.parts.tokenizer.vocabulary.symbols[LINE_END + 1 :]
            WordTable(words, np.zeros((len(words), 1), np.float32)).check(questions, location)
        return questions

    def _counted(self) -> NDArray[np.int64]:
        """How often each word occurs. Raises DataError for a text from which nothing can be learned."""
        data, counts, has_pair, before = self.recipe.data, np.zeros(self._size, np.int64), False, LINE_END
        for start in range(0, len(self.tokens), PIECE):
            ids = self.tokens.read(start, min(start + PIECE, len(self.tokens)))
            counts += np.bincount(ids, minlength=self._size)
            ids = np.append(before, ids[ids > (LINE_END if data.across_lines else UNKNOWN)])
            has_pair |= bool(((ids[1:] > LINE_END) & (ids[:-1] > LINE_END)).any())
            before = int(ids[-1])
        distinct = int(np.count_nonzero(counts[LINE_END + 1 :]))
        if distinct < 2:
            least = self.recipe.tokenizer.min_count
            found = f"{distinct} word{'s' * (distinct != 1)} that occur{'s' * (distinct == 1)} {least} times or more"
            raise DataError(f"nothing to learn: it has {found} (tokenizer.min_count); expected at least 2", data.train)
        if not has_pair:
            raise DataError("nothing to learn: no line has two known words; try data.across_lines = true", data.train)
        return counts

    @property
    def _size(self) -> int:
        return self.parts.vocabulary_size

    def _task(self, questions: Callable[[Any], Scores] | None, judged_by: str) -> SampledTask | CountedTask:
        tokenizer: Any = self.parts.tokenizer
        table, train, across_lines = self.vectors, self.recipe.train, self.recipe.data.across_lines
        if table.kind == "glove":
            return CountedTask(
                counted_pairs(self.source, tokenizer, window=table.window, across_lines=across_lines),
                batch_size=train.batch_size, largest_count=table.largest_count, power=table.power,
                words=len(self.tokens), questions=questions, judged_by=judged_by,
            )  # fmt: skip
        contexts = WordContexts(
            self.tokens, kept_shares(self.counts, table.subsample), words=train.batch_size, window=table.window,
            across_lines=across_lines, seed=train.seed,
        )  # fmt: skip
        is_word = (np.arange(self._size) > LINE_END) & (self.counts > 0)
        noise = Noise(np.where(is_word, self.counts.astype(np.float64) ** table.noise_power, 0))
        plan = NegativeSampling(table.kind, table.window, table.negatives, noise)
        return SampledTask(contexts, plan, questions=questions, judged_by=judged_by)

    def _score(self, model: Any, questions: list[Questions], location: str) -> Scores:
        return table_of(model, self.parts.tokenizer, self.recipe.vectors).score(questions, location)

    @property
    def data(self) -> str:
        words, known = len(self.tokens) - int(self.counts[LINE_END]), int(self.counts[LINE_END + 1 :].sum())
        return f"{words:,} words, {known:,} of them in the vocabulary of {self._size - 2:,}"

    @property
    def notes(self) -> list[str]:
        known, window = int(self.counts[LINE_END + 1 :].sum()), self.vectors.window
        few = [f"the text has {known:,} known words, fewer than a window of {window}"] if known <= window else []
        senses = []
        for origin in self.origins:
            new = self._size - origin.run.parts.vocabulary_size
            senses.append(f"{new:,} vectors of senses beside the first one of their words (senses.from {origin.path})")
        return [*few, *senses, *([] if self.recipe.data.valid else ["no validation data: the last vectors are kept"])]

    def config(self) -> dict[str, Any]:
        return {"vocabulary_size": self._size}

    def test(self, model: Any) -> Scores | None:
        return self._score(model, self._test, self.recipe.data.test) if self._test else None

    def about(self) -> str:
        return f"of {self._size - 2:,} words"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        lines = ["| data | score | covered |", "|---|---|---|"]
        for data, found in scores.items():
            name, asked = ("spearman", "pairs") if "spearman" in found else ("accuracy", "questions")
            lines.append(f"| {data} | {name} {found[name]:.4f} | {found['covered']:,} of {found[asked]:,} {asked} |")
        return lines
