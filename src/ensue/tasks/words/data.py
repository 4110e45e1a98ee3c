"""The data set of a tagger or classifier of words: pretrained vectors, the lexicon, and the layers of other runs.

Texts are stored as indices of word forms, and each word form is encoded once (`EncodedTexts`).

The labels of a teacher are read from a file of JSON lines, such as the output of `ensue predict --json`.

References:
    Hinton et al. 2015, "Distilling the Knowledge in a Neural Network".
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.compact_texts import Ragged, StringColumn, Texts
from ensue.data.lines import Lines, json_values
from ensue.errors import DataError
from ensue.models.build_text import build_lexicon
from ensue.models.classifier import real_keys
from ensue.models.subword_encoder import SubwordEncoder
from ensue.models.word_features import EncodedForms, Words
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory, origins_for
from ensue.stored import copy_with
from ensue.tasks.contract.data_set import DataSet, Examples
from ensue.tasks.contract.task import on_device
from ensue.tasks.words.model import ExtendedModel, FineTunedEncoder, pretrained_vectors, with_vectors
from ensue.tasks.words.pipeline import ContextualFeatures, WordLayers
from ensue.tasks.words.recipe import WordsRecipe
from ensue.text.lexicon import Lexicon

EXPECTED = 'expected {"texts": [...], "probabilities": {LABEL: NUMBER, ...}}'
EXPECTED_WORDS = 'expected {"tokens": [...], "probabilities": [{TAG: NUMBER, ...}, ...]}, one for each token'
MAX_SUM_ERROR = 0.01
"""The maximum difference of a sum of probabilities from 1, since files have rounded probabilities."""
Distribution = Mapping[str, float]


class TeacherAnswer(NamedTuple):
    """A text or a pair with one distribution over labels, or the words of a sentence with one distribution each."""

    texts: tuple[str, ...]
    probabilities: Sequence[Distribution]


def read_teacher_answers(path: str | Path, *, by_word: bool = False) -> Iterator[TeacherAnswer]:
    """Yield the answers of a file of JSON lines. `by_word` is whether each word of a sentence has a distribution."""
    expected = EXPECTED_WORDS if by_word else EXPECTED
    for number, value in json_values(Lines.of(Path(path))):
        record = value if isinstance(value, dict) else {}
        rows: Any = record.get("probabilities") if by_word else [record.get("probabilities")]
        if by_word:
            texts = record.get("tokens")
        elif "text1" in record:
            texts = [record["text1"], record.get("text2")]
        else:
            texts = record.get("texts", record.get("text"))
        texts = tuple(texts) if isinstance(texts, list) else (None if by_word else texts,)
        is_valid = all(map(_is_text, texts)) and isinstance(rows, list)
        if not is_valid or not (len(rows) == len(texts) if by_word else 1 <= len(texts) <= 2):
            raise DataError(expected, path, number)
        yield TeacherAnswer(texts, [_check_distribution(row, expected, path, number) for row in rows])


def _check_distribution(row: Any, expected: str, path: str | Path, line: int) -> Distribution:
    """Return a distribution scaled to the sum 1. Raise DataError for other values."""
    if not isinstance(row, dict) or not all(
        isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1 for value in row.values()
    ):
        raise DataError(expected, path, line)
    if any(label != label.strip() or not label or not _is_text(label) for label in row):
        raise DataError("a label is empty, has blanks around it, or contains half a surrogate pair", path, line)
    total = math.fsum(row.values())
    if abs(total - 1) > MAX_SUM_ERROR:
        raise DataError(f"the probabilities have the sum {total:.4g}; expected 1", path, line)
    return {label: probability / total for label, probability in row.items()}


class TeacherLabels:
    """The mean probabilities of labels for each text of a file. `key` maps an answer of the teacher to its text."""

    def __init__(self, path: str, key: Callable[[TeacherAnswer], Hashable], *, by_word: bool = False) -> None:
        by_text: dict[Hashable, list[Sequence[Distribution]]] = {}
        for answer in read_teacher_answers(path, by_word=by_word):
            by_text.setdefault(key(answer), []).append(answer.probabilities)
        self.path = path
        self.means = {text: list(map(_average, zip(*rows, strict=True))) for text, rows in by_text.items()}
        self.names = {name for rows in self.means.values() for row in rows for name in row}

    def soft_targets(
        self, texts: Iterable[Hashable], targets: NDArray[np.float32], starts: Iterable[int], ids: Mapping[str, int]
    ) -> NDArray[np.float32]:
        """Overwrite the rows of `targets` (N, K) for texts in the file with the teacher's means, and return `targets`.
        `texts` are keys, `starts` the first row of each text, and `ids` the columns of labels by name. Raise DataError
        if the file has none of the texts.
        """
        num_replaced = 0
        for key, start in zip(texts, starts, strict=True):
            rows = self.means.get(key, ())
            for target, row in zip(targets[start : start + len(rows)], rows, strict=True):
                target[:] = 0
                target[[ids[name] for name in row]] = list(row.values())
            num_replaced += key in self.means
        if not num_replaced:
            raise DataError("contains none of the training texts", self.path)
        return targets

    def __len__(self) -> int:
        return len(self.means)


def _average(rows: Sequence[Distribution]) -> Distribution:
    return {name: sum(row.get(name, 0.0) for row in rows) / len(rows) for name in set().union(*rows)}


def soften(probabilities: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Return probabilities (..., K) whose logits are divided by the temperature; a probability of 0 stays 0."""
    powers = (probabilities / probabilities.max(-1, keepdims=True)) ** (1 / temperature)
    return powers / powers.sum(-1, keepdims=True)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value))


