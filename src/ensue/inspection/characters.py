"""The effects of letters in a character layer: how far they move an LSTM, how many maxima of a CNN they have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.inspection.features import ReadWords
from ensue.models.modules import device_of
from ensue.models.word_features import WordFeatures
from ensue.nn import CharacterCNN, CharacterLSTM, watch
from ensue.text.lexicon import letters
from ensue.types import exact


class CharacterView(NamedTuple):
    """A word's letters (L) and by name their effects, each an array (L,).

    An LSTM's "left to right" and "right to left" are `‖h_l - h_{l-1}‖` in the order in which it reads; a CNN's "maxima"
    counts the filters whose largest response is there.
    """

    letters: str
    traces: dict[str, NDArray[np.float64]]


@torch.inference_mode()
def characters_of(features: WordFeatures, read: ReadWords, num_words: int) -> list[CharacterView]:
    """The views of the first words; empty if the model does not read letters."""
    layer = features.characters
    if layer is None:
        return []
    views: dict[int, CharacterView] = {}
    for position, number in enumerate(read.numbers[:num_words].tolist()):
        if number not in views:
            ids = read.forms.characters[number, : read.forms.lengths[number]]
            traces = _traces(layer, torch.from_numpy(ids[None]).to(device_of(layer))) if len(ids) else {}
            views[number] = CharacterView(letters(read.words[position]), traces)
    return [views[number] for number in read.numbers[:num_words].tolist()]


def _traces(layer: CharacterLSTM | CharacterCNN, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    return _lstm(layer, ids) if isinstance(layer, CharacterLSTM) else _cnn(layer, ids)


def _lstm(layer: CharacterLSTM, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "*.hidden") as seen:
        layer(ids)

    def moves(states: list[torch.Tensor]) -> NDArray[np.float64]:
        h = exact(torch.cat([torch.zeros_like(states[0]), *states]))
        found: NDArray[np.float64] = h.diff(dim=0).norm(dim=-1).cpu().numpy()
        return found

    return {
        "left to right": moves(seen["rightward.hidden"]),
        "right to left": moves(seen["leftward.hidden"])[::-1],
    }


def _cnn(layer: CharacterCNN, ids: torch.Tensor) -> dict[str, NDArray[np.float64]]:
    with watch(layer, "responses") as seen:
        layer(ids)
    winners = seen["responses"][0][0].cpu().numpy().argmax(0)  # among equal ones the first, as `MaxPooling` has it
    return {"maxima": np.bincount(winners, minlength=ids.shape[1]).astype(np.float64)}
