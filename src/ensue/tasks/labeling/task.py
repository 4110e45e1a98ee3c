"""The training task of taggers, the decoding of labels, and their scores."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import batch_by_length
from ensue.data.cached_columns import CachedColumns, cache_columns
from ensue.data.compact_texts import Columns, Numbers, Ragged, Texts, padded_indices
from ensue.data.parallel import batched
from ensue.errors import EnsueError
from ensue.metrics.labeling import ColumnsTally, LabelingScores, LabelingTally
from ensue.metrics.scores import ItemRows
from ensue.models.modules import device_of, evaluating
from ensue.models.ngram_bag import LBFGS
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import SentenceIndices, Tagger
from ensue.models.word_features import FormTable, Positions, Words
from ensue.nn import Posterior
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import sharded_map
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, LazyBatch, on_device
from ensue.tasks.words.data import EncodedTexts, stack_columns
from ensue.tasks.words.pipeline import WordLayers
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.label_columns import LabelColumns, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.schemes import Span
from ensue.types import Loss, State

MAX_BATCH_TOKENS, MAX_BATCH_ROWS = 4_096, 256
"""The maximum numbers of words and sentences in a batch outside of training."""


class Passages:
    """Consecutive sentences that are read together: passage n has the sentences from `firsts[n]` to `firsts[n + 1]`."""

    def __init__(self, sentences: Ragged, sizes: Sequence[int] | NDArray[np.int64]) -> None:
        self.sentences = sentences
        self.firsts, self.sizes = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))), np.asarray(sizes)
        self.words = sentences.joined(self.firsts)
        """The words of each passage."""

    @property
    def are_sentences(self) -> bool:
        """Whether each passage has one sentence."""
        return len(self.firsts) == len(self.sentences) + 1

    def sentence_indices(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the sentences of `passages`, in order."""
        sizes = self.sizes[passages]
        starts: NDArray[np.int64] = np.repeat(self.firsts[passages] - np.cumsum(sizes) + sizes, sizes)
        return starts + np.arange(len(starts))

    def places(
        self, passages: NDArray[np.int64], device: torch.device, *, among: NDArray[np.int64] | None = None
    ) -> SentenceIndices:
        """Return the positions of sentences in a batch of `passages`, padded to the longest passage of `among`."""
        among = passages if among is None else among
        sentences, rows = self.sentence_indices(passages), np.repeat(np.arange(len(passages)), self.sizes[passages])
        lengths, starts = self.sentences.lengths[sentences], self.sentences.starts[sentences]
        columns = np.arange(int(self.sentences.lengths[self.sentence_indices(among)].max(initial=0)))
        mask = columns < lengths[:, None]
        width = int(self.words.lengths[among].max(initial=0))
        begins = rows * width + starts - self.words.starts[passages][rows]
        arrays = np.where(mask, begins[:, None] + columns, 0), mask, rows
        return SentenceIndices(*(on_device(array, device) for array in arrays))


