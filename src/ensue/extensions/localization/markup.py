"""Tags and placeholders of a source: cut out, so that a model reads plain text, and put into its output again.

A unit is a word or a mark, with its place in the plain text. Tags that belong together are a `Node` around the units
between them; all else is a `Node` without content. What a node has around it in the source it has in the output: a
child's units are within those of its parent, and siblings do not overlap. So tags are nested as they were.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import NamedTuple

from ensue.data.examples import Pair
from ensue.errors import EnsueError
from ensue.extensions.localization.glossary import text_ends
from ensue.interruption import check_interrupted
from ensue.notices import say_once
from ensue.tasks.sequence_to_sequence.outputs import Output, TokenAlignment
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.writer import WriterAdapter

Span = tuple[int, int]

_NAME = r"[A-Za-z_][\w.:-]*"
MARKUP = re.compile(
    rf"<!--(?:(?!<!--).)*?-->|</?{_NAME}(?:\s[^<>]*)?/?>"
    r"|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);"
    r"|\$?\{\{?[^{}\s]*\}?\}"
    r"|(?<![\d%])%(?:\(\w+\)|\d+\$)?[-+#0]?\d*(?:\.\d+)?(?:l?[diu]|[sfgexXcr@])(?!\w)",
    re.DOTALL,
)
"""Tags, comments, entities, placeholders in braces, and those of `%`. No comment begins in another one: so a text with
many beginnings and no end is read once.
"""
_TAG = re.compile(rf"<(/?)({_NAME})[^<>]*?(/?)>")
_UNIT = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_WORD = re.compile(r"\w")
DEEPEST = 64
"""The most pairs of tags around each other. Tags of further pairs in them are single pieces."""


@dataclass
class Node:
    """A pair of tags with all that stands between them, or a single piece of markup, whose `end` is "".

    `first` and `last` bound its units in the source. `before` and `after` are the characters beside it there.
    """

    begin: str = ""
    end: str = ""
    first: int = 0
    last: int = 0
    children: list[Node] = field(default_factory=list)
    before: str = ""
    after: str = ""

    def without_text(self) -> str:
        """The markup of this node and all nodes in it, without the text."""
        return self.begin + "".join(child.without_text() for child in self.children) + self.end


class Marked(NamedTuple):
    """A text without its markup, its units, and the markup as a tree."""

    text: str
    plain: str
    units: list[Span]
    root: Node

    def with_output(self, output: str, links: Sequence[int | None]) -> str:
        """An output with the markup. `links`: for each of its units (`units_of`) the source's unit, or None."""
        if not self.units:
            return self.text
        if not (spans := units_of(output)):
            return self.root.without_text() + output
        are_words = [_WORD.match(self.plain, first) is not None for first, _ in self.units]
        written = _Output(output, spans, links, are_words).written(self.root, 0, len(spans))
        return output[: spans[0][0]] + written + output[spans[-1][1] :]


def units_of(text: str) -> list[Span]:
    """The places of the words and marks of a text."""
    return [match.span() for match in _UNIT.finditer(text)]


def cut(text: str) -> Marked:
    """The text with its markup apart. Words that were apart by a piece, or by two tags, are not joined."""
    matches = list(MARKUP.finditer(text))
    partner = _partners([match[0] for match in matches])
    plain, units, root = "", list[Span](), Node()
    open_nodes = [root]
    place, separates = 0, False
    for number, match in enumerate([*matches, None]):
        segment = text[place : match.start()] if match else text[place:]
        plain, segment = _joined(plain, segment, separates=separates)
        units += [(first + len(plain), last + len(plain)) for first, last in units_of(segment)]
        plain += segment
        if match is None:
            break
        other = partner[number]
        if other is not None and other > number and len(open_nodes) > DEEPEST:
            partner[other], other = None, None
        separates = other is None or (number > 0 and place == match.start())
        place = match.end()
        if other is not None and other < number:
            node = open_nodes.pop()
            node.last, node.end = len(units), match[0]
            node.after = text[place : place + 1]
            continue
        node = Node(match[0], first=len(units), last=len(units))
        node.before, node.after = text[max(0, match.start() - 1) : match.start()], text[place : place + 1]
        open_nodes[-1].children.append(node)
        if other is not None:
            open_nodes.append(node)
    root.last = len(units)
    return Marked(text, plain, units, root)


