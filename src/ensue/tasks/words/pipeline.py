"""Reads texts for a trained model. The features of a word are computed once and then looked up."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from ensue.arguments import check_type
from ensue.data.compact_texts import Ragged
from ensue.data.vectors import read_vectors
from ensue.errors import EnsueError
from ensue.models.form_memory import FormMemory
from ensue.models.modules import device_of
from ensue.models.word_features import FormTable, WordFeatures
from ensue.tasks.pipeline import Predictor
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.lexicon import Lexicon
from ensue.text.vocabulary import Vocabulary


class WordPipeline(Predictor):
    """The base of the pipelines of taggers and classifiers: cuts texts into words, and turns words into vectors."""

    recipe: WordsRecipe

    def __init__(
        self,
        model: Any,
        lexicon: Lexicon,
        *,
        recipe: WordsRecipe,
        splitter: str,
        contextual: ContextualFeatures,
        subwords: SubwordReader | None,
        run: str | Path | None = None,
    ) -> None:
        super().__init__(model.eval())
        self.reader = Reader(model.features, lexicon, device_of(model))
        self.recipe, self._splitter, self.contextual, self.run = recipe, splitter, contextual, run
        self.subwords = subwords

    @property
    def splitter(self) -> str:
        """The splitter that cuts running text into words; "whitespace" is for text that is cut already."""
        return self._splitter

    def with_splitter(self, splitter: str) -> Self:
        """The same model with another splitter."""
        check_type("the splitter", splitter, str, "its name")
        other = copy(self)
        other._splitter = splitter
        return other

    def use_vectors(self, file: str | Path) -> None:
        """Takes the vectors of words that the training data do not have from `file`, which has to be the one of
        training.
        """
        self.reader.look_up(file)


class Reader:
    """The features and the lexicon of a tagger or classifier in use. Threads may share it."""

    def __init__(self, features: WordFeatures, lexicon: Lexicon, device: torch.device) -> None:
        self.features, self.lexicon = features, lexicon
        self.memory = FormMemory(features, lexicon, device)
        self._file: Path | None = None
        self._looked_up: set[str] = set()
        self._extending = Lock()

    def read(self, texts: Sequence[Sequence[str]]) -> tuple[FormTable, Ragged]:
        """A table of word forms, and the texts as rows of their numbers. Neither changes later."""
        words = [word for text in texts for word in text]
        if self._file is not None:
            with self._extending:
                self._extend(words)
        table, numbers = self.memory.look_up(words)
        return table, Ragged(numbers, np.cumsum([0, *map(len, texts)], dtype=np.int64))

    def look_up(self, file: str | Path) -> None:
        """Takes the pretrained vectors of unknown words from `file` from now on."""
        if self.lexicon.vectors is None:
            raise EnsueError(f"{file}: the model was trained without pretrained vectors")
        self._file = Path(file)
        self.memory.forget()

    def _extend(self, words: Sequence[str]) -> None:
        """Reads the vectors of all new words in one pass over the file."""
        table, known = self.features.vectors, self.lexicon.vectors
        assert self._file is not None
        assert table is not None
        assert known is not None
        wanted = {form for word in dict.fromkeys(words) for form in (word, word.lower())}
        wanted -= known.ids.keys() | self._looked_up
        if not wanted:
            return
        self._looked_up |= wanted
        found, matrix = read_vectors(self._file, wanted)
        if found and matrix.shape[1] != table.embedding_dim:
            raise EnsueError(f"{self._file}: vectors of {matrix.shape[1]} numbers; the model has {table.embedding_dim}")
        if found:  # the vectors come before the words that lead to them: other threads are reading
            rows = torch.from_numpy(matrix).to(table.weight.device)
            table.weight = nn.Parameter(torch.cat((table.weight, rows)), requires_grad=False)
            self.lexicon.vectors = Vocabulary([*known.symbols, *found])
