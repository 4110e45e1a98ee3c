"""The labels of classifiers, and of taggers: those of the training file, and the tags in which a model learns them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Bounds, Stored
from ensue.text.schemes import (
    OUTSIDE,
    Scheme,
    Span,
    continues,
    convert,
    legal_transitions,
    position,
    spans,
    tag_set,
    written_place,
)
from ensue.text.vocabulary import Vocabulary


def check_names(names: Collection[str]) -> None:
    """Raises ValueError unless there is a name, and they are distinct."""
    if not names or len(set(names)) < len(names):
        raise ValueError("names must be distinct, and there must be one")


PIECE = 1 << 20
"""The labels that are counted at once."""
Names = Annotated[Sequence[str], check_names]
SpanTags = tuple[list[tuple[int, int]], NDArray[np.bool_], NDArray[np.bool_]]


@runtime_checkable
class LabelColumn(Protocol):
    """The labels of many texts in little memory."""

    def has(self, numbers: Mapping[str, int]) -> NDArray[np.bool_]:
        """Which text has which of these labels, (N, K), by their places."""

    def only(self, numbers: Mapping[str, int]) -> NDArray[np.unsignedinteger[Any]] | None:
        """The place of the one label of each text, (N,), 0 for another one; None unless each has one."""


class Classes(Stored):
    """The labels `names` of a classifier, in the order of the model's outputs.

    With `multiple`, a text has all labels whose probability is at least `threshold`; without, the most probable one.
    Logits are divided by `temperature`, which calibrates probabilities (Guo et al. 2017).
    """

    kind = "classes"
    later = frozenset({"temperature"})

    def __init__(
        self,
        names: Names,
        *,
        multiple: bool = False,
        threshold: Annotated[float, Bounds(0, 1)] = 0.5,
        temperature: Annotated[float, Bounds(0.01, 100)] = 1.0,
    ) -> None:
        self.names, self.multiple, self.threshold = tuple(names), multiple, threshold
        self.temperature = temperature
        self.ids = {name: id for id, name in enumerate(self.names)}

    def chosen(self, probabilities: NDArray[np.floating[Any]], *, at_least: float = 0.0) -> tuple[str, ...]:
        """The labels of a text with these probabilities (K,), the most probable first; none below `at_least`."""
        if not self.multiple:
            best = int(probabilities.argmax())
            return (self.names[best],) if probabilities[best] >= at_least else ()
        order = np.argsort(-probabilities, kind="stable")
        return tuple(self.names[id] for id in order if probabilities[id] >= max(self.threshold, at_least))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The outputs of the model by name."""
        return self.names

    def with_those_of(self, other: Classes) -> Classes | None:
        """Both together; None if only one of them has texts with several labels."""
        together = sorted({*self.names, *other.names})
        return Classes(together, multiple=self.multiple) if self.multiple == other.multiple else None

    def matrix(self, labels: Sequence[Collection[str]]) -> NDArray[np.bool_]:
        """Which text has which label, (N, K). Unknown labels are left out. A column of labels says it itself."""
        if isinstance(labels, LabelColumn):
            return labels.has(self.ids)
        matrix = np.zeros((len(labels), len(self.names)), bool)
        for row, names in zip(matrix, labels, strict=True):
            row[[self.ids[name] for name in names if name in self.ids]] = True
        return matrix

    def targets(self, matrix: NDArray[np.bool_]) -> NDArray[Any]:
        """The targets of training for texts with these labels (N, K): ids (N,), or with `multiple` 0 and 1 (N, K)."""
        return matrix.astype(np.float32) if self.multiple else matrix.argmax(1)

    def places(self, labels: Sequence[Collection[str]]) -> NDArray[np.unsignedinteger[Any]]:
        """The ids of the labels of texts that have one each, (N,), in little memory."""
        found = labels.only(self.ids) if isinstance(labels, LabelColumn) else None
        return self.matrix(labels).argmax(1).astype(np.min_scalar_type(len(self))) if found is None else found

    def shares(self, has: NDArray[np.bool_] | NDArray[np.unsignedinteger[Any]]) -> NDArray[np.float64]:
        """The smoothed (+1) share of texts with each label, (K,); `has` is their matrix (N, K), or `places` (N,)."""
        counts = has.sum(0) if has.ndim > 1 else np.zeros(len(self.names), np.int64)
        for part in np.array_split(has, len(has) // PIECE + 1) if has.ndim == 1 else ():
            counts += np.bincount(part, minlength=len(counts))
        shares: NDArray[np.float64] = (counts + 1.0) / (len(has) + (2 if self.multiple else len(self.names)))
        return shares

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Classes({', '.join(self.names)}{', multiple=True' if self.multiple else ''})"


class Labels(Stored):
    """The labels `names` of the training data, and their `scheme` (None: plain labels).

    Spans are learned in `tag_scheme`, with every tag that their classes can have. Plain labels are their own tags.
    Nothing here needs the `words` of a sentence; the labels of several columns do (`LabelColumns`).
    """

    kind = "tags"

    def __init__(self, names: Names, *, scheme: Scheme | None, tag_scheme: Scheme | None) -> None:
        if (scheme is None) != (tag_scheme is None):
            raise ValueError("scheme and tag_scheme must be names, or none of them")
        self.names, self.scheme, self.tag_scheme = tuple(names), scheme, tag_scheme
        if tag_scheme is None:
            self.tags = Vocabulary(names)
        else:
            classes = {label for name in names if (label := position(name).label)}
            self.tags = Vocabulary(tag_set(classes, tag_scheme))
        written = [self._written(tag) for tag in self.tags.symbols]
        self._place_of = {place: number for number, place in enumerate(dict.fromkeys(written))}
        self._places = np.array([self._place_of[place] for place in written])

    @property
    def symbols(self) -> tuple[str, ...]:
        """The tags, as the outputs of the model by name."""
        return self.tags.symbols

    def with_those_of(self, other: Labels) -> Labels | None:
        """Both together; None if they are of different schemes."""
        schemes = {(labels.scheme, labels.tag_scheme) for labels in (self, other)}
        together = sorted({*self.names, *other.names})
        return Labels(together, scheme=self.scheme, tag_scheme=self.tag_scheme) if len(schemes) == 1 else None

    @property
    def has_spans(self) -> bool:
        """Whether the labels write spans."""
        return self.scheme is not None

    def encode(self, labels: Sequence[str], words: Sequence[str] = ()) -> list[int]:
        """The ids of a sentence's tags; -1 for a label that the training data do not have.

        Spans are converted even if both schemes are the same, since labels may break their scheme.
        """
        if self.tag_scheme is not None:
            labels = convert(labels, self.tag_scheme)
        ids = self.tags.ids
        return [ids.get(label, -1) for label in labels]

    def in_scheme(self, labels: Sequence[str]) -> Sequence[str]:
        """The labels of a sentence of another file, in the training file's scheme. Labels outside of spans stay."""
        if self.scheme is None or any(label != OUTSIDE and position(label).kind == OUTSIDE for label in labels):
            return labels
        return convert(labels, self.scheme)

    def decode(self, tags: Sequence[int], words: Sequence[str] = ()) -> list[str]:
        """The labels of a sentence, in the scheme of the training file."""
        symbols = self.tags.symbols
        labels = [symbols[tag] for tag in tags]
        return (
            convert(labels, self.scheme) if self.scheme else labels
        )  # where the schemes are one, a softmax may break it

    def confidence(
        self, labels: Sequence[str], marginals: NDArray[np.floating[Any]], words: Sequence[str] = ()
    ) -> list[float]:
        """The probability of each label of a sentence: the sum over all tags that are written as this label.

        `marginals` (T, K) are the probabilities of the tags.
        """
        place_of = {label: self._place_of.get(self._written(label), -1) for label in set(labels)}
        places = np.array([place_of[label] for label in labels], np.int64)
        shares: list[float] = (marginals * (self._places == places[:, None])).sum(1).tolist()
        return shares

    def shares(self, marginals: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        """The probability (T, N) of each of `names` at each word, by `confidence`."""
        places = np.array(self.places_of(self.names), np.int64)
        shares: NDArray[np.floating[Any]] = marginals @ (self._places[:, None] == places).astype(marginals.dtype)
        return shares

    def places_of(self, labels: Iterable[str]) -> list[int]:
        """Numbers of tags or labels, the same for those that are written as one; -1 for what no tag is written as."""
        return [self._place_of.get(self._written(label), -1) for label in labels]

    def spans(self, labels: Sequence[str]) -> list[Span]:
        """The spans that the labels of a sentence write; none for plain labels."""
        return spans(labels) if self.has_spans else []

    def span_tags(self, labels: Sequence[str]) -> SpanTags:
        """The spans that the labels of a sentence write, in terms of tags: for each its start and end, and which tags
        (N, K) have its class; and after which tag (row) which other one (column) continues a span (K, K).
        """
        return self.tags_of_spans(self.spans(labels))

    def tags_of_spans(self, found: Sequence[Span]) -> SpanTags:
        """These spans in terms of tags."""
        classes, goes_on = self._span_tags
        within = np.array([classes == span.label for span in found], bool).reshape(-1, len(classes))
        return [(span.start, span.end) for span in found], within, goes_on

    @cached_property
    def _span_tags(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The class of each tag (K,), None outside, and after which tag which other one continues a span."""
        kinds = [position(tag) for tag in self.tags.symbols]
        classes = np.array([None if kind == OUTSIDE else name for kind, name in kinds], object)
        goes_on = np.array([[continues(before, after) for after in kinds] for before in kinds], bool)
        return classes, goes_on

    def _written(self, label: str) -> tuple[str, str]:
        """The class of a tag or label, and its position in a span as far as both schemes write it."""
        if self.scheme is None:
            return "", label
        kind, name = position(label)
        for scheme in (self.scheme, self.tag_scheme):
            kind = kind if scheme is None else written_place(scheme, kind)
        return kind, name

    def legal(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Which tags may begin, follow each other and end (`schemes.legal_transitions`); None if all may."""
        return None if self.tag_scheme is None else legal_transitions(self.tags.symbols, self.tag_scheme)

    def __len__(self) -> int:
        return len(self.tags)

    def __repr__(self) -> str:
        return f"Labels({len(self.names)} labels, scheme={self.scheme!r}, {len(self.tags)} tags)"
