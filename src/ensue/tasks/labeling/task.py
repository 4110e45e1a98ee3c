"""Labeling: a tag for each word. Scores of taggers; mistakes as a table of wrong words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat, starmap
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Columns, Numbers, Ragged, Texts, side_by_side
from ensue.data.kept_columns import Kept, in_cache
from ensue.data.parallel import batched
from ensue.data.sentences.sentence import Sentence
from ensue.errors import EnsueError
from ensue.metrics.labeling import ColumnsTally, LabelingScores, LabelingTally
from ensue.models.modules import evaluating
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import SentencePlaces, Tagger
from ensue.models.word_features import Positions
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.outputs import written
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, on_device
from ensue.tasks.labeling.decoding import Passages, placed
from ensue.text.label_columns import LabelColumns, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.schemes import Span
from ensue.types import Loss, State

COLUMNS = ("place", "word", "right", "predicted", "before", "after")
SENTENCES = 1_000
"""The sentences that are read or encoded together."""
CONTEXT = 8
"""The most words that are shown on each side."""


class Judged(NamedTuple):
    """The right labels of a sentence, in the scheme of the model, and the predicted ones. `misaligned` has by
    column the gold spans that begin or end inside of a word, and `place` says where the sentence is.
    """

    right: Sequence[Any]
    predicted: list[Any]
    misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({})
    place: str = ""

    @classmethod
    def of(
        cls, labels: TaggerLabels, right: Sequence[Any], predicted: list[Any],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}), place: str = "",
    ) -> Self:  # fmt: skip
        """Return the labels of a file in any scheme, and the labels that the model predicts."""
        return cls(labels.in_scheme(right), predicted, misaligned, place)


def tally_of(labels: TaggerLabels) -> ColumnsTally | LabelingTally:
    """Return the tally of answers with these labels (`Judged`)."""
    if isinstance(labels, LabelColumns):
        return ColumnsTally(labels)
    return LabelingTally(spans=labels.has_spans, read=labels.spans, known=labels.names)


def with_mistakes(answers: Iterable[tuple[Sentence, Judged]], path: Path) -> Iterator[Judged]:
    """Yield the labels of sentences as they come, and write the wrong ones to `path`, with tabs between the columns.

    `place` is the file and the line where the sentence begins.

    Raises DataError if the file cannot be written.
    """
    with written(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        file.write("\t".join(COLUMNS) + "\n")
        for sentence, judged in answers:
            file.writelines(_rows(sentence, judged))
            yield judged


def _rows(sentence: Sentence, judged: Judged) -> Iterator[str]:
    words = sentence.words
    for place, (gold, predicted) in enumerate(zip(judged.right, judged.predicted, strict=True)):
        if gold != predicted:
            before, after = words[max(0, place - CONTEXT) : place], words[place + 1 : place + 1 + CONTEXT]
            cells = (
                judged.place,
                words[place],
                *(label if isinstance(label, str) else " ".join(label) for label in (gold, predicted)),
                *map(" ".join, (before, after)),
            )
            yield "\t".join(" ".join(cell.split()) for cell in cells) + "\n"


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """Passages, the places of the sentences in them (None: each passage is a sentence), and the tags (S, L), `PADDING`
    for padding; or a teacher's probabilities of tags (S, L, K), zeros for padding.
    """

    words: Positions
    sentences: SentencePlaces | None
    tags: Tensor


class Labeled(Protocol):
    """Labeled data in memory."""

    @property
    def passages(self) -> Passages:
        """Which sentences are read together."""

    @property
    def labels(self) -> Sequence[Sequence[Any]]:
        """The labels of their file."""

    @property
    def misaligned(self) -> Sequence[Mapping[str, Sequence[Span]]]:
        """For each sentence, by column, the spans that begin or end inside of a word; empty if there are none."""

    @property
    def words(self) -> Texts | Sequence[Sequence[str]]:
        """The words of each sentence; empty for inputs that are no words."""

    def batch(self, passages: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Positions:
        """Return the batch of these passages, cut."""

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """Return the tags (T,) of each sentence, in order."""


class Labeling(BucketedTask[Tagger, TaggedBatch]):
    """Labeling in batches of sentences of similar length; judged by the F1 of spans, or by accuracy
    for plain labels. `key` is the digest of training data in the cache (`Split.key`). `soft` (N, K) are a teacher's
    probabilities of the tags of all words.
    """

    def __init__(
        self,
        train: Labeled,
        valid: Labeled | None,
        labels: TaggerLabels,
        sizes: BatchSizes,
        *,
        key: str = "",
        soft: NDArray[np.float32] | None = None,
    ) -> None:
        self.soft = soft
        self.train, self.passages, self.valid, self.labels = train, train.passages, valid, labels
        self.judged_by = "f1" if labels.has_spans else "accuracy"
        self.tags = tags_of(train, labels, key)
        super().__init__(train.passages.words.lengths, sizes)

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.passages.words.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TaggedBatch:
        local_rows, sentences = row_slice.of(rows), None
        if not self.passages.are_sentences:
            sentences = placed(self.passages.places(local_rows, among=rows), device)
        numbers, among = self.passages.numbers(local_rows), self.passages.numbers(rows)
        if self.soft is None:
            targets: NDArray[Any] = self.tags.padded(numbers, fill=PADDING, among=among)
        else:
            places, real = side_by_side(self.tags.starts, self.tags.lengths, numbers, among=among)
            targets = self.soft[places] * real[..., None]
        return TaggedBatch(self.train.batch(rows, device, row_slice), sentences, on_device(targets, device))

    def loss(self, model: Tagger, batch: TaggedBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.words, batch.tags, batch.sentences), None

    def validate(self, model: Tagger) -> LabelingScores | None:
        return None if self.valid is None else evaluate_tagger(model, self.valid, self.labels)


def tags_of(data: Labeled, labels: TaggerLabels, key: str) -> Ragged:
    """Return the ids of the tags of all sentences, memory-mapped from the cache if the data are there under `key`."""

    def encoded() -> Kept:
        ids = Numbers("i")
        for some in batched(zip(data.labels, data.words, strict=True), SENTENCES):
            tags = [tag for names, words in some for tag in labels.encode(names, words)]
            ids.add(np.array(tags, np.int32).ravel())
        return Kept({"train": Columns({"tags": ids})}, {})

    columns = (in_cache(["tags", key, labels.to_json()], encoded) if key else encoded()).parts["train"]
    assert columns is not None
    tags, sentences = columns.columns["tags"], data.passages.sentences
    values = tags.array if isinstance(labels, Labels) else tags.array.reshape(-1, len(labels.learned))
    return Ragged(values, sentences.starts, sentences.lengths, tags.file)


def evaluate_tagger(model: Tagger, data: Labeled, labels: TaggerLabels) -> LabelingScores:
    """Return the scores of a tagger on labeled sentences. Raises EnsueError if no word is labeled."""
    if not any(data.labels):
        raise EnsueError("there is nothing to score: no labeled word")
    with evaluating(model):
        paths = data.paths(model)
    predicted = (list(labels.decode(path.tolist(), words)) for path, words in zip(paths, data.words, strict=True))
    misaligned: Iterable[Mapping[str, Sequence[Span]]] = data.misaligned or repeat({}, len(paths))
    return tally_of(labels).scores_of(
        starmap(partial(Judged.of, labels), zip(data.labels, predicted, misaligned, strict=True))
    )
