"""Classification: a label, or several, for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged, Texts
from ensue.errors import EnsueError
from ensue.metrics.classification import ClassificationScores, ClassificationTally, best_threshold
from ensue.models.classifier import Classifier
from ensue.models.modules import device_of, evaluating
from ensue.models.ngram_bag import NgramBag
from ensue.models.word_features import FormTable, Positions, Words
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import spread
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, on_device
from ensue.tasks.words.data import EncodedTexts
from ensue.tasks.words.kept_vectors import LayersOfTexts
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.labels import Classes
from ensue.types import Loss, State

READ_TOKENS, READ_ROWS = 16_384, 256
"""The most words, and the most texts, in a batch outside of training."""


@dataclass(frozen=True)
class ClassBatch(Batch):
    """Inputs (one, or the two of a pair), and labels: ids (B,), 0 and 1 (B, K), or a teacher's probabilities (B, K)."""

    targets: Tensor
    texts: tuple[Positions, ...]


class Labeled(Protocol):
    """Labeled data in memory."""

    @property
    def labels(self) -> Sequence[tuple[str, ...]]:
        """The labels of their file."""

    @property
    def lengths(self) -> NDArray[np.integer]:
        """The number of positions, such as words, of each example."""

    def batch(
        self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS
    ) -> tuple[Positions, ...]:
        """Return the batch of these rows, of which `row_slice` is read."""

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """Return the probability of each label (N, K), in order."""


class ClassifiedTexts(NamedTuple):
    """Texts (one, or two for pairs) with their labels. `subwords` are for layers that read subwords."""

    texts: tuple[EncodedTexts, ...]
    labels: Texts
    subwords: SubwordTexts | None = None

    @property
    def lengths(self) -> NDArray[np.integer]:
        """The number of words of each text, or of both texts of a pair."""
        return words_of([texts.words for texts in self.texts])

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> tuple[Words, ...]:
        """Return the batch of the texts in these rows, cut."""
        first, *others = (texts.batch(rows, device, row_slice) for texts in self.texts)
        if self.subwords is not None:
            first = first._replace(subwords=self.subwords.batch(rows, device, row_slice))
        return first, *others

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """Return the probability of each label (N, K), in the order of the texts. Each word form is encoded once."""
        forms = [model.features.table(part.forms, device_of(model)) for part in self.texts]
        words, contextual = [part.words for part in self.texts], [part.contextual for part in self.texts]
        return classify_words(model, forms, words, contextual, self.subwords)


class Classification(BucketedTask[Classifier, ClassBatch]):
    """Classification in batches of similar length; judged by accuracy, or by micro F1 with several labels."""

    def __init__(
        self,
        train: Labeled,
        valid: Labeled | None,
        labels: Classes,
        *,
        balanced: bool,
        sizes: BatchSizes,
        soft: NDArray[np.float32] | None = None,
    ) -> None:
        self.train, self.valid, self.labels = train, valid, labels
        self.judged_by = "micro_f1" if labels.multiple else "accuracy"
        label_targets: NDArray[Any] = (labels.matrix if labels.multiple else labels.places)(train.labels)
        self.shares = shares = labels.shares(label_targets)
        self.targets: NDArray[Any] = label_targets if soft is None else soft
        # of several labels a text, having one counts as much in all as not having it
        weights = (1 - shares) / shares if labels.multiple else 1 / (shares * len(labels))
        self.weights = torch.from_numpy(weights).float() if balanced else None
        super().__init__(train.lengths, sizes)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> ClassBatch:
        targets = self.targets[row_slice.of(rows)].astype(np.int64 if self.targets.ndim == 1 else np.float32)
        return ClassBatch(on_device(targets, device), self.train.batch(rows, device, row_slice))

    def loss(self, model: Classifier, batch: ClassBatch, state: State) -> tuple[Loss, State]:
        weights = None if self.weights is None else self.weights.to(batch.targets.device)
        return model.loss(batch.texts, batch.targets, weights), None

    def validate(self, model: Classifier) -> ClassificationScores | None:
        """Return the scores on the validation texts; for several labels with the threshold that is best for these
        texts.
        """
        if self.valid is None:
            return None
        probabilities = classify(model, self.valid)
        return score_classifier(
            probabilities, self.valid.labels, with_best_threshold(self.labels, self.valid.labels, probabilities)
        )


def classify(model: Classifier, data: Labeled) -> NDArray[np.float32]:
    """Return the probability of each label (N, K), in order."""
    with evaluating(model):
        return data.probabilities(model)


def words_of(parts: Sequence[Ragged]) -> NDArray[np.integer]:
    """Return the number of words of each text in all its parts."""
    first, *others = (part.lengths for part in parts)
    return sum(others, first)