def _joined(plain: str, segment: str, *, separates: bool) -> tuple[str, str]:
    """The text so far and what comes behind a piece of markup, with one blank at most where the piece was."""
    if not plain:
        return "", segment.lstrip()
    if plain[-1].isspace():
        segment = segment.lstrip()
    if separates and re.match(r"[.,;:!?)\]]", segment):
        return plain.rstrip(), segment
    if separates and _WORD.match(plain[-1]) and _WORD.match(segment):
        return f"{plain} ", segment
    return plain, segment


def _partners(pieces: Sequence[str]) -> list[int | None]:
    """For each piece the number of the tag that it is a pair with; None for one that is none, or crosses another."""
    partners: list[int | None] = [None] * len(pieces)
    waiting: list[tuple[str, int]] = []
    names = Counter[str]()
    for number, piece in enumerate(pieces):
        tag = _TAG.fullmatch(piece)
        if tag is None or tag[3]:
            continue
        if not tag[1]:
            waiting.append((tag[2], number))
            names[tag[2]] += 1
        elif names[tag[2]]:
            while (begun := waiting.pop())[0] != tag[2]:
                names[begun[0]] -= 1
            names[tag[2]] -= 1
            partners[number], partners[begun[1]] = begun[1], number
    return partners


class _Output:
    """An output, its units, and what each belongs to in the source, whose units are words or marks."""

    def __init__(
        self, text: str, spans: Sequence[Span], links: Sequence[int | None], are_words: Sequence[bool]
    ) -> None:
        self.text, self.spans, self.links, self.are_words = text, spans, links, are_words
        self._linked: list[tuple[int, ...]] = sorted(
            (link, unit) for unit, link in enumerate(links) if link is not None
        )

    def written(self, node: Node, low: int, high: int) -> str:
        """The units from `low` to `high` with what stands in the node."""
        areas = self._areas(node, low, high)
        singles: dict[tuple[int, bool], list[str]] = {}
        for child in node.children:
            check_interrupted()
            if id(child) not in areas:
                gap, is_behind = self._gap(child, node, low, high, [area for _, area in areas.values()])
                piece = self._apart(child, gap, is_behind=is_behind)
                singles.setdefault((gap, is_behind), []).append(piece)
        begun = {area[0]: (child, area) for child, area in areas.values()}
        pieces: list[str] = []
        place = low
        while True:
            pieces += singles.get((place, True), [])
            if low < place < high:
                pieces.append(self.text[self.spans[place - 1][1] : self.spans[place][0]])
            pieces += singles.get((place, False), [])
            if place == high:
                return "".join(pieces)
            if place in begun:
                child, area = begun[place]
                pieces.append(child.begin + self.written(child, *area) + child.end)
                place = area[1]
            else:
                pieces.append(self.text[slice(*self.spans[place])])
                place += 1

    def _areas(self, parent: Node, low: int, high: int) -> dict[int, tuple[Node, Span]]:
        """The units of each child, the smallest child first: the run with most of its own and fewest others."""
        areas: dict[int, tuple[Node, Span]] = {}
        children = [child for child in parent.children if child.first < child.last]
        taken = set[int]()
        units_of_child = {}
        for child in children:  # the units from `low` to `high` that belong to it
            linked = self._linked[bisect_left(self._linked, (child.first,)) : bisect_left(self._linked, (child.last,))]
            units_of_child[id(child)] = sorted(unit for _, unit in linked if low <= unit < high)
        for child in sorted(children, key=lambda child: len(units_of_child[id(child)]) or high - low + 1):
            check_interrupted()
            units = units_of_child[id(child)]
            window = range(units[0], units[-1] + 1) if units else range(0)  # a best run begins and ends with its own
            own_units = set(units)
            first, last = _best_run(
                [
                    low - high if unit in taken else 1 if unit in own_units else 0 if self.links[unit] is None else -1
                    for unit in window
                ]
            )
            if first == last:  # no unit belongs to it: the one that is nearest
                gap, is_behind = self._gap(child, parent, low, high, [])
                first = min(gap - is_behind, high - 1)
                last = first + (first not in taken)
            else:
                first, last = window[0] + first, window[0] + last
            while child.first == parent.first and first > low and self._is_free(first - 1, taken):
                first -= 1
            while child.last == parent.last and last < high and self._is_free(last, taken):
                last += 1
            if first < last:
                taken.update(range(first, last))
                areas[id(child)] = child, (first, last)
        return areas

    def _is_free(self, unit: int, taken: Set[int]) -> bool:
        return self.links[unit] is None and unit not in taken

    def _gap(self, child: Node, parent: Node, low: int, high: int, areas: Sequence[Span]) -> tuple[int, bool]:
        """The place of a piece without units: before the unit for the next one of the source, or behind that for the
        one before it, whichever is nearest, a word rather than a mark; and whether it is behind.
        """
        behind = bisect_left(self._linked, (child.last,)), bisect_left(self._linked, (parent.last,))
        before = bisect_left(self._linked, (parent.first,)), bisect_left(self._linked, (child.first,))
        after = next((link for link, unit in islice(self._linked, *behind) if low <= unit < high), None)
        ahead = next((link for link, unit in reversed(self._linked[slice(*before)]) if low <= unit < high), None)
        sides = [] if after is None else [(after - child.last, not self.are_words[after], False, after)]
        if ahead is not None:
            sides.append((child.first - ahead - 1, not self.are_words[ahead], True, ahead))
        if sides:
            *_, is_behind, source = min(sides)
            gap = self._beside(source, is_behind, low, high)
        else:
            gap = low if child.first == parent.first else high
            is_behind = child.first > parent.first
        for first, last in areas:  # not within a sibling
            if first < gap < last:
                gap = last if is_behind else first
        if gap in (low, high):
            is_behind = gap == high
        elif self.spans[gap - 1][1] == self.spans[gap][0]:  # a mark, which stays at its word
            is_behind = True
        return gap, is_behind

    def _beside(self, source: int, is_behind: bool, low: int, high: int) -> int:
        """The place before the first unit that belongs to a unit of the source, or behind it and those next to it."""
        unit = self.links.index(source, low, high)
        while is_behind and unit < high and self.links[unit] == source:
            unit += 1
        return unit

    def _apart(self, child: Node, gap: int, *, is_behind: bool) -> str:
        """The markup with a blank towards its word if it had one, or was beside a mark and is beside a letter; and with
        others where it would be no such markup beside the text.
        """
        tags, place = child.without_text(), self.spans[gap - 1][1] if is_behind else self.spans[gap][0]
        before, after = self.text[max(0, place - 1) : place], self.text[place : place + 1]
        was, now = (child.before, before) if is_behind else (child.after, after)
        blank = " " * (was.isspace() or (_WORD.match(now) is not None and not _WORD.match(was)))
        piece = blank + tags if is_behind else tags + blank
        pieces = MARKUP.findall(tags)
        is_joined_before = MARKUP.findall(before + piece) != pieces
        return " " * is_joined_before + piece + " " * (MARKUP.findall(piece + after) != pieces)


