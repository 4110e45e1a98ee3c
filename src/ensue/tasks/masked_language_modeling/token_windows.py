"""A masked language model reads texts of any length, in windows that overlap by half: vectors and surprisals of tokens.

A token is read in the window in whose middle it stands. Texts come in batches of similar length, and what is found does
not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.models.language_model import padded
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.texts.framing import TextWindow, batches_by_length, text_windows
from ensue.tasks.vectors.text_vectors import Vectors
from ensue.text.masked_tokens import MaskedTokenizer

CALL_TOKENS = 8192
"""The most tokens, padding included, that are read in a call."""
APART_TOKENS = 2048
"""The most tokens that are read in a call without padding. What becomes of them stays in the processor's cache."""
WINDOWS = 512
"""The most windows whose tokens are hidden one by one, before the next ones are begun."""


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
    most = APART_TOKENS if model.reads_apart else CALL_TOKENS
    for some in batches_by_length(plan, [window.size + 2 for window in plan], most):
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
) -> list[Vectors]:
    """The vectors (L, T, d) of each window in L layers; there may be padding behind them."""
    pieces = [texts[window.text][window.begin : window.end] for window in some]
    with evaluating(model):
        if model.reads_apart:
            rows = [coder.framed(piece) for piece in pieces]  # of all windows one after another, without padding
            lengths = [len(row) for row in rows]
            apart = model.layers_apart(torch.from_numpy(np.concatenate(rows)), lengths)
            vectors = torch.stack([apart[layer] for layer in layers]).float().numpy()
            return np.split(vectors, np.cumsum(lengths)[:-1], axis=1)
        ids, mask = _framed(coder, pieces, device_of(model))
        if list(layers) == [model.num_layers]:
            h = model(ids, mask).unsqueeze(1)
        else:
            found = model.layers_of(ids, mask)
            h = torch.stack([found[layer] for layer in layers], dim=1)
    return list(h.float().cpu().numpy())


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
    with evaluating(model):
        for some, ids, mask, targets in _each_hidden(model, coder, texts):
            h = model(ids, mask)
            for row, nats in zip(some, model.hidden_nats(h, targets).nats.tolist(), strict=True):
                found[row.window.text][row.place] = nats
    return found


@torch.inference_mode()
def pseudo_logits(
    model: MaskedLanguageModel, coder: MaskedTokenizer, text: NDArray[np.int64]
) -> Iterator[tuple[list[int], Tensor]]:
    """Some places of a text, with the logits (N, V) of what stands at each, given all other tokens; in any order."""
    with evaluating(model):
        for some, ids, mask, targets in _each_hidden(model, coder, [text]):
            yield [row.place for row in some], model.logits(ids, targets != NOT_HIDDEN, mask)


def _each_hidden(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[list[Hidden], Tensor, Tensor | None, Tensor]]:
    """Each token of each text, hidden alone, in batches of inputs (B, T), their mask, and targets (B, T)."""
    plan = sorted(_planned(texts, model.context - 2), key=lambda window: window.size)
    device = device_of(model)
    for some in _hidden(plan):
        pieces = [texts[row.window.text][row.window.begin : row.window.end] for row in some]
        ids, mask = _framed(coder, pieces, device)
        places = torch.tensor([row.place - row.window.begin + 1 for row in some], device=device).unsqueeze(1)
        targets = torch.full_like(ids, NOT_HIDDEN).scatter(1, places, ids.gather(1, places))
        yield some, ids.scatter(1, places, coder.mask_id), mask, targets


def _hidden(plan: Sequence[TextWindow]) -> Iterator[list[Hidden]]:
    """Each token that windows keep, hidden, in batches; of some windows at a time, since a long text has many."""
    for first in range(0, len(plan), WINDOWS):
        some = plan[first : first + WINDOWS]
        rows = [Hidden(window, place) for window in some for place in range(window.first, window.last)]
        yield from batches_by_length(rows, [row.window.size + 2 for row in rows], CALL_TOKENS)


@torch.inference_mode()
def mask_probabilities(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> list[Tensor]:
    """The probabilities (masks, V) of the tokens of each mask of each text; special tokens have none."""
    found: dict[int, Tensor] = {}
    plan = [TextWindow(number, 0, len(text), 0, len(text)) for number, text in enumerate(texts)]
    special = torch.tensor([coder.padding_id, *coder.special_ids], device=device_of(model))
    with evaluating(model):
        for some in batches_by_length(plan, [window.size + 2 for window in plan], CALL_TOKENS):
            ids, mask = _framed(coder, [texts[window.text] for window in some], device_of(model))
            places = ids == coder.mask_id
            logits = model.logits(ids, places, mask).double().index_fill(1, special, -torch.inf)
            parts = torch.split(logits.softmax(1).cpu(), places.sum(1).tolist())
            found |= {window.text: part for window, part in zip(some, parts, strict=True)}
    return [found[number] for number in range(len(texts))]


def _planned(texts: Sequence[NDArray[np.int64]], most: int) -> list[TextWindow]:
    return [window for number, text in enumerate(texts) for window in text_windows(number, len(text), most)]


def _framed(
    coder: MaskedTokenizer, pieces: Sequence[NDArray[np.int64]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """The ids (B, T) of pieces between [CLS] and [SEP], and their mask; None if none is padded."""
    ids, mask = padded([coder.framed(piece) for piece in pieces], coder.padding_id)
    return torch.from_numpy(ids).to(device), None if mask.all() else torch.from_numpy(mask).to(device)
