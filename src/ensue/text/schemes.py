"""Label schemes: how spans are written as a label for each token, and read back.

A label is `O` (outside) or a prefix, a dash and the span's class: `B-PER`. There are eight schemes:

- `iob1` (Ramshaw & Marcus 1995): `I` inside; `B` only where a span follows another of its class without a gap.
- `bio` (IOB2): `B` on the first token of every span, `I` on the others.
- `ioe1` (Tjong Kim Sang & Veenstra 1999): `I` inside; `E` only on the last token of a span that another of its class
  follows without a gap.
- `ioe2`: `E` on the last token of every span, `I` on the others.
- `iobes`: `B I ... I E`, and `S` for a span of one token. `bilou`, `bmes` and `bmewo` write it with other letters.

Where spans overlap, a label has the tags of all of them, such as `I-ORG|B-LOC`. Of spans of one class that overlap, the
second one has the class with a plus (`B-NP|B-NP+`), a third one two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Scheme = Literal["bio", "iob1", "ioe2", "ioe1", "iobes", "bilou", "bmes", "bmewo"]
OUTSIDE = "O"
BESIDE, DEEPER = "|", "+"
"""The sign between tags of several spans, and the sign of a further span of the same class."""
MOST_BESIDE = 256
"""The most spans of one word; as many tags are written for it, and a further layer is looked for among as many."""
PLACES = "BIES"
"""The places of a token in a span: first, inside, last, and single."""


class Letters(NamedTuple):
    """The letters of a scheme: those of the four places, and others where a span touches another of its class."""

    places: str
    after_touching: str = ""
    before_touching: str = ""

    @property
    def different(self) -> tuple[str, ...]:
        """Every letter once, those of earlier places first."""
        return tuple(dict.fromkeys(self.after_touching + self.places + self.before_touching))


SCHEMES: dict[Scheme, Letters] = {
    "bio": Letters("BIIB"),
    "iob1": Letters("IIII", after_touching="B"),
    "ioe2": Letters("IIEE"),
    "ioe1": Letters("IIII", before_touching="E"),
    "iobes": Letters("BIES"),
    "bilou": Letters("BILU"),
    "bmes": Letters("BMES"),
    "bmewo": Letters("BMEW"),
}
"""Where a file fits several schemes, it is in the first of them."""
_PLACE_OF = {
    letter: place
    for letters in SCHEMES.values()
    if len(letters.different) == len(PLACES)
    for place, letter in zip(PLACES, letters.places, strict=True)
}


class Span(NamedTuple):
    """A span of the class `label`: the tokens from `start` up to `end`, which is not included."""

    label: str
    start: int
    end: int


class Position(NamedTuple):
    """The parts of a label: the token's place in a span (B, I, E, S, or O for outside) and the span's class."""

    kind: str
    label: str


_END = Position(OUTSIDE, "")
"""The position before and behind a sentence."""


@lru_cache(maxsize=1 << 14)
def position(label: str) -> Position:
    """The parts of a label, split at its first dash. A label without one of the prefixes B I M E L S U W is outside."""
    prefix, _, name = label.partition("-")
    kind = _PLACE_OF.get(prefix, OUTSIDE)
    return Position(kind, "" if kind == OUTSIDE else name)


def spans(labels: Sequence[str]) -> list[Span]:
    """The spans of one sentence in order, in any scheme, even if the labels break it.

    Labels are read as by conlleval, the scorer of CoNLL-2000 and 2003 (version 2004-01-26). A span begins at `B`, and
    at an `I` that does not continue a span of its class (after `O`, after another class, at the start of the sentence).
    It ends before `O`, `B` and another class. conlleval knows `E` and `S` only in part, so these are read as by
    seqeval: both end their span, `S` always begins one, and `E` begins one if there is none to end. As in seqeval, a
    label that is a prefix alone (`B`) has the empty class.
    """
    found: list[Span] = []
    start, before = 0, _END
    for place, here in enumerate([*map(position, labels), _END]):
        if not continues(before, here):
            if before.kind != OUTSIDE:
                found.append(Span(before.label, start, place))
            start = place
        before = here
    return found


def continues(before: Position, here: Position) -> bool:
    """Whether a token continues the span of the token before it, as `spans` reads them; else a new one begins."""
    return before.kind in "BI" and here.kind in "IE" and before.label == here.label


def encode(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence of `length` tokens with these `spans`, which must not overlap."""
    labels = [OUTSIDE] * length
    for span, tags in _encoded(spans, length, scheme):
        labels[span.start : span.end] = tags
    return labels


def _encoded(spans: Iterable[Span], length: int, scheme: Scheme) -> Iterator[tuple[Span, list[str]]]:
    """The spans in their order, each with the labels of its words."""
    ordered = sorted(spans, key=lambda span: span.start)
    for before, span, after in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
        first = before.end if before else 0
        assert first <= span.start < span.end <= length, f"{span} in {length} tokens after {before}"
        prefixes = _prefixes(
            scheme, span.end - span.start, follows=_touch(before, span), is_followed=_touch(span, after)
        )
        yield span, [_label(prefix, span.label) for prefix in prefixes]


def _touch(left: Span | None, right: Span | None) -> bool:
    """Whether two spans are of one class and have no gap between them."""
    return left is not None and right is not None and left.end == right.start and left.label == right.label


def _prefixes(scheme: Scheme, length: int, *, follows: bool, is_followed: bool) -> str:
    """The prefixes of a span; whether it follows another of its class without a gap, and is followed by one."""
    places, after_touching, before_touching = SCHEMES[scheme]
    first, inside, last, single = tuple(places)
    prefixes = single if length == 1 else first + inside * (length - 2) + last
    if follows and after_touching:
        prefixes = after_touching + prefixes[1:]
    return prefixes[:-1] + before_touching if is_followed and before_touching else prefixes


