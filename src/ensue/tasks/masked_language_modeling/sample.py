"""A sample of what a masked language model does: a sentence of which some tokens are hidden, with what it finds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import mix, random_numbers
from ensue.models.masked_language_model import MaskedLanguageModel
from ensue.tasks.masked_language_modeling.reading import mask_probabilities
from ensue.text.masked_tokens import MaskedTokenizer

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
