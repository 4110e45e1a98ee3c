"""The data set of a tagger or classifier of words: pretrained vectors, the lexicon, and the layers of other runs.

Its texts are numbers: their distinct words are encoded once, and batches are made of any texts (`EncodedTexts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.compact_texts import Ragged, StringColumn, Texts
from ensue.models.build_text import build_lexicon
from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.word_features import EncodedForms, Words
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.stored import changed
from ensue.tasks.contract.data_set import DataSet
from ensue.tasks.contract.labels_job import LabeledData
from ensue.tasks.contract.task import on_device
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.tasks.words.model import pretrained_vectors, with_vectors
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.teacher import Told
from ensue.tasks.words.tuned import Kept, Tuned
from ensue.text.lexicon import Lexicon


class Forms(LabeledData, Protocol):
    """Labeled texts in memory."""

    @property
    def forms(self) -> set[str]:
        """The distinct words."""


DataT = TypeVar("DataT", bound=Forms)


class WordsData(DataSet[DataT], Generic[DataT]):
    """Labeled texts, with the runs from which their model begins, and whose layers are features."""

    recipe: Any
    examples: ClassVar[str]
    form: str
    """The format of the files, for people."""
    answers: Told | None
    """The answers of a teacher."""

    def __init__(self, recipe: WordsRecipe, run: RunDirectory | None) -> None:
        self.origins = origins_for(recipe.origins, run)
        self.contextual = ContextualFeatures.of(recipe.features, self.origins, torch.device("cpu"))
        self.tuned = Tuned.of(recipe.encoder, self.origins)
        self.kept = Kept.of(recipe, self.origins)

    def lexicon(self, recipe: WordsRecipe, counts: Mapping[str, int], **columns: Any) -> tuple[Lexicon, Tensor | None]:
        """The lexicon of the training data, with the pretrained vectors of the words of all data, and of the most
        frequent other words; None without a file.

        Raises DataError if the file has no word of the data.
        """
        features, split = recipe.features, self.split
        if not features.vectors:
            lexicon = build_lexicon(features, counts, **columns)
            return lexicon if self.kept is None else self.kept.lexicon(lexicon), None
        forms = {form for part in (split.train, split.valid, split.test) if part is not None for form in part.forms}
        found = pretrained_vectors(features.vectors, forms, features.kept_vectors)
        lexicon = build_lexicon(features, counts, vectors=found.words, kept_vectors=found.kept, **columns)
        return lexicon, found.vectors

    def parts_of(self, run: RunDirectory) -> Any:
        """The parts of a run that is resumed."""
        return with_vectors(run.parts, run, self.recipe.features.vectors)

    def lines(self) -> list[str]:
        data, split, protocol = self.recipe.data, self.split, self.protocol()
        lines = [f"- training: `{data.train}` ({self.form}), {split.train}" + (f"; {protocol}" if protocol else "")]
        lines.append(f"- validation: {split.valid_from}" + (f", {split.valid}" if split.valid else ""))
        lines[-1] += ", with gold labels" if self.answers and data.valid else ""
        different = f"different {self.examples}"
        lines += [f"- teacher: `{data.teacher}`, {len(self.answers):,} {different}"] if self.answers else []
        return [*lines, *([f"- test: `{data.test}`, {split.test}"] if split.test else [])]

    def work_out(self, device: torch.device, told: Callable[[str, float], None]) -> None:
        self.contextual.work_out(device, told)

    def inherit(self, model: nn.Module, parts: Any) -> Mapping[str, Tensor | None]:
        if self.kept is not None:
            return self.kept.inherit(model, parts.labels)
        if self.tuned is None:
            return {}
        layers = cast("SubwordEncoder", model.get_submodule("layers"))
        return {f"layers.{name}": rows for name, rows in self.tuned.inherit(layers).items()}


class EncodedTexts:
    """Texts as numbers. `words` are rows of numbers of `forms`; `columns` are the values of other columns."""

    def __init__(self, lexicon: Lexicon, texts: Texts, columns: Mapping[str, StringColumn] | None = None) -> None:
        self.values = texts.words.values
        self.forms = lexicon.encode(self.values)
        self.words = texts.ragged
        self.columns = []
        for name in lexicon.columns:
            column = (columns or {})[name]
            table = lexicon.encode_column(name, column.values)
            self.columns.append(Ragged(column.ids, texts.starts, texts.lengths, column.numbers.file, table))

    contextual: tuple[LayersOfTexts, ...] = ()
    """Their words in the layers of other models."""

    def with_contextual(self, features: ContextualFeatures) -> Self:
        """The texts with their words in the layers of other models, which are awaited."""
        return changed(self, contextual=features.awaited(self.words, self.values))

    def joined(self, firsts: NDArray[np.int64]) -> Self:
        """Several texts as one: those from `firsts[n]` to `firsts[n + 1]`."""
        columns = [column.joined(firsts) for column in self.columns]
        return changed(self, words=self.words.joined(firsts), columns=columns)

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Words:
        """The batch of the texts in these rows, cut; its forms are those of all."""
        own, padded = row_slice.of(rows), self.words.padded(rows)
        mask = self.words.mask(own, among=rows)
        forms, inverse = np.unique(padded, return_inverse=True)
        numbers = row_slice.of(inverse.reshape(padded.shape))
        return Words(
            forms=EncodedForms.of(self.forms.select(forms), device),
            numbers=on_device(numbers, device),
            columns=on_device(stacked(self.columns, own, numbers.shape, among=rows), device),
            mask=None if mask is None else on_device(mask, device),
            contextual=tuple(part.batch(rows, device, row_slice) for part in self.contextual),
        )

    def keys(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The keys of the words of some of the texts side by side (B, T), 0 where there is none."""
        real, keys = self.words.mask(rows), self.forms.keys[self.words.padded(rows)]
        return keys if real is None else np.where(real, keys, 0)

    def __len__(self) -> int:
        return len(self.words)


def stacked(
    columns: list[Ragged],
    rows: NDArray[np.int64],
    shape: tuple[int, ...],
    *,
    among: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The columns' values (B, T, C), as wide as all rows of `among`."""
    if not columns:
        return np.zeros((*shape, 0), np.int64)
    return np.stack([column.padded(rows, among=among) for column in columns], axis=-1)
