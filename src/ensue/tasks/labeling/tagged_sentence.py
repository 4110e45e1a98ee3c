"""The prediction of a tagger: a text with its labeled words and spans, and how probable they are.

Exported programs carry this file: at the top it imports what works without torch.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ensue.inspection.colors import color_of
from ensue.nn.heads.single_chain import Posterior
from ensue.text.label_columns import NestedLabels, TaggerLabels
from ensue.text.labels import Labels
from ensue.text.schemes import DEEPER, overlapping_spans, spans

MOST_PATHS = 100
"""The most paths that are asked for at once."""


class Confidence(NamedTuple):
    """The probabilities of what is said of a sentence: of each label, of each span, and the best paths with theirs."""

    labels: list[Any]
    """For each word that of its label; of several columns those of each by name."""
    spans: list[float]
    paths: list[tuple[list[Any], float]]

    @classmethod
    def of(
        cls, labels: TaggerLabels, said: Sequence[Any], posterior: Posterior, words: Sequence[str] = (),
        n_best: int = 0,
    ) -> Confidence:  # fmt: skip
        """That of the labels of a sentence, with the `n_best` paths."""
        shares = labels.confidence(said, posterior.marginals, words)
        best = posterior.best(n_best) if n_best else []
        paths = [(list(labels.decode(path.tolist(), words)), share) for path, share in best]
        of_spans: list[float] = []
        if isinstance(labels, Labels):
            of_spans = posterior.spans(*labels.span_tags(said)).tolist()
        elif isinstance(labels, NestedLabels):
            of_spans = _nested_spans(labels, said, posterior)
        return cls(shares, of_spans, paths)


def _nested_spans(labels: NestedLabels, said: Sequence[str], posterior: Posterior) -> list[float]:
    """The probability of each span: that one of its class's layers, which are independent, has it."""
    found = labels.spans(said)
    missed = np.ones(len(found))
    for part, own in zip(labels.learned, posterior.parts, strict=True):
        rows = [row for row, span in enumerate(found) if span.label == part.key.rstrip(DEEPER)]
        asked = part.labels.tags_of_spans([found[row]._replace(label=part.key) for row in rows])
        missed[rows] *= 1.0 - own.spans(*asked)
    return (1.0 - missed).tolist()  # type: ignore[no-any-return]


class LabeledWord(NamedTuple):
    """A word with its label; `start` and `end` are its place in the text, in code points."""

    text: str
    label: str
    start: int
    end: int
    confidence: Any = None
    """The probability of the label, or of each column's; None unless `predict` was called with `confidence`."""
    columns: dict[str, str] | None = None
    """The value in each column, of a tagger of several; `label` is that of the first one."""

    def __repr__(self) -> str:
        return "/".join([self.text, *(self.columns or {"": self.label}).values()])

    def with_label(self, label: Any) -> LabeledWord:
        """The word with another label; of several columns, with these values."""
        if self.columns is None:
            return self._replace(label=label)
        return self._replace(label=label[0], columns=dict(zip(self.columns, label, strict=True)))

    def as_json(self) -> dict[str, Any]:
        """The word as JSON values."""
        place = {"start": self.start, "end": self.end}
        if self.columns is None:
            return {"text": self.text, "label": self.label, **place, "confidence": round(self.confidence or 0.0, 6)}
        shares = {name: round(share, 6) for name, share in (self.confidence or {}).items()}
        return {"text": self.text, **self.columns, **place, "confidence": shares}


class LabeledSpan(NamedTuple):
    """A span of words with its class, and its place in the text, in code points."""

    text: str
    label: str
    start: int
    end: int
    probability: float | None = None
    """The probability of this class, start and end; None unless `predict` was called with `confidence`."""

    def __repr__(self) -> str:
        return f"{self.text!r} {self.label}"


