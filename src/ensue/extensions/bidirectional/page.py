"""The page that shows a bidirectional model with a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.bidirectional.words import WordReader
from ensue.extensions.word_vectors.neighbor_map import NeighborMap, map_section, map_vectors
from ensue.extensions.word_vectors.pipeline import Neighbor, WordTable
from ensue.inspection.encoder import join_steps
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip, note_cut
from ensue.inspection.token_page import MAX_SHOWN_TOKENS, Predictions, show_token, text_section
from ensue.inspection.unit_page import unit_sections
from ensue.inspection.units import Units, build_units, correlate, find_properties, unit_taps
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, SoftmaxHead, watch
from ensue.tasks.language_modeling.page import predict_targets
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.text.tokenizer import WordTokenizer

MAX_WORDS = 1_000
"""The largest number of words on a page."""
MAX_MAPPED_WORDS = 60
"""The largest number of words on the map, and of words for which fitting words are listed."""
MAX_TABLE_WORDS, NUM_FITS = 60, 8  # words in the table of both directions; fitting words for a position
TEXT_ABOUT = (
    "The color of a word is its surprisal given the words on its left. The full color is the surprisal of a uniform "
    "guess among all words. The color of a unit is its value after its direction has read the word. Point to a word to "
    "see the predictions for its position."
)


@dataclass(frozen=True)
class BidirectionalView:
    """The view of a text in a model, with the first T of `length` words."""

    words: tuple[str, ...]
    ids: NDArray[np.int64]
    length: int
    rightward: Predictions | None
    """The predictions of each word from the words on its left; None for a model without probabilities."""
    leftward: Predictions | None
    """The predictions of each word from the words on its right; None for a model without probabilities."""
    units: list[Units]
    """The values (T, d) of each layer's units in each direction, after each word is read."""
    correlations: list[NDArray[np.float64]]
    """The correlations of the units with the `properties`."""
    properties: dict[str, NDArray[np.float64]]
    """The values (T,) of each property of words, by its name."""
    map: NeighborMap
    """The positions of the first words, by their vectors in the last layer."""
    fits: list[list[Neighbor]]
    """The words that fit best in the context of each of the first words."""


def _collect_units(layers: SequenceLayer, outputs: dict[str, list[Tensor]], direction: str) -> list[Units]:
    stride = 1 if direction == "rightward" else -1
    values = {tap: join_steps(outputs[tap])[1:].float().cpu().numpy()[::stride] for tap in unit_taps(layers)}
    return [Units(layer, f"{direction} {kind}", tap_values) for layer, kind, tap_values in build_units(values)]


def _prediction_sections(view: BidirectionalView, tokenizer: WordTokenizer) -> list[Section]:
    if view.rightward is None or view.leftward is None:
        return []
    text = text_section(
        [f"{word} " for word in view.words], view.ids.tolist(), view.rightward, tokenizer, length=view.length,
        about=TEXT_ABOUT, units=view.units, correlations=view.correlations,
    )  # fmt: skip
    units = unit_sections(view.units, list(view.properties), view.correlations, view.words)
    return [text, _direction_section(view, tokenizer), *units]


def _direction_section(view: BidirectionalView, tokenizer: WordTokenizer) -> Section:
    assert view.rightward is not None
    assert view.leftward is not None
    rightward, leftward = view.rightward.surprisals, view.leftward.surprisals
    colors = {"surprisal from the right": leftward, "mean surprisal": (rightward + leftward) / 2}
    rows: list[dict[str, Any]] = []
    for number, word in enumerate(view.words[:MAX_TABLE_WORDS]):
        directions = []
        for predictions in (view.rightward, view.leftward):
            symbols = [show_token(tokenizer.symbol(id)) for id in predictions.ids[number].tolist()]
            options = list(zip(symbols, predictions.probabilities[number].tolist(), strict=True))
            directions.append((float(predictions.surprisals[number]), options))
        rows.append({"number": number, "word": word, "directions": directions})
    values = {
        "colors": {name: np.round(color[:MAX_SHOWN_TOKENS], 4).tolist() for name, color in colors.items()},
        "means": (float(rightward.mean()), float(leftward.mean())),
        "rows": rows,
        "note": note_cut(len(view.words), len(rows), "words"),
    }
    return Section("Both directions", "extensions/bidirectional/directions.html", values)


@torch.inference_mode()
def inspect_words(
    pipeline: ContextualPipeline, reader: WordReader, text: Sequence[str], table: WordTable | None, recipe: str
) -> Inspection:
    """Return the page of a text, given as a list of words. Raises EnsueError for an empty list.

    `table` has the target vectors of context2vec; None for a language model. `recipe` is a description of the model.
    """
    if not text:
        raise EnsueError("nothing to inspect: the text has no words")
    model, words = pipeline.model, text[:MAX_WORDS]
    head = getattr(model, "head", None)
    last_layer = pipeline.layers_of_words([words])[0][-1][:MAX_MAPPED_WORDS]
    *inputs, mask, _ = reader.sentences([words], device_of(model))
    ids = np.array(reader.ids(words), np.int64)
    with evaluating(model), watch(model.rightward) as right_taps, watch(model.leftward) as left_taps:
        features, _ = model.read(*inputs)
        contexts = model.features_before(features[-1], mask[:, 1:])
        predictions = [predict_targets(head, h[0], ids) if isinstance(head, SoftmaxHead) else None for h in contexts]
    units = _collect_units(model.rightward, right_taps, "rightward")
    units += _collect_units(model.leftward, left_taps, "leftward")
    properties = find_properties([f"{word} " for word in words])
    fits = [] if table is None else [table.neighbors(context, NUM_FITS) for context in last_layer]
    tables = (correlate(units, properties), properties, map_vectors(last_layer), fits)
    view = BidirectionalView(tuple(words), ids, len(text), predictions[0], predictions[1], units, *tables)
    facts = pipeline.facts(recipe) | {
        "words": f"{len(words):,}{f' of {len(text):,}' if len(text) > len(words) else ''}"
    }
    if num_unknown := int((ids == reader.tokenizer.unknown_id).sum()):
        facts["unknown"] = f"{num_unknown:,}"
    if nats := [direction.surprisals for direction in predictions if direction is not None]:
        facts["nats per word"] = f"{np.mean(nats):.4f}"
    mapped = view.words[: len(view.map.places)]
    note = note_cut(len(words), len(mapped), "words")
    sections = _prediction_sections(view, reader.tokenizer)
    if fits:
        values = {"rows": list(zip(words, fits, strict=False)), "note": note}
        sections.append(Section("Words that fit", "extensions/bidirectional/fits.html", values))
    about = f"The words of the text, by their vectors in the last layer. {note}"
    sections.append(
        map_section(view.map, mapped, num_queries=0, titles=mapped, heading="Map of the words", about=about)
    )
    return Inspection(clip(" ".join(words), MAX_TITLE_CHARACTERS), view, facts, sections)
