"""The training tasks of masked language models and sentence vectors: examples, batches, losses and scores."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from itertools import starmap

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus import examples as corpus_examples
from ensue.data.corpus.examples import NOT_HIDDEN, Frame, FramedBlocks, FramedExamples, FramedPairs, Masking
from ensue.data.examples import Pair
from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import mix, random_numbers
from ensue.errors import DataError, RecipeError
from ensue.metrics.scores import MaskedScores
from ensue.models.build_text import POOLINGS
from ensue.models.language_model import pad_rows
from ensue.models.masked_language_model import MaskedLanguageModel, MaskedNats
from ensue.models.modules import device_of, evaluating
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import process_group, sharded_map
from ensue.tasks.contract.task import Batch, BucketedTask, Task, on_device
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentenceVectorsRecipe
from ensue.tasks.masked_language_modeling.token_windows import mask_probabilities
from ensue.tasks.texts.framing import MAX_CALL_TOKENS
from ensue.text.masked_tokens import DocumentStream, MaskedTokenizer
from ensue.text.tokenizers import Tokenizer
from ensue.types import Loss, State

SCORE_SEED = 15
"""The seed of the masks in evaluation, so that all models and runs have the same masks."""


def stream_of(recipe: MaskedLanguageModelingRecipe, tokenizer: Tokenizer) -> DocumentStream:
    """Return the encoder of texts to a stream of ids, as the table `[data]` of a recipe specifies."""
    data = recipe.data
    return DocumentStream(MaskedTokenizer(tokenizer), documents=data.documents, sentences=data.next_sentence)


def masking_of(recipe: MaskedLanguageModelingRecipe, coder: MaskedTokenizer) -> Masking:
    """Return the masking that the table `[masking]` of a recipe specifies."""
    table = recipe.masking
    can_hide = np.zeros(coder.vocabulary_size, bool)
    can_hide[coder.text_ids] = True
    begins = coder.begins_word if table.whole_words else None
    return Masking(coder.mask_id, coder.text_ids, can_hide, table.share, table.masked, table.random, begins)


def examples_of(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer, path: str, *, are_scored: bool
) -> FramedExamples:
    """Return the blocks or pairs of segments of a text; scored blocks cover the text. Raise DataError without any."""
    length, frame = recipe.block_tokens, Frame(coder.begin_id, coder.separator_id, coder.padding_id)
    seed = SCORE_SEED if are_scored else recipe.train.seed
    if recipe.data.next_sentence:
        try:
            return FramedPairs(tokens, length=length, frame=frame, seed=seed)
        except ValueError as error:
            raise DataError(f"{error} (data.next_sentence)", path) from None
    if are_scored and not len(tokens):
        raise DataError("no token to hide", path)
    if not are_scored and len(tokens) < length:
        raise DataError(
            f"{len(tokens):,} tokens; a block has {length:,} (encoder.context {recipe.encoder.context:,} without [CLS] "
            "and [SEP]): expected more text or a smaller encoder.context",
            path,
        )
    return FramedBlocks(tokens, length=length, frame=frame, seed=seed, covers_all=are_scored)


def describe_protocol(recipe: MaskedLanguageModelingRecipe) -> str:
    """Return a description of how the scores are computed."""
    examples = "in pairs of segments" if recipe.data.next_sentence else f"in blocks of {recipe.block_tokens:,} tokens"
    return f"read once {examples}, {recipe.masking.share:.0%} of the tokens hidden, the same for every model"


NUM_SAMPLE_TOKENS, NUM_SAMPLE_MASKS = 32, 4


def predict_sample(model: MaskedLanguageModel, coder: MaskedTokenizer, tokens: TokenFile, *, seed: int) -> str:
    """Return a random piece of a text. Hidden tokens are `[prediction]`, or `[prediction, not token]` for an error."""
    size = min(NUM_SAMPLE_TOKENS, len(tokens), model.context - 2)
    start = mix(seed, 0) % (len(tokens) - size + 1)
    ids = tokens.read(start, start + size)
    ids = ids[~np.isin(ids, coder.special_ids)]
    hidden = np.sort(np.argsort(random_numbers(mix(seed, 1), np.arange(len(ids))))[:NUM_SAMPLE_MASKS])
    if not len(hidden):
        return ""
    inputs = ids.copy()
    inputs[hidden] = coder.mask_id
    (probabilities,) = mask_probabilities(model, coder, [inputs])
    predicted = dict(zip(hidden.tolist(), probabilities.argmax(1).tolist(), strict=True))
    decoder, pieces = coder.decoder(), []
    for position, id in enumerate(ids.tolist()):
        piece = decoder.feed(id)
        if position in predicted:
            symbol, correct = coder.symbol(predicted[position]).strip(), coder.symbol(id).strip()
            spaces = piece[: len(piece) - len(piece.lstrip())]
            piece = f"{spaces}[{symbol}]" if predicted[position] == id else f"{spaces}[{symbol}, not {correct}]"
        pieces.append(piece)
    return " ".join("".join(pieces).split())


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """A batch of B examples."""

    ids: Tensor
    """The inputs (B, T)."""
    targets: Tensor
    """The hidden tokens (B, T); `NOT_HIDDEN` at other positions."""
    mask: Tensor | None
    """False at padding (B, T); None without padding."""
    segments: Tensor | None
    """The segments (B, T) of pairs of segments; None for blocks."""
    follows: Tensor | None
    """Whether the second segment of a pair (B,) follows the first segment."""
    hidden: int
    """The number of hidden tokens."""
    pair_weight: float = 0.0
    """The weight of the loss of a pair: the mean number of hidden tokens of an example. With this weight the loss per
    hidden token is the sum of two means, over hidden tokens and over pairs.
    """

    @property
    def count(self) -> int:
        return max(1, self.hidden)


def batch_of(rows: corpus_examples.ExampleRows, masking: Masking, device: torch.device) -> MaskedBatch:
    """Return the batch of the examples `rows`, with tokens hidden by `masking`."""
    inputs, targets = masking.hide(rows.ids, rows.keys)
    length = rows.ids.shape[1]
    is_full = bool((rows.lengths == length).all())
    mask = None if is_full else on_device(np.arange(length) < rows.lengths[:, None], device)
    hidden = int((targets != NOT_HIDDEN).sum())
    segments, follows = (None if array is None else on_device(array, device) for array in (rows.segments, rows.follows))
    return MaskedBatch(
        on_device(inputs, device), on_device(targets, device), mask, segments, follows, hidden,
        pair_weight=hidden / len(inputs),
    )  # fmt: skip


@torch.inference_mode()
def score(
    model: MaskedLanguageModel, examples: FramedExamples, masking: Masking, *, tokens: int, unknown: int,
    progress: Callable[[int], None] | None = None,
    collect: Callable[[MaskedBatch, MaskedNats], object] = lambda batch, nats: None,
) -> MaskedScores:  # fmt: skip
    """Return the scores on the examples of the first epoch, from a text of `tokens` tokens. `progress` is called with
    the number of positions of each batch, and `collect` with each batch and the surprisals of its hidden tokens.
    """
    size = max(1, MAX_CALL_TOKENS // examples.longest)

    def score_batch(first: int) -> tuple[float, ...]:
        indices = np.arange(first, min(first + size, examples.count))
        batch = batch_of(examples.epoch_rows(0, indices), masking, device_of(model))
        h = model(batch.ids, batch.mask, batch.segments)
        surprisals = model.masked_nats(h, batch.targets)
        collect(batch, surprisals)
        pairs = pairs_right = 0
        if batch.follows is not None:
            pairs, pairs_right = batch.rows, int((model.next_sentence_logits(h).argmax(1) == batch.follows).sum())
        if progress is not None:
            progress(int(batch.ids.numel()))
        total, best = float(surprisals.nats.sum()), int(surprisals.is_best.sum())
        return astuple(MaskedScores(total, batch.hidden, best, pairs=pairs, pairs_right=pairs_right))

    with evaluating(model):
        scores = starmap(MaskedScores, sharded_map(score_batch, range(0, examples.count, size)))
        return sum(scores, MaskedScores(tokens=tokens, unknown=unknown))


class MaskedLanguageModeling(Task[MaskedLanguageModel, MaskedBatch]):
    """Training on masked examples. Validation measures nats per hidden token."""

    judged_by = "masked_nats"
    less_is_better = True

    def __init__(
        self, examples: FramedExamples, masking: Masking, *, batch_size: int, block_tokens: int,
        valid: Callable[[MaskedLanguageModel], MaskedScores] | None,
        sample: Callable[[MaskedLanguageModel, int], str],
    ) -> None:  # fmt: skip
        self.examples, self.masking = examples, masking
        self.batch_size = min(batch_size, examples.count)
        self.steps_per_epoch = -(-examples.count // self.batch_size)
        self.tokens_per_step = self.batch_size * block_tokens
        self.valid, self._sample = valid, sample

    def batch(self, step: int, device: torch.device) -> MaskedBatch:
        return batch_of(self.examples.rows(step * self.batch_size, self.batch_size), self.masking, device)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch, state: State) -> tuple[Loss, State]:
        h = model(batch.ids, batch.mask, batch.segments)
        total = model.total_nats(h, batch.targets)
        if batch.follows is not None:
            pair_nats = F.cross_entropy(model.next_sentence_logits(h), batch.follows.long(), reduction="sum")
            total = total + pair_nats * batch.pair_weight
        return Loss(total, int((batch.targets != NOT_HIDDEN).sum())), None

    def sample(self, model: MaskedLanguageModel, seed: int) -> str:
        return self._sample(model, seed)


@dataclass(frozen=True)
class TextPairBatch(Batch):
    """A batch of B pairs. Its N texts are the B first texts, the B similar texts, and further negatives."""

    excluded: Tensor
    """A mask (B, N - B) of candidates that are not negatives, since they are similar or equal to the first text."""
    ids: Tensor
    """The ids (N, T) of the texts."""
    mask: Tensor | None
    """False at padding (N, T); None without padding."""


class EncodedTextPairs:
    """Pairs of texts: `ids` are the ids of each distinct text, and `members` the indices of the texts of each pair."""

    def __init__(self, pairs: Iterable[Pair], coder: MaskedTokenizer, context: int) -> None:
        indices: dict[str, int] = {}
        texts_of = ((" ".join(pair.sources), *pair.targets) for pair in pairs)
        self.members = [[indices.setdefault(text, len(indices)) for text in texts] for texts in texts_of]
        self.ids = [coder.add_frame(coder.encode(text)[: context - 2]) for text in indices]
        self.padding_id, sizes = coder.padding_id, [len(ids) for ids in self.ids]
        self.lengths = np.array([sum(sizes[text] for text in texts) for texts in self.members], np.int64)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> TextPairBatch:
        """Return the batch of the pairs `rows`."""
        members = [self.members[row] for row in rows]
        firsts, similar = [texts[0] for texts in members], [texts[1] for texts in members]
        candidates = [*similar, *(text for texts in members for text in texts[2:])]
        ids, mask = pad_rows([self.ids[text] for text in (*firsts, *candidates)], self.padding_id)
        return TextPairBatch(
            on_device(excluded_candidates(*map(np.array, (firsts, similar, candidates))), device),
            on_device(ids, device),
            None if mask.all() else on_device(mask, device),
        )


def excluded_candidates(
    firsts: NDArray[np.int64], similar: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask (B, C) of the candidates that are not negatives of a first text: candidates that equal the text,
    or are similar to the text in another pair. The mask is False for candidate i of pair i, its similar text.
    """
    are_equal = firsts[:, None] == firsts
    num_similar = are_equal.astype(np.float32) @ (similar[:, None] == candidates).astype(np.float32)
    excluded: NDArray[np.bool_] = (num_similar > 0) | (firsts[:, None] == candidates)
    np.fill_diagonal(excluded, val=False)
    return excluded


