"""The page for a text in a model that reads in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.bidirectional.layers import BidirectionalModel
from ensue.extensions.bidirectional.words import WordReader
from ensue.inspection.encoder import over_text
from ensue.inspection.map_page import NeighborMap, map_section, map_vectors
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.inspection.token_page import MOST_SHOWN, Predictions, shown, text_section
from ensue.inspection.unit_page import chosen_units, follower_section, saturation_section, selection_section
from ensue.inspection.units import Units, correlations, named, properties_of, unit_taps
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, SoftmaxHead, watch
from ensue.tasks.texts.scoring import CALL_LOGITS
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.tasks.vectors.word_table import Neighbor, WordTable
from ensue.text.words import WordTokenizer

MOST_WORDS = 1_000
"""The most words of a text that are looked at, in one piece."""
MOST_MAPPED = 60
"""The most words that are put on a map, and the most for which those that fit are looked for."""
DIRECTIONS = ("rightward", "leftward")


@dataclass(frozen=True)
class BidirectionalView:
    """A text of T words, as far as it was looked at; all of it has `length`.

    `rightward` are the predictions of each word from those to its left, `leftward` from those to its right; None for a
    model without probabilities. Units (T, d) are those of both directions, behind each word that the direction has
    read. `map` has the places of the first words, by their vectors in the last layer. `fits` are the words that fit
    best at each of these places, of a model of contexts.
    """

    words: tuple[str, ...]
    ids: NDArray[np.int64]
    length: int
    rightward: Predictions | None
    leftward: Predictions | None
    units: list[Units]
    correlations: list[NDArray[np.float64]]
    properties: dict[str, NDArray[np.float64]]
    map: NeighborMap
    fits: list[list[Neighbor]]


@torch.inference_mode()
def view_words(
    model: BidirectionalModel, reader: WordReader, words: Sequence[str], properties: dict[str, NDArray[np.float64]],
    *, head: SoftmaxHead | None, length: int, last: NDArray[np.float32], fits: list[list[Neighbor]],
) -> BidirectionalView:  # fmt: skip
    """The view of some words, with what they are (`properties`), and their vectors in the last layer (T, d)."""
    numbered, mask = reader.sentences([list(words)])
    device, ids = device_of(model), np.array(reader.ids(words), np.int64)
    both, *ways = (torch.from_numpy(part).to(device) for part in numbered)
    with evaluating(model), watch(model.rightward) as first, watch(model.leftward) as second:
        features, _ = model.read(both, *ways)
        known = model.beside(features[-1], torch.from_numpy(mask[:, 1:]).to(device))
        rightward, leftward = (None if head is None else _predictions(head, h[0], ids) for h in known)
    units = [*_units(model.rightward, first, "rightward"), *_units(model.leftward, second, "leftward")]
    return BidirectionalView(
        tuple(words),
        ids,
        length,
        rightward,
        leftward,
        units,
        correlations(units, properties),
        properties,
        map_vectors(last),
        fits,
    )


def _predictions(head: SoftmaxHead, h: Tensor, ids: NDArray[np.int64]) -> Predictions:
    size = max(1, CALL_LOGITS // head.vocabulary_size)
    starts = range(0, len(ids), size)
    return Predictions.joined([Predictions.of(head(h[at : at + size]), ids[at : at + size]) for at in starts])


def _units(layers: SequenceLayer, seen: dict[str, list[Tensor]], way: str) -> list[Units]:
    """The units of a direction, in the order of the words; what was seen at the boundary is left out."""
    step = 1 if way == DIRECTIONS[0] else -1
    values = {tap: over_text(seen[tap])[1:].float().cpu().numpy()[::step] for tap in unit_taps(layers)}
    return [Units(layer, f"{way} {kind}", of_tap) for layer, kind, of_tap in named(values)]


MOST_ROWS = 60
ABOUT = (
    "The stronger a word’s color, the more it surprised the direction that reads from the left: full color is a guess "
    "among all words. A unit’s color is its value when its direction has read the word. Rest on a word to see what was "
    "expected in its place."
)


def bidirectional_sections(view: BidirectionalView, tokenizer: WordTokenizer) -> list[Section]:
    """All sections."""
    mapped = len(view.map.places)
    about = f"The words of the text, by their vectors in the last layer. {cut(len(view.words), mapped, 'words')}"
    places = map_section(
        view.map, view.words[:mapped], own=0, titles=view.words[:mapped], heading="Map of the words", about=about
    )
    return [*_expected(view, tokenizer), *_fits(view), places]


def _expected(view: BidirectionalView, tokenizer: WordTokenizer) -> list[Section]:
    """The sections of what both directions expected, and of their units."""
    if view.rightward is None or view.leftward is None:
        return []
    count = min(len(view.words), MOST_SHOWN)
    text = text_section(
        [f"{word} " for word in view.words],
        view.ids.tolist(),
        view.rightward,
        tokenizer.symbol,
        length=view.length,
        vocabulary_size=tokenizer.vocabulary_size,
        about=ABOUT,
        units=view.units,
        chosen=chosen_units(view.units, view.correlations, count),
    )
    return [
        text,
        _both_directions(view, tokenizer),
        *selection_section(view.units, count),
        *follower_section(view.units, list(view.properties), view.correlations),
        *saturation_section(view.units, view.words),
    ]


def _both_directions(view: BidirectionalView, tokenizer: WordTokenizer) -> Section:
    assert view.rightward is not None
    assert view.leftward is not None
    right, left = view.rightward.surprisals, view.leftward.surprisals
    colors = {"surprisal from the right": left, "mean surprisal": (right + left) / 2}
    rows = [
        {
            "number": number,
            "word": word,
            "ways": [
                (
                    float(found.surprisals[number]),
                    [
                        (shown(tokenizer.symbol(id)), p)
                        for id, p in zip(found.ids[number].tolist(), found.probabilities[number].tolist(), strict=True)
                    ],
                )
                for found in (view.rightward, view.leftward)
            ],
        }
        for number, word in enumerate(view.words[:MOST_ROWS])
    ]
    numbers = {
        "colors": {name: np.round(values[:MOST_SHOWN], 4).tolist() for name, values in colors.items()},
        "means": (float(right.mean()), float(left.mean())),
        "rows": rows,
        "note": cut(len(view.words), len(rows), "words"),
    }
    return Section("Both directions", "extensions/bidirectional/ways.html", numbers)


def _fits(view: BidirectionalView) -> list[Section]:
    """The words that fit at each place, of a model of contexts."""
    if not view.fits:
        return []
    rows = list(zip(view.words, view.fits, strict=False))
    numbers = {"rows": rows, "note": cut(len(view.words), len(rows), "words")}
    return [Section("What fits in its place", "extensions/bidirectional/fits.html", numbers)]


FITS = 8
"""The words that are looked for in the place of a word."""


def inspect_words(
    pipeline: ContextualPipeline, reader: WordReader, whole: Sequence[str], table: WordTable | None, recipe: str
) -> Inspection:
    """The words of a text in a model, read in one piece; the `table` of a model of contexts has the words that could
    fit in their places.

    `recipe` describes the model. Raises EnsueError for a text without words.
    """
    if not whole:
        raise EnsueError("there is nothing to look into: the text has no words")
    words, head = whole[:MOST_WORDS], getattr(pipeline.model, "head", None)
    last = pipeline.layers_of_words([words])[0][-1]
    view = view_words(
        pipeline.model,
        reader,
        words,
        properties_of([f"{word} " for word in words]),
        head=head if isinstance(head, SoftmaxHead) else None,
        length=len(whole),
        last=last[:MOST_MAPPED],
        fits=[] if table is None else [table.neighbors(context, FITS) for context in last[:MOST_MAPPED]],
    )
    sections = bidirectional_sections(view, reader.tokenizer)
    unknown = int((view.ids == reader.tokenizer.unknown_id).sum())
    return Inspection(
        clipped(" ".join(words), TITLE), view, {**pipeline.facts(recipe), **_facts(view, unknown)}, sections
    )


def _facts(view: BidirectionalView, unknown: int) -> dict[str, str]:
    count = len(view.words)
    found = [part.surprisals for part in (view.rightward, view.leftward) if part is not None]
    return {
        "words": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        **({"nats per word": f"{np.mean(found):.4f}"} if found else {}),
    }