def _best_run(weights: Sequence[int]) -> Span:
    """The shortest run with the largest sum, the first of several; an empty one if no sum is above 0."""
    sums = [0, *accumulate(weights)]
    best, run, least = 0, (0, 0), 0
    for place, total in enumerate(sums):
        if total <= sums[least]:
            least = place
        if total - sums[least] > best:
            best, run = total - sums[least], (least, place)
    return run


def linked(
    units: Sequence[Span], tokens: Sequence[Span], places: Sequence[int], of: Sequence[Span], of_tokens: Sequence[Span]
) -> list[int | None]:
    """For each of the `units` of an output the number of the unit of the source that its tokens look at.

    `tokens` are the places of the output's tokens in its text, and `places` the numbers of the tokens of the source
    that they look at. `of` are the units of the source, and `of_tokens` the places of its tokens.
    """
    ends = [end for _, end in of]
    nearest = [bisect_right(ends, first) for first, _ in of_tokens]
    owners = [
        unit if unit < len(of) and _overlap(of[unit], token) else None
        for unit, token in zip(nearest, of_tokens, strict=True)
    ]
    links: list[int | None] = []
    token_ends = list(accumulate((end for _, end in tokens), max))
    for unit in units:
        check_interrupted()
        votes = Counter[int]()
        for number in range(bisect_right(token_ends, unit[0]), len(tokens)):
            if tokens[number][0] >= unit[1]:
                break
            owner = owners[places[number]] if places[number] < len(owners) else None
            if owner is not None and (common := _overlap(unit, tokens[number])):
                votes[owner] += common
        links.append(max(votes, key=lambda owner: votes[owner]) if votes else None)
    return _shared_out(links, len(of))


