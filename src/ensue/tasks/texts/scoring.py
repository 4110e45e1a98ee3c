"""The evaluation protocol of language models: a text is scored as if it were read once from beginning to end.

The start symbol is read first, so each of the n tokens is predicted exactly once, from the tokens before it.

- A model with a state (recurrent, window) carries its state over the complete text. For speed, `score_text` cuts the
  text into equal parts, the rows of a batch. The state of each part is warmed up on the tokens before the part.
- A model with attention reads windows of its context L. Each window begins ⌊L/2⌋ tokens after the previous window. The
  first window predicts all its tokens, and each later window predicts its last ⌊L/2⌋ tokens. So every token is
  predicted from at least half a context, or from all tokens before it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ensue.data.lines import ON_PROGRESS
from ensue.data.mapped_file import TokenFile
from ensue.data.parallel import batched
from ensue.errors import EnsueError
from ensue.interruption import check_interrupted
from ensue.metrics.scores import LanguageScores
from ensue.models.language_model import LanguageModel, pad_rows, read_prefixes
from ensue.models.modules import device_of, evaluating
from ensue.ranks import process_group, shard, sharded_map
from ensue.tasks.texts.framing import batches_by_length
from ensue.types import State, to_float64

WARM_UP_TOKENS = 512
"""The number of tokens before a part on which its state is warmed up."""
MAX_PARTS = 64
MAX_CALL_TOKENS = 8192
MAX_CALL_LOGITS = 1 << 23
"""The maximum numbers of tokens and of logits in one call of the model."""
MIN_PART_WARM_UPS = 4
"""The minimum length of a part in units of its warm-up, so that the warm-up adds at most a quarter to the cost."""

Progress = Callable[[int], None]
"""A function of the number of tokens that have been scored since the previous call."""


class TextScorer:
    """A scorer of a text that is read in pieces. The surprisals do not depend on the pieces. Memory does not grow with
    the text. The model should be in evaluation mode (`evaluating`).
    """

    def __init__(self, model: LanguageModel, *, start_id: int) -> None:
        self.model = model
        self._state: State = None
        self._recent = np.array([start_id])
        """The overlap with the next window, and the last token, which the model has not read yet."""
        self._room = model.context
        """The number of tokens that still fit into the current window; None for a model without a context."""

    @torch.inference_mode()
    def feed(self, ids: ArrayLike) -> NDArray[np.float64]:
        """Return the surprisal in nats of each of `ids`, the next tokens of the text."""
        targets = np.asarray(ids, np.int64)
        nats = [np.zeros(0)]
        while len(targets):
            check_interrupted()
            if size := self._tokens_of_full_windows(len(targets)):
                piece = targets[:size]
                nats.append(self._read_windows(piece))
            else:
                piece = targets[: min(_max_call_tokens(self.model), self._tokens_of_window(len(targets)))]
                nats.append(self._read(piece))
            overlap = 0 if self.model.context is None else self.model.context - _stride_of(self.model.context)
            self._recent = np.concatenate((self._recent, piece))[-1 - overlap :]
            targets = targets[len(piece) :]
        return np.concatenate(nats)

    def _tokens_of_full_windows(self, size: int) -> int:
        """Return the number of tokens, at most `size`, that full windows predict in one call of the model."""
        context = self.model.context
        if context is None or self._room:
            return 0
        stride = _stride_of(context)
        return stride * min(size // stride, max(1, _max_call_tokens(self.model) // context))

    def _read_windows(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        assert self.model.context is not None
        context, stride = self.model.context, _stride_of(self.model.context)
        inputs = sliding_window_view(np.concatenate((self._recent, targets[:-1])), context)[::stride].copy()
        return _nats_of_windows(self.model, inputs, targets.reshape(-1, stride)).flatten().cpu().numpy()

    def _tokens_of_window(self, size: int) -> int:
        """Return how many of `size` tokens fit into the current window; if the window is full, begin a new window."""
        if self.model.context is None or self._room is None:
            return size
        if self._room == 0:
            self._state = read_prefixes(self.model, [self._recent[:-1]])
            self._room = _stride_of(self.model.context)
        return min(size, self._room)

    def _read(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        inputs = np.concatenate((self._recent[-1:], targets[:-1]))
        nats, self._state = _compute_nats(self.model, inputs[None], targets[None], self._state)
        self._room = None if self._room is None else self._room - len(targets)
        return nats[0].cpu().numpy()


@torch.inference_mode()
def score_text(
    model: LanguageModel, tokens: TokenFile, *, start_id: int, parts: int | None = None, warm_up: int = WARM_UP_TOKENS,
    progress: Progress | None = None, collect: Callable[[NDArray[np.int64], Tensor], object] | None = None,
) -> LanguageScores:  # fmt: skip
    """Return the scores of a text of token ids.

    A model with a state reads `parts` parts, by default `default_parts`; its state is warmed up on `warm_up` tokens
    before a part. `progress` is called with numbers of scored tokens, whose sum is the length of the text, and
    `collect` with positions of tokens and their surprisals in nats, once for each token. Raise EnsueError if the
    number of parts or the warm-up is out of range.
    """
    parts = default_parts(len(tokens) * (not model.adapts), warm_up=warm_up) if parts is None else parts
    if model.adapts and parts > 1:
        raise EnsueError(f"{parts} parts; a model that adapts to the text reads it in order, in one part")
    if parts < 1 or warm_up < 0:
        raise EnsueError(f"{parts} parts, each warmed up on {warm_up} tokens; expected at least 1 part and 0 tokens")
    size, parts = len(tokens), max(1, min(parts, len(tokens)))
    ranges = [range(size * part // parts, size * (part + 1) // parts) for part in range(parts)]
    windows = [] if model.context is None else list(_plan_windows(len(tokens), model.context, _max_call_tokens(model)))

    def read_shard(rows: slice) -> float:
        total: Tensor | float = 0.0
        for positions, nats in (
            _read_windows(model, tokens, windows[rows], start_id)
            if windows
            else _read_parts(model, tokens, ranges[rows], start_id, warm_up)
        ):
            total = total + nats.sum()  # stays on a GPU, without synchronization
            if collect is not None:
                collect(positions, nats)
            if progress is not None:
                progress(nats.numel())
            if (advanced := ON_PROGRESS.get()) is not None:
                advanced("share", nats.numel() / len(tokens))
        return float(total)

    size = len(windows or ranges)
    count = min(process_group().num_shards, size)
    with evaluating(model):
        total = sum(sharded_map(read_shard, [shard(size, index, count) for index in range(count)]))
    return LanguageScores(total, len(tokens), tokens.characters, tokens.unknown)


def default_parts(num_tokens: int, *, warm_up: int = WARM_UP_TOKENS) -> int:
    """Return the maximum number of parts that are at least `MIN_PART_WARM_UPS` times as long as their warm-up."""
    return max(1, min(MAX_PARTS, num_tokens // max(1, MIN_PART_WARM_UPS * warm_up)))


def describe_protocol(model: LanguageModel, parts: int = 1) -> str:
    """Return a description of how `score_text` reads a text."""
    if model.context is not None:
        windows = f"in windows of {model.context} tokens with a stride of {_stride_of(model.context)}"
        return f"read once from beginning to end, {windows}, each token predicted once"
    carried = "read once from beginning to end, state carried"
    warmed_up = f"in {parts} parts, each warmed up on the {WARM_UP_TOKENS} tokens before it"
    return carried if parts == 1 else f"{carried}, {warmed_up}"


def _read_parts(
    model: LanguageModel, tokens: TokenFile, parts: Sequence[range], start_id: int, warm_up: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield positions and their surprisals from the parts of a text, which are the rows of a batch."""
    begins = [part.start for part in parts]
    state = read_prefixes(model, [_read_inputs(tokens, max(0, begin - warm_up), begin, start_id) for begin in begins])
    last = np.array([_read_inputs(tokens, begin, begin + 1, start_id)[0] for begin in begins])
    columns = max(1, _max_call_tokens(model) // len(parts))
    for column in range(0, max(map(len, parts)), columns):
        starts = [begin + column for begin in begins]
        stops = [min(start + columns, part.stop) for start, part in zip(starts, parts, strict=True)]
        targets, mask = pad_rows([tokens.read(start, stop) for start, stop in zip(starts, stops, strict=True)])
        nats, state = _compute_nats(model, np.column_stack((last, targets[:, :-1])), targets, state)
        last = targets[:, -1]
        positions = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        yield positions, nats[torch.from_numpy(mask).to(nats.device)]


class Windows(NamedTuple):
    """The windows of one call of the model."""

    begins: Sequence[int]
    """The first position of each window."""
    length: int
    predicted: int
    """The maximum number of tokens that a window predicts, at its end."""


def _plan_windows(size: int, context: int, call_tokens: int) -> Iterator[Windows]:
    """Return the windows of `scored_windows` for calls of the model, each with windows of one length."""
    sizes = ((begin, (begin > 0, end - begin, end - first)) for begin, first, end in scored_windows(size, context))
    for (_, length, predicted), windows in groupby(sizes, key=itemgetter(1)):
        for chunk in batched(windows, max(1, call_tokens // context)):
            yield Windows([begin for begin, _ in chunk], length, predicted)


def _read_windows(
    model: LanguageModel, tokens: TokenFile, windows: Iterable[Windows], start_id: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Yield positions and their surprisals from windows over a text."""
    for begins, length, predicted in windows:
        inputs = np.stack([_read_inputs(tokens, begin, begin + length, start_id) for begin in begins])
        targets = np.stack([tokens.read(begin, begin + length) for begin in begins])[:, -predicted:]
        nats, first = _nats_of_windows(model, inputs, targets), length - predicted
        yield np.concatenate([np.arange(begin + first, begin + length) for begin in begins]), nats.flatten()


def _nats_of_windows(model: LanguageModel, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> Tensor:
    h, _ = model.layers(model.features(_on_device(model, inputs)))
    return to_float64(model.head.nats(h[:, -targets.shape[1] :], _on_device(model, targets)))


def _compute_nats(
    model: LanguageModel, inputs: NDArray[np.int64], targets: NDArray[np.int64], state: State
) -> tuple[Tensor, State]:
    nats, state = model.nats(_on_device(model, inputs), _on_device(model, targets), state)
    return to_float64(nats), state


def _read_inputs(tokens: TokenFile, start: int, stop: int, start_id: int) -> NDArray[np.int64]:
    """Return the inputs whose targets are the tokens from `start` to `stop`."""
    ids = tokens.read(max(0, start - 1), max(0, stop - 1))
    return ids if start > 0 or stop == start else np.concatenate(([start_id], ids))


def _on_device(model: LanguageModel, ids: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids)).to(device_of(model))


def _max_call_tokens(model: LanguageModel) -> int:
    return max(1, min(MAX_CALL_TOKENS, MAX_CALL_LOGITS // model.vocabulary_size))


def scored_windows(size: int, context: int | None) -> Iterator[tuple[int, int, int]]:
    """Yield the windows (begin, first, end) in which `size` ids are scored; a window predicts [first, end)."""
    yield 0, 0, size if context is None else min(size, context)
    if context is not None:
        for begin in range(_stride_of(context), size - context + _stride_of(context), _stride_of(context)):
            yield begin, begin - _stride_of(context) + context, min(begin + context, size)


def _stride_of(context: int) -> int:
    return max(1, context // 2)


MAX_BATCH_TOKENS, MAX_BATCHED_TEXT_TOKENS = 4096, 512
"""The maximum numbers of tokens of a batch of texts, and of one of these texts. Longer texts are read alone."""


@torch.inference_mode()
def total_nats(model: LanguageModel, texts: list[NDArray[np.int64]], *, start_id: int) -> NDArray[np.float64]:
    """Return the summed surprisals in nats of each of `texts` (arrays of ids), which the model reads independently."""
    totals, short = np.zeros(len(texts)), list[int]()
    max_length = -1 if model.adapts else min(MAX_BATCHED_TEXT_TOKENS, model.context or MAX_BATCHED_TEXT_TOKENS)
    with evaluating(model):
        for index, ids in enumerate(texts):
            if len(ids) <= max_length:
                short.append(index)
            else:
                totals[index] = TextScorer(model, start_id=start_id).feed(ids).sum()
        for batch in batches_by_length(short, [max(1, len(texts[index])) for index in short], MAX_BATCH_TOKENS):
            targets, mask = pad_rows([texts[index] for index in batch])  # padding is last, so the model needs no mask
            inputs = np.column_stack((np.full(len(batch), start_id), targets))[:, :-1]
            nats, _ = _compute_nats(model, inputs, targets, None)
            totals[batch] = np.where(mask, nats.cpu().numpy(), 0.0).sum(1)
    return totals