@torch.inference_mode()
def probabilities_of(
    model: Classifier, lengths: NDArray[np.integer], logits: Callable[[NDArray[np.int64]], Tensor]
) -> NDArray[np.float32]:
    """Return the probability of each label (N, K) from the logits of some rows, those of similar length together."""
    batches = list(by_length(lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS))

    def probabilities(rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return model.probabilities(logits(rows)).cpu().numpy()

    in_batches: NDArray[np.float32] = np.concatenate(list(spread(probabilities, batches)))
    return in_batches[np.argsort(np.concatenate(batches))]


def classify_words(
    model: Classifier,
    forms: Sequence[FormTable],
    words: Sequence[Ragged],
    contextual: Sequence[Sequence[LayersOfTexts]],
    subwords: SubwordTexts | None = None,
) -> NDArray[np.float32]:
    """Return the probability of each label (N, K), for texts as rows of numbers of known word forms."""
    device = device_of(model)
    by_part = [subwords, *[None] * (len(words) - 1)]

    def logits(rows: NDArray[np.int64]) -> Tensor:
        pooled = []
        for table, texts, layers_of_text, pieces in zip(forms, words, contextual, by_part, strict=True):
            real, numbers = texts.mask(rows), on_device(texts.padded(rows), device)
            layers = [part.batch(rows, device) for part in layers_of_text]
            x = model.features.in_place(table.vectors, numbers, numbers.new_zeros(*numbers.shape, 0), layers)
            mask, read = None if real is None else on_device(real, device), None
            if pieces is not None:
                read = pieces.batch(rows, device)
            pooled.append(model.pooled(x, table.keys[numbers], mask, read))
        return model.logits_of(pooled)

    return probabilities_of(model, words_of(words), logits)


def weigh_ngrams(
    bag: NgramBag, weights: Literal["ratio", "idf"], texts: ClassifiedTexts, labels: NDArray[np.bool_], *, least: int
) -> None:
    """Set the weights of the n-grams of at least so many training texts, as `ngram_weights` of the recipe says."""
    match weights:
        case "ratio":
            bag.weigh_by_ratio(count_ngrams(bag, texts, labels), least=least)
        case "idf":
            present = count_ngrams(bag, texts, np.ones((len(labels), 1), np.bool_))
            bag.weigh_by_idf(present.squeeze(1), len(labels), least=least)


def count_ngrams(bag: NgramBag, texts: ClassifiedTexts, labels: NDArray[np.bool_]) -> Tensor:
    """For each row and label, the number of texts that have both, (G, K)."""
    counts, width = torch.zeros(bag.num_rows, labels.shape[1], dtype=torch.int32), labels.shape[1]
    for rows in by_length(texts.lengths, batch_size=READ_ROWS, batch_tokens=READ_TOKENS):
        rows_of_ngrams = bag.ngrams(*(torch.from_numpy(part.keys(rows)) for part in texts.texts))
        for label in np.flatnonzero(labels[rows].any(0)):
            places = width * rows_of_ngrams[torch.from_numpy(labels[rows, label])].flatten() + label
            counts.view(-1).index_add_(0, places, torch.ones(len(places), dtype=torch.int32))
    return counts.float()


def score_classifier(
    probabilities: NDArray[np.float32], gold: Sequence[tuple[str, ...]], labels: Classes
) -> ClassificationScores:
    """Return the scores of the labels from the model's probabilities (N, K). Raises EnsueError if there is no text."""
    if not len(gold):
        raise EnsueError("there is nothing to score: no labeled text")
    pairs = zip(gold, probabilities, strict=True)
    return tally_of(labels).scores_of(Judged(names, shares, labels.chosen(shares)) for names, shares in pairs)


def with_best_threshold(
    labels: Classes, gold: Sequence[tuple[str, ...]], probabilities: NDArray[np.float32], temperature: float = 1.0
) -> Classes:
    """Return the labels with this temperature; for several labels per text with the threshold of the best micro F1."""
    threshold = best_threshold(labels.matrix(gold), probabilities) if labels.multiple else labels.threshold
    return Classes(labels.names, multiple=labels.multiple, threshold=threshold, temperature=temperature)


class Judged(NamedTuple):
    """The labels that are right, the probabilities of all (K,), and the labels that the model predicts."""

    gold: Collection[str]
    probabilities: NDArray[np.floating[Any]]
    predicted: Collection[str]


def tally_of(labels: Classes) -> ClassificationTally:
    """Return the tally of answers with these labels (`Judged`)."""
    return ClassificationTally(labels.names, multiple=labels.multiple)
