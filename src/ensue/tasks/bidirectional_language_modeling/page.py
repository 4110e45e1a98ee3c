"""The sections of a page for a text in a model that reads in both directions."""

from __future__ import annotations

import numpy as np

from ensue.inspection.map_page import map_section
from ensue.inspection.page import Section, cut
from ensue.inspection.selection import selection_section
from ensue.inspection.token_page import MOST_SHOWN, shown, text_section
from ensue.inspection.unit_page import chosen_units, follower_section, saturation_section
from ensue.tasks.bidirectional_language_modeling.view import BidirectionalView
from ensue.text.words import WordTokenizer

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
    """What both directions expected, and their units."""
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
        _both_ways(view, tokenizer),
        *selection_section(view.units, count),
        *follower_section(view.units, list(view.properties), view.correlations),
        *saturation_section(view.units),
    ]


def _both_ways(view: BidirectionalView, tokenizer: WordTokenizer) -> Section:
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
    return Section("Both directions", "tasks/bidirectional_language_modeling/ways.html", numbers)


def _fits(view: BidirectionalView) -> list[Section]:
    """The words that fit at each place, of a model of contexts."""
    if not view.fits:
        return []
    rows = list(zip(view.words, view.fits, strict=False))
    numbers = {"rows": rows, "note": cut(len(view.words), len(rows), "words")}
    return [Section("What fits in its place", "tasks/bidirectional_language_modeling/fits.html", numbers)]
