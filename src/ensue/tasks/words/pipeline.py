"""Reads texts for a trained model. The features of a word are computed once and then looked up."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_type, check_whole
from ensue.data.compact_texts import Ragged
from ensue.data.files import Location, one_location
from ensue.data.lines import Lines
from ensue.data.sources import is_typed
from ensue.data.vector_index import VectorIndex
from ensue.errors import DataError, EnsueError
from ensue.inspection.features import ReadWords
from ensue.models import word_features
from ensue.models.form_memory import FormMemory
from ensue.models.modules import device_of
from ensue.models.subword_encoder import Subwords
from ensue.models.word_features import FormTable, WordFeatures
from ensue.runs.directory import RunDirectory
from ensue.stored import changed
from ensue.tasks.contract.choice import Candidate, drawn, text_vectors
from ensue.tasks.contract.chunks import Shard
from ensue.tasks.contract.pipeline import Predictor
from ensue.tasks.words.contextual import NO_CONTEXT, ContextualFeatures
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.lexicon import NEW, NEW_CHARACTERS, NO_VECTOR, Lacking, Lexicon
from ensue.text.tokens import words_in

LONGEST = 10_000
"""The most words of a text for a page."""
T = TypeVar("T")
AnswerT = TypeVar("AnswerT")


class WordPipeline(Predictor):
    """The base of the pipelines of taggers and classifiers: cuts texts into words, and turns words into vectors."""

    recipe: WordsRecipe

    def __init__(
        self,
        model: Any,
        lexicon: Lexicon,
        labels: Any,
        *,
        recipe: Any,
        config: Mapping[str, Any] | None = None,
        contextual: ContextualFeatures = NO_CONTEXT,
        subwords: SubwordReader | None = None,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model.eval())
        has_bag = getattr(model, "bag", None) is not None
        self.reader = Reader(model.features, lexicon, device_of(model), tells_words=has_bag)
        self.labels, self.config, self.subwords = labels, config or {}, subwords
        self._splitter: str = recipe.data.splitter
        self.recipe, self.contextual, self.run = recipe, contextual, run

    @classmethod
    def of(cls, run: RunDirectory, device: torch.device) -> Self:
        parts: WordParts = run.parts
        return cls(
            run.model(device), parts.lexicon, parts.labels, recipe=run.recipe, config=run.config, run=run.path,
            contextual=ContextualFeatures.within(run, device), subwords=parts.subwords(run.recipe),
        )  # fmt: skip

    @property
    def splitter(self) -> str:
        """The splitter that cuts running text into words; "whitespace" is for text that is cut already."""
        return self._splitter

    def with_splitter(self, splitter: str) -> Self:
        """This model with another splitter."""
        check_type("the splitter", splitter, str, "its name")
        return changed(self, _splitter=splitter)

    @abstractmethod
    def source(
        self, location: Location | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool
    ) -> Any:
        """The texts of a file; with the columns of the training data, if the file has them."""

    def _in_parts(self, location: str, format: str | None, encoding: str) -> tuple[Any, Iterable[Iterable[Any]]]:
        """The texts of a file or a stream, and the parts in which they are read: what a person types, one by one."""
        source = self._opened(location, format=format, encoding=encoding)
        return source, ([text] for text in source) if is_typed(location) else [source]

    def _answered(
        self,
        chunks: Callable[[], Iterator[T]],
        shard: Shard,
        words_of: Callable[[T], list[Sequence[str]]],
        answers: Callable[[T, FormTable, Ragged], Iterator[AnswerT]],
    ) -> Iterator[AnswerT]:
        """The answers to a shard of the chunks. Words are computed where they come first, alike in every shard."""
        chosen = shard.chunks(chunks)
        for place, chunk in enumerate(chunks()):
            if place >= chosen.stop:
                return
            forms, numbers = self.reader.read(words_of(chunk))
            if place >= chosen.start:
                yield from answers(chunk, forms, numbers)

    @abstractmethod
    def candidates(
        self, location: Location, *, format: str | None = None, encoding: str = "utf-8"
    ) -> Iterator[Candidate]:
        """The texts of a file, with or without labels, and what the model says of them."""

    def choose(
        self,
        location: Location,
        count: int,
        *,
        without: Sequence[str | Path] = (),
        seed: int = 0,
        format: str | None = None,
        encoding: str = "utf-8",
    ) -> list[Candidate]:
        """The texts of a pool that are worth a label next: of these the model is not sure, and they differ.

        The texts in the files `without` are left out, whichever blanks are between their words. Raises DataError if no
        text is left.
        """
        check_whole("count", count, 1, 1_000_000)
        check_whole("seed", seed, 0, 2**32 - 1)
        known = {each.letters for path in without for each in self.candidates(path, encoding=encoding)}
        found = {each.letters: each for each in self.candidates(location, format=format, encoding=encoding)}
        left = [each for letters, each in found.items() if letters not in known and any(letters)]
        if not left:
            raise DataError("no text is left to choose", one_location(location))
        words = [[word for text in each.texts for word in words_in(text, self.splitter)] for each in left]
        forms, numbers = self.reader.read(words)
        texts = text_vectors(forms.vectors.float().cpu().numpy(), numbers)
        return [left[place] for place in drawn(texts, np.stack([each.residual for each in left]), count, seed)]

    def lacking(self, *, least: int = 0) -> str:
        return self.reader.lacking.line(least=least)

    def with_vectors(self, file: str | Path) -> Self:
        """This model, which looks up words that the training data do not have in `file`, the vectors of training."""
        return changed(self, reader=self.reader.with_vectors(file))

    def use_vectors(self, file: str | Path) -> None:
        """Looks up words that the training data do not have in `file` from now on, as `with_vectors` does in a copy."""
        self.reader = self.reader.with_vectors(file)

    def read_words(
        self, texts: Sequence[Sequence[str]], columns: dict[str, tuple[str, ...]] | None = None
    ) -> list[ReadWords]:
        """The texts as the model reads them, for a page."""
        for words in texts:
            if not words:
                raise EnsueError("there is nothing to look into: the text has no words")
            self.recipe.check_length(len(words))
            if len(words) > LONGEST:
                raise EnsueError(f"the text has {len(words):,} words; up to {LONGEST:,} can be looked into")
        features, lexicon = self.reader.memory.read([word for words in texts for word in words])
        device, norms, found = device_of(self.model), self._norms(texts), []
        for side, words in enumerate(texts):
            computed = zip(self.contextual.origins, self.contextual.computed([words]), strict=True)
            layers = {run.path: part.batch(np.zeros(1, np.int64), device) for run, part in computed}
            found.append(
                ReadWords(
                    features, lexicon, words, columns, contextual=layers, subwords=self._variants(texts, side),
                    norms=norms[side], device=device,
                )
            )  # fmt: skip
        return found

    @torch.inference_mode()
    def _norms(self, texts: Sequence[Sequence[str]]) -> list[list[float]]:
        """For each text the lengths of the vectors of its words behind layers that read subwords."""
        if self.subwords is None:
            return [[] for _ in texts]
        subwords = self.subwords.variants([texts], device_of(self.model))
        lengths = self.model.layers(subwords)[0, subwords.first :].norm(dim=-1).tolist()
        starts = [sum(map(len, texts[:side])) for side in range(len(texts))]
        return [lengths[start : start + len(text)] for start, text in zip(starts, texts, strict=True)]

    def _variants(
        self, texts: Sequence[Sequence[str]], side: int
    ) -> Callable[[Sequence[Sequence[str | None]]], Subwords] | None:
        """Reads variants of one text of a pair beside the other, or of the only text."""
        reader, device = self.subwords, device_of(self.model)
        if reader is None:
            return None
        before, behind = texts[:side], texts[side + 1 :]
        return lambda variants: reader.variants([[*before, text, *behind] for text in variants], device)


class Reader:
    """The features and the lexicon of a tagger or classifier in use. Threads may share it."""

    def __init__(
        self, features: WordFeatures, lexicon: Lexicon, device: torch.device, *, tells_words: bool = False
    ) -> None:
        self.features, self.lexicon, self.lacking = features, lexicon, Lacking()
        self.memory = FormMemory(features, lexicon, device)
        self._tells_words = tells_words or features.words is not None

    def read(self, texts: Sequence[Sequence[str]]) -> tuple[FormTable, Ragged]:
        """A table of word forms, and the texts as rows of their numbers. Neither changes later."""
        table, numbers = self.memory.look_up([word for text in texts for word in text])
        self._count(table, numbers)
        return table, Ragged(numbers, np.cumsum([0, *map(len, texts)], dtype=np.int64))

    def with_vectors(self, file: str | Path) -> Self:
        """This reader with the pretrained vectors of unknown words from `file`."""
        if self.features.vectors is None:
            raise EnsueError(f"{file}: the model was trained without pretrained vectors")
        index, expected = VectorIndex(file), self.features.vectors.embedding_dim
        if index.dimension != expected:
            raise EnsueError(f"{file}: vectors of {index.dimension} numbers; the model has {expected}")
        memory = FormMemory(self.features, self.lexicon, self.memory.device, vectors=index)
        return changed(self, memory=memory, lacking=Lacking())

    def _count(self, table: FormTable, numbers: NDArray[np.int32]) -> None:
        """Counts the words for which a feature has nothing."""
        rows = torch.from_numpy(numbers).long().to(table.keys.device)
        lacks, keys = (part[rows].cpu().numpy() for part in (table.lacks, table.keys))
        for what, of_words, is_used in (
            (NO_VECTOR, lacks & word_features.NO_VECTOR, self.features.vectors is not None),
            (NEW_CHARACTERS, lacks & word_features.NEW_CHARACTER, self.features.characters is not None),
            (NEW, keys < 0, self._tells_words),
        ):
            if is_used:
                self.lacking.add(what, int(np.count_nonzero(of_words)), len(numbers))
