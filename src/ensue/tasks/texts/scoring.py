"""The evaluation protocol of language models: a text is scored as if it were read once from beginning to end.

The start symbol is read first, so each of the n tokens is predicted exactly once, from the tokens before it.

- A model with a state (recurrent, window) carries it over the whole text. For speed, `read` cuts the text into equal
  parts that are read together; each is warmed up on the tokens just before it.
- Attention reads windows of its context L; each begins ⌊L/2⌋ tokens after the one before. The first window predicts all
  its tokens, the others their last ⌊L/2⌋. So every token is predicted from half a context at least, or from all tokens
  before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ensue.data.corpus.token_file import TokenFile
from ensue.errors import EnsueError
from ensue.interruption import check_interrupted
from ensue.metrics.language import LanguageScores
from ensue.models.language_model import LanguageModel, padded, read_prefixes
from ensue.models.modules import device_of, evaluating
from ensue.ranks import ranks, shard, spread
from ensue.types import State, exact

CHUNK_TOKENS = 1024
WARM_UP_TOKENS = 512
MAX_PARTS = 64
CALL_TOKENS = 8192
CALL_LOGITS = 1 << 23
"""The most tokens, and the most logits, that are computed in one call."""

Progress = Callable[[int], None]
"""Called now and then with the number of further tokens that have been scored."""


class TextScorer:
    """Reads a text in pieces: `feed` returns the surprisals of the next ids, the same as for the whole text.

    Memory does not grow with the text. The model should be in evaluation mode (`evaluating`).
    """

    def __init__(self, model: LanguageModel, *, start_id: int) -> None:
        self.model = model
        self._state: State = None
        self._recent = np.array([start_id])
        """The newest inputs, which the next window begins with. The last one has not been read yet."""
        self._room = model.context

    @torch.inference_mode()
    def feed(self, ids: ArrayLike) -> NDArray[np.float64]:
        """The nats of each of `ids`, in a float64 array as long."""
        targets = np.asarray(ids, np.int64)
        nats = [np.zeros(0)]
        while len(targets):
            check_interrupted()
            if whole := self._in_whole_windows(len(targets)):
                piece = targets[:whole]
                nats.append(self._read_windows(piece))
            else:
                piece = targets[: min(_call_tokens(self.model), self._free(len(targets)))]
                nats.append(self._read(piece))
            self._remember(piece)
            targets = targets[len(piece) :]
        return np.concatenate(nats)

    def _in_whole_windows(self, wanted: int) -> int:
        """How many of `wanted` tokens fill whole windows that one call reads together; 0 while a window is not full."""
        context = self.model.context
        if context is None or self._room:
            return 0
        stride = _stride(context)
        return stride * min(wanted // stride, max(1, _call_tokens(self.model) // context))

    def _read_windows(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        assert self.model.context is not None
        context, stride = self.model.context, _stride(self.model.context)
        inputs = sliding_window_view(np.concatenate((self._recent, targets[:-1])), context)[::stride].copy()
        return _nats_of_windows(self.model, inputs, targets.reshape(-1, stride)).flatten().cpu().numpy()

    def _free(self, wanted: int) -> int:
        """How many of `wanted` tokens the window can still predict. If it is full, the next window begins."""
        if self.model.context is None or self._room is None:
            return wanted
        if self._room == 0:
            before = self._recent[:-1]
            self._state = read_prefixes(self.model, [before])
            self._room = _stride(self.model.context)
        return min(wanted, self._room)

    def _read(self, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        inputs = np.concatenate((self._recent[-1:], targets[:-1]))
        nats, self._state = _nats(self.model, inputs[None], targets[None], self._state)
        self._room = None if self._room is None else self._room - len(targets)
        return nats[0].cpu().numpy()

    def _remember(self, targets: NDArray[np.int64]) -> None:
        kept = 0 if self.model.context is None else self.model.context - _stride(self.model.context)
        self._recent = np.concatenate((self._recent, targets))[-1 - kept :]


def surprisals(model: LanguageModel, tokens: TokenFile, *, start_id: int) -> Iterator[NDArray[np.float64]]:
    """The nats of all tokens in order, about a thousand at a time, in constant memory."""
    with evaluating(model):
        reading = TextScorer(model, start_id=start_id)
        for start in range(0, len(tokens), CHUNK_TOKENS):
            yield reading.feed(tokens.read(start, min(start + CHUNK_TOKENS, len(tokens))))


@torch.inference_mode()
def read(
    model: LanguageModel,
    tokens: TokenFile,
    *,
    start_id: int,
    parts: int | None = None,
    warm_up: int = WARM_UP_TOKENS,
    progress: Progress | None = None,
    collect: Callable[[NDArray[np.int64], Tensor], object] | None = None,
) -> LanguageScores:
    """The scores of a text. It is cut into `parts` (default: `default_parts`), except for attention. `collect` is given
    the nats of some positions at a time, each position once. Raises EnsueError for less than one part or a negative
    warm-up.
    """
    parts = default_parts(len(tokens) * (not model.reads_alone), warm_up=warm_up) if parts is None else parts
    if model.reads_alone and parts > 1:
        raise EnsueError(f"{parts} parts; a model that adapts reads a text in order, in one part")
    if parts < 1 or warm_up < 0:
        raise EnsueError(f"{parts} parts, each warmed up on {warm_up} tokens; expected at least 1 and 0")
    size, parts = len(tokens), max(1, min(parts, len(tokens)))
    runs = [range(size * part // parts, size * (part + 1) // parts) for part in range(parts)]
    windows = [] if model.context is None else list(_windows(len(tokens), model.context, _call_tokens(model)))

    def read_some(some: slice) -> float:
        total: Tensor | float = 0.0
        for positions, nats in (
            _in_windows(model, tokens, windows[some], start_id)
            if windows
            else _side_by_side(model, tokens, runs[some], start_id, warm_up)
        ):
            total = total + nats.sum()  # stays on a GPU, which is not waited for
            if collect is not None:
                collect(positions, nats)
            if progress is not None:
                progress(nats.numel())
        return float(total)

    size = len(windows or runs)
    count = min(ranks().num_shards, size)
    with evaluating(model):
        total = sum(spread(read_some, [shard(size, index, count) for index in range(count)]))
    return LanguageScores(total, len(tokens), tokens.characters, tokens.unknown)


def default_parts(num_tokens: int, *, warm_up: int = WARM_UP_TOKENS) -> int:
    """The most parts, up to 64, that are at least four times as long as their warm-up."""
    return max(1, min(MAX_PARTS, num_tokens // max(1, 4 * warm_up)))


def describe_protocol(model: LanguageModel, parts: int = 1) -> str:
    """A sentence that says how `read` reads a text."""
    if model.context is not None:
        windows = f"in windows of {model.context} tokens that move on by {_stride(model.context)}"
        return f"read once from beginning to end, {windows}, each token predicted once"
    carried = "read once from beginning to end, state carried"
    warmed_up = f"in {parts} parts, each warmed up on the {WARM_UP_TOKENS} tokens before it"
    return carried if parts == 1 else f"{carried}, {warmed_up}"


def _side_by_side(
    model: LanguageModel, tokens: TokenFile, runs: Sequence[range], start_id: int, warm_up: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Positions and their nats in runs of the text, some columns at a time."""
    begins = [run.start for run in runs]
    warm_ups = [_inputs(tokens, max(0, begin - warm_up), begin, start_id) for begin in begins]
    state = read_prefixes(model, warm_ups)
    last = np.array([_inputs(tokens, begin, begin + 1, start_id)[0] for begin in begins])
    columns = max(1, _call_tokens(model) // len(runs))
    for column in range(0, max(map(len, runs)), columns):
        starts = [begin + column for begin in begins]
        stops = [min(start + columns, run.stop) for start, run in zip(starts, runs, strict=True)]
        rows = [tokens.read(start, stop) for start, stop in zip(starts, stops, strict=True)]
        targets, mask = padded(rows)
        nats, state = _nats(model, np.column_stack((last, targets[:, :-1])), targets, state)
        last = targets[:, -1]
        positions = np.concatenate([np.arange(start, stop) for start, stop in zip(starts, stops, strict=True)])
        yield positions, nats[torch.from_numpy(mask).to(nats.device)]


class Windows(NamedTuple):
    """Windows that one call reads, and how many tokens at its end each predicts at most."""

    begins: Sequence[int]
    length: int
    predicted: int


def _windows(size: int, context: int, tokens: int) -> Iterator[Windows]:
    """The windows of a text, as many in a call as have about so many `tokens`; see the module's protocol."""
    stride = _stride(context)
    yield Windows([0], min(context, size), context)
    full = range(stride, size - context + 1, stride)
    rows = max(1, tokens // context)
    for first in range(0, len(full), rows):
        yield Windows(full[first : first + rows], context, stride)
    predicted = context + stride * len(full)
    if predicted < size:
        begin = stride * (len(full) + 1)
        yield Windows([begin], size - begin, size - predicted)


def _in_windows(
    model: LanguageModel, tokens: TokenFile, windows: Iterable[Windows], start_id: int
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Positions and their nats, those of a call at a time."""
    for begins, length, predicted in windows:
        inputs = np.stack([_inputs(tokens, begin, begin + length, start_id) for begin in begins])
        targets = np.stack([tokens.read(begin, begin + length) for begin in begins])[:, -predicted:]
        nats, first = _nats_of_windows(model, inputs, targets), max(0, length - predicted)
        yield np.concatenate([np.arange(begin + first, begin + length) for begin in begins]), nats.flatten()


def _nats_of_windows(model: LanguageModel, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> Tensor:
    """The nats (B, P) in float64 of `targets`, the tokens after the last P of `inputs` (B, T)."""
    h, _ = model.layers(model.features(_on_device(model, inputs)))
    return exact(model.head.nats(h[:, -targets.shape[1] :], _on_device(model, targets)))


def _nats(
    model: LanguageModel, inputs: NDArray[np.int64], targets: NDArray[np.int64], state: State
) -> tuple[Tensor, State]:
    """The nats (B, T) of `targets` in float64, and the state after `inputs`."""
    nats, state = model.nats(_on_device(model, inputs), _on_device(model, targets), state)
    return exact(nats), state


def _inputs(tokens: TokenFile, start: int, stop: int, start_id: int) -> NDArray[np.int64]:
    """The inputs for predicting the tokens [start, stop): the token before each, or `start_id` before the first."""
    ids = tokens.read(max(0, start - 1), max(0, stop - 1))
    return ids if start > 0 or stop == start else np.concatenate(([start_id], ids))


def _on_device(model: LanguageModel, ids: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(ids)).to(device_of(model))


def _call_tokens(model: LanguageModel) -> int:
    return max(1, min(CALL_TOKENS, CALL_LOGITS // model.vocabulary_size))


def scored_windows(size: int, context: int | None) -> Iterator[tuple[int, int, int]]:
    """The windows (begin, first, end) in which `size` ids are scored; positions from `first` are new."""
    yield 0, 0, size if context is None else min(size, context)
    if context is not None:
        for begin in range(_stride(context), size - context + _stride(context), _stride(context)):
            yield begin, begin - _stride(context) + context, min(begin + context, size)


def _stride(context: int) -> int:
    """The distance between the beginnings of two windows: half a context."""
    return max(1, context // 2)


BATCH_TOKENS = 4096
LONGEST_IN_BATCH = 512
"""The most tokens of a sentence that is read in a batch. A longer one is read by itself, in pieces."""


@torch.inference_mode()
def total_nats(model: LanguageModel, texts: list[NDArray[np.int64]], *, start_id: int) -> NDArray[np.float64]:
    """The summed nats of each of `texts` (arrays of ids), each read by itself after `start_id`."""
    totals = np.zeros(len(texts))
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    longest = -1 if model.reads_alone else min(LONGEST_IN_BATCH, model.context or LONGEST_IN_BATCH)
    with evaluating(model):
        while order:
            length = len(texts[order[-1]])
            rows = max(1, BATCH_TOKENS // max(1, length)) if length <= longest else 1
            chosen, order = order[-rows:], order[:-rows]
            some = [texts[number] for number in chosen]
            if length <= longest:
                totals[chosen] = _batch_nats(model, some, start_id)
            else:
                totals[chosen] = TextScorer(model, start_id=start_id).feed(some[0]).sum()
    return totals


def _batch_nats(model: LanguageModel, texts: list[NDArray[np.int64]], start_id: int) -> NDArray[np.float64]:
    """`total_nats` of texts in one batch. Padding comes after all tokens that count, so it needs no mask."""
    targets, mask = padded(texts)
    inputs = np.column_stack((np.full(len(texts), start_id), targets))[:, :-1]
    device = device_of(model)
    nats, _ = model.nats(
        torch.from_numpy(np.ascontiguousarray(inputs)).to(device), torch.from_numpy(targets).to(device)
    )
    totals: NDArray[np.float64] = np.where(mask, exact(nats).cpu().numpy(), 0.0).sum(1)
    return totals