DataT = TypeVar("DataT", bound=Examples)


class WordsData(DataSet[DataT], Generic[DataT]):
    """Labeled texts, the run from which the model begins, and the runs whose layers are features."""

    recipe: Any
    examples: ClassVar[str]
    """The plural noun for examples, such as "sentences"."""
    format_name: str
    """The name of the format of the files."""
    teacher: TeacherLabels | None
    """The labels of a teacher; None without a teacher."""

    def __init__(self, recipe: WordsRecipe, run: RunDirectory | None) -> None:
        self.origins = origins_for(recipe.origins, run)
        self.contextual = ContextualFeatures.of(recipe.features, self.origins, torch.device("cpu"))
        self.tuned = FineTunedEncoder.of(recipe.encoder, self.origins)
        self.extended = ExtendedModel.of(recipe, self.origins)

    def lexicon(self, recipe: WordsRecipe, counts: Mapping[str, int], **options: Any) -> tuple[Lexicon, Tensor | None]:
        """Return the lexicon of the training data, and its pretrained vectors (None without a file of vectors)."""
        features, split = recipe.features, self.split
        if not features.vectors:
            lexicon = build_lexicon(features, counts, **options)
            return lexicon if self.extended is None else self.extended.lexicon(lexicon), None
        data: list[Any] = [split.train, split.valid, split.test]
        forms = {form for texts in data if texts is not None for form in texts.forms}
        words, vectors, num_extra = pretrained_vectors(features.vectors, forms, features.kept_vectors)
        return build_lexicon(features, counts, vectors=words, kept_vectors=num_extra, **options), vectors

    def resumed_parts(self, run: RunDirectory) -> Any:
        """Return the vocabularies and labels of a run that is resumed."""
        return with_vectors(run.parts, run, self.recipe.features.vectors)

    def lines(self) -> list[str]:
        data, note, (_, *lines) = self.recipe.data, self.protocol(), super().lines()
        train = f"- training: `{data.train}` ({self.format_name}), {self.split.train}" + (f"; {note}" if note else "")
        if self.teacher:
            lines[0] += ", with gold labels" if data.valid else ""
            lines.insert(1, f"- teacher: `{data.teacher}`, {len(self.teacher):,} different {self.examples}")
        return [train, *lines]

    def inherit(self, model: nn.Module, parts: Any) -> Mapping[str, Tensor | None]:
        if self.extended is not None:
            return self.extended.inherit(model, parts.labels)
        if self.tuned is None:
            return {}
        layers = cast("SubwordEncoder", model.get_submodule("layers"))
        return {f"layers.{name}": rows for name, rows in self.tuned.inherit(layers).items()}


class EncodedTexts:
    """Texts as indices of word forms. Each distinct form is encoded once.

    `words` has the indices of the words of each text in `forms`, and `columns` the ids of the values of other columns.
    """

    def __init__(self, lexicon: Lexicon, texts: Texts, columns: Mapping[str, StringColumn] | None = None) -> None:
        self.values = texts.words.values
        self.forms = lexicon.encode(self.values)
        self.words = texts.ragged
        self.columns = []
        for name in lexicon.columns:
            column = (columns or {})[name]
            table = lexicon.encode_column(name, column.values)
            self.columns.append(Ragged(column.ids, texts.starts, texts.lengths, column.numbers.file, table))

    contextual: tuple[WordLayers, ...] = ()
    """The vectors of the words in the layers of other models."""

    def with_contextual(self, features: ContextualFeatures) -> Self:
        """Return the texts with the vectors of other models, to be computed by `ContextualFeatures.precompute`."""
        return copy_with(self, contextual=features.lazy_vectors(self.words, self.values))

    def joined(self, firsts: NDArray[np.int64]) -> Self:
        """Return concatenated texts: text n joins the texts from `firsts[n]` to `firsts[n + 1]` (exclusive)."""
        columns = [column.joined(firsts) for column in self.columns]
        return copy_with(self, words=self.words.joined(firsts), columns=columns)

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Words:
        """Return the slice `row_slice` of the batch of the texts `rows`, with the word forms of all rows."""
        local_rows, padded = row_slice.select(rows), self.words.padded(rows)
        mask = self.words.mask(local_rows, among=rows)
        forms, inverse = np.unique(padded, return_inverse=True)
        numbers = row_slice.select(inverse.reshape(padded.shape))
        return Words(
            forms=EncodedForms.of(self.forms.select(forms), device),
            numbers=on_device(numbers, device),
            columns=on_device(stack_columns(self.columns, local_rows, numbers.shape, among=rows), device),
            mask=None if mask is None else on_device(mask, device),
            contextual=tuple(vectors.batch(rows, device, row_slice) for vectors in self.contextual),
        )

    def keys(self, rows: NDArray[np.int64]) -> Tensor:
        """Return the keys (B, T) by which the words of the texts `rows` are compared, 0 at padding."""
        mask, keys = self.words.mask(rows), torch.from_numpy(self.forms.keys[self.words.padded(rows)])
        return real_keys(keys, None if mask is None else torch.from_numpy(mask))

    def __len__(self) -> int:
        return len(self.words)


def stack_columns(
    columns: list[Ragged], rows: NDArray[np.int64], shape: tuple[int, ...], *, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the values (B, T, C) of columns for the texts `rows`, padded to the longest text of `among`."""
    if not columns:
        return np.zeros((*shape, 0), np.int64)
    return np.stack([column.padded(rows, among=among) for column in columns], axis=-1)
