"""The inspection page of a tagged sentence: labels, scores, paths, and each word with its features and letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from torch import Tensor

from ensue.data.sentences.sentence import Surface
from ensue.inspection.colors import choose_color
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder import LayerAttention, LayerTrace, record_attention, trace_layers
from ensue.inspection.encoder_page import EncoderView, encoder_sections
from ensue.inspection.features import CharacterView, InputField, Part, ReadWords, view_characters
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, ansi, clip, note_cut, reveal
from ensue.inspection.texts import Mark, ShownText, labeled_text
from ensue.models.tagger import Tagger
from ensue.nn import ChainScores, Posterior
from ensue.tasks.labeling.tagged_sentence import TaggedSentence
from ensue.text.labels import Labels
from ensue.text.schemes import OUTSIDE, layers, spans, tags_of

NUM_PATHS = 5
MAX_VARIANT_WORDS = 40_000
"""The maximum total number of words of a sentence's variants, which lack one feature or letter of one word each."""
MAX_BATCH_WORDS = 8_192
"""The maximum number of words in a batch of variants."""


class TagPath(NamedTuple):
    """A path of tags through a sentence."""

    tags: NDArray[np.int64]
    """The tag of each word (T,)."""
    score: float
    """The sum of emission and transition scores."""
    emission: float
    """The sum of emission scores."""
    probability: float


class Effect(NamedTuple):
    """The effect of removing one feature of a word on the tag of the word."""

    emission: float
    """The decrease of the emission score of the tag."""
    probability: float
    """The probability of the tag without the feature."""
    tag: int
    """The tag of the word on the best path without the feature."""


@dataclass(frozen=True)
class TagsView:
    """The tags of T positions in a model with K tags."""

    tags: tuple[str, ...]
    """The names of the K tags."""
    emissions: NDArray[np.float32]
    """The scores of tags (T, K)."""
    path: NDArray[np.int64]
    """The best path (T,)."""
    marginals: NDArray[np.float32]
    """The probabilities of tags (T, K)."""
    tables: ChainScores | None
    """The scores of pairs of tags; None for a head without such scores."""
    paths: list[TagPath]
    traces: list[LayerTrace]
    attention: list[LayerAttention] | None
    """The attention of the layers; None for a text that is too long."""


@dataclass(frozen=True)
class TaggerView(TagsView):
    """A sentence in a tagger. The last three fields have values for the first words only."""

    words: tuple[str, ...]
    parts: list[list[Part]]
    """The features of each word."""
    effects: list[list[Effect]]
    """The effects of the features of each word."""
    letters: list[list[Effect]]
    """The effects of replacing a letter of each word by an unknown letter; empty if the model does not read letters."""
    characters: list[CharacterView]


@torch.inference_mode()
def view_tagger(model: Tagger, read: ReadWords, tags: tuple[str, ...], *, num_words: int) -> TaggerView:
    """Return the view of a sentence, with effects for the first `num_words` words or fewer (`MAX_VARIANT_WORDS`)."""
    x, keys, subwords = read.inputs()
    emissions = model.emissions(x, keys, None, subwords)
    view = view_tags(model, x, emissions, tags)
    parts = read.parts()
    effects, letters = _measure_effects(model, read, parts, emissions[0], view.path, num_words)
    characters = view_characters(read.features, read, len(effects))
    words = read.words
    return TaggerView(**vars(view), words=words, parts=parts, effects=effects, letters=letters, characters=characters)


@torch.inference_mode()
def view_tags(model: Tagger, x: Tensor, emissions: Tensor, tags: tuple[str, ...]) -> TagsView:
    """Return the view of features (1, T, d) and emissions (1, T, K)."""
    tables = model.head.tables()
    return TagsView(
        tags=tags, emissions=emissions[0].cpu().numpy(), path=model.head.best(emissions, None)[0].cpu().numpy(),
        marginals=model.head.marginals(emissions, None)[0].cpu().numpy(), tables=tables,
        paths=[] if tables is None else _find_best_paths(model.head.scores(emissions)[0].cpu().numpy(), tables),
        traces=trace_layers(model.layers, x), attention=record_attention(model.layers, x),
    )  # fmt: skip


