"""The sections of a page for a classifier's views; for a pair, both texts side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.markup import clipped, escaped, plain, share, signed
from ensue.inspection.page import Section, cut, paragraph, table
from ensue.inspection.texts import ShownText, Weight, weighted_text
from ensue.tasks.classification.view import ClassifierView

MOST_WORDS = 60
"""The most words over which the encoder is drawn."""
MOST_LABELS = 25
MOST_RANKED = 8


def classifier_sections(
    views: Sequence[ClassifierView],
    texts: Sequence[ShownText],
    names: Sequence[str],
    *,
    colors: Mapping[str, str],
    threshold: float | None,
) -> list[Section]:
    """All sections. `threshold` is that of several labels; None if a text has one label."""
    label = names[views[0].label]
    keys = [f"{side}-" for side in range(len(views))]
    columns = [WordColumns(view.words[:MOST_WORDS], key=key) for view, key in zip(views, keys, strict=True)]
    sections = [
        Section("Labels", _labels(views[0], names, colors, threshold)),
        Section(f"What each word does for “{label}”", _contributions(views, texts, keys, label)),
    ]
    attention = [view.attention for view in views if view.attention is not None]
    if attention:
        about = "The text is a weighted mean of its words’ states; the stronger a word’s color, the larger its weight."
        sections.append(
            Section("Attention pooling", paragraph(about) + _weights(views, texts, keys, attention, "weight"))
        )
    maxima = [view.maxima for view in views if view.maxima is not None]
    if maxima:
        about = "The text has the maximum of each feature over all words; the color is how many of them a word gave."
        sections.append(Section("Max pooling", paragraph(about) + _weights(views, texts, keys, maxima, "maxima")))
    which = ["first text, ", "second text, "] if len(views) == 2 else [""]
    seen = [Seen(drawn, view.traces, view.heads, name) for drawn, view, name in zip(columns, views, which, strict=True)]
    return [*sections, *encoder_sections(seen)]


def _labels(view: ClassifierView, names: Sequence[str], colors: Mapping[str, str], threshold: float | None) -> str:
    """A bar for each label, the most probable first."""
    order = np.argsort(-view.probabilities, kind="stable")[:MOST_LABELS].tolist()
    rows = []
    for place in order:
        probability = float(view.probabilities[place])
        chosen = probability >= threshold if threshold is not None else place == view.label
        name = escaped(clipped(names[place], 40))
        shown = f'<span class="chip" style="background:{colors[names[place]]}">{name}</span>' if chosen else name
        rows.append(
            f'<tr><td>{shown}</td><td class="number" title="{probability:.6f}">{share(probability)}</td>'
            f'<td><span class="share" style="width:{320 * probability:.1f}px"></span></td></tr>'
        )
    several = f"A text has every label whose probability is at least {threshold:.2f}." if threshold is not None else ""
    about = paragraph(several) if several else ""
    return about + cut(len(names), len(order), "labels", "most probable") + table(["", "#probability", ""], rows)


def _contributions(views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str], label: str) -> str:
    """The texts with their words colored by their effects, and the words with the largest effects."""
    most = max((abs(found.log_odds) for view in views for found in view.contributions), default=0.0)
    name = escaped(label)
    about = (
        f"Each word in turn is read as unknown, and the text is read again. Warm words speak for “{name}”: without "
        "them it is less probable; cool words speak against it. The color is the change of the log-odds, "
        f"{signed(-most)}"
        f'<span class="scale"></span>{signed(most)}. Dotted words are unknown to the model.'
    )
    shown = [
        weighted_text(text, _strengths(view, label, most), key=key)
        for view, text, key in zip(views, texts, keys, strict=True)
    ]
    together = max(len(found.group) for view in views for found in view.contributions)
    note = paragraph(f"The text is long: {together} words at a time are read as unknown.", "note")
    return paragraph(about) + (note if together > 1 else "") + _beside(shown) + _ranked(views, keys, label)


def _strengths(view: ClassifierView, label: str, most: float) -> list[Weight]:
    weights = []
    for group, probability, log_odds in view.contributions:
        title = f"without it P({label}) = {probability:.4f}, log-odds {signed(-log_odds, 4)}"
        kind = "for" if log_odds > 0 else "against"
        for word in group:
            known = "" if view.is_known[word] else " (unknown word)"
            strength = abs(log_odds) / most if most else 0.0
            weights.append(
                Weight(strength, kind, f"{clipped(view.words[word], 60)}{known}: {title}", not view.is_known[word])
            )
    return weights


def _ranked(views: Sequence[ClassifierView], keys: Sequence[str], label: str) -> str:
    """The words with the largest effects, for and against the label."""
    found = [(view, key, each) for view, key in zip(views, keys, strict=True) for each in view.contributions]
    ranked = sorted(found, key=lambda item: -item[2].log_odds)
    halves = [
        (f"for “{label}”", [item for item in ranked if item[2].log_odds > 0][:MOST_RANKED]),
        (f"against “{label}”", [item for item in reversed(ranked) if item[2].log_odds < 0][:MOST_RANKED]),
    ]
    tables = []
    for heading, items in halves:
        rows = [
            f'<tr data-t="{key}{each.group[0]}"><td><bdi>'
            f"{escaped(clipped(' '.join(view.words[each.group.start : each.group.stop]), 40))}</bdi></td>"
            f'<td class="number">{signed(each.log_odds)}</td><td class="number">{share(each.probability)}</td></tr>'
            for view, key, each in items
        ]
        head = [escaped(heading), "#log-odds", "#P without it"]
        tables.append(table(head, rows) if rows else "")
    return f'<div class="many">{"".join(tables)}</div>'


def _weights(
    views: Sequence[ClassifierView],
    texts: Sequence[ShownText],
    keys: Sequence[str],
    values: Sequence[NDArray[np.float64]],
    what: str,
) -> str:
    """The texts with their words colored by weights that sum to 1."""
    shown = []
    for view, text, key, weights in zip(views, texts, keys, values, strict=True):
        most = float(weights.max(initial=0.0))
        marked = [
            Weight(float(weight) / most, "weight", f"{clipped(word, 60)}: {what} {plain(100 * float(weight))} %")
            for word, weight in zip(view.words, weights, strict=True)
        ]
        shown.append(weighted_text(text, marked, key=key))
    return _beside(shown)


def _beside(shown: Sequence[str]) -> str:
    if len(shown) == 1:
        return shown[0]
    return f'<div class="sides">{"".join(f"<div>{text}</div>" for text in shown)}</div>'
