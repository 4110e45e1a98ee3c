"""Masked language modeling: a text to examples, examples to batches, batches to a loss, scores; and a sample.

Sentence vectors: pairs to batches, batches to a loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from itertools import starmap

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.examples import (
    NOT_HIDDEN,
    ExampleRows,
    Frame,
    FramedBlocks,
    FramedExamples,
    FramedPairs,
    Masking,
)
from ensue.data.corpus.token_file import TokenFile
from ensue.data.examples import Pair
from ensue.data.permutation import mix, random_numbers
from ensue.errors import DataError, RecipeError
from ensue.metrics.language import MaskedScores
from ensue.models.build_text import POOLINGS
from ensue.models.language_model import padded
from ensue.models.masked_language_model import MaskedLanguageModel, MaskedNats, is_next_nats
from ensue.models.modules import device_of, evaluating
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.ranks import ranks, spread
from ensue.tasks.contract.task import Batch, BucketedTask, Scores, Task, on_device
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe, SentenceVectorsRecipe
from ensue.tasks.masked_language_modeling.token_windows import mask_probabilities
from ensue.text.masked_tokens import DocumentStream, MaskedTokenizer
from ensue.text.tokenizers import Tokenizer
from ensue.types import Loss, State

FIXED_SEED = 15
"""The seed of the masks by which models are scored: the same for every model and every run."""


def stream_of(recipe: MaskedLanguageModelingRecipe, tokenizer: Tokenizer) -> DocumentStream:
    """How the texts of a recipe become ids."""
    data = recipe.data
    return DocumentStream(MaskedTokenizer(tokenizer), documents=data.documents, sentences=data.next_sentence)


def frame_of(coder: MaskedTokenizer) -> Frame:
    """The ids around the texts of an example."""
    return Frame(coder.begin_id, coder.separator_id, coder.padding_id)


def masking_of(recipe: MaskedLanguageModelingRecipe, coder: MaskedTokenizer) -> Masking:
    """The masking of this recipe."""
    table = recipe.masking
    can_hide = np.zeros(coder.vocabulary_size, bool)
    can_hide[coder.text_ids] = True
    begins = coder.begins_word if table.whole_words else None
    return Masking(coder.mask_id, coder.text_ids, can_hide, table.share, table.masked, table.random, begins)


def training_examples(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer
) -> FramedExamples:
    """The examples of the training text. Raises DataError for less than one."""
    length, path = recipe.block_tokens, recipe.data.train
    if recipe.data.next_sentence:
        return _pairs(recipe, tokens, coder, path, seed=recipe.train.seed)
    if len(tokens) < length:
        raise DataError(
            f"{len(tokens):,} tokens; a block has {length:,} (encoder.context {recipe.encoder.context:,} without [CLS] "
            "and [SEP]): expected more text or a smaller encoder.context",
            path,
        )
    return FramedBlocks(tokens, length=length, frame=frame_of(coder), seed=recipe.train.seed)


def scored_examples(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer, path: str
) -> FramedExamples:
    """The examples of a text that is scored: all of it, with masks that are always the same."""
    if recipe.data.next_sentence:
        return _pairs(recipe, tokens, coder, path, seed=FIXED_SEED)
    if not len(tokens):
        raise DataError("no token to hide", path)
    return FramedBlocks(tokens, length=recipe.block_tokens, frame=frame_of(coder), seed=FIXED_SEED, whole=True)


def _pairs(
    recipe: MaskedLanguageModelingRecipe, tokens: TokenFile, coder: MaskedTokenizer, path: str, *, seed: int
) -> FramedPairs:
    try:
        return FramedPairs(tokens, length=recipe.block_tokens, frame=frame_of(coder), seed=seed)
    except ValueError as error:
        raise DataError(f"{error} (data.next_sentence)", path) from None


def protocol_of(recipe: MaskedLanguageModelingRecipe) -> str:
    """A sentence that says how texts are scored."""
    kind = "in pairs of segments" if recipe.data.next_sentence else f"in blocks of {recipe.block_tokens:,} tokens"
    return f"read once {kind}, {recipe.masking.share:.0%} of the tokens hidden, the same for every model"


TOKENS = 32
HIDDEN = 4


def filled_sample(model: MaskedLanguageModel, coder: MaskedTokenizer, tokens: TokenFile, *, seed: int) -> str:
    """Some tokens of a text from a random place on: `[found]`, or `[found, not right]` where something was hidden."""
    size = min(TOKENS, len(tokens), model.context - 2)
    start = mix(seed, 0) % (len(tokens) - size + 1)
    ids = tokens.read(start, start + size)
    ids = ids[~np.isin(ids, coder.special_ids)]
    hidden = np.sort(np.argsort(random_numbers(mix(seed, 1), np.arange(len(ids))))[: min(HIDDEN, len(ids))])
    if not len(hidden):
        return ""
    inputs = ids.copy()
    inputs[hidden] = coder.mask_id
    (probabilities,) = mask_probabilities(model, coder, [inputs])
    found = dict(zip(hidden.tolist(), probabilities.argmax(1).tolist(), strict=True))
    return _shown(coder, ids, found)


def _shown(coder: MaskedTokenizer, ids: NDArray[np.int64], found: dict[int, int]) -> str:
    decoder, pieces = coder.decoder(), []
    for place, id in enumerate(ids.tolist()):
        piece = decoder.feed(id)
        if place in found:
            guess, right = coder.symbol(found[place]).strip(), coder.symbol(id).strip()
            blank = piece[: len(piece) - len(piece.lstrip())]
            piece = f"{blank}[{guess}]" if found[place] == id else f"{blank}[{guess}, not {right}]"
        pieces.append(piece)
    return " ".join("".join(pieces).split())


SCORED_TOKENS = 8192
"""The most tokens, padding included, that are scored in a call."""


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """`ids` and `targets` (B, T), of which those that are not `NOT_HIDDEN` count; `mask` is None without padding.

    `follows` (B,) and `segments` (B, T) are those of pairs. `pair_weight` is the number of hidden tokens for a pair of
    the whole batch: with it the loss is the sum of both means.
    """

    ids: Tensor
    targets: Tensor
    mask: Tensor | None
    segments: Tensor | None
    follows: Tensor | None
    hidden: int
    pair_weight: float = 0.0

    @property
    def count(self) -> int:
        """The number of hidden tokens of the whole batch; 1 if there are none."""
        return max(1, self.hidden)


def batch_of(rows: ExampleRows, masking: Masking, device: torch.device) -> MaskedBatch:
    """The batch of these examples."""
    inputs, targets = masking.hide(rows.ids, rows.keys)
    length = rows.ids.shape[1]
    is_full = bool((rows.lengths == length).all())
    mask = None if is_full else on_device(np.arange(length) < rows.lengths[:, None], device)
    hidden = int((targets != NOT_HIDDEN).sum())
    return MaskedBatch(
        on_device(inputs, device),
        on_device(targets, device),
        mask,
        None if rows.segments is None else on_device(rows.segments, device),
        None if rows.follows is None else on_device(rows.follows, device),
        hidden,
        pair_weight=hidden / len(inputs),
    )


@torch.inference_mode()
def score(
    model: MaskedLanguageModel,
    examples: FramedExamples,
    masking: Masking,
    *,
    tokens: int,
    unknown: int,
    progress: Callable[[int], None] | None = None,
    collect: Callable[[MaskedBatch, MaskedNats], object] = lambda batch, found: None,
) -> MaskedScores:
    """The scores of the first epoch's examples. `collect` is given each batch with its nats."""
    size = max(1, SCORED_TOKENS // examples.longest)

    def scored(first: int) -> tuple[float, ...]:
        numbers = np.arange(first, min(first + size, examples.count))
        batch = batch_of(examples.of_epoch(0, numbers), masking, device_of(model))
        scores = _scored(model, batch, collect)
        if progress is not None:
            progress(int(batch.ids.numel()))
        return astuple(scores)

    with evaluating(model):
        parts = starmap(MaskedScores, spread(scored, range(0, examples.count, size)))
        return sum(parts, MaskedScores(tokens=tokens, unknown=unknown))


def _scored(
    model: MaskedLanguageModel, batch: MaskedBatch, collect: Callable[[MaskedBatch, MaskedNats], object]
) -> MaskedScores:
    h = model(batch.ids, batch.mask, batch.segments)
    nats, is_best = found = model.hidden_nats(h, batch.targets)
    collect(batch, found)
    pairs = pairs_right = 0
    if batch.follows is not None:
        pairs, pairs_right = batch.rows, int((model.follows(h).argmax(1) == batch.follows).sum())
    return MaskedScores(float(nats.sum()), batch.hidden, int(is_best.sum()), pairs=pairs, pairs_right=pairs_right)


class MaskedLanguageModeling(Task[MaskedLanguageModel, MaskedBatch]):
    """Masked language modeling; judged by nats per hidden token."""

    judged_by = "masked_nats"
    less_is_better = True

    def __init__(
        self,
        examples: FramedExamples,
        masking: Masking,
        *,
        batch_size: int,
        block_tokens: int,
        validate: Callable[[MaskedLanguageModel], MaskedScores | None],
        sample: Callable[[MaskedLanguageModel, int], str],
    ) -> None:
        self.examples, self.masking = examples, masking
        self.batch_size = min(batch_size, examples.count)
        self.steps_per_epoch = -(-examples.count // self.batch_size)
        self.tokens_per_step = self.batch_size * block_tokens
        self._validate, self._sample = validate, sample

    def batch(self, step: int, device: torch.device) -> MaskedBatch:
        return batch_of(self.examples.rows(step * self.batch_size, self.batch_size), self.masking, device)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch, state: State) -> tuple[Loss, State]:
        h = model(batch.ids, batch.mask, batch.segments)
        total = model.total_nats(h, batch.targets)
        if batch.follows is not None:
            total = total + is_next_nats(model.follows(h), batch.follows) * batch.pair_weight
        return Loss(total, int((batch.targets != NOT_HIDDEN).sum())), None

    def validate(self, model: MaskedLanguageModel) -> MaskedScores | None:
        return self._validate(model)

    def sample(self, model: MaskedLanguageModel, seed: int) -> str:
        return self._sample(model, seed)


@dataclass(frozen=True)
class PairBatch(Batch):
    """B pairs as texts of ids (N, T): the B first texts, the B that they are like, then texts that some are not like.

    `excluded` (B, N - B) is True where a text is like the first one, too, or is that one: it is no counterexample.
    """

    excluded: Tensor
    ids: Tensor
    mask: Tensor | None


class EncodedPairs:
    """Pairs of texts: each distinct text once, cut to the context, and each pair as the numbers of its texts."""

    def __init__(self, pairs: Iterable[Pair], coder: MaskedTokenizer, context: int) -> None:
        numbers: dict[str, int] = {}
        every = ((" ".join(pair.sources), *pair.targets) for pair in pairs)
        self.members = [[numbers.setdefault(text, len(numbers)) for text in texts] for texts in every]
        self.ids = [coder.framed(coder.encode(text)[: context - 2]) for text in numbers]
        self.padding_id, sizes = coder.padding_id, [len(ids) for ids in self.ids]
        self.lengths = np.array([sum(sizes[text] for text in texts) for texts in self.members], np.int64)

    def batch(self, rows: NDArray[np.int64], device: torch.device) -> PairBatch:
        """The batch of these pairs."""
        members = [self.members[row] for row in rows]
        firsts, alike = [texts[0] for texts in members], [texts[1] for texts in members]
        candidates = [*alike, *(text for texts in members for text in texts[2:])]
        ids, mask = padded([self.ids[text] for text in (*firsts, *candidates)], self.padding_id)
        return PairBatch(
            on_device(no_counterexamples(*map(np.array, (firsts, alike, candidates))), device),
            on_device(ids, device),
            None if mask.all() else on_device(mask, device),
        )


def no_counterexamples(
    firsts: NDArray[np.int64], alike: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which candidates (B, C) are none for a pair (B): those with its first text, or with one that the batch says is
    like it. The pair's own candidate, of the same number as the pair, is not excluded.
    """
    same = firsts[:, None] == firsts
    known = same.astype(np.float32) @ (alike[:, None] == candidates).astype(np.float32)
    excluded: NDArray[np.bool_] = (known > 0) | (firsts[:, None] == candidates)
    np.fill_diagonal(excluded, val=False)
    return excluded


def contrastive_nats(
    firsts: Float[Tensor, "B d"], candidates: Float[Tensor, "C d"], excluded: Bool[Tensor, "B C"], temperature: float
) -> Float[Tensor, ""]:
    """The summed surprisal of each pair's own candidate, of the same number, among all that are not excluded.

    The logits are cosines divided by the temperature (InfoNCE, van den Oord et al. 2018).
    """
    cosines = F.normalize(firsts.float(), dim=1) @ F.normalize(candidates.float(), dim=1).T
    logits = (cosines / temperature).masked_fill(excluded, -torch.inf)
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device), reduction="sum")


UNCUT = "whose texts are compared with each other"


class SentenceVectors(BucketedTask[MaskedLanguageModel, PairBatch]):
    """Pairs of texts that are alike: each first text has to find its partner among all texts of the batch, which are of
    similar length (Henderson et al. 2017). Judged by `judged_by` of what `validate` gives.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        recipe: SentenceVectorsRecipe,
        *,
        judged_by: str,
        validate: Callable[[MaskedLanguageModel], Scores | None],
    ) -> None:
        if ranks().size > 1:
            raise RecipeError(f"several processes cut a batch, {UNCUT}: expected one process")
        self.pairs, self.judged_by, self._validate = pairs, judged_by, validate
        self.temperature = recipe.sentences.temperature
        self.pool = POOLINGS[recipe.sentences.pooling](recipe.encoder.d_model, False)
        super().__init__(pairs.lengths, recipe.train)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> PairBatch:
        if len(row_slice.of(rows)) < len(rows):
            raise RecipeError(f"too little memory for a batch, {UNCUT}: expected a smaller train.batch_size")
        return self.pairs.batch(rows, device)

    def loss(self, model: MaskedLanguageModel, batch: PairBatch, state: State) -> tuple[Loss, State]:
        vectors = self.pool.to(batch.ids.device)(model(batch.ids, batch.mask), batch.mask)
        size = len(batch.excluded)
        return Loss(contrastive_nats(vectors[:size], vectors[size:], batch.excluded, self.temperature), size), None

    def validate(self, model: MaskedLanguageModel) -> Scores | None:
        return self._validate(model)