def _label(prefix: str, name: str) -> str:
    return f"{prefix}-{name}" if name else prefix


def overlapping(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence with these spans, which may overlap. Raises ValueError for a class whose name has a sign
    of such labels, and for a word with more than `MOST_BESIDE` spans.
    """
    layers: dict[str, list[Span]] = {}
    ends: list[int] = []
    for span in sorted({*spans}, key=_outer_first):
        while ends and ends[0] <= span.start:
            heappop(ends)
        heappush(ends, span.end)
        if len(ends) > MOST_BESIDE:
            raise ValueError(f"a word has more than {MOST_BESIDE} spans")
        name = span.label
        if BESIDE in name or name.endswith(DEEPER):
            raise ValueError(f'the class "{name}" cannot be written where spans overlap: it has "|", or "+" at its end')
        while name in layers and layers[name][-1].end > span.start:
            name += DEEPER
        layers.setdefault(name, []).append(span._replace(label=name))
    of_words: list[list[str]] = [[] for _ in range(length)]
    for name in sorted(layers):
        for span, tags in _encoded(layers[name], length, scheme):
            for word, tag in zip(of_words[span.start : span.end], tags, strict=True):
                word.append(tag)
    return list(map(joined_tags, of_words))


def joined_tags(tags: Sequence[str]) -> str:
    """The label of a word with these tags."""
    return BESIDE.join(tags) or OUTSIDE


def tags_of(label: str) -> dict[str, str]:
    """The tags of a label by class, those of further spans of a class by the class with its signs."""
    kinds = ((position(tag), tag) for tag in label.split(BESIDE))
    return {name: tag for (kind, name), tag in kinds if kind != OUTSIDE}


class Layer(NamedTuple):
    """The tags of a class in a sentence, or of a further layer of it, and their places. A gap between tags, before or
    behind them has one `O`, at its first place: a sentence may have many layers with few tags.
    """

    places: list[int]
    tags: list[str]

    def spans(self) -> list[Span]:
        """The spans of the tags, in the places of the sentence."""
        return [Span(name, self.places[start], self.places[end - 1] + 1) for name, start, end in spans(self.tags)]

    def close_gap(self, place: int) -> None:
        """Notes a gap that ends at a place, if there is one."""
        begin = self.places[-1] + 1 if self.places else 0
        if begin < place:
            self.places.append(begin)
            self.tags.append(OUTSIDE)


def layers(labels: Sequence[str]) -> dict[str, Layer]:
    """The layers of a sentence, by the class with its signs."""
    found: dict[str, Layer] = {}
    for place, label in enumerate(labels):
        for name, tag in tags_of(label).items():
            layer = found.setdefault(name, Layer([], []))
            layer.close_gap(place)
            layer.places.append(place)
            layer.tags.append(tag)
    for layer in found.values():
        layer.close_gap(len(labels))
    return found


def overlapping_spans(labels: Sequence[str]) -> list[Span]:
    """The spans of labels with several tags each, the outer ones first."""
    found = (span for layer in layers(labels).values() for span in layer.spans())
    return sorted({span._replace(label=span.label.rstrip(DEEPER)) for span in found}, key=_outer_first)


def _outer_first(span: Span) -> tuple[int, int, str]:
    return span.start, -span.end, span.label


def convert(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """The labels of these spans in `scheme`. Labels that break their scheme are read as by `spans`."""
    return encode(spans(labels), len(labels), scheme)


def tag_set(classes: Iterable[str], scheme: Scheme) -> list[str]:
    """Every label that spans of these classes need: `O`, then the others sorted; 2n + 1 for n classes in bio."""
    return [OUTSIDE, *sorted({_label(prefix, name) for name in classes for prefix in SCHEMES[scheme].different})]


def written_place(scheme: Scheme, place: str) -> str:
    """The place in a span as far as `scheme` tells it from others."""
    return place if place == OUTSIDE else _PLACE_OF[SCHEMES[scheme].places[PLACES.index(place)]]


def legal_transitions(
    tags: Sequence[str], scheme: Scheme
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of K tags may begin a sentence (K,), which may follow which (K, K; row before column), which may end (K,).

    Legal paths are exactly the label sequences that `convert` does not change. With the whole `tag_set`, every tag has
    a legal predecessor and successor. With a part of it (`B-X` without `E-X`), a tag may have none.
    """
    foreign = [tag for tag in tags if tag != OUTSIDE and tag.partition("-")[0] not in SCHEMES[scheme].different]
    assert not foreign, f"{foreign[0]} is no tag of {scheme}"
    start = np.array([is_legal(scheme, OUTSIDE, tag) for tag in tags], np.bool_)
    pairs = np.array([[is_legal(scheme, before, tag) for tag in tags] for before in tags], np.bool_)
    end = np.array([is_legal(scheme, tag, OUTSIDE) for tag in tags], np.bool_)
    return start, pairs.reshape(len(tags), len(tags)), end


def is_legal(scheme: Scheme, before: str, label: str) -> bool:
    """Whether `scheme` writes `label` after `before`; `O` stands for the start and the end of a sentence."""
    left, right = position(before), position(label)
    is_same = left.label == right.label
    goes_on = left.kind in "BI" and is_same
    match scheme:
        case "bio":
            return right.kind in "OB" or (right.kind == "I" and goes_on)
        case "iob1":
            return right.kind in "OI" or (right.kind == "B" and goes_on)
        case "ioe2":
            return right.kind in "IE" and is_same if left.kind == "I" else right.kind in "OIE"
        case "ioe1":
            return right.kind in "IE" and is_same if left.kind == "E" else right.kind in "OIE"
    return goes_on if right.kind in "IE" else left.kind not in "BI"
