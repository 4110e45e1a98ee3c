"""A masked language model reads texts of any length, in windows that overlap by half: vectors and surprisals of tokens.

A token is read in the window in whose middle it stands. Texts come in batches of similar length, and what is found does
not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.masks import NOT_HIDDEN
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.poolings import Vectors
from ensue.text.masked_tokens import MaskedTokenizer

CALL_TOKENS = 8192
"""The most tokens, padding included, that are read in a call."""
WINDOWS = 512
"""The most windows whose tokens are hidden one by one, before the next ones are begun."""

ItemT = TypeVar("ItemT")


class TextWindow(NamedTuple):
    """The tokens [begin, end) of a text, read together; what is found for [first, last) is kept."""

    text: int
    begin: int
    end: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of tokens, without those that frame them."""
        return self.end - self.begin


def windows(text: int, size: int, most: int) -> list[TextWindow]:
    """Windows of at most `most` tokens over a text of `size`, each token kept where it is farthest from both edges."""
    begins = list(range(0, max(1, size - most), max(1, most // 2)))
    if begins[-1] + most < size:
        begins.append(size - most)
    edges = [(left + most + right) // 2 for left, right in pairwise(begins)]
    bounds = [0, *edges, size]
    return [
        TextWindow(text, begin, min(begin + most, size), *bounds[place : place + 2])
        for place, begin in enumerate(begins)
    ]


def token_vectors(
    model: MaskedLanguageModel,
    coder: MaskedTokenizer,
    texts: Sequence[NDArray[np.int64]],
    *,
    layers: Sequence[int],
    done: Callable[[int, Vectors], None],
) -> None:
    """Calls `done` with the number of each text and its vectors (L, T + 2, d) in these L layers: [CLS], its tokens,
    [SEP].

    Of a long text, [CLS] is that of the first window, and [SEP] that of the last.
    """
    plan = _planned(texts, model.context - 2)
    left = np.bincount([window.text for window in plan], minlength=len(texts))
    found: dict[int, Vectors] = {}
    for some in _batches(plan, [window.size + 2 for window in plan]):
        h = _read(model, coder, texts, some, layers)
        for window, vectors in zip(some, h, strict=True):
            whole = len(texts[window.text])
            into = found.setdefault(window.text, np.empty((len(layers), whole + 2, vectors.shape[2]), np.float32))
            start = window.begin - 1  # of [CLS], among the tokens
            first, last = window.first - (window.first == 0), window.last + (window.last == whole)
            into[:, 1 + first : 1 + last] = vectors[:, first - start : last - start]
            left[window.text] -= 1
            if not left[window.text]:
                done(window.text, found.pop(window.text))


@torch.inference_mode()
def _read(
    model: MaskedLanguageModel,
    coder: MaskedTokenizer,
    texts: Sequence[NDArray[np.int64]],
    some: Sequence[TextWindow],
    layers: Sequence[int],
) -> Vectors:
    """The vectors (B, L, T, d) of windows in L layers."""
    ids, mask = _framed(coder, [texts[window.text][window.begin : window.end] for window in some], device_of(model))
    with evaluating(model):
        if list(layers) == [model.num_layers]:
            h = model(ids, mask).unsqueeze(1)
        else:
            found = model.layers_of(ids, mask)
            h = torch.stack([found[layer] for layer in layers], dim=1)
    vectors: Vectors = h.float().cpu().numpy()
    return vectors


class Hidden(NamedTuple):
    """A window in which one token, at this place of the text, is hidden."""

    window: TextWindow
    place: int


@torch.inference_mode()
def pseudo_nats(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.float64]]:
    """The surprisal of each token of each text, given all the others: it alone is hidden (Salazar et al. 2020)."""
    found = [np.zeros(len(text)) for text in texts]
    plan = sorted(_planned(texts, model.context - 2), key=lambda window: window.size)
    device = device_of(model)
    with evaluating(model):
        for some in _hidden(plan):
            pieces = [texts[row.window.text][row.window.begin : row.window.end] for row in some]
            ids, mask = _framed(coder, pieces, device)
            places = torch.tensor([row.place - row.window.begin + 1 for row in some], device=device).unsqueeze(1)
            targets = torch.full_like(ids, NOT_HIDDEN).scatter(1, places, ids.gather(1, places))
            h = model(ids.scatter(1, places, coder.mask_id), mask)
            for row, nats in zip(some, model.hidden_nats(h, targets).nats.tolist(), strict=True):
                found[row.window.text][row.place] = nats
    return found


def _hidden(plan: Sequence[TextWindow]) -> Iterator[list[Hidden]]:
    """Each token that windows keep, hidden, in batches; of some windows at a time, since a long text has many."""
    for first in range(0, len(plan), WINDOWS):
        some = plan[first : first + WINDOWS]
        rows = [Hidden(window, place) for window in some for place in range(window.first, window.last)]
        yield from _batches(rows, [row.window.size + 2 for row in rows])


@torch.inference_mode()
def mask_probabilities(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> list[Tensor]:
    """The probabilities (masks, V) of the tokens of each mask of each text; special tokens have none."""
    found: dict[int, Tensor] = {}
    plan = [TextWindow(number, 0, len(text), 0, len(text)) for number, text in enumerate(texts)]
    special = torch.tensor([coder.padding_id, *coder.special_ids], device=device_of(model))
    with evaluating(model):
        for some in _batches(plan, [window.size + 2 for window in plan]):
            ids, mask = _framed(coder, [texts[window.text] for window in some], device_of(model))
            places = ids == coder.mask_id
            logits = model.logits(ids, places, mask).double().index_fill(1, special, -torch.inf)
            parts = torch.split(logits.softmax(1).cpu(), places.sum(1).tolist())
            found |= {window.text: part for window, part in zip(some, parts, strict=True)}
    return [found[number] for number in range(len(texts))]


def _planned(texts: Sequence[NDArray[np.int64]], most: int) -> list[TextWindow]:
    return [window for number, text in enumerate(texts) for window in windows(number, len(text), most)]


def _batches(items: Sequence[ItemT], lengths: Sequence[int]) -> Iterator[list[ItemT]]:
    """The items in batches of similar length."""
    order = sorted(range(len(items)), key=lambda place: lengths[place])
    while order:
        size = max(1, CALL_TOKENS // lengths[order[-1]])
        chosen, order = order[-size:], order[:-size]
        yield [items[place] for place in chosen]


def _framed(
    coder: MaskedTokenizer, pieces: Sequence[NDArray[np.int64]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The ids (B, T) of pieces between [CLS] and [SEP], and their mask; None if none is padded."""
    rows = [coder.framed(piece) for piece in pieces]
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(mask.shape, coder.padding_id, np.int64)
    ids[mask] = np.concatenate(rows)
    return torch.from_numpy(ids).to(device), None if mask.all() else torch.from_numpy(mask).to(device)
