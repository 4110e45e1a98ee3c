"""The inside of a tagger of sentences, in numbers: scores, paths, probabilities, effects (`page.py` draws it)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.inspection.features import CharacterView, Part, PartLocation, ReadWords, characters_of
from ensue.models.tagger import Tagger
from ensue.nn import ChainScores, k_best, log_partition

NUM_PATHS = 5
BUDGET_WORDS = 40_000
"""The most words that are read to find the effects of parts, over all variants of a sentence."""
CALL_WORDS = 8_192
"""The most words of variants in a batch."""


class TagPath(NamedTuple):
    """A path through a sentence: its tags (T,), its score, the words' part of the score, its probability."""

    tags: NDArray[np.int64]
    score: float
    of_words: float
    probability: float


class Effect(NamedTuple):
    """The effect of blanking one part of a word on the word's tag.

    `emission` is the loss of the tag's score at this word. `probability` is the tag's probability without the part, and
    `tag` the tag of the best path without it.
    """

    emission: float
    probability: float
    tag: int


@dataclass(frozen=True)
class TagsView:
    """The decisions of a tagger. `emissions` and `marginals` are (T, K), `path` (T,)."""

    tags: tuple[str, ...]
    emissions: NDArray[np.float32]
    path: NDArray[np.int64]
    marginals: NDArray[np.float32]
    tables: ChainScores | None
    """The scores of pairs of tags; None for a head without them."""
    paths: list[TagPath]
    traces: list[Trace]
    attention: list[Attention] | None
    """The attention of the layers; None for a text that is too long."""


@dataclass(frozen=True)
class TaggerView(TagsView):
    """A sentence in a tagger. `effects` and `characters` are those of the first words.

    `effects[t]` are the effects of `parts[t]`. `letters[t]` are the effects of reading one letter of the word as
    unknown, if the model reads letters.
    """

    words: tuple[str, ...]
    parts: list[list[Part]]
    effects: list[list[Effect]]
    letters: list[list[Effect]]
    characters: list[CharacterView]


@torch.inference_mode()
def view_tagger(model: Tagger, read: ReadWords, tags: tuple[str, ...], *, num_words: int) -> TaggerView:
    """The view of a sentence, with effects for the first `num_words` words, or as many as the budget allows."""
    x, keys, subwords = read.reading()
    emissions = model.emissions(x, keys, None, subwords)
    whole = view_tags(model, x, emissions, tags)
    parts = read.parts()
    effects, letters = _effects(model, read, parts, emissions[0], whole.path, num_words)
    return TaggerView(
        **vars(whole),
        words=read.words,
        parts=parts,
        effects=effects,
        letters=letters,
        characters=characters_of(read.features, read, len(effects)),
    )


@torch.inference_mode()
def view_tags(model: Tagger, x: Tensor, emissions: Tensor, tags: tuple[str, ...]) -> TagsView:
    """The view of features (1, T, d) and emissions (1, T, K)."""
    tables = model.head.tables()
    return TagsView(
        tags=tags,
        emissions=emissions[0].cpu().numpy(),
        path=model.head.best(emissions, None)[0].cpu().numpy(),
        marginals=model.head.marginals(emissions, None)[0].cpu().numpy(),
        tables=tables,
        paths=[] if tables is None else _paths(model.head.scores(emissions), tables),
        traces=traces_of(model.layers, x),
        attention=attention_of(model.layers, x),
    )


def _paths(scores: Tensor, tables: ChainScores) -> list[TagPath]:
    """The best paths with their probabilities among all paths."""
    chain = [torch.from_numpy(table).to(scores.device) for table in tables]
    found, totals = k_best(scores, *chain, k=NUM_PATHS)
    whole = float(log_partition(scores, *chain)[0])
    paths = []
    for tags, total in zip(found[0], totals[0].tolist(), strict=True):
        if total > -np.inf:
            of_words = float(scores[0].gather(1, tags.unsqueeze(1)).sum())
            paths.append(TagPath(tags.cpu().numpy(), total, of_words, float(np.exp(min(total - whole, 0.0)))))
    return paths


def _effects(
    model: Tagger, read: ReadWords, parts: list[list[Part]], emissions: Tensor, path: NDArray[np.int64], num_words: int
) -> tuple[list[list[Effect]], list[list[Effect]]]:
    """The effects of blanking each part, and each letter, of the first words."""
    of_parts: list[list[Effect]] = []
    of_letters: list[list[Effect]] = []
    budget = BUDGET_WORDS
    for position in range(min(num_words, len(read))):
        places = [part.place for part in parts[position]]
        num_letters = int(read.forms.lengths[read.numbers[position]])
        places += [PartLocation("characters", letter) for letter in range(num_letters)]
        budget -= len(places) * len(read)
        if budget < 0 and of_parts:
            break
        effects, rows = list[Effect](), max(1, CALL_WORDS // len(read))
        for some in (places[start : start + rows] for start in range(0, len(places), rows)):
            variants, tag = read.blanked(position, some), int(path[position])
            without = model.emissions(variants.x, variants.keys, None, variants.subwords)
            falls = (emissions[position, tag] - without[:, position, tag]).tolist()
            shares = model.head.marginals(without, None)[:, position, tag].tolist()
            tags = model.head.best(without, None)[:, position].tolist()
            effects += [Effect(*each) for each in zip(falls, shares, tags, strict=True)]
        of_parts.append(effects[: len(parts[position])])
        of_letters.append(effects[len(parts[position]) :])
    return of_parts, of_letters
