"""The page about a text or a pair of texts in a classifier."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from ensue.inspection.colors import choose_color
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import EncoderView, encoder_sections
from ensue.inspection.features import ReadWords
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip, decimal, note_cut, signed
from ensue.inspection.texts import ShownText, Weight, weighted_text
from ensue.models.classifier import Classifier
from ensue.tasks.classification.view import ClassifierView, view_classifier
from ensue.text.labels import Classes

MAX_WORDS = 60
"""The maximum number of words in drawings of the encoder."""
MAX_LABELS = 25
"""The maximum number of labels on a page."""
MAX_RANKED_WORDS = 8
"""The maximum number of words in the lists of words for and against a label."""
clip_word = partial(clip, max_characters=60)


def inspect_texts(
    model: Classifier, reads: Sequence[ReadWords], shown: Sequence[ShownText], labels: Classes, facts: Mapping[str, str]
) -> Inspection:
    """Return the page about a text or a pair in a classifier. `facts` are the values at the top of the page by name."""
    views = view_classifier(model, reads)
    title = clip(" | ".join(text.text for text in shown), MAX_TITLE_CHARACTERS)
    return Inspection(title, views, facts, classifier_sections(views, shown, labels))


def classifier_sections(views: Sequence[ClassifierView], texts: Sequence[ShownText], labels: Classes) -> list[Section]:
    """Return the sections of the page about `texts`, a text or a pair."""
    label, probabilities = labels.names[views[0].label], views[0].probabilities
    threshold = labels.threshold if labels.multiple else None
    keys = [f"{side}-" for side in range(len(views))]
    columns = [WordColumns(view.words[:MAX_WORDS], key=key) for view, key in zip(views, keys, strict=True)]
    sections = [
        labels_section(labels.by_name(probabilities), labels.choose(probabilities), threshold=threshold),
        _contributions_section(views, texts, keys, label),
        *_integrated_sections(views, texts, keys, label),
    ]
    mean = "The text is a weighted mean of its words’ states; the stronger a word’s color, the larger its weight."
    maximum = "The text has the maximum of each feature over all words; the color is the share of maxima at a word."
    for title, name, about, view_weights in (
        ("Attention pooling", "weight", mean, [view.attention for view in views]),
        ("Max pooling", "maxima", maximum, [view.maxima for view in views]),
    ):
        if values := [weights for weights in view_weights if weights is not None]:
            content = {"about": about, "texts": _weigh_pooling(views, texts, keys, values, name)}
            sections.append(Section(title, "tasks/classification/sides.html", content))
    names_of_texts = ["first text, ", "second text, "] if len(views) == 2 else [""]
    triples = zip(columns, views, names_of_texts, strict=True)
    encoder_views = [EncoderView(drawn, view.traces, view.heads, name) for drawn, view, name in triples]
    return [*sections, *encoder_sections(encoder_views)]


def labels_section(
    probabilities: Mapping[str, float], predicted: Collection[str], *, heading: str = "Labels",
    threshold: float | None = None, what: str = "text",
) -> Section:  # fmt: skip
    """Return a section with a bar for each label, the most probable first. Only predicted labels have colors.
    `threshold` is the minimum probability of a predicted label; None if a text has one label.
    """
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])[:MAX_LABELS]
    rows = [(name, probability, choose_color(name) if name in predicted else None) for name, probability in ranked]
    note = note_cut(len(probabilities), len(rows), "labels", "most probable")
    content = {"rows": rows, "threshold": threshold, "note": note, "what": what}
    return Section(heading, "tasks/classification/labels.html", content)


def _contributions_section(
    views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str], label: str
) -> Section:
    effects = [effect for view in views for effect in view.contributions]
    maximum = max((abs(effect.log_odds) for effect in effects), default=0.0)
    weights = (_weigh_contributions(view, label, maximum) for view in views)
    triples = zip(texts, weights, keys, strict=True)
    marked_texts = [weighted_text(text, text_weights, key=key) for text, text_weights, key in triples]
    group_size, rankings = max(len(effect.group) for effect in effects), _rank_words(views, keys, label)
    content = {"label": label, "most": maximum, "texts": marked_texts, "group_size": group_size, "rankings": rankings}
    return Section(f"The effect of each word on “{label}”", "tasks/classification/contributions.html", content)


def _integrated_sections(
    views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str], label: str
) -> list[Section]:
    integrated = [view.integrated for view in views if view.integrated is not None]
    if len(integrated) < len(views):
        return []
    maximum = max((float(np.abs(sums.shares).max(initial=0.0)) for sums in integrated), default=0.0)
    marked_texts = []
    for view, sums, text, key in zip(views, integrated, texts, keys, strict=True):
        pairs = zip(view.words, sums.shares.tolist(), strict=True)
        weights = [_make_weight(share, maximum, f"{clip_word(word)}: {signed(share, 4)}") for word, share in pairs]
        marked_texts.append(weighted_text(text, weights, key=key))
    content = {"label": label, "most": maximum, "sums": integrated, "texts": marked_texts}
    return [Section("Integrated gradients", "tasks/classification/integrated.html", content)]


def _make_weight(strength: float, maximum: float, title: str, *, is_unknown: bool = False) -> Weight:
    kind = "for" if strength > 0 else "against"
    return Weight(abs(strength) / maximum if maximum else 0.0, kind, title, is_unknown)


def _weigh_contributions(view: ClassifierView, label: str, maximum: float) -> list[Weight]:
    weights = []
    for group, probability, log_odds in view.contributions:
        effect = f"without it P({label}) = {probability:.4f}, log-odds {signed(-log_odds, 4)}"
        for word in group:
            is_unknown = not view.is_known[word]
            title = f"{clip_word(view.words[word])}{' (unknown word)' * is_unknown}: {effect}"
            weights.append(_make_weight(log_odds, maximum, title, is_unknown=is_unknown))
    return weights


def _rank_words(views: Sequence[ClassifierView], keys: Sequence[str], label: str) -> list[tuple[str, list[Any]]]:
    """Return titled lists of the words with the largest effects: (anchor on the page, words, effect) for each group."""
    effects = [
        (f"{key}{effect.group[0]}", " ".join(view.words[effect.group.start : effect.group.stop]), effect)
        for view, key in zip(views, keys, strict=True)
        for effect in view.contributions
    ]
    ranked = sorted(effects, key=lambda item: -item[2].log_odds)
    return [
        (f"for “{label}”", [item for item in ranked if item[2].log_odds > 0][:MAX_RANKED_WORDS]),
        (f"against “{label}”", [item for item in reversed(ranked) if item[2].log_odds < 0][:MAX_RANKED_WORDS]),
    ]


def _weigh_pooling(
    views: Sequence[ClassifierView], texts: Sequence[ShownText], keys: Sequence[str],
    values: Sequence[NDArray[np.float64]], name: str,
) -> list[Markup]:  # fmt: skip
    marked_texts = []
    for view, text, key, weights in zip(views, texts, keys, values, strict=True):
        maximum = float(weights.max(initial=0.0)) or 1.0
        marked = [
            Weight(float(weight) / maximum, "weight", f"{clip_word(word)}: {name} {decimal(100 * float(weight))} %")
            for word, weight in zip(view.words, weights, strict=True)
        ]
        marked_texts.append(weighted_text(text, marked, key=key))
    return marked_texts