def _find_best_paths(scores: NDArray[np.float32], tables: ChainScores) -> list[TagPath]:
    paths, (start, transitions, end) = [], tables
    for tags, probability in Posterior.of(scores, tables).best(NUM_PATHS):
        emission = float(scores[np.arange(len(tags)), tags].sum())
        total = emission + float(start[tags[0]] + transitions[tags[:-1], tags[1:]].sum() + end[tags[-1]])
        paths.append(TagPath(tags, total, emission, probability))
    return paths


def _measure_effects(
    model: Tagger, read: ReadWords, parts: list[list[Part]], emissions: Tensor, path: NDArray[np.int64], num_words: int
) -> tuple[list[list[Effect]], list[list[Effect]]]:
    """Return the effects of the features and of the letters of each word."""
    feature_effects: list[list[Effect]] = []
    letter_effects: list[list[Effect]] = []
    budget = MAX_VARIANT_WORDS
    for position in range(min(num_words, len(read))):
        places = [part.place for part in parts[position]]
        num_letters = int(read.forms.lengths[read.numbers[position]])
        places += [InputField("characters", letter) for letter in range(num_letters)]
        budget -= len(places) * len(read)
        if budget < 0 and feature_effects:
            break
        effects, rows, tag = list[Effect](), max(1, MAX_BATCH_WORDS // len(read)), int(path[position])
        for start in range(0, len(places), rows):
            variants = read.blank_components(position, places[start : start + rows])
            variant_emissions = model.emissions(variants.x, variants.keys, None, variants.subwords)
            decreases = (emissions[position, tag] - variant_emissions[:, position, tag]).tolist()
            probabilities = model.head.marginals(variant_emissions, None)[:, position, tag].tolist()
            tags = model.head.best(variant_emissions, None)[:, position].tolist()
            effects += map(Effect, decreases, probabilities, tags)
        feature_effects.append(effects[: len(parts[position])])
        letter_effects.append(effects[len(parts[position]) :])
    return feature_effects, letter_effects


MAX_WORDS = 60
"""The maximum number of words in the drawings."""
MAX_TAGS = 25
"""The maximum number of tags in the drawings; more are drawn if the best path has more."""
MAX_CHANGES = 12
"""The maximum number of listed words at which a path differs from the best path."""
PREFIXES = "BIMELSUW"
"""The order of the prefixes of tags in the drawings."""
MAX_DRAWN_WORDS = 24
"""The maximum number of distinct words with a drawing of their letters."""
NUM_BEST_TAGS = 3
"""The number of listed tags of a word."""


def inspect_sentence(
    model: Tagger, read: ReadWords, labels: Labels, surface: Surface, facts: Mapping[str, str]
) -> Inspection:
    """Return the page about a sentence in a tagger. `facts` are the values at the top of the page by name."""
    view = view_tagger(model, read, labels.tags.symbols, num_words=MAX_WORDS)
    names = labels.decode(view.path.tolist())
    marks = [Mark(place, place + 1, label) for place, label in enumerate(names)]
    if labels.has_spans:
        marks = [Mark(span.start, span.end, span.label) for span in spans(names)]
    shown_text = ShownText(surface.text, surface.offsets, marks)
    colors = {mark.label: choose_color(mark.label) for mark in shown_text.marks}
    columns = WordColumns(view.words[:MAX_WORDS])
    sections = [
        Section("The sentence and its labels", "inspection/plain.html", {"shown": labeled_text(shown_text, colors)}),
        *path_sections(view, columns, view.words, has_spans=labels.has_spans),
        words_section(view),
    ]
    if view.characters:
        sections.append(letters_section(view))
    sections = [*sections, *encoder_sections([EncoderView(columns, view.traces, view.attention)])]
    return Inspection(clip(shown_text.text, MAX_TITLE_CHARACTERS), view, facts, sections)


def path_sections(
    view: TagsView, columns: WordColumns, names: Sequence[str], *, has_spans: bool, unit: str = "word"
) -> list[Section]:
    """Return sections with emissions, transitions and best paths. `names` are the texts of all positions."""
    tags = choose_drawn_tags(view, len(columns), has_spans=has_spans)
    lattice = _draw_lattice(view, columns, tags, unit)
    sections = [Section("Emission scores and the best path", "tasks/labeling/lattice.html", lattice)]
    if view.tables is not None:
        transitions, paths = _tabulate_transitions(view, tags), {"paths": _list_paths(view, names)}
        sections.append(Section("Transition scores", "tasks/labeling/transitions.html", transitions))
        sections.append(Section("The best paths", "tasks/labeling/paths.html", paths))
    return sections


def choose_drawn_tags(view: TagsView, num_words: int, *, has_spans: bool) -> list[int]:
    """Return the tags to draw, grouped by class: the tags of the best path, and the most probable other tags."""
    tags = list(dict.fromkeys(view.path[:num_words].tolist()))
    by_probability = np.argsort(-view.marginals[:num_words].max(0), kind="stable").tolist()
    tags += [tag for tag in by_probability if tag not in tags][: max(0, MAX_TAGS - len(tags))]

    def order(tag: int) -> tuple[str, int, int]:
        prefix, _, label = view.tags[tag].partition("-")
        return (label, PREFIXES.find(prefix), tag) if has_spans else ("", 0, tag)

    return sorted(tags, key=order)


def _draw_lattice(view: TagsView, columns: WordColumns, tags: Sequence[int], unit: str) -> dict[str, Any]:
    """Return the values of a drawing of tags × words with the best path and with the next best tag of each word."""
    count, emissions = len(columns), view.emissions[: len(columns)][:, tags]
    others = [[tag for tag in _sort_tags(view, n) if tag != view.path[n]] for n in range(count)]
    return {
        "columns": columns, "unit": unit, "names": [view.tags[tag] for tag in tags], "emissions": emissions.tolist(),
        "marginals": view.marginals[:count][:, tags].tolist(), "most": float(np.abs(emissions).max()),
        "rows": [tags.index(tag) for tag in view.path[:count].tolist()],
        "next": [(view.tags[t[0]], float(view.marginals[n, t[0]])) if t else None for n, t in enumerate(others)],
        "notes": [
            note_cut(len(view.path), count, f"{unit}s"), note_cut(len(view.tags), len(tags), "tags", "most probable")
        ],
    }  # fmt: skip


def _sort_tags(view: TagsView, column: int) -> list[int]:
    return np.argsort(-view.marginals[column], kind="stable").tolist()


def _tabulate_transitions(view: TagsView, tags: Sequence[int]) -> dict[str, Any]:
    """Return a table of scores from the tag of a row (the first: start) to the tag of a column (the last: end)."""
    assert view.tables is not None
    start, pairs, end = view.tables
    scores = np.full((len(tags) + 1, len(tags) + 1), np.nan)
    scores[0, :-1], scores[1:, :-1], scores[1:, -1] = start[tags], pairs[np.ix_(tags, tags)], end[tags]
    names = [view.tags[tag] for tag in tags]
    cells, table = np.argwhere(~np.isnan(scores)).tolist(), scores.tolist()
    return {
        "rows": ["start", *names], "ends": [*names, "end"],
        "cells": [(i, j, None if np.isinf(table[i][j]) else table[i][j]) for i, j in cells],
        "most": float(np.abs(scores[np.isfinite(scores)]).max(initial=0.0)), "used": _find_used_cells(view, tags),
        "note": note_cut(len(view.tags), len(tags), "tags", "most probable"),
    }  # fmt: skip


def _find_used_cells(view: TagsView, tags: Sequence[int]) -> set[tuple[int, int]]:
    """Return the cells of the table of transitions that are on the best path."""
    rows = {tag: row for row, tag in enumerate(tags)}
    cells = {(rows[a] + 1, rows[b]) for a, b in pairwise(view.path.tolist()) if a in rows and b in rows}
    first, last = int(view.path[0]), int(view.path[-1])
    return cells | {(0, rows[first])} | ({(rows[last] + 1, len(tags))} if last in rows else set())


def _list_paths(view: TagsView, names: Sequence[str]) -> list[tuple[TagPath, list[tuple[int, str, str, str]], int]]:
    """Return each path with its first changes (position, name, best tag, tag), and the number of further changes."""
    rows, best = [], view.paths[0].tags
    for path in view.paths:
        positions = np.flatnonzero(path.tags != best).tolist()
        changes = [(n, names[n], view.tags[best[n]], view.tags[path.tags[n]]) for n in positions]
        rows.append((path, changes[:MAX_CHANGES], len(changes[MAX_CHANGES:])))
    return rows


def words_section(view: TaggerView) -> Section:
    """Return the section with a row for each word: its best tags, its features and their effects."""
    rows = []
    for n, (word, parts, effects) in enumerate(zip(view.words, view.parts, view.effects, strict=False)):
        best = [(view.tags[tag], float(view.marginals[n, tag])) for tag in _sort_tags(view, n)[:NUM_BEST_TAGS]]
        rows.append((word, best, int(view.path[n]), list(zip(parts, effects, strict=True))))
    content = {
        "kinds": list(dict.fromkeys(part.kind for parts in view.parts for part in parts)),
        "most": max(abs(effect.emission) for effects in view.effects for effect in effects),
        "longest": max(part.norm for parts in view.parts for part in parts) or 1.0,
        "rows": rows, "tags": view.tags, "note": note_cut(len(view.words), len(view.effects), "words"),
    }  # fmt: skip
    return Section("Word by word", "tasks/labeling/words.html", content)


def letters_section(view: TaggerView) -> Section:
    """Return the section with the values of the character layer in each distinct word."""
    by_word = {
        word: (letters, effects)
        for word, letters, effects in zip(view.words, view.characters, view.letters, strict=False)
        if letters.traces
    }
    words = list(by_word.values())[:MAX_DRAWN_WORDS]
    content = {
        "counts": any("maxima" in letters.traces for letters, _ in by_word.values()),
        "most": max((abs(effect.emission) for _, effects in words for effect in effects), default=0.0),
        "words": [(word.letters, list(map(reveal, word.letters)), word.traces, effects) for word, effects in words],
        "note": note_cut(len(set(view.words)), len(words), "different words"),
    }
    return Section("Letter by letter", "tasks/labeling/letters.html", content)


def format_aligned(tagged: TaggedSentence, width: int | None = None) -> str:
    """Return lines of words above lines of their labels, up to `width` columns (by default the width of the terminal).
    Overlapping spans have a line for each layer.
    """
    console = Console(highlight=False)
    max_width = width or console.width
    rows = [tagged.labels]
    if tagged.overlap and (names := layers(tagged.labels)):
        rows = [[tags_of(label).get(name, OUTSIDE) for label in tagged.labels] for name in names]
    lines: list[str] = []
    texts, used_columns = [Text() for _ in range(1 + len(rows))], 0
    for word, *labels in zip(tagged, *rows, strict=True):
        size = max(map(cell_len, (word.text, *labels))) + 2
        if used_columns and used_columns + size > max_width:
            lines += [ansi(console, text) for text in texts]
            texts, used_columns = [Text() for _ in texts], 0
        texts[0].append(word.text + " " * (size - cell_len(word.text)))
        for line, label in zip(texts[1:], labels, strict=True):
            style = "dim" if label == OUTSIDE else f"black on {choose_color(label)}"
            line.append(label, style=style).append(" " * (size - cell_len(label)))
        used_columns += size
    return "\n".join([*lines, *(ansi(console, text) for text in texts)]) + "\n"
