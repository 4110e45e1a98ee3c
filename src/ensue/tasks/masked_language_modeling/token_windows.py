"""Vectors and surprisals of tokens in texts of any length, which are read in windows that overlap by half.

The values of a token come from the window in which the token is nearest to the middle. Windows are batched by length,
and other windows of a batch do not change the values.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.models.language_model import pad_rows
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.tasks.texts.framing import MAX_CALL_TOKENS, TextWindow, batches_by_length, text_windows
from ensue.tasks.vectors.contextual import Vectors
from ensue.text.masked_tokens import MaskedTokenizer

MAX_UNPADDED_TOKENS = 2048
"""The maximum number of tokens in a call without padding, whose activations then fit into the processor's cache."""
MAX_WINDOWS = 512
"""The maximum number of windows whose hidden tokens are listed at a time, which bounds the memory for a long text."""


def token_vectors(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]], *, layers: Sequence[int],
    collect: Callable[[int, Vectors], None],
) -> None:  # fmt: skip
    """Call `collect` with the index of each text and its vectors (L, T + 2, d) in L layers. The first vector belongs to
    [CLS] in the first window, and the last vector to [SEP] in the last window.
    """
    windows = _list_windows(texts, model.context - 2)
    remaining = np.bincount([window.text for window in windows], minlength=len(texts))
    vectors_of: dict[int, Vectors] = {}
    max_tokens = MAX_UNPADDED_TOKENS if model.can_read_packed else MAX_CALL_TOKENS
    for batch in batches_by_length(windows, [window.size + 2 for window in windows], max_tokens):
        h = _read_windows(model, coder, texts, batch, layers)
        for window, vectors in zip(batch, h, strict=True):
            size = len(texts[window.text])
            target = vectors_of.setdefault(window.text, np.empty((len(layers), size + 2, vectors.shape[2]), np.float32))
            start = window.begin - 1  # the position of [CLS]
            first, last = window.first - (window.first == 0), window.last + (window.last == size)
            target[:, 1 + first : 1 + last] = vectors[:, first - start : last - start]
            remaining[window.text] -= 1
            if not remaining[window.text]:
                collect(window.text, vectors_of.pop(window.text))


@torch.inference_mode()
def _read_windows(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]],
    windows: Sequence[TextWindow], layers: Sequence[int],
) -> list[Vectors]:  # fmt: skip
    """Return the vectors (L, T, d) of each window in L layers. T may include padding at the end."""
    pieces = [texts[window.text][window.begin : window.end] for window in windows]
    with evaluating(model):
        if model.can_read_packed:
            rows = [coder.add_frame(piece) for piece in pieces]
            lengths = [len(row) for row in rows]
            outputs = model.packed_layers(torch.from_numpy(np.concatenate(rows)), lengths)
            vectors = torch.stack([outputs[layer] for layer in layers]).float().numpy()
            return np.split(vectors, np.cumsum(lengths)[:-1], axis=1)
        ids, mask = _frame(coder, pieces, device_of(model))
        if list(layers) == [model.num_layers]:
            h = model(ids, mask).unsqueeze(1)
        else:
            outputs = model.layers_of(ids, mask)
            h = torch.stack([outputs[layer] for layer in layers], dim=1)
    return list(h.float().cpu().numpy())


HiddenToken = tuple[TextWindow, int]
"""The window of a hidden token, and its position in the text."""


@torch.inference_mode()
def pseudo_nats(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> list[NDArray[np.float64]]:
    """Return the surprisal in nats of each token of each text, given all other tokens (Salazar et al. 2020)."""
    nats = [np.zeros(len(text)) for text in texts]
    with evaluating(model):
        for batch, ids, mask, targets in _hidden_batches(model, coder, texts):
            surprisals = model.masked_nats(model(ids, mask), targets).nats.tolist()
            for (window, position), surprisal in zip(batch, surprisals, strict=True):
                nats[window.text][position] = surprisal
    return nats


@torch.inference_mode()
def pseudo_logits(
    model: MaskedLanguageModel, coder: MaskedTokenizer, text: NDArray[np.int64]
) -> Iterator[tuple[list[int], Tensor]]:
    """Yield N positions of a text, in any order, and their logits (N, V) given all other tokens."""
    with evaluating(model):
        for batch, ids, mask, targets in _hidden_batches(model, coder, [text]):
            yield [position for _, position in batch], model.logits(ids, targets != NOT_HIDDEN, mask)


def _hidden_batches(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> Iterator[tuple[list[HiddenToken], Tensor, Tensor | None, Tensor]]:
    """Yield batches in which a row has one hidden token: the tokens, inputs (B, T), their mask, and targets (B, T)."""
    windows = sorted(_list_windows(texts, model.context - 2), key=lambda window: window.size)
    device = device_of(model)
    for start in range(0, len(windows), MAX_WINDOWS):
        chunk = windows[start : start + MAX_WINDOWS]
        rows = [(window, position) for window in chunk for position in range(window.first, window.last)]
        for batch in batches_by_length(rows, [window.size + 2 for window, _ in rows], MAX_CALL_TOKENS):
            pieces = [texts[window.text][window.begin : window.end] for window, _ in batch]
            ids, mask = _frame(coder, pieces, device)
            places = [position - window.begin + 1 for window, position in batch]
            positions = torch.tensor(places, device=device).unsqueeze(1)
            targets = torch.full_like(ids, NOT_HIDDEN).scatter(1, positions, ids.gather(1, positions))
            yield batch, ids.scatter(1, positions, coder.mask_id), mask, targets


@torch.inference_mode()
def mask_probabilities(
    model: MaskedLanguageModel, coder: MaskedTokenizer, texts: Sequence[NDArray[np.int64]]
) -> list[Tensor]:
    """Return the probabilities (masks, V) of the tokens at the masks of each text; 0 for special tokens."""
    probabilities: dict[int, Tensor] = {}
    special = torch.tensor([coder.padding_id, *coder.special_ids], device=device_of(model))
    with evaluating(model):
        for batch in batches_by_length(range(len(texts)), [len(text) + 2 for text in texts], MAX_CALL_TOKENS):
            ids, mask = _frame(coder, [texts[index] for index in batch], device_of(model))
            masks = ids == coder.mask_id
            logits = model.logits(ids, masks, mask).double().index_fill(1, special, -torch.inf)
            by_text = torch.split(logits.softmax(1).cpu(), masks.sum(1).tolist())
            probabilities |= dict(zip(batch, by_text, strict=True))
    return [probabilities[index] for index in range(len(texts))]


def _list_windows(texts: Sequence[NDArray[np.int64]], max_tokens: int) -> list[TextWindow]:
    return [window for number, text in enumerate(texts) for window in text_windows(number, len(text), max_tokens)]


def _frame(
    coder: MaskedTokenizer, pieces: Sequence[NDArray[np.int64]], device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Return the ids (B, T) of pieces between [CLS] and [SEP], and their mask (None without padding)."""
    ids, mask = pad_rows([coder.add_frame(piece) for piece in pieces], coder.padding_id)
    return torch.from_numpy(ids).to(device), None if mask.all() else torch.from_numpy(mask).to(device)
