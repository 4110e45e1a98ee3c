"""The sections of a page for a classifier's views; for a pair, both texts side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.attributions import Integrated
from ensue.inspection.colors import color_of
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.features import ReadWords
from ensue.inspection.markup import clipped, plain, signed
from ensue.inspection.page import TITLE, Inspection, Section, cut
from ensue.inspection.texts import ShownText, Weight, weighted_text
from ensue.models.classifier import Classifier
from ensue.tasks.classification.view import ClassifierView, view_classifier
from ensue.text.labels import Classes

MOST_WORDS = 60
"""The most words over which the encoder is drawn."""
MOST_LABELS = 25
MOST_RANKED = 8


def inspect_texts(
    model: Classifier, reads: Sequence[ReadWords], shown: Sequence[ShownText], labels: Classes, facts: Mapping[str, str]
) -> Inspection:
    """The page of a classifier with a text, or the two of a pair, as they were read; `facts` are of the model."""
    views = view_classifier(model, reads)
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = classifier_sections(views, shown, labels.names, colors=colors, threshold=threshold)
    return Inspection(clipped(" | ".join(text.text for text in shown), TITLE), views, facts, sections)


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
        labels_section(views[0].probabilities, views[0].label, names, colors=colors, threshold=threshold),
        Section(
            f"What each word does for “{label}”",
            "tasks/classification/contributions.html",
            _contributions(views, texts, keys, label),
        ),
    ]
    sections += _integrated(views, texts, keys, label)
    attention = [view.attention for view in views if view.attention is not None]
    if attention:
        about = "The text is a weighted mean of its words’ states; the stronger a word’s color, the larger its weight."
        shown = {"about": about, "texts": _weights(views, texts, keys, attention, "weight")}
        sections.append(Section("Attention pooling", "tasks/classification/sides.html", shown))
    maxima = [view.maxima for view in views if view.maxima is not None]
    if maxima:
        about = "The text has the maximum of each feature over all words; the color is how many of them a word gave."
        shown = {"about": about, "texts": _weights(views, texts, keys, maxima, "maxima")}
        sections.append(Section("Max pooling", "tasks/classification/sides.html", shown))
    which = ["first text, ", "second text, "] if len(views) == 2 else [""]
    seen = [Seen(drawn, view.traces, view.heads, name) for drawn, view, name in zip(columns, views, which, strict=True)]
    return [*sections, *encoder_sections(seen)]


def labels_section(
    probabilities: NDArray[np.float32], label: int, names: Sequence[str], *, colors: Mapping[str, str],
    threshold: float | None, what: str = "text",
) -> Section:  # fmt: skip
    """A bar for each label, the most probable first; a chosen one has its color."""
    order = np.argsort(-probabilities, kind="stable")[:MOST_LABELS].tolist()
    rows = []
    for place in order:
        probability = float(probabilities[place])
        is_chosen = probability >= threshold if threshold is not None else place == label
        rows.append((names[place], probability, colors[names[place]] if is_chosen else None))
    note = cut(len(names), len(order), "labels", "most probable")
    shown = {"rows": rows, "threshold": threshold, "note": note, "what": what}
    return Section("Labels", "tasks/classification/labels.html", shown)


def _contributions(
    views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str], label: str
) -> dict[str, Any]:
    """The texts with their words colored by their effects, and the words with the largest effects."""
    most = max((abs(found.log_odds) for view in views for found in view.contributions), default=0.0)
    return {
        "label": label,
        "most": most,
        "texts": [
            weighted_text(text, _strengths(view, label, most), key=key)
            for view, text, key in zip(views, texts, keys, strict=True)
        ],
        "together": max(len(found.group) for view in views for found in view.contributions),
        "halves": _ranked(views, keys, label),
    }


def _integrated(
    views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str], label: str
) -> list[Section]:
    """The texts with their words colored by integrated gradients; none for a model that has none."""
    found = [view.integrated for view in views]
    if any(one is None for one in found):
        return []
    integrated = [one for one in found if one is not None]
    most = max((float(np.abs(one.shares).max(initial=0.0)) for one in integrated), default=0.0)
    numbers = {
        "label": label,
        "most": most,
        "sums": integrated,
        "texts": [
            weighted_text(text, _shares(view.words, one, most), key=key)
            for view, one, text, key in zip(views, integrated, texts, keys, strict=True)
        ],
    }
    return [Section("Integrated gradients", "tasks/classification/integrated.html", numbers)]


def _shares(words: Sequence[str], found: Integrated, most: float) -> list[Weight]:
    return [
        Weight(
            abs(share) / most if most else 0.0, "for" if share > 0 else "against",
            f"{clipped(word, 60)}: {signed(share, 4)}",
        )
        for word, share in zip(words, found.shares.tolist(), strict=True)
    ]  # fmt: skip


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


def _ranked(views: Sequence[ClassifierView], keys: Sequence[str], label: str) -> list[tuple[str, list[Any]]]:
    """The words with the largest effects, for and against the label: the mark of the first, all, and their effect."""
    found = [
        (f"{key}{each.group[0]}", " ".join(view.words[each.group.start : each.group.stop]), each)
        for view, key in zip(views, keys, strict=True)
        for each in view.contributions
    ]
    ranked = sorted(found, key=lambda item: -item[2].log_odds)
    return [
        (f"for “{label}”", [item for item in ranked if item[2].log_odds > 0][:MOST_RANKED]),
        (f"against “{label}”", [item for item in reversed(ranked) if item[2].log_odds < 0][:MOST_RANKED]),
    ]


def _weights(
    views: Sequence[ClassifierView],
    texts: Sequence[ShownText],
    keys: Sequence[str],
    values: Sequence[NDArray[np.float64]],
    what: str,
) -> list[Markup]:
    """The texts with their words colored by weights that sum to 1."""
    shown = []
    for view, text, key, weights in zip(views, texts, keys, values, strict=True):
        most = float(weights.max(initial=0.0))
        marked = [
            Weight(float(weight) / most, "weight", f"{clipped(word, 60)}: {what} {plain(100 * float(weight))} %")
            for word, weight in zip(view.words, weights, strict=True)
        ]
        shown.append(weighted_text(text, marked, key=key))
    return shown
