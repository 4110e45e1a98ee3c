"""The training task of classifiers, their probabilities and their scores."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import batch_by_length
from ensue.data.compact_texts import Ragged, Texts
from ensue.errors import EnsueError
from ensue.metrics.classification import ClassificationScores, ClassificationTally, best_threshold
from ensue.models.classifier import Classifier
from ensue.models.modules import device_of, evaluating
from ensue.models.ngram_bag import NgramBag, solve
from ensue.models.word_features import FormTable, Positions, Words
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import sharded_map
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, LazyBatch, on_device
from ensue.tasks.words.data import EncodedTexts
from ensue.tasks.words.pipeline import WordLayers
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.labels import Classes
from ensue.types import Loss, State

MAX_BATCH_TOKENS, MAX_BATCH_ROWS = 16_384, 256
"""The maximum numbers of words and texts in a batch outside of training."""


@dataclass(frozen=True)
class ClassBatch(Batch):
    """A batch of texts or pairs."""

    targets: Tensor
    """The ids of labels (B,); for several labels 0 and 1 (B, K); or the probabilities (B, K) of a teacher."""
    texts: tuple[Positions, ...]
    """The texts; for pairs the first texts, then the second texts."""


class ClassifiedTexts(NamedTuple):
    """Labeled texts or pairs."""

    texts: tuple[EncodedTexts, ...]
    """The texts; for pairs the first texts, then the second texts."""
    labels: Texts
    subwords: SubwordTexts | None = None
    """The subwords for fine-tuned layers."""

    @property
    def lengths(self) -> NDArray[np.integer]:
        """The number of words of each text, or of both texts of a pair."""
        lengths: NDArray[np.integer] = np.sum([texts.words.lengths for texts in self.texts], axis=0)
        return lengths

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> tuple[Words, ...]:
        """Return the slice `row_slice` of the batch of the texts `rows`."""
        first, *others = (texts.batch(rows, device, row_slice) for texts in self.texts)
        if self.subwords is not None:
            first = first._replace(subwords=self.subwords.batch(rows, device, row_slice))
        return first, *others

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """Return the probability of each label (N, K). Each word form is encoded once."""
        forms = [model.features.table(texts.forms, device_of(model)) for texts in self.texts]
        words, contextual = [texts.words for texts in self.texts], [texts.contextual for texts in self.texts]
        return classify_words(model, forms, words, contextual, self.subwords)


class Classification(BucketedTask[Classifier, ClassBatch]):
    """Classification in batches of similar length. The score is accuracy, or micro F1 for several labels. `balanced` is
    whether losses are weighted by inverse frequencies of labels. `soft` (N, K) are probabilities of a teacher, and
    `folds` (N,) the folds of the texts for a linear classifier (`head.solver = "lbfgs"`).
    """

    def __init__(
        self, train: Any, valid: Any, labels: Classes, *, balanced: bool, sizes: BatchSizes,
        soft: NDArray[np.float32] | None = None, folds: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        self.train, self.valid, self.labels, self.folds = train, valid, labels, folds
        self.cross_validated: NDArray[np.float32] | None = None
        """The probabilities (N, K) of labels by models trained on other folds, set by `update`."""
        self.judged_by = "micro_f1" if labels.multiple else "accuracy"
        label_targets: NDArray[Any] = (labels.matrix if labels.multiple else labels.label_ids)(train.labels)
        self.shares = shares = labels.frequencies(label_targets)
        self.targets: NDArray[Any] = label_targets if soft is None else soft
        # with several labels, positive and negative texts have the same total weight for each label
        weights = (1 - shares) / shares if labels.multiple else 1 / (shares * len(labels))
        self.weights = torch.from_numpy(weights).float() if balanced else None
        super().__init__(train.lengths, sizes)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> ClassBatch:
        targets = self.targets[row_slice.select(rows)].astype(np.int64 if self.targets.ndim == 1 else np.float32)
        return ClassBatch(on_device(targets, device), self.train.batch(rows, device, row_slice))

    def loss(self, model: Classifier, batch: ClassBatch, state: State) -> tuple[Loss, State]:
        weights = None if self.weights is None else self.weights.to(batch.targets.device)
        return model.loss(batch.texts, batch.targets, weights), None

    def update(
        self, model: Classifier, batch: LazyBatch[ClassBatch], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        """With folds, set the weights of n-grams and of the head to the minimum of the regularized cross-entropy."""
        if self.folds is None:
            return None
        targets, folds = torch.from_numpy(self.targets), torch.from_numpy(self.folds)
        with evaluating(model):
            dense: Any = None if model.head is None else (self._head_inputs(model), model.head[-1])
            keys = () if model.bag is None else iterate_keys(self.train)
            solution = solve(
                model.bag, keys, targets, folds, weights=self.weights, multiple=self.labels.multiple, dense=dense,
                report=self.report,
            )  # fmt: skip
        self.cross_validated = model.probabilities(solution.logits).float().numpy()
        return Loss(solution.loss, len(self.targets)), None

    @torch.inference_mode()
    def _head_inputs(self, model: Classifier) -> Tensor:
        """Return the inputs (N, p) of the head for the training data."""
        rows = np.array_split(np.arange(len(self.targets)), len(self.targets) // MAX_BATCH_ROWS + 1)
        batches = (self.train.batch(part, device_of(model)) for part in rows)
        return torch.cat([model.head_inputs([*map(model.read, texts)]) for texts in batches])

    def validate(self, model: Classifier) -> ClassificationScores | None:
        """Return the scores on validation data or from cross-validation, with the best threshold for several labels.

        The standard error from cross-validation with J folds includes the variance among training sets: the variance
        of N independent texts is multiplied by 1 + J / (J - 1) (Nadeau & Bengio 2003).
        """
        if self.valid is not None:
            probabilities, gold = classify(model, self.valid), self.valid.labels
        elif self.cross_validated is not None:
            probabilities, gold = self.cross_validated, self.train.labels
        else:
            return None
        scores = score_classifier(probabilities, gold, with_best_threshold(self.labels, gold, probabilities))
        if self.valid is not None or self.folds is None:
            return scores
        share, num_folds = (scores.accuracy * len(gold) + 1) / (len(gold) + 2), int(self.folds.max()) + 1
        variance = share * (1 - share) / len(gold) * (1 + num_folds / (num_folds - 1))
        return replace(scores, standard_error=math.sqrt(variance))

    def score(self, model: Classifier, data: Any) -> ClassificationScores:
        return score_classifier(classify(model, data), data.labels, self.labels)


def classify(model: Classifier, data: Any) -> NDArray[np.float32]:
    """Return the probability of each label (N, K) for `data`, such as `ClassifiedTexts`."""
    with evaluating(model):
        return data.probabilities(model)


@torch.inference_mode()
def probabilities_of(
    model: Classifier, lengths: NDArray[np.integer], logits: Callable[[NDArray[np.int64]], Tensor]
) -> NDArray[np.float32]:
    """Return the probability of each label (N, K). `logits` is called with batches of rows of similar length."""
    batches = list(batch_by_length(lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS))
    results = sharded_map(lambda rows: model.probabilities(logits(rows)).cpu().numpy(), batches)
    by_batch: NDArray[np.float32] = np.concatenate(list(results))
    return by_batch[np.argsort(np.concatenate(batches))]


def classify_words(
    model: Classifier, forms: Sequence[FormTable], words: Sequence[Ragged], contextual: Sequence[Sequence[WordLayers]],
    subwords: SubwordTexts | None = None,
) -> NDArray[np.float32]:  # fmt: skip
    """Return the probability of each label (N, K) for texts, whose `words` are indices into the tables `forms`."""
    device = device_of(model)
    subwords_of = [subwords, *[None] * (len(words) - 1)]

    def logits(rows: NDArray[np.int64]) -> Tensor:
        pooled = []
        for table, texts, layers_of_text, subwords_of_text in zip(forms, words, contextual, subwords_of, strict=True):
            array, indices = texts.mask(rows), on_device(texts.padded(rows), device)
            layers = [vectors.batch(rows, device) for vectors in layers_of_text]
            x = model.features.assemble(table.vectors, indices, contextual=layers)
            mask = None if array is None else on_device(array, device)
            batch = None if subwords_of_text is None else subwords_of_text.batch(rows, device)
            pooled.append(model.pool(x, table.keys[indices], mask, batch))
        return model.compute_logits(pooled)

    return probabilities_of(model, np.sum([text_words.lengths for text_words in words], axis=0), logits)


def weigh_ngrams(
    bag: NgramBag, weights: Literal["ratio", "idf"], texts: ClassifiedTexts, labels: NDArray[np.bool_], *,
    min_texts: int, idf_power: float,
) -> None:  # fmt: skip
    """Set the weights (`head.ngram_weights`) of the n-grams that occur in at least `min_texts` training texts."""
    if weights == "ratio":
        bag.weigh_by_ratio(count_ngrams(bag, texts, labels), min_texts=min_texts)
    else:
        present = count_ngrams(bag, texts, np.ones((len(labels), 1), np.bool_))
        bag.weigh_by_idf(present.squeeze(1), len(labels), min_texts=min_texts, power=idf_power)


def iterate_keys(texts: ClassifiedTexts) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """Yield batches of similar length: the indices (B,) of texts, and for each text of a pair the word keys (B, T)."""
    for rows in batch_by_length(texts.lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS):
        yield torch.from_numpy(rows), tuple(encoded.keys(rows) for encoded in texts.texts)


def count_ngrams(bag: NgramBag, texts: ClassifiedTexts, labels: NDArray[np.bool_]) -> Tensor:
    """Return the number of texts (G, K) that have both an n-gram and a label, for the G rows of the bag."""
    counts, width = torch.zeros(bag.num_rows, labels.shape[1], dtype=torch.int32), labels.shape[1]
    for indices, keys in iterate_keys(texts):
        rows, rows_of_ngrams = indices.numpy(), bag.ngrams(*keys)
        for label in np.flatnonzero(labels[rows].any(0)):
            cells = width * rows_of_ngrams[torch.from_numpy(labels[rows, label])].flatten() + label
            counts.view(-1).index_add_(0, cells, torch.ones(len(cells), dtype=torch.int32))
    return counts.float()


def score_classifier(
    probabilities: NDArray[np.float32], gold: Sequence[tuple[str, ...]], labels: Classes
) -> ClassificationScores:
    """Return the scores of the probabilities (N, K) of labels. Raise EnsueError if there is no text."""
    if not len(gold):
        raise EnsueError("there is nothing to score: no labeled text")
    rows = zip(gold, probabilities, strict=True)
    return tally_of(labels).scores_of(ScoredLabels(correct, row, labels.choose(row)) for correct, row in rows)


def with_best_threshold(
    labels: Classes, gold: Sequence[tuple[str, ...]], probabilities: NDArray[np.float32], temperature: float = 1.0
) -> Classes:
    """Return the labels with a temperature and, for several labels, with the threshold of the best micro F1."""
    threshold = best_threshold(labels.matrix(gold), probabilities) if labels.multiple else labels.threshold
    return Classes(labels.names, multiple=labels.multiple, threshold=threshold, temperature=temperature)


class ScoredLabels(NamedTuple):
    """The correct labels of a text, the probabilities of all labels (K,), and the predicted labels."""

    gold: Collection[str]
    probabilities: NDArray[np.floating[Any]]
    predicted: Collection[str]


def tally_of(labels: Classes) -> ClassificationTally:
    """Return a tally that computes scores from the `ScoredLabels` of texts."""
    return ClassificationTally(labels.names, multiple=labels.multiple)