def contrastive_nats(
    firsts: Float[Tensor, "B d"], candidates: Float[Tensor, "C d"], excluded: Bool[Tensor, "B C"], temperature: float
) -> Float[Tensor, ""]:
    """Return Σ_i -ln P(candidate i | first i), with logits cosine / temperature (InfoNCE; van den Oord et al. 2018)."""
    cosines = F.normalize(firsts.float(), dim=1) @ F.normalize(candidates.float(), dim=1).T
    logits = (cosines / temperature).masked_fill(excluded, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device), reduction="sum")


_REASON = "since its texts are compared with each other"


class SentenceVectors(BucketedTask[MaskedLanguageModel, TextPairBatch]):
    """Contrastive training: a first text is classified among the candidates of its batch (Henderson et al. 2017)."""

    def __init__(self, pairs: EncodedTextPairs, recipe: SentenceVectorsRecipe, *, judged_by: str) -> None:
        if process_group().size > 1:
            raise RecipeError(f"several processes cannot split a batch, {_REASON}; expected one process")
        self.pairs, self.judged_by = pairs, judged_by
        self.temperature = recipe.sentences.temperature
        self.pool = POOLINGS[recipe.sentences.pooling](recipe.encoder.d_model, False)
        super().__init__(pairs.lengths, recipe.train)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TextPairBatch:
        if len(row_slice.select(rows)) < len(rows):
            raise RecipeError(f"out of memory: a batch is not split, {_REASON}; expected a smaller train.batch_size")
        return self.pairs.batch(rows, device)

    def loss(self, model: MaskedLanguageModel, batch: TextPairBatch, state: State) -> tuple[Loss, State]:
        vectors = self.pool.to(batch.ids.device)(model(batch.ids, batch.mask), batch.mask)
        size = len(batch.excluded)
        return Loss(contrastive_nats(vectors[:size], vectors[size:], batch.excluded, self.temperature), size), None
