"""The training task of taggers, the decoding of labels, and their scores."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat, starmap
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.buckets import by_length
from ensue.data.cached_columns import CachedColumns, cached
from ensue.data.compact_texts import Columns, Numbers, Ragged, Texts, padded_indices
from ensue.data.parallel import batched
from ensue.errors import EnsueError
from ensue.metrics.labeling import ColumnsTally, LabelingScores, LabelingTally
from ensue.models.modules import device_of, evaluating
from ensue.models.ngram_bag import LBFGS
from ensue.models.tag_heads import PADDING
from ensue.models.tagger import SentenceIndices, Tagger
from ensue.models.word_features import FormTable, Positions, Words
from ensue.nn import Posterior
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import sharded_map
from ensue.tasks.contract.task import Batch, BatchSizes, BucketedTask, LazyBatch, on_device
from ensue.tasks.words.data import EncodedTexts, stacked
from ensue.tasks.words.pipeline import WordLayers
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.label_columns import LabelColumns, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.schemes import Span
from ensue.types import Loss, State

MAX_BATCH_TOKENS, MAX_BATCH_ROWS = 4_096, 256
"""The maximum numbers of words and sentences in a batch outside of training."""


class SentencePositions(NamedTuple):
    """The positions of the S sentences of a batch, whose rows are passages."""

    sentences: NDArray[np.int64]
    """The indices of the sentences (S,)."""
    rows: NDArray[np.int64]
    """The row of each sentence (S,)."""
    places: NDArray[np.int64]
    """The indices (S, L) of the words of each sentence among all positions of the padded batch."""
    mask: NDArray[np.bool_]
    """True at words (S, L), False at padding."""


class Passages:
    """Consecutive sentences that are read together: passage n has the sentences from `firsts[n]` to `firsts[n + 1]`."""

    def __init__(self, sentences: Ragged, sizes: Sequence[int] | NDArray[np.int64]) -> None:
        self.sentences = sentences
        self.firsts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self.words = sentences.joined(self.firsts)
        """The words of each passage."""

    @property
    def are_sentences(self) -> bool:
        """Whether each passage has one sentence."""
        return len(self.firsts) == len(self.sentences) + 1

    def sentence_indices(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of the sentences of `passages`, in order."""
        sizes = self._sizes(passages)
        starts: NDArray[np.int64] = np.repeat(self.firsts[passages] - np.cumsum(sizes) + sizes, sizes)
        return starts + np.arange(len(starts))

    def _sizes(self, passages: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.firsts[passages + 1] - self.firsts[passages]

    def places(self, passages: NDArray[np.int64], *, among: NDArray[np.int64] | None = None) -> SentencePositions:
        """Return the positions of sentences in a batch of `passages`, padded to the longest passage of `among`."""
        among = passages if among is None else among
        sentences, rows = self.sentence_indices(passages), np.repeat(np.arange(len(passages)), self._sizes(passages))
        lengths, starts = self.sentences.lengths[sentences], self.sentences.starts[sentences]
        columns = np.arange(int(self.sentences.lengths[self.sentence_indices(among)].max(initial=0)))
        mask = columns < lengths[:, None]
        width = int(self.words.lengths[among].max(initial=0))
        begins = rows * width + starts - self.words.starts[passages][rows]
        return SentencePositions(sentences, rows, np.where(mask, begins[:, None] + columns, 0), mask)


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
        """Return a slice of the batch of `passages`."""
        words = self.texts.batch(passages, device, row_slice)
        if self.subwords is None:
            return words
        return words._replace(subwords=self.subwords.batch(passages, device, row_slice))

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

    def emissions(rows: NDArray[np.int64]) -> Emissions:
        index, real = words.padded(rows), words.mask(rows)
        mask, numbers = None if real is None else on_device(real, device), on_device(index, device)
        values = on_device(stacked(list(columns), rows, index.shape), device)
        layers = [vectors.batch(rows, device) for vectors in contextual]
        x = model.features.assemble(forms.vectors, numbers, values, layers)
        batch = None if subwords is None else subwords.batch(rows, device)
        return Emissions(model.emissions(x, forms.keys[numbers], mask, batch), mask)

    return tag_rows(model, passages, emissions, with_posteriors=with_posteriors)


class Emissions(NamedTuple):
    """The scores of tags (B, T, K), and a mask (B, T) of real positions (None without padding)."""

    scores: Tensor
    mask: Tensor | None


@torch.inference_mode()
def tag_rows(
    model: Tagger, passages: Passages, emissions_of: Callable[[NDArray[np.int64]], Emissions], *,
    with_posteriors: bool = False,
) -> tuple[list[NDArray[np.int64]], list[Posterior]]:  # fmt: skip
    """Return the best tags (T,) of each sentence, and with `with_posteriors` the probabilities of all paths."""
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
            places = passages.places(rows)
            sentences, device_places = places.sentences, positions_on_device(places, device)
            emissions, mask = emissions.flatten(0, 1)[device_places.places], device_places.mask
        lengths = passages.sentences.lengths[sentences].tolist()
        posteriors_of_batch = model.head.posteriors(emissions, lengths) if with_posteriors else []
        return sentences, model.head.best(emissions, mask).cpu().numpy(), posteriors_of_batch

    batches = by_length(words.lengths, batch_size=MAX_BATCH_ROWS, batch_tokens=MAX_BATCH_TOKENS)
    nonempty = (rows for rows in batches if words.lengths[rows].max())
    for sentences, tags, posteriors_of_batch in sharded_map(tag_batch, nonempty):
        for row, sentence in enumerate(sentences):
            paths[sentence] = tags[row, : passages.sentences.lengths[sentence]]
            if with_posteriors:
                posteriors[sentence] = posteriors_of_batch[row]
    return paths, posteriors


def positions_on_device(places: SentencePositions, device: torch.device) -> SentenceIndices:
    """Copy positions to a device."""
    return SentenceIndices(*(on_device(array, device) for array in (places.places, places.mask, places.rows)))


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

    @classmethod
    def of(
        cls, labels: TaggerLabels, gold: Sequence[Any], predicted: list[Any],
        misaligned: Mapping[str, Sequence[Span]] = MappingProxyType({}), place: str = "",
    ) -> Self:  # fmt: skip
        """Return the correct labels `gold`, which may be in any scheme, and the predicted labels."""
        return cls(labels.in_scheme(gold), predicted, misaligned, place)


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
    folds of the sentences for a linear tagger (`head.solver = "lbfgs"`).
    """

    def __init__(
        self, train: Any, valid: Any, labels: TaggerLabels, sizes: BatchSizes, *, key: str = "",
        soft: NDArray[np.float32] | None = None, folds: NDArray[np.int64] | None = None,
    ) -> None:  # fmt: skip
        self.soft, self.folds = soft, folds
        self.cross_validated: LabelingScores | None = None
        """The scores of the training sentences by models without them, after `update`."""
        self.train, self.passages, self.valid, self.labels = train, train.passages, valid, labels
        self.judged_by = "f1" if labels.has_spans else "accuracy"
        self.tags = encode_tags(train, labels, key)
        super().__init__(train.passages.words.lengths, sizes)

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.passages.words.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TaggedBatch:
        local_rows, sentences = row_slice.of(rows), None
        if not self.passages.are_sentences:
            sentences = positions_on_device(self.passages.places(local_rows, among=rows), device)
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
        first, best, strength = self.folds[self.passages.firsts[:-1]], math.inf, INVERSE_STRENGTHS[0]
        folds = np.repeat(first, np.diff(self.passages.firsts)).tolist()
        batches = {fold: self._batches(np.flatnonzero(first == fold)) for fold in sorted({*folds})}
        start = [weight.detach().clone() for weight in trained_weights(model)]
        solutions = dict.fromkeys(batches, start)
        with evaluating(model):
            for candidate in INVERSE_STRENGTHS:
                paths = {}
                for fold in batches:
                    others = [batch for other, of_fold in batches.items() if other != fold for batch in of_fold]
                    minimize(model, others, candidate, solutions[fold], tolerance=TOLERANCE)
                    solutions[fold] = [weight.detach().clone() for weight in trained_weights(model)]
                    paths[fold] = self.train.paths(model)
                left_out = [paths[fold][sentence] for sentence, fold in enumerate(folds)]
                scores = score_paths(left_out, self.train, self.labels)
                if self.selection(scores) >= best:
                    break
                self.cross_validated, best, strength, start = scores, self.selection(scores), candidate, solutions[0]
            everything = [batch for of_fold in batches.values() for batch in of_fold]
            nats = minimize(model, everything, strength, start, tolerance=FINAL_TOLERANCE)
        return Loss(nats, int(self.passages.words.lengths.sum())), None

    def _batches(self, rows: NDArray[np.int64]) -> list[TaggedBatch]:
        """Return the passages `rows` in batches of similar length."""
        lengths = self.passages.words.lengths[rows]
        chunks = np.array_split(rows[np.argsort(lengths, kind="stable")], 1 + lengths.sum() // MAX_BATCH_TOKENS)
        return [self.batch_of(chunk, torch.device("cpu")) for chunk in chunks if len(chunk)]

    def validate(self, model: Tagger) -> LabelingScores | None:
        return self.cross_validated if self.valid is None else evaluate_tagger(model, self.valid, self.labels)


def encode_tags(data: Any, labels: TaggerLabels, key: str) -> Ragged:
    """Return the ids of the tags of all sentences. With a cache `key` they are in a memory-mapped file."""

    def encoded() -> CachedColumns:
        ids = Numbers("i")
        for chunk in batched(zip(data.labels, data.words, strict=True), CHUNK_SENTENCES):
            tags = [tag for names, words in chunk for tag in labels.encode(names, words)]
            ids.add(np.array(tags, np.int32).ravel())
        return CachedColumns({"train": Columns({"tags": ids})}, {})

    columns = (cached(["tags", key, labels.to_json()], encoded) if key else encoded()).splits["train"]
    assert columns is not None
    tags, sentences = columns.columns["tags"], data.passages.sentences
    values = tags.array if isinstance(labels, Labels) else tags.array.reshape(-1, len(labels.learned))
    return Ragged(values, sentences.starts, sentences.lengths, tags.file)


def evaluate_tagger(model: Tagger, data: Any, labels: TaggerLabels) -> LabelingScores:
    """Return the scores of a tagger on labeled sentences. Raise EnsueError if no word is labeled."""
    if not any(data.labels):
        raise EnsueError("there is nothing to score: no labeled word")
    with evaluating(model):
        return score_paths(data.paths(model), data, labels)


def score_paths(paths: Sequence[NDArray[np.int64]], data: Any, labels: TaggerLabels) -> LabelingScores:
    """Return the scores of tags (T,) of labeled sentences."""
    predicted = (list(labels.decode(path.tolist(), words)) for path, words in zip(paths, data.words, strict=True))
    misaligned: Iterable[Mapping[str, Sequence[Span]]] = data.misaligned or repeat({}, len(paths))
    return tally_of(labels).scores_of(
        starmap(partial(LabelPair.of, labels), zip(data.labels, predicted, misaligned, strict=True))
    )


NUM_FOLDS = 3
INVERSE_STRENGTHS = (1.0, 10.0, 100.0)
"""The inverse strengths C of regularization to try, in ascending order, as in scikit-learn."""
TOLERANCE, FINAL_TOLERANCE = 1e-5, 1e-7
"""The change of the mean loss of a word at which L-BFGS ends in cross-validation, and with all sentences."""


def trained_weights(model: Tagger) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def minimize(
    model: Tagger, batches: Sequence[TaggedBatch], strength: float, start: Sequence[Tensor], *, tolerance: float
) -> Tensor:
    """Set the weights w of a linear tagger to the minimum of Σ loss + ½ ‖w‖² / C, by L-BFGS from the weights `start`.
    Return the minimum in nats. `strength` is C.
    """
    weights, count = trained_weights(model), sum(batch.words.num_real for batch in batches)
    optimizer = LBFGS(weights, max_iter=100, history_size=10, tolerance_change=tolerance, line_search_fn="strong_wolfe")
    for weight, values in zip(weights, start, strict=True):
        weight.data.copy_(values)

    def objective() -> Tensor:
        optimizer.zero_grad()
        total = torch.stack([weight.square().sum() for weight in weights]).sum() / (2 * strength * count)
        total.backward()  # type: ignore[no-untyped-call]
        for batch in batches:
            loss = model.loss(batch.words, batch.tags, batch.sentences).total / count
            loss.backward()  # type: ignore[no-untyped-call]
            total = total.detach() + loss.detach()
        return total

    optimizer.step(objective)  # type: ignore[no-untyped-call]
    return count * objective().detach()