def _shared_out(links: list[int | None], count: int) -> list[int | None]:
    """The links, of which each of the `count` units of the source gets one, where a neighbor has its neighbor and the
    unit of the output is one of several: articles look at their nouns.
    """
    units = defaultdict[int | None, set[int]](set)
    for unit, link in enumerate(links):
        units[link].add(unit)
    for source in (source for source in range(count) if source not in units):
        beside = {unit - 1 for unit in units.get(source + 1, ())} | {unit + 1 for unit in units.get(source - 1, ())}
        for unit in sorted(unit for unit in beside if 0 <= unit < len(links)):
            link = links[unit]
            if link is None or len(units[link]) > 1:
                units[link].remove(unit)
                units[source].add(unit)
                links[unit] = source
                break
    return links


def _overlap(span: Span, other: Span) -> int:
    return max(0, min(span[1], other[1]) - max(span[0], other[0]))


def by_position(count: int, of: int) -> list[int | None]:
    """The links of `count` units, as if they were in the same order as the `of` units of the source."""
    return [(2 * unit + 1) * of // (2 * count) for unit in range(count)]


def with_markup(pipeline: SequencePipeline) -> SequencePipeline:
    """Return the model for texts with tags and placeholders: it reads the texts without them, and puts them into its
    outputs. Raises EnsueError for a model that reads several texts together.
    """
    if (count := pipeline.num_texts) > 1:
        raise EnsueError(f"{pipeline.run}: markup is kept in one text, and this model reads {count} together")
    return pipeline.with_adapter(MarkupAdapter())


class MarkupAdapter(WriterAdapter):
    """Sources without their markup, and outputs with it."""

    name = "markup"

    def adapted(self, item: Pair) -> Pair:
        return _plain(item, cut(item.sources[0]))

    def written(self, writer: SequencePipeline, items: Sequence[Pair]) -> list[Output]:
        marked = [cut(pair.sources[0]) for pair in items]
        pairs = list(map(_plain, items, marked))
        written = writer.written(pairs)
        answers = [(number, each) for number, output in enumerate(written) for each in (output, *output.others)]
        alignments = writer.aligned([(pairs[number], each) for number, each in answers])
        with_markup = (
            replace(each, text=_marked(writer, marked[number], each, alignment))
            for (number, each), alignment in zip(answers, alignments, strict=True)
        )
        return [replace(next(with_markup), others=tuple(islice(with_markup, len(output.others)))) for output in written]


def _plain(pair: Pair, marked: Marked) -> Pair:
    return pair._replace(sources=(marked.plain,))


def _marked(writer: SequencePipeline, source: Marked, output: Output, alignment: TokenAlignment | None) -> str:
    """The text of an output with the markup of its source, by the alignment of their tokens."""
    units = units_of(output.text)
    if alignment is None:
        message = "the model has no attention; markup goes where it is in the source, by the number of words"
        say_once(f"markup {writer.run}", f"{writer.run}: {message}")
        return source.with_output(output.text, by_position(len(units), len(source.units)))
    ends = text_ends(output.ids, lambda ids: writer.coder.decode(ids, (source.plain,)))
    tokens = list(zip([0, *ends], ends, strict=False))
    source_tokens = writer.coder.source_spans(source.plain)
    return source.with_output(output.text, linked(units, tokens, alignment.places, source.units, source_tokens))
