"""Labels of classifiers and taggers: labels as in the training file, and the tags that a model predicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Bounds, Stored
from ensue.text import schemes
from ensue.text.vocabulary import Vocabulary


def check_names(names: Collection[str]) -> None:
    """Raise ValueError if there are no names, or if two names are equal."""
    if not names or len(set(names)) < len(names):
        raise ValueError("expected one or more distinct names")


_MAX_COUNTED_AT_ONCE = 1 << 20  # bounds the temporary memory of `np.bincount`
Names = Annotated[Sequence[str], check_names]
Floats = NDArray[np.floating[Any]]
SpanTags = tuple[list[tuple[int, int]], NDArray[np.bool_], NDArray[np.bool_]]
"""The result of `Labels.tags_of_spans`."""


@runtime_checkable
class CompactLabels(Protocol):
    """The labels of many texts, in compact storage."""

    def indicators(self, ids: Mapping[str, int]) -> NDArray[np.bool_]:
        """Return whether each text has each label, (N, K). `ids` has the id of each label."""

    def single_labels(self, ids: Mapping[str, int]) -> NDArray[np.unsignedinteger[Any]] | None:
        """Return the id of the label of each text, (N,); 0 for unknown labels. None unless each text has one label."""


class Classes(Stored):
    """The labels `names` of a classifier, in the order of the model's outputs.

    With `multiple`, the prediction is all labels with a probability of at least `threshold`; otherwise, the most
    probable label. Logits are divided by `temperature`, which calibrates the probabilities (Guo et al. 2017).
    """

    kind = "classes"
    optional_keys = frozenset({"temperature"})

    def __init__(
        self, names: Names, *, multiple: bool = False, threshold: Annotated[float, Bounds(0, 1)] = 0.5,
        temperature: Annotated[float, Bounds(0.01, 100)] = 1.0,
    ) -> None:  # fmt: skip
        self.names, self.multiple, self.threshold, self.temperature = tuple(names), multiple, threshold, temperature
        self.ids = {name: id for id, name in enumerate(self.names)}

    def choose(self, probabilities: Floats, *, at_least: float = 0.0) -> tuple[str, ...]:
        """Return the predicted labels with a probability of at least `at_least`, the most probable first.

        `probabilities` (K,) has the probability of each label.
        """
        if not self.multiple:
            best = int(probabilities.argmax())
            return (self.names[best],) if probabilities[best] >= at_least else ()
        order = np.argsort(-probabilities, kind="stable")
        return tuple(self.names[id] for id in order if probabilities[id] >= max(self.threshold, at_least))

    def by_name(self, probabilities: Floats) -> dict[str, float]:
        """Return the probabilities (K,) of labels by their names."""
        return dict(zip(self.names, probabilities.tolist(), strict=True))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the model's outputs."""
        return self.names

    def union(self, other: "Classes") -> "Classes | None":
        """Return the union of the labels of two classifiers; None if only one classifier is `multiple`."""
        names = sorted({*self.names, *other.names})
        return Classes(names, multiple=self.multiple) if self.multiple == other.multiple else None

    def matrix(self, labels: Sequence[Collection[str]]) -> NDArray[np.bool_]:
        """Return whether each text has each label, (N, K). Unknown labels are ignored."""
        if isinstance(labels, CompactLabels):
            return labels.indicators(self.ids)
        matrix = np.zeros((len(labels), len(self.names)), bool)
        for row, names in zip(matrix, labels, strict=True):
            row[[self.ids[name] for name in names if name in self.ids]] = True
        return matrix

    def targets(self, matrix: NDArray[np.bool_]) -> NDArray[Any]:
        """Return the training targets of a `matrix` (N, K): the ids (N,), or with `multiple` zeros and ones (N, K)."""
        return matrix.astype(np.float32) if self.multiple else matrix.argmax(1)

    def label_ids(self, labels: Sequence[Collection[str]]) -> NDArray[np.unsignedinteger[Any]]:
        """Return the label id of each text, (N,), in the smallest integer type. Each text must have one label."""
        ids = labels.single_labels(self.ids) if isinstance(labels, CompactLabels) else None
        return self.matrix(labels).argmax(1).astype(np.min_scalar_type(len(self))) if ids is None else ids

    def frequencies(self, targets: NDArray[np.bool_] | NDArray[np.unsignedinteger[Any]]) -> NDArray[np.float64]:
        """Return the relative frequency of each label, (K,), from a `matrix` (N, K) or `label_ids` (N,).

        Frequencies are smoothed by adding 1 to each count.
        """
        counts = targets.sum(0) if targets.ndim > 1 else np.zeros(len(self.names), np.int64)
        for chunk in np.array_split(targets, len(targets) // _MAX_COUNTED_AT_ONCE + 1) if targets.ndim == 1 else ():
            counts += np.bincount(chunk, minlength=len(counts))
        return (counts + 1.0) / (len(targets) + (2 if self.multiple else len(self.names)))

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Classes({', '.join(self.names)}{', multiple=True' if self.multiple else ''})"


class Labels(Stored):
    """The labels `names` of the training data in their label `scheme` (None: labels without spans).

    The model predicts tags. Without spans, the tags are the labels; with spans, they are all tags of the span classes
    in `tag_scheme`. The parameter `words` is ignored here; `LabelColumns`, which has the same methods, uses it.
    """

    kind = "tags"

    def __init__(self, names: Names, *, scheme: schemes.Scheme | None, tag_scheme: schemes.Scheme | None) -> None:
        if (scheme is None) != (tag_scheme is None):
            raise ValueError("scheme and tag_scheme must both be names, or both be null")
        self.names, self.scheme, self.tag_scheme = tuple(names), scheme, tag_scheme
        self.has_spans = scheme is not None
        if tag_scheme is None:
            self.tags = Vocabulary(names)
        else:
            classes = {label for name in names if (label := schemes.position(name).label)}
            self.tags = Vocabulary(schemes.tag_set(classes, tag_scheme))
        keys = [self._group_key(tag) for tag in self.tags.symbols]
        self._groups = {key: group for group, key in enumerate(dict.fromkeys(keys))}
        self._group_of_tag = np.array([self._groups[key] for key in keys])

    @property
    def symbols(self) -> tuple[str, ...]:
        """The tags: the names of the model's outputs."""
        return self.tags.symbols

    def union(self, other: "Labels") -> "Labels | None":
        """Return the union of the labels of two taggers; None if their schemes differ."""
        pairs = {(labels.scheme, labels.tag_scheme) for labels in (self, other)}
        names = sorted({*self.names, *other.names})
        return Labels(names, scheme=self.scheme, tag_scheme=self.tag_scheme) if len(pairs) == 1 else None

    def encode(self, labels: Sequence[str], words: Sequence[str] = ()) -> list[int]:
        """Return the tag ids of a sentence; -1 for labels that are not in the training data."""
        if self.tag_scheme is not None:  # even if both schemes are equal, since labels may violate their scheme
            labels = schemes.convert(labels, self.tag_scheme)
        return [self.tags.ids.get(label, -1) for label in labels]

    def convert_scheme(self, labels: Sequence[str]) -> Sequence[str]:
        """Convert the labels of another file's sentence to the scheme of the training file, unless they are plain."""
        if self.scheme is None:
            return labels
        are_plain = any(name != schemes.OUTSIDE and schemes.position(name).kind == schemes.OUTSIDE for name in labels)
        return labels if are_plain else schemes.convert(labels, self.scheme)

    def decode(self, tags: Sequence[int], words: Sequence[str] = ()) -> list[str]:
        """Return the labels of a sentence from its tag ids, in the label scheme of the training file."""
        labels = list(map(self.tags.symbols.__getitem__, tags))
        # even if both schemes are equal, since the tags of a softmax head may violate the scheme
        return schemes.convert(labels, self.scheme) if self.scheme else labels

    def confidence(self, labels: Sequence[str], marginals: Floats, words: Sequence[str] = ()) -> list[float]:
        """Return the probability of each label of a sentence: the sum over its tags of the `marginals` (T, K)."""
        group_of = {label: self._groups.get(self._group_key(label), -1) for label in set(labels)}
        groups = np.array([group_of[label] for label in labels], np.int64)
        return (marginals * (self._group_of_tag == groups[:, None])).sum(1).tolist()

    def label_probabilities(self, marginals: Floats) -> Floats:
        """Return the probability of each label in `names` at each word, (T, N), from the `marginals` (T, K)."""
        groups = np.array(self.label_groups(self.names), np.int64)
        return marginals @ (self._group_of_tag[:, None] == groups).astype(marginals.dtype)

    def label_groups(self, labels: Iterable[str]) -> list[int]:
        """Return the group of each tag or label, -1 if unknown. The tags of one label are a group."""
        return [self._groups.get(self._group_key(label), -1) for label in labels]

    def spans(self, labels: Sequence[str]) -> list[schemes.Span]:
        """Return the spans of a sentence; an empty list for plain labels."""
        return schemes.spans(labels) if self.has_spans else []

    def tags_of_spans(self, spans: Sequence[schemes.Span]) -> SpanTags:
        """Return the borders of N spans, whether each tag has the class of each span (N, K), and continuations (K, K).

        Entry (i, j) of the continuations is whether tag j can continue a span after tag i.
        """
        classes, can_continue = self._span_tags
        has_class = np.array([classes == span.label for span in spans], bool).reshape(-1, len(classes))
        return [(span.start, span.end) for span in spans], has_class, can_continue

    @cached_property
    def _span_tags(self) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """The class of each tag (K,), None for `O`, and the last result of `tags_of_spans` (K, K)."""
        positions = [schemes.position(tag) for tag in self.tags.symbols]
        classes = np.array([None if kind == schemes.OUTSIDE else name for kind, name in positions], object)
        can_continue = [[schemes.continues(before, after) for after in positions] for before in positions]
        return classes, np.array(can_continue, bool)

    def _group_key(self, label: str) -> tuple[str, str]:
        """Return the position of a tag or label in a span, as far as both schemes distinguish it, and its class."""
        if self.scheme is None:
            return "", label
        kind, name = schemes.position(label)
        for scheme in (self.scheme, self.tag_scheme):
            kind = kind if scheme is None else schemes.distinguished_place(scheme, kind)
        return kind, name

    def legal_transitions(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]] | None:
        """Return the `legal_transitions` between tags; None for plain labels, whose transitions are all legal."""
        return None if self.tag_scheme is None else schemes.legal_transitions(self.tags.symbols, self.tag_scheme)

    def __len__(self) -> int:
        return len(self.tags)

    def __repr__(self) -> str:
        return f"Labels({len(self.names)} labels, scheme={self.scheme!r}, {len(self.tags)} tags)"