class LabeledTexts(NamedTuple):
    """Labeled sentences of a file. The rows of `texts` and of `subwords` are passages."""

    texts: EncodedTexts
    passages: Passages
    labels: Sequence[Sequence[Any]]
    words: Texts
    subwords: SubwordTexts | None = None
    misaligned: Sequence[Mapping[str, Sequence[Span]]] = ()
    """For each sentence, the spans of each column that begin or end inside of a word; empty without such spans."""

    def batch(self, passages: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Words:
        """Return the slice `row_slice` of the batch of `passages`."""
        subwords = None if self.subwords is None else self.subwords.batch(passages, device, row_slice)
        return self.texts.batch(passages, device, row_slice)._replace(subwords=subwords)

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """Return the best tags (T,) of each sentence. Each word form is encoded once."""
        forms = model.features.table(self.texts.forms, device_of(model))
        return tag_texts(model, forms, self.passages, self.texts.columns, self.texts.contextual, self.subwords)[0]


def tag_texts(
    model: Tagger, forms: FormTable, passages: Passages, columns: Sequence[Ragged] = (),
    contextual: Sequence[WordLayers] = (), subwords: SubwordTexts | None = None, *, with_posteriors: bool = False,
) -> tuple[list[NDArray[np.int64]], list[Posterior]]:  # fmt: skip
    """Return the best tags (T,) of each sentence, and with `with_posteriors` the probabilities of all paths."""
    device, words = device_of(model), passages.words

    def emissions(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
        index, array = words.padded(rows), words.mask(rows)
        mask, numbers = None if array is None else on_device(array, device), on_device(index, device)
        values = on_device(stack_columns(list(columns), rows, index.shape), device)
        layers = [vectors.batch(rows, device) for vectors in contextual]
        x = model.features.assemble(forms.vectors, numbers, values, layers)
        batch = None if subwords is None else subwords.batch(rows, device)
        return model.emissions(x, forms.keys[numbers], mask, batch), mask

    return tag_rows(model, passages, emissions, with_posteriors=with_posteriors)


@torch.inference_mode()
def tag_rows(
    model: Tagger, passages: Passages, emissions_of: Callable[[NDArray[np.int64]], tuple[Tensor, Tensor | None]], *,
    with_posteriors: bool = False,
) -> tuple[list[NDArray[np.int64]], list[Posterior]]:  # fmt: skip
    """Return the best tags (T,) of each sentence, and with `with_posteriors` the probabilities of all paths.

    `emissions_of` returns the scores of tags (B, T, K) and the mask (B, T) of a batch (None without padding).
    """
    device = device_of(model)
    num_sentences, words = len(passages.sentences), passages.words
    paths: list[NDArray[np.int64]] = [np.zeros(0, np.int64)] * num_sentences
    empty = Posterior.of(np.zeros((0, model.head.num_tags), np.float32), model.head.tables())
    posteriors = [empty] * num_sentences if with_posteriors else []

    def tag_batch(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Posterior]]:
        """Return the indices of the sentences, their tags (S, T), and the probabilities of paths."""
        emissions, mask = emissions_of(rows)
        sentences = rows
        if not passages.are_sentences:
            sentences, places = passages.sentence_indices(rows), passages.places(rows, device)
            emissions, mask = emissions.flatten(0, 1)[places.places], places.mask
        lengths = passages.sentences.lengths[sentences].tolist()
        posteriors_of_batch = model.head.posteriors(emissions, lengths) if with_posteriors else []
        return sentences, model.head.best(emissions, mask).cpu().numpy(), posteriors_of_batch

    batches = batch_by_length(words.lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS)
    nonempty = (rows for rows in batches if words.lengths[rows].max())
    for sentences, tags, posteriors_of_batch in sharded_map(tag_batch, nonempty):
        for row, sentence in enumerate(sentences):
            paths[sentence] = tags[row, : passages.sentences.lengths[sentence]]
            if with_posteriors:
                posteriors[sentence] = posteriors_of_batch[row]
    return paths, posteriors


CHUNK_SENTENCES = 1_000
"""The number of sentences that are read, or encoded, at once."""


class LabelPair(NamedTuple):
    """The correct and the predicted labels of a sentence."""

    gold: Sequence[Any]
    """The correct labels, in the scheme of the model's labels."""
    predicted: list[Any]
    misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({})
    """For each column, the correct spans that begin or end inside of a word."""
    place: str = ""
    """The file and the line of the sentence."""


def tally_of(labels: TaggerLabels) -> ColumnsTally | LabelingTally:
    """Return a tally that computes scores from `LabelPair` sentences."""
    if isinstance(labels, LabelColumns):
        return ColumnsTally(labels)
    return LabelingTally(spans=labels.has_spans, read=labels.spans, known=labels.names)


@dataclass(frozen=True)
class TaggedBatch(Batch):
    """A batch of passages with S sentences."""

    words: Positions
    sentences: SentenceIndices | None
    """The positions of the sentences in the passages; None: each passage is a sentence."""
    tags: Tensor
    """The tags (S, L), `PADDING` at padding; or the tag probabilities (S, L, K) of a teacher, zeros at padding."""


class Labeling(BucketedTask[Tagger, TaggedBatch]):
    """Labeling in batches of sentences of similar length. The score is the F1 of spans, or accuracy for plain labels.
    `key` is the cache key of the training data, `soft` (N, K) are tag probabilities of a teacher, and `folds` are the
    folds of the sentences for a linear tagger (`head.solver = "lbfgs"`), `groups` the groups that are in one fold.
    """

    def __init__(
        self, train: Any, valid: Any, labels: TaggerLabels, sizes: BatchSizes, *, key: str = "",
        soft: NDArray[np.float32] | None = None, folds: Any = None, groups: Any = None,
    ) -> None:  # fmt: skip
        self.soft, self.folds, self.groups = soft, folds, groups
        self.cross_validated: LabelingScores | None = None
        """The scores of the training sentences in cross-validation, set by `update`."""
        self.train, self.passages, self.valid, self.labels = train, train.passages, valid, labels
        self.judged_by = "f1" if labels.has_spans else "accuracy"
        self.tags = encode_tags(train, labels, key)
        super().__init__(train.passages.words.lengths, sizes)

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.passages.words.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TaggedBatch:
        local_rows, sentences = row_slice.select(rows), None
        if not self.passages.are_sentences:
            sentences = self.passages.places(local_rows, device, among=rows)
        numbers, among = self.passages.sentence_indices(local_rows), self.passages.sentence_indices(rows)
        if self.soft is None:
            targets: NDArray[Any] = self.tags.padded(numbers, fill=PADDING, among=among)
        else:
            places, real = padded_indices(self.tags.starts, self.tags.lengths, numbers, among=among)
            targets = self.soft[places] * real[..., None]
        return TaggedBatch(self.train.batch(rows, device, row_slice), sentences, on_device(targets, device))

    def loss(self, model: Tagger, batch: TaggedBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.words, batch.tags, batch.sentences), None

    def update(
        self, model: Tagger, batch: LazyBatch[TaggedBatch], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        """Solve a linear tagger with the C of the best score in cross-validation."""
        if self.folds is None:
            return None
        folds, best, strength = self.folds[self.passages.firsts[:-1]], math.inf, INVERSE_STRENGTHS[0]
        fold_of = np.repeat(folds, np.diff(self.passages.firsts)).tolist()
        with evaluating(model):
            everything = LinearObjective(model, self._batches(folds >= 0))
            objectives = {fold: LinearObjective(model, self._batches(folds != fold)) for fold in {*fold_of}}
            for number, candidate in enumerate(INVERSE_STRENGTHS):
                paths: dict[Any, Any] = {}
                for fold, objective in objectives.items():
                    self.report("cross-validation", (number + len(paths) / len(objectives)) / len(INVERSE_STRENGTHS))
                    objective.solve(model, candidate, tolerance=TOLERANCE)
                    paths[fold] = self.train.paths(model)
                left_out = [paths[fold][sentence] for sentence, fold in enumerate(fold_of)]
                scores = self._score_folds(left_out, len(objectives))
                if self.selection(scores) >= best:
                    break
                self.cross_validated, best, strength = scores, self.selection(scores), candidate
            nats = everything.solve(model, strength, tolerance=FINAL_TOLERANCE)
        return Loss(torch.tensor(nats), everything.num_words), None

    def _score_folds(self, paths: Sequence[NDArray[np.int64]], num_folds: int) -> LabelingScores:
        """Return the scores of tags (T,) by models of other folds, and the expected F1 of a model of all sentences."""
        tally, ratio = tally_of(self.labels), (1 - 1 / num_folds) ** LEARNING_EXPONENT
        counts = np.array([tally.add(*pair) for pair in label_pairs(paths, self.train, self.labels)])
        sums = np.stack([np.bincount(self.groups, column) for column in counts.T], axis=1)
        items = ItemRows(sums[sums.any(1)]).build_items("groups", tally.item_scores)
        # the factor adds the variance among training sets to the bootstrap variance (Nadeau & Bengio 2003)
        deviation = items.samples()[self.judged_by].std() * math.sqrt(1 + num_folds / (num_folds - 1))
        scores, error = tally.scores(), float(ratio * deviation)
        return replace(scores, expected=scores.f1 and 1 - ratio * (1 - scores.f1), standard_error=error)

    def _batches(self, mask: NDArray[np.bool_]) -> list[TaggedBatch]:
        """Return the passages in a mask (N,) in batches of similar length."""
        rows, lengths = mask.nonzero()[0], self.passages.words.lengths[mask]
        chunks = np.array_split(rows[np.argsort(lengths, kind="stable")], 1 + lengths.sum() // MAX_BATCH_TOKENS)
        return [self.batch_of(chunk, torch.device("cpu")) for chunk in chunks if len(chunk)]

    def validate(self, model: Tagger) -> LabelingScores | None:
        return self.cross_validated if self.valid is None else self.score(model, self.valid)

    def score(self, model: Tagger, data: Any) -> LabelingScores:
        if not any(data.labels):
            raise EnsueError("there is nothing to score: no labeled word")
        with evaluating(model):
            return tally_of(self.labels).scores_of(label_pairs(data.paths(model), data, self.labels))


def encode_tags(data: Any, labels: TaggerLabels, key: str) -> Ragged:
    """Return the ids of the tags of all sentences. With a cache `key`, they are in a memory-mapped file."""

    def encode() -> CachedColumns:
        ids = Numbers("i")
        for chunk in batched(zip(data.labels, data.words, strict=True), CHUNK_SENTENCES):
            tags = [tag for names, words in chunk for tag in labels.encode(names, words)]
            ids.add(np.array(tags, np.int32).ravel())
        return CachedColumns({"train": Columns({"tags": ids})}, {})

    columns = (cache_columns(["tags", key, labels.to_json()], encode) if key else encode()).splits["train"]
    assert columns is not None
    tags, sentences = columns.columns["tags"], data.passages.sentences
    values = tags.array if isinstance(labels, Labels) else tags.array.reshape(-1, len(labels.learned))
    return Ragged(values, sentences.starts, sentences.lengths, tags.file)


def label_pairs(paths: Sequence[NDArray[np.int64]], data: Any, labels: TaggerLabels) -> Iterator[LabelPair]:
    """Return the correct labels, and the labels of tags (T,), of labeled sentences."""
    predicted = (list(labels.decode(path.tolist(), words)) for path, words in zip(paths, data.words, strict=True))
    misaligned: Iterable[Mapping[str, Sequence[Span]]] = data.misaligned or repeat({})
    return map(LabelPair, map(labels.convert_scheme, data.labels), predicted, misaligned)


INVERSE_STRENGTHS = (10.0, 100.0)
"""The inverse strengths C of regularization to try, in ascending order, as in scikit-learn."""
LEARNING_EXPONENT = 1 / 3
"""The error is roughly proportional to (1 / number of sentences) ^ exponent (Hestness et al. 2017; docs/log)."""
MAX_STEPS, TOLERANCE, FINAL_TOLERANCE = 200, 3e-5, 1e-5
"""L-BFGS ends when 3 evaluations change the loss per word by less than TOLERANCE (FINAL_TOLERANCE with the best C)."""


class LinearObjective:
    """The objective Σ loss + ½ Σ_i ‖w_i‖² / (C v_i) of a linear tagger, for passages in batches.

    The emissions of P words are X W, where X (P, R) has zeros and ones, and W (R, K) a row w_i with the prior variance
    C v_i for each feature. Equal columns of X, of features of the same words, are a group g with one row u_g. At the
    minimum w_i = v_i u_g / √V_g with V_g = Σ_i v_i, so ‖u_g‖² = Σ_i ‖w_i‖² / v_i.
    """

    def __init__(self, model: Tagger, batches: Sequence[TaggedBatch]) -> None:
        self.batches, self.head, self.variances = batches, deepcopy(model.head), model.features.variances
        self.num_words = sum(batch.words.num_real for batch in batches)
        features = torch.cat([model.features.rows(batch.words) for batch in batches])
        noise = torch.randint(1 << 62, (len(features), 1), generator=torch.Generator().manual_seed(0))
        sums = torch.zeros(len(self.variances) + 1, dtype=torch.int64)  # equal for equal columns; the last: no feature
        sums.index_add_(0, features.flatten() % len(sums), noise.expand_as(features).flatten())
        self.used = sums[:-1].nonzero().squeeze(1)
        distinct, self.groups = torch.unique(sums[self.used], return_inverse=True)
        size, v = len(distinct), self.variances[self.used]
        self.scales = torch.zeros(size).index_add_(0, self.groups, v).sqrt().unsqueeze(1)
        groups = torch.full(sums.shape, -1).index_copy_(0, self.used, self.groups)[features]
        cells = torch.unique((torch.arange(len(features)).unsqueeze(1) * size + groups)[groups >= 0])
        places, columns = cells // size, cells % size
        self.product, self.transposed = _product(places, columns, len(features)), _product(columns, places, size)
        head = [weight for weight in self.head.parameters() if weight.requires_grad]
        self.weights = [torch.zeros(size, self.head.num_tags), *head]
        """u, and the weights of the head."""

    def solve(self, model: Tagger, strength: float, *, tolerance: float) -> float:
        """Minimize the objective for C = `strength`, set the weights of a model, and return the minimum in nats."""
        nats = list[float]()

        def objective() -> float:
            nats.append(self.backward(strength))
            if max(nats[-4:]) - min(nats[-4:]) < tolerance * self.num_words and len(nats) > 3:
                raise StopIteration
            return nats[-1]

        options = {"max_iter": MAX_STEPS, "tolerance_grad": 0, "tolerance_change": 0}
        with suppress(StopIteration):
            LBFGS(self.weights, line_search_fn="strong_wolfe", **options).step(objective)  # type: ignore[no-untyped-call]
        w = (self.weights[0] / self.scales)[self.groups] * self.variances[self.used].unsqueeze(1)
        model.features.set_rows(torch.zeros(len(self.variances), w.shape[1]).index_copy_(0, self.used, w))
        model.head.load_state_dict(self.head.state_dict())
        return nats[-1]

    @torch.no_grad()
    def backward(self, strength: float) -> float:
        """Compute the gradients of the objective, and return its value in nats."""
        total = 0.0
        for weight in self.weights:
            weight.grad = weight / strength
            total += float(weight.flatten().dot(weight.grad.flatten())) / 2
        emissions = self.product(self.scales * self.weights[0])
        parts = torch.split(emissions, [math.prod(batch.words.shape) for batch in self.batches])
        for batch, part in zip(self.batches, parts, strict=True):
            with torch.enable_grad():
                h, mask = part.requires_grad_().view(*batch.words.shape, -1), batch.words.mask
                if batch.sentences is not None:
                    h, mask = h.flatten(0, 1)[batch.sentences.places], batch.sentences.mask
                nats = self.head.total_nats(h, batch.tags, mask)
                nats.backward()  # type: ignore[no-untyped-call]
            total += float(nats)
        gradient = torch.cat([part.grad for part in parts if part.grad is not None])
        self.weights[0].grad = self.weights[0] / strength + self.scales * self.transposed(gradient)
        return total


def _product(rows: Tensor, columns: Tensor, num_rows: int) -> Callable[[Tensor], Tensor]:
    """Return a function that multiplies the sparse matrix with ones at `rows` and `columns` by a table."""
    starts, order = F.pad(rows.bincount(minlength=num_rows).cumsum(0), (1, 0)).int(), rows.argsort(stable=True)
    return partial(F.embedding_bag, columns[order].int(), offsets=starts, mode="sum", include_last_offset=True)