@dataclass(frozen=True, repr=False)
class TaggedSentence:
    """A text and its labeled words; a notebook shows it in colors."""

    text: str
    words: tuple[LabeledWord, ...]
    has_spans: bool = False
    span_probabilities: Sequence[float] = ()
    probability: float | None = None
    """The probability of all labels together; None unless this is one of the `paths` of another one."""
    overlap: bool = False
    """Whether the labels write spans that may overlap."""
    paths: Sequence[TaggedSentence] = ()
    """The best paths, if `predict` was called with `n_best`: the text with other labels, the most probable first."""

    def judged(self, confidence: Confidence) -> TaggedSentence:
        """The sentence with its probabilities and paths."""
        shared = zip(self.words, confidence.labels, strict=True)
        paths = []
        for labels, share in confidence.paths:
            named = zip(self.words, labels, strict=True)
            path = tuple(word.with_label(label) for word, label in named)
            paths.append(replace(self, words=path, probability=share))
        words = tuple(word._replace(confidence=share) for word, share in shared)
        return replace(self, words=words, span_probabilities=tuple(confidence.spans), paths=tuple(paths))

    @property
    def labels(self) -> list[str]:
        """The labels of the words, in order."""
        return [word.label for word in self.words]

    @property
    def spans(self) -> list[LabeledSpan]:
        """The spans that the labels write; empty for plain labels. Where they overlap, the outer ones come first."""
        found = (overlapping_spans if self.overlap else spans)(self.labels) if self.has_spans else []
        places = [(span.label, self.words[span.start].start, self.words[span.end - 1].end) for span in found]
        sure: Sequence[float | None] = self.span_probabilities or [None] * len(found)
        return [
            LabeledSpan(self.text[start:end], label, start, end, share)
            for (label, start, end), share in zip(places, sure, strict=True)
        ]

    def as_json(self) -> dict[str, Any]:
        """The sentence as JSON values."""
        words = [word.as_json() for word in self.words]
        paths = {"paths": [path._path_json() for path in self.paths]} if self.paths else {}
        return {"text": self.text, "words": words, **self._spans_json(), **paths}

    def _path_json(self) -> dict[str, Any]:
        labels: dict[str, Any] = {"labels": self.labels}
        if any(word.columns for word in self.words):
            rows = [word.columns or {} for word in self.words]
            labels = {"columns": {name: [row[name] for row in rows] for name in rows[0]}}
        return {"probability": _rounded(self.probability), **labels, **self._spans_json()}

    def _spans_json(self) -> dict[str, Any]:
        if not self.has_spans:
            return {}
        found = [span._asdict() for span in self.spans]
        sure = [{"probability": _rounded(share)} for share in self.span_probabilities] or [{}] * len(found)
        plain = [{name: part for name, part in span.items() if name != "probability"} for span in found]
        return {"spans": [span | share for span, share in zip(plain, sure, strict=True)]}

    def __iter__(self) -> Iterator[LabeledWord]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        if not self.has_spans:
            return " ".join(map(repr, self.words))
        return self._marked(lambda span: "[", lambda span: f" {span.label}]", str)

    def _repr_html_(self) -> str:
        paths = (f"<li>{path.probability:.4f} {path._in_colors()}</li>" for path in self.paths)
        listed = f"<ol>{''.join(paths)}</ol>" if self.paths else ""
        return f'<div style="line-height:2.2">{self._in_colors()}{listed}</div>'

    def _in_colors(self) -> str:
        return self._marked(_colored, _named, html.escape, "</span>")

    def _marked(
        self,
        before: Callable[[Piece], str],
        behind: Callable[[Piece], str],
        escape: Callable[[str], str],
        cut: str = "",
    ) -> str:
        """The text with something before and behind each span, or each word; inner ones end first. With `cut`, a span
        that goes on behind the end of another one, in which it began, is cut there and begins again.
        """
        pieces: Sequence[Piece] = self.spans if self.has_spans else self.words
        marks = [(piece.start, 1, -piece.end, piece) for piece in pieces]
        marks += [(piece.end, 0 if piece.start < piece.end else 2, -piece.start, piece) for piece in reversed(pieces)]
        begun: list[Piece] = []
        parts, place = [], 0
        for at, kind, _, piece in sorted(marks, key=lambda mark: mark[:3]):
            parts.append(escape(self.text[place:at]))
            place = at
            if kind == 1:
                begun.append(piece)
                parts.append(before(piece))
                continue
            inside = begun[begun.index(piece) + 1 :] if cut else []
            begun.remove(piece)
            parts += [*[cut] * len(inside), behind(piece), *map(before, inside)]
        return "".join([*parts, escape(self.text[place:])])


Piece = LabeledSpan | LabeledWord


def _colored(piece: Piece) -> str:
    """The beginning of a colored part, with its probability as a title, if it is known."""
    share = piece.probability if isinstance(piece, LabeledSpan) else piece.confidence
    title = f' title="{share:.4f}"' if isinstance(share, float) else ""
    style = f"background:{color_of(piece.label)};color:#1c1e21;border-radius:5px;padding:.14em .3em"
    return f'<span style="{style}"{title}>'


def _named(piece: Piece) -> str:
    """The label of a colored part, and its end."""
    label = " ".join((getattr(piece, "columns", None) or {"": piece.label}).values())
    return f' <sub style="opacity:.75">{html.escape(label)}</sub></span>'


def _rounded(share: float | None) -> float:
    return round(share or 0.0, 6)


def listed_paths(tagged: TaggedSentence) -> str:
    """The best paths, a line for each (probability, tab, labeled sentence), and an empty line."""
    return "".join(f"{path.probability:.4f}\t{path!r}\n" for path in tagged.paths) + "\n"
