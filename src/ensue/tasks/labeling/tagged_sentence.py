"""The prediction of a tagger: a text with labeled words, spans and probabilities.

Exported programs contain this file, so its imports must not need torch.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from ensue.inspection.colors import choose_color
from ensue.nn.heads.single_chain import Posterior
from ensue.text.label_columns import NestedLabels, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.schemes import LAYER_SIGN, Span, overlapping_spans, spans

MAX_PATHS = 100
"""The maximum number of best paths."""


class Confidence(NamedTuple):
    """The probabilities of the labels, spans and best paths of a sentence."""

    labels: list[Any]
    """For each word, the probability of its label, or of its label in each column by name."""
    spans: list[float]
    paths: list[tuple[list[Any], float]]
    """The labels and the probability of each path, the most probable first."""

    @classmethod
    def of(
        cls, labels: TaggerLabels, sentence: Sequence[Any], posterior: Posterior, words: Sequence[str] = (),
        n_best: int = 0,
    ) -> Confidence:  # fmt: skip
        """Return the probabilities of `sentence`, the labels of its words, and the `n_best` best paths."""
        probabilities = labels.confidence(sentence, posterior.marginals, words)
        best = posterior.best(n_best) if n_best else []
        paths = [(list(labels.decode(path.tolist(), words)), probability) for path, probability in best]
        span_probabilities: list[float] = []
        if isinstance(labels, Labels):
            span_probabilities = posterior.spans(*labels.tags_of_spans(labels.spans(sentence))).tolist()
        elif isinstance(labels, NestedLabels) and sentence:
            # the probability that at least one layer of the span's class has the span
            labeled = labels.spans(sentence)
            absent = np.ones(len(labeled))
            for layer, chain in zip(labels.learned, posterior.parts, strict=True):
                rows = [row for row, span in enumerate(labeled) if span.label == layer.key.rstrip(LAYER_SIGN)]
                tags = layer.labels.tags_of_spans([labeled[row]._replace(label=layer.key) for row in rows])
                absent[rows] *= 1.0 - chain.spans(*tags)
            span_probabilities = (1.0 - absent).tolist()
        return cls(probabilities, span_probabilities, paths)


class LabeledWord(NamedTuple):
    """A word with its label; `start` and `end` are its offsets in the text, in code points."""

    text: str
    label: str
    start: int
    end: int
    confidence: Any = None
    """The probability of the label, or of the label of each column; None unless `predict` computes probabilities."""
    columns: dict[str, str] | None = None
    """The labels by column, for a tagger of several columns; `label` is the label of the first column."""

    def __repr__(self) -> str:
        return "/".join([self.text, *(self.columns or {"": self.label}).values()])

    def with_label(self, label: Any) -> LabeledWord:
        """Return the word with another label, or with a tuple of labels for several columns."""
        if self.columns is None:
            return self._replace(label=label)
        return self._replace(label=label[0], columns=dict(zip(self.columns, label, strict=True)))

    def as_json(self) -> dict[str, Any]:
        """Return the word as JSON values; `confidence` is missing unless `predict` computes probabilities."""
        confidence = {} if self.confidence is None else {"confidence": _round(self.confidence)}
        labels = self.columns or {"label": self.label}
        return {"text": self.text, **labels, "start": self.start, "end": self.end, **confidence}


class LabeledSpan(NamedTuple):
    """A span of words with its class; `start` and `end` are its offsets in the text, in code points."""

    text: str
    label: str
    start: int
    end: int
    probability: float | None = None
    """The joint probability of class, start and end; None unless `predict` computes probabilities."""

    def as_json(self) -> dict[str, Any]:
        """Return the span as JSON values; `probability` is missing unless `predict` computes probabilities."""
        probability = {} if self.probability is None else {"probability": _round(self.probability)}
        return {"text": self.text, "label": self.label, "start": self.start, "end": self.end, **probability}

    def __repr__(self) -> str:
        return f"{self.text!r} {self.label}"


@dataclass(frozen=True, repr=False)
class TaggedSentence:
    """A text with labeled words. A notebook shows the labels in colors."""

    text: str
    words: tuple[LabeledWord, ...]
    has_spans: bool = False
    span_probabilities: Sequence[float] = ()
    probability: float | None = None
    """The joint probability of all labels of a path; None for the prediction itself."""
    overlap: bool = False
    """Whether the labels encode spans that may overlap."""
    labels_of_paths: Sequence[tuple[list[Any], float]] = field(default=(), hash=False)
    """The labels of the words and the probability of each of the `n_best` paths, the most probable first."""

    def with_confidence(self, confidence: Confidence) -> TaggedSentence:
        """Return the sentence with its probabilities and paths."""
        pairs = zip(self.words, confidence.labels, strict=True)
        words = tuple([LabeledWord(*word[:4], probability, word.columns) for word, probability in pairs])
        return replace(self, words=words, span_probabilities=tuple(confidence.spans), labels_of_paths=confidence.paths)

    @property
    def labels(self) -> list[str]:
        """The labels of the words, in order."""
        return [word.label for word in self.words]

    @cached_property
    def paths(self) -> tuple[TaggedSentence, ...]:
        """The `n_best` paths, the most probable first: the same text with other labels."""
        words = [cache(word._replace(confidence=None).with_label) for word in self.words]  # each has few labels
        paths = []
        for labels, probability in self.labels_of_paths:
            path = tuple([word(label) for word, label in zip(words, labels, strict=True)])
            paths.append(TaggedSentence(self.text, path, self.has_spans, (), probability, self.overlap))
        return tuple(paths)

    @property
    def spans(self) -> list[LabeledSpan]:
        """The spans that the labels encode; empty for plain labels. An outer span comes before its inner spans."""
        labeled = self._spans_of(self.labels)
        return list(map(self._make_span, labeled, self.span_probabilities or repeat(None)))

    def _spans_of(self, labels: Sequence[str]) -> list[Span]:
        return (overlapping_spans if self.overlap else spans)(labels) if self.has_spans else []

    def _make_span(self, span: Span, probability: float | None = None) -> LabeledSpan:
        start, end = self.words[span.start].start, self.words[span.end - 1].end
        return LabeledSpan(self.text[start:end], span.label, start, end, probability)

    def as_json(self) -> dict[str, Any]:
        """Return the sentence as JSON values."""
        spans = {"spans": [span.as_json() for span in self.spans]} if self.has_spans else {}
        paths = {"paths": list(self._paths_json())} if self.labels_of_paths else {}
        return {"text": self.text, "words": self.table_rows(), **spans, **paths}

    def table_rows(self) -> list[dict[str, Any]]:
        """Return a row for each word."""
        return [word.as_json() for word in self.words]

    def _paths_json(self) -> Iterator[dict[str, Any]]:
        span_json = cache(lambda span: self._make_span(span).as_json())  # most spans are in several paths
        columns = self.words[0].columns if self.words else None
        for labels, probability in self.labels_of_paths:
            values: dict[str, Any] = {"labels": [*labels]}
            if columns:
                values = {"columns": dict(zip(columns, map(list, zip(*labels, strict=True)), strict=True))}
            spans = {"spans": [{**span_json(span)} for span in self._spans_of(labels)]} if self.has_spans else {}
            yield {"probability": _round(probability), **values, **spans}

    def __iter__(self) -> Iterator[LabeledWord]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        if not self.has_spans:
            return " ".join(map(repr, self.words))
        return self._insert_marks(lambda span: "[", lambda span: f" {span.label}]", str)

    def _repr_html_(self) -> str:
        paths = (f"<li>{path.probability:.4f} {path._color()}</li>" for path in self.paths)
        items = f"<ol>{''.join(paths)}</ol>" if self.paths else ""
        return f'<div style="line-height:2.2">{self._color()}{items}</div>'

    def _color(self) -> str:
        return self._insert_marks(_opening_tag, _closing_tag, html.escape, "</span>")

    def _insert_marks(
        self, opening: Callable[[Item], str], closing: Callable[[Item], str], escape: Callable[[str], str],
        interruption: str = "",
    ) -> str:  # fmt: skip
        """Return the text with marks around words or spans. If an inner span is open at the end of a span, then
        `interruption` closes the inner span, and `opening` opens it again after the end.
        """
        items: Sequence[Item] = self.spans if self.has_spans else self.words
        marks = [(item.start, 1, -item.end, item) for item in items]
        marks += [(item.end, 0 if item.start < item.end else 2, -item.start, item) for item in reversed(items)]
        open_items: list[Item] = []
        pieces, last = [], 0
        for offset, kind, _, item in sorted(marks, key=lambda mark: mark[:3]):
            pieces.append(escape(self.text[last:offset]))
            last = offset
            if kind == 1:
                open_items.append(item)
                pieces.append(opening(item))
                continue
            inner = open_items[open_items.index(item) + 1 :] if interruption else []
            open_items.remove(item)
            pieces += [*[interruption] * len(inner), closing(item), *map(opening, inner)]
        return "".join([*pieces, escape(self.text[last:])])


Item = LabeledSpan | LabeledWord


def _opening_tag(item: Item) -> str:
    probability = item.probability if isinstance(item, LabeledSpan) else item.confidence
    title = f' title="{probability:.4f}"' if isinstance(probability, float) else ""
    style = f"background:{choose_color(item.label)};color:#1c1e21;border-radius:5px;padding:.14em .3em"
    return f'<span style="{style}"{title}>'


def _closing_tag(item: Item) -> str:
    label = " ".join((getattr(item, "columns", None) or {"": item.label}).values())
    return f' <sub style="opacity:.75">{html.escape(label)}</sub></span>'


def _round(number: Any) -> Any:
    return {name: round(value, 6) for name, value in number.items()} if isinstance(number, dict) else round(number, 6)


def format_paths(tagged: TaggedSentence) -> str:
    """Return a line for each of the best paths (probability, tab, labeled sentence), and an empty line."""
    return "".join(f"{path.probability:.4f}\t{path!r}\n" for path in tagged.paths) + "\n"
