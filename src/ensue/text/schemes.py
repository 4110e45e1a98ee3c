"""Label schemes: conversion between spans and a label for each token.

A label is `O` (outside) or a prefix, a dash and the span's class: `B-PER`. There are eight schemes:

- `iob1` (Ramshaw & Marcus 1995): `I` on all tokens of a span, except that `B` begins a span that directly follows
  another span of its class.
- `bio` (IOB2): `B` on the first token of every span, `I` on its other tokens.
- `ioe1` (Tjong Kim Sang & Veenstra 1999): `I` on all tokens of a span, except that `E` ends a span that directly
  precedes another span of its class.
- `ioe2`: `E` on the last token of every span, `I` on its other tokens.
- `iobes`: `B I ... I E`, and `S` for a span of one token. `bilou`, `bmes` and `bmewo` are `iobes` in other letters.

If spans overlap, the label of a token has the tags of all its spans, such as `I-ORG|B-LOC`. If two spans of one class
overlap, the class of the second span gets a plus (`B-NP|B-NP+`); the class of a third span gets two.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Scheme = Literal["bio", "iob1", "ioe2", "ioe1", "iobes", "bilou", "bmes", "bmewo"]
OUTSIDE = "O"
TAG_SEPARATOR, LAYER_SIGN = "|", "+"
"""The separator of the tags in a label, and the suffix of a class for each further overlapping span of that class."""
MAX_SPANS_OF_WORD = 256
"""Bounds the time to encode a word, which is quadratic in its number of spans."""
PLACES = "BIES"
"""The possible places of a token in a span: first (B), inside (I), last (E), or the only token (S)."""


class Letters(NamedTuple):
    """The letters of a scheme for the four `PLACES`, and the special letters between adjacent spans of one class."""

    places: str
    after_touching: str = ""
    """The letter of the first token of a span that directly follows a span of its class, if it is special."""
    before_touching: str = ""
    """The letter of the last token of a span that directly precedes a span of its class, if it is special."""

    @property
    def distinct(self) -> tuple[str, ...]:
        """All distinct letters of the scheme."""
        return tuple(dict.fromkeys(self.after_touching + self.places + self.before_touching))


SCHEMES: dict[Scheme, Letters] = {
    "bio": Letters("BIIB"), "iob1": Letters("IIII", after_touching="B"), "ioe2": Letters("IIEE"),
    "ioe1": Letters("IIII", before_touching="E"), "iobes": Letters("BIES"), "bilou": Letters("BILU"),
    "bmes": Letters("BMES"), "bmewo": Letters("BMEW"),
}  # fmt: skip
"""If several schemes fit a file, the first one in this table is detected."""
_PLACE_OF_LETTER = {letter: place for letters in SCHEMES.values() if len(letters.distinct) == len(PLACES)
             for place, letter in zip(PLACES, letters.places, strict=True)}  # fmt: skip


class Span(NamedTuple):
    """A span of the class `label`: the tokens from `start` to `end` (exclusive)."""

    label: str
    start: int
    end: int


class Position(NamedTuple):
    """The place of a token in a span (`kind`: B, I, E, S; O: outside), and the class of the span (`label`)."""

    kind: str
    label: str


_END = Position(OUTSIDE, "")
"""The position before the first and after the last token of a sentence."""


@lru_cache(maxsize=1 << 14)
def position(label: str) -> Position:
    """Split a label at its first dash. The position is `O` unless the prefix is one of B I M E L S U W."""
    prefix, _, name = label.partition("-")
    kind = _PLACE_OF_LETTER.get(prefix, OUTSIDE)
    return Position(kind, "" if kind == OUTSIDE else name)


def spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence in order. The labels may have any scheme, and may violate it.

    `B` and `I` are read like conlleval, the scorer of CoNLL-2000 and 2003 (version 2004-01-26). A span begins at `B`,
    or at an `I` after `O`, after another class, or at the start of the sentence. A span ends before `O`, `B` or another
    class. `E` and `S`, which conlleval supports only partly, are read like seqeval: both end a span, `S` always begins
    a span, and `E` begins a span if no span is open. As in seqeval, a prefix without a class (`B`) has the empty class.
    """
    result: list[Span] = []
    start, before = 0, _END
    for place, current in enumerate([*map(position, labels), _END]):
        if not continues(before, current):
            if before.kind != OUTSIDE:
                result.append(Span(before.label, start, place))
            start = place
        before = current
    return result


def continues(before: Position, current: Position) -> bool:
    """Return whether a token belongs to the same span as the previous token, according to the rules of `spans`."""
    return before.kind in "BI" and current.kind in "IE" and before.label == current.label


def encode(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the labels of a sentence of `length` tokens with these `spans`, which must not overlap."""
    labels = [OUTSIDE] * length
    for span, tags in _encode(spans, length, scheme):
        labels[span.start : span.end] = tags
    return labels


def _encode(spans: Iterable[Span], length: int, scheme: Scheme) -> Iterator[tuple[Span, list[str]]]:
    ordered = sorted(spans, key=lambda span: span.start)
    for before, span, after in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
        previous_end = before.end if before else 0
        assert previous_end <= span.start < span.end <= length, f"{span} in {length} tokens after {before}"
        prefixes = _prefixes(scheme, span.end - span.start, follows=_touch(before, span), precedes=_touch(span, after))
        yield span, [_label(prefix, span.label) for prefix in prefixes]


def _touch(left: Span | None, right: Span | None) -> bool:
    return left is not None and right is not None and left.end == right.start and left.label == right.label


def _prefixes(scheme: Scheme, length: int, *, follows: bool, precedes: bool) -> str:
    """Return the prefixes of the tokens of a span, which may directly follow or precede a span of its class."""
    places, after_touching, before_touching = SCHEMES[scheme]
    first, inside, last, single = tuple(places)
    prefixes = single if length == 1 else first + inside * (length - 2) + last
    if follows and after_touching:
        prefixes = after_touching + prefixes[1:]
    return prefixes[:-1] + before_touching if precedes and before_touching else prefixes


def _label(prefix: str, name: str) -> str:
    return f"{prefix}-{name}" if name else prefix


def overlapping(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the labels of a sentence of `length` tokens with these `spans`, which may overlap.

    Raises ValueError for a class that contains "|" or ends with "+", and for a word with more than `MAX_SPANS_OF_WORD`
    spans.
    """
    layers: dict[str, list[Span]] = {}
    ends: list[int] = []
    for span in sorted({*spans}, key=_order_outer_first):
        while ends and ends[0] <= span.start:
            heappop(ends)
        heappush(ends, span.end)
        if len(ends) > MAX_SPANS_OF_WORD:
            raise ValueError(f"a word has more than {MAX_SPANS_OF_WORD} spans")
        name = span.label
        if TAG_SEPARATOR in name or name.endswith(LAYER_SIGN):
            raise ValueError(f'the class "{name}" cannot be written where spans overlap: it has "|", or "+" at its end')
        while name in layers and layers[name][-1].end > span.start:
            name += LAYER_SIGN
        layers.setdefault(name, []).append(span._replace(label=name))
    tags_of_words: list[list[str]] = [[] for _ in range(length)]
    for name in sorted(layers):
        for span, tags in _encode(layers[name], length, scheme):
            for word, tag in zip(tags_of_words[span.start : span.end], tags, strict=True):
                word.append(tag)
    return list(map(join_tags, tags_of_words))


def join_tags(tags: Sequence[str]) -> str:
    """Return the label of a word that has these tags."""
    return TAG_SEPARATOR.join(tags) or OUTSIDE


def tags_of(label: str) -> dict[str, str]:
    """Return the tags of a label by their class, including layer signs."""
    kinds = ((position(tag), tag) for tag in label.split(TAG_SEPARATOR))
    return {name: tag for (kind, name), tag in kinds if kind != OUTSIDE}


class Layer(NamedTuple):
    """The tags of one layer of a class in a sentence, and the indices of their words.

    A gap between tags is stored as one `O` at its first word, since a sentence may have many layers with few tags.
    """

    places: list[int]
    tags: list[str]

    def spans(self) -> list[Span]:
        """Return the spans of the layer, with indices of words in the sentence."""
        return [Span(name, self.places[start], self.places[end - 1] + 1) for name, start, end in spans(self.tags)]

    def close_gap(self, place: int) -> None:
        """Append an `O` if there is a gap before `place`."""
        begin = self.places[-1] + 1 if self.places else 0
        if begin < place:
            self.places.append(begin)
            self.tags.append(OUTSIDE)


def layers(labels: Sequence[str]) -> dict[str, Layer]:
    """Return the layers of a sentence, by their class including layer signs."""
    result: dict[str, Layer] = {}
    for place, label in enumerate(labels):
        for name, tag in tags_of(label).items():
            layer = result.setdefault(name, Layer([], []))
            layer.close_gap(place)
            layer.places.append(place)
            layer.tags.append(tag)
    for layer in result.values():
        layer.close_gap(len(labels))
    return result


def overlapping_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of labels that may have several tags. Outer spans precede inner ones."""
    all_spans = (span for layer in layers(labels).values() for span in layer.spans())
    return sorted({span._replace(label=span.label.rstrip(LAYER_SIGN)) for span in all_spans}, key=_order_outer_first)


def _order_outer_first(span: Span) -> tuple[int, int, str]:
    return span.start, -span.end, span.label


def convert(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """Convert labels to `scheme`. The labels may violate their own scheme; `spans` defines how they are read."""
    return encode(spans(labels), len(labels), scheme)


def tag_set(classes: Iterable[str], scheme: Scheme) -> list[str]:
    """Return `O` and the sorted labels of these classes, such as 2n + 1 labels of n classes in the scheme bio."""
    return [OUTSIDE, *sorted({_label(prefix, name) for name in classes for prefix in SCHEMES[scheme].distinct})]


def distinguished_place(scheme: Scheme, place: str) -> str:
    """Return the place that `scheme` writes in the same way as `place`. For example, bio returns I for E."""
    return place if place == OUTSIDE else _PLACE_OF_LETTER[SCHEMES[scheme].places[PLACES.index(place)]]


def legal_transitions(
    tags: Sequence[str], scheme: Scheme
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of K tags may begin a sentence (K,), follow each other (K, K; row before column), and end it (K,).

    Legal sequences are exactly those that `convert` does not change. If `tags` lacks some tags of `tag_set`, such as
    `E-X`, another tag, such as `B-X`, may have no legal successor.
    """
    invalid = [tag for tag in tags if tag != OUTSIDE and tag.partition("-")[0] not in SCHEMES[scheme].distinct]
    assert not invalid, f"{invalid[0]} is not a tag of {scheme}"
    start = np.array([is_legal(scheme, OUTSIDE, tag) for tag in tags], np.bool_)
    pairs = np.array([[is_legal(scheme, before, tag) for tag in tags] for before in tags], np.bool_)
    end = np.array([is_legal(scheme, tag, OUTSIDE) for tag in tags], np.bool_)
    return start, pairs.reshape(len(tags), len(tags)), end


def is_legal(scheme: Scheme, before: str, label: str) -> bool:
    """Return whether `label` may follow `before` in `scheme`. Pass `O` for the start and the end of a sentence."""
    left, right = position(before), position(label)
    is_same = left.label == right.label
    continues_span = left.kind in "BI" and is_same
    match scheme:
        case "bio":
            return right.kind in "OB" or (right.kind == "I" and continues_span)
        case "iob1":
            return right.kind in "OI" or (right.kind == "B" and continues_span)
        case "ioe2":
            return right.kind in "IE" and is_same if left.kind == "I" else right.kind in "OIE"
        case "ioe1":
            return right.kind in "IE" and is_same if left.kind == "E" else right.kind in "OIE"
    return continues_span if right.kind in "IE" else left.kind not in "BI"
