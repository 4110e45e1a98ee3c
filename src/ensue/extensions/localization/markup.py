"""Tags and placeholders of a source: removed before translation, and inserted into the output.

A unit is the span of a word or a punctuation mark in the plain text. Markup is a tree of nodes: a pair of tags is a
`Node` with the units between the tags, and a single tag or placeholder is a `Node` without units. In the output, the
units of a child are within the units of its parent, and siblings do not overlap, so that tags stay nested.
"""

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
from ensue.notices import warn_once
from ensue.tasks.sequence_to_sequence.pipeline import SequencePipeline
from ensue.tasks.sequence_to_sequence.writer import Output, TokenAlignment, WriterAdapter

Span = tuple[int, int]

_NAME = r"[A-Za-z_][\w.:-]*"
MARKUP = re.compile(
    rf"<!--(?:(?!<!--).)*?-->|</?{_NAME}(?:\s[^<>]*)?/?>"
    r"|&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z]\w*);"
    r"|\$?\{\{?[^{}\s]*\}?\}"
    r"|(?<![\d%])%(?:\(\w+\)|\d+\$)?[-+#0]?\d*(?:\.\d+)?(?:l?[diu]|[sfgexXcr@])(?!\w)",
    re.DOTALL,
)
"""The pattern of tags, comments, entities, and placeholders in braces or with `%`.

A comment must not contain `<!--`, so that texts with many unclosed comments are matched in linear time.
"""
_TAG = re.compile(rf"<(/?)({_NAME})[^<>]*?(/?)>")
_UNIT = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
_WORD = re.compile(r"\w")
MAX_NESTED_TAGS = 64
"""The maximum depth of nested tags. Tags at a greater depth are not paired."""


@dataclass
class Node:
    """A pair of tags, or a single tag or placeholder, whose `end` is "".

    The node contains the units [start, stop) of the source. `before` and `after` are the characters around the markup.
    """

    begin: str = ""
    end: str = ""
    start: int = 0
    stop: int = 0
    children: "list[Node]" = field(default_factory=list)
    before: str = ""
    after: str = ""

    def without_text(self) -> str:
        """Return the markup of the node and its descendants, without text."""
        return self.begin + "".join(child.without_text() for child in self.children) + self.end


class MarkedText(NamedTuple):
    """A text with markup, its plain text, the units of the plain text, and the root of the markup."""

    text: str
    plain: str
    units: list[Span]
    root: Node

    def with_output(self, output: str, links: Sequence[int | None]) -> str:
        """Return `output` with markup, or the source if it has no units. `links` are source units of output units."""
        if not self.units:
            return self.text
        if not (spans := find_units(output)):
            return self.root.without_text() + output
        are_words = [_WORD.match(self.plain, start) is not None for start, _ in self.units]
        marked = _MarkedOutput(output, spans, links, are_words).render(self.root, 0, len(spans))
        return output[: spans[0][0]] + marked + output[spans[-1][1] :]


def find_units(text: str) -> list[Span]:
    """Return the spans of the words and punctuation marks of a text."""
    return [match.span() for match in _UNIT.finditer(text)]


def split_markup(text: str) -> MarkedText:
    """Split a text into plain text and markup. A placeholder, or two adjacent tags, between words becomes a space."""
    matches = list(MARKUP.finditer(text))
    partner = _pair_tags([match[0] for match in matches])
    plain, units, root = "", list[Span](), Node()
    open_nodes = [root]
    position, is_separator = 0, False
    for number, match in enumerate([*matches, None]):
        segment = text[position : match.start()] if match else text[position:]
        plain, segment = _adjust_spaces(plain, segment, is_separator=is_separator)
        units += [(start + len(plain), stop + len(plain)) for start, stop in find_units(segment)]
        plain += segment
        if match is None:
            break
        other = partner[number]
        if other is not None and other > number and len(open_nodes) > MAX_NESTED_TAGS:
            partner[other], other = None, None
        is_separator = other is None or (number > 0 and position == match.start())
        position = match.end()
        after = text[position : position + 1]
        if other is not None and other < number:
            node = open_nodes.pop()
            node.stop, node.end, node.after = len(units), match[0], after
            continue
        before = text[max(0, match.start() - 1) : match.start()]
        node = Node(match[0], start=len(units), stop=len(units), before=before, after=after)
        open_nodes[-1].children.append(node)
        if other is not None:
            open_nodes.append(node)
    root.stop = len(units)
    return MarkedText(text, plain, units, root)


def _adjust_spaces(plain: str, segment: str, *, is_separator: bool) -> tuple[str, str]:
    """Return the plain text and the next segment, with the spaces that remain if the markup between them is removed."""
    if not plain:
        return "", segment.lstrip()
    if plain[-1].isspace():
        segment = segment.lstrip()
    if is_separator and re.match(r"[.,;:!?)\]]", segment):
        return plain.rstrip(), segment
    if is_separator and _WORD.match(plain[-1]) and _WORD.match(segment):
        return f"{plain} ", segment
    return plain, segment


def _pair_tags(tags: Sequence[str]) -> list[int | None]:
    """Return the index of the matching tag of each tag; None for tags that cross a pair, and for single markup."""
    partners: list[int | None] = [None] * len(tags)
    open_tags: list[tuple[str, int]] = []
    num_open = Counter[str]()
    for index, tag in enumerate(tags):
        match = _TAG.fullmatch(tag)
        if match is None or match[3]:
            continue
        is_end, name = bool(match[1]), match[2]
        if not is_end:
            open_tags.append((name, index))
            num_open[name] += 1
        elif num_open[name]:
            while (opened := open_tags.pop())[0] != name:
                num_open[opened[0]] -= 1
            num_open[name] -= 1
            partners[index], partners[opened[1]] = opened[1], index
    return partners


class _MarkedOutput:
    """An output into which markup is inserted. `are_words` is True for each source unit that is a word."""

    def __init__(
        self, text: str, spans: Sequence[Span], links: Sequence[int | None], are_words: Sequence[bool]
    ) -> None:
        self.text, self.spans, self.links, self.are_words = text, spans, links, are_words
        self._linked: list[tuple[int, ...]] = sorted((link, n) for n, link in enumerate(links) if link is not None)

    def render(self, node: Node, low: int, high: int) -> str:
        """Return the text of the output units [low, high) with the children of a node inserted."""
        ranges = self._find_ranges(node, low, high)
        singles: dict[tuple[int, bool], list[str]] = {}
        for child in node.children:
            check_interrupted()
            if id(child) not in ranges:
                gap, follows = self._find_gap(child, node, low, high, [units for _, units in ranges.values()])
                singles.setdefault((gap, follows), []).append(self._add_spaces(child, gap, follows=follows))
        begins = {units[0]: (child, units) for child, units in ranges.values()}
        strings: list[str] = []
        unit = low
        while True:
            strings += singles.get((unit, True), [])
            if low < unit < high:
                strings.append(self.text[self.spans[unit - 1][1] : self.spans[unit][0]])
            strings += singles.get((unit, False), [])
            if unit == high:
                return "".join(strings)
            if unit in begins:
                child, units = begins[unit]
                strings.append(child.begin + self.render(child, *units) + child.end)
                unit = units[1]
            else:
                strings.append(self.text[slice(*self.spans[unit])])
                unit += 1

    def _find_ranges(self, parent: Node, low: int, high: int) -> dict[int, tuple[Node, Span]]:
        """Return each child with its run of output units: as many of its linked units and as few others as possible."""
        ranges: dict[int, tuple[Node, Span]] = {}
        children = [child for child in parent.children if child.start < child.stop]
        taken = set[int]()
        units_of_child = {}
        for child in children:  # the linked units in [low, high)
            linked = self._linked[bisect_left(self._linked, (child.start,)) : bisect_left(self._linked, (child.stop,))]
            units_of_child[id(child)] = sorted(unit for _, unit in linked if low <= unit < high)
        for child in sorted(children, key=lambda child: len(units_of_child[id(child)]) or high - low + 1):
            check_interrupted()
            units = units_of_child[id(child)]
            window = range(units[0], units[-1] + 1) if units else range(0)
            weights = {unit: 0 if self.links[unit] is None else -1 for unit in window}
            weights |= dict.fromkeys(units, 1) | dict.fromkeys(taken & weights.keys(), low - high)
            start, stop = _find_best_run(list(weights.values()))
            if start == stop:  # no linked units: take the nearest unit
                gap, follows = self._find_gap(child, parent, low, high, [])
                start = min(gap - follows, high - 1)
                stop = start + (start not in taken)
            else:
                start, stop = window[0] + start, window[0] + stop
            while child.start == parent.start and start > low and self._is_free(start - 1, taken):
                start -= 1
            while child.stop == parent.stop and stop < high and self._is_free(stop, taken):
                stop += 1
            if start < stop:
                taken.update(range(start, stop))
                ranges[id(child)] = child, (start, stop)
        return ranges

    def _is_free(self, unit: int, taken: Set[int]) -> bool:
        return self.links[unit] is None and unit not in taken

    def _find_gap(self, child: Node, parent: Node, low: int, high: int, siblings: Sequence[Span]) -> tuple[int, bool]:
        """Return the unit before which a node without units is inserted, and whether the node adjoins the unit before.

        The node is inserted beside the output unit that is linked to the nearest source unit. If two source units are
        equally near, a word has priority over a punctuation mark.
        """
        next_links = bisect_left(self._linked, (child.stop,)), bisect_left(self._linked, (parent.stop,))
        previous_links = bisect_left(self._linked, (parent.start,)), bisect_left(self._linked, (child.start,))
        next_source = next((link for link, unit in islice(self._linked, *next_links) if low <= unit < high), None)
        previous_source = next(
            (link for link, unit in reversed(self._linked[slice(*previous_links)]) if low <= unit < high), None
        )
        sides = []
        if next_source is not None:
            sides.append((next_source - child.stop, not self.are_words[next_source], False, next_source))
        if previous_source is not None:
            distance = child.start - previous_source - 1
            sides.append((distance, not self.are_words[previous_source], True, previous_source))
        if sides:
            *_, follows, source = min(sides)
            gap = self.links.index(source, low, high)
            while follows and gap < high and self.links[gap] == source:
                gap += 1
        else:
            gap = low if child.start == parent.start else high
            follows = child.start > parent.start
        for start, stop in siblings:  # moves the gap out of siblings
            if start < gap < stop:
                gap = stop if follows else start
        if gap in (low, high):
            follows = gap == high
        elif self.spans[gap - 1][1] == self.spans[gap][0]:  # a punctuation mark is attached to its word
            follows = True
        return gap, follows

    def _add_spaces(self, child: Node, gap: int, *, follows: bool) -> str:
        """Return the markup of a node with spaces between the markup and the output text.

        Between the node and the unit beside which it is inserted, there is a space if the source has a space, or if the
        output has a letter and the source has none. There is also a space if text and markup would form other markup.
        """
        tags, offset = child.without_text(), self.spans[gap - 1][1] if follows else self.spans[gap][0]
        before, after = self.text[max(0, offset - 1) : offset], self.text[offset : offset + 1]
        source_character, character = (child.before, before) if follows else (child.after, after)
        is_new_letter = _WORD.match(character) is not None and not _WORD.match(source_character)
        blank = " " * (source_character.isspace() or is_new_letter)
        spaced = blank + tags if follows else tags + blank
        expected = MARKUP.findall(tags)
        merges_before = MARKUP.findall(before + spaced) != expected
        return " " * merges_before + spaced + " " * (MARKUP.findall(spaced + after) != expected)


def _find_best_run(weights: Sequence[int]) -> Span:
    """Return the first run with the largest sum, as short as possible; (0, 0) if no sum is above 0."""
    sums = [0, *accumulate(weights)]
    best, run, start = 0, (0, 0), 0
    for stop, total in enumerate(sums):
        if total <= sums[start]:
            start = stop
        if total - sums[start] > best:
            best, run = total - sums[start], (start, stop)
    return run


def link_units(
    units: Sequence[Span], tokens: Sequence[Span], attended: Sequence[int], source_units: Sequence[Span],
    source_tokens: Sequence[Span],
) -> list[int | None]:  # fmt: skip
    """Return the source unit of each output unit, or None.

    Units and tokens are spans of texts. `attended` has the most attended source token of each output token.
    """
    ends = [end for _, end in source_units]
    nearest = [bisect_right(ends, start) for start, _ in source_tokens]
    unit_of_token = [
        unit if unit < len(source_units) and _measure_overlap(source_units[unit], token) else None
        for unit, token in zip(nearest, source_tokens, strict=True)
    ]
    links: list[int | None] = []
    token_ends = list(accumulate((end for _, end in tokens), max))
    for unit in units:
        check_interrupted()
        votes = Counter[int]()
        for number in range(bisect_right(token_ends, unit[0]), len(tokens)):
            if tokens[number][0] >= unit[1]:
                break
            source_unit = unit_of_token[attended[number]] if attended[number] < len(unit_of_token) else None
            if source_unit is not None and (common := _measure_overlap(unit, tokens[number])):
                votes[source_unit] += common
        links.append(max(votes, key=lambda source_unit: votes[source_unit]) if votes else None)
    return _link_neighbors(links, len(source_units))


def _link_neighbors(links: list[int | None], count: int) -> list[int | None]:
    """Link each unlinked source unit to an output unit next to the output units of its neighbors.

    Each neighbor keeps a link. For example, the output tokens of an article and its noun may both attend to the noun in
    the source.
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


def _measure_overlap(span: Span, other: Span) -> int:
    return max(0, min(span[1], other[1]) - max(span[0], other[0]))


def link_by_position(count: int, num_source: int) -> list[int | None]:
    """Link `count` output units to the `num_source` source units at the same relative positions."""
    return [(2 * unit + 1) * num_source // (2 * count) for unit in range(count)]


def with_markup(pipeline: SequencePipeline) -> SequencePipeline:
    """Return a copy of the pipeline that removes markup from sources and inserts it into the outputs.

    Raises EnsueError for a model whose sources have several texts.
    """
    if (count := pipeline.num_texts) > 1:
        raise EnsueError(f"{pipeline.run}: markup needs models of one source text; this model reads {count}")
    return pipeline.with_adapter(MarkupAdapter())


class MarkupAdapter(WriterAdapter):
    """An adapter that removes markup from sources and inserts it into the outputs."""

    name = "markup"

    def adapt(self, item: Pair) -> Pair:
        return item._replace(sources=(split_markup(item.sources[0]).plain,))

    def generate_outputs(self, writer: SequencePipeline, items: Sequence[Pair]) -> list[Output]:
        marked = [split_markup(pair.sources[0]) for pair in items]
        pairs = [pair._replace(sources=(source.plain,)) for pair, source in zip(items, marked, strict=True)]
        best = writer.generate_outputs(pairs)
        outputs = [(row, output) for row, item in enumerate(best) for output in (item, *item.others)]
        alignments = writer.aligned([(pairs[row], output) for row, output in outputs])
        with_markup = (
            replace(output, text=_add_markup(writer, marked[row], output, alignment))
            for (row, output), alignment in zip(outputs, alignments, strict=True)
        )
        return [replace(next(with_markup), others=tuple(islice(with_markup, len(item.others)))) for item in best]


def _add_markup(writer: SequencePipeline, source: MarkedText, output: Output, alignment: TokenAlignment | None) -> str:
    """Return the text of an output with the markup of its source, by the alignment of their tokens."""
    units = find_units(output.text)
    if alignment is None:
        message = "the model has no attention; markup is inserted at the same relative position as in the source"
        warn_once(f"markup {writer.run}", f"{writer.run}: {message}")
        return source.with_output(output.text, link_by_position(len(units), len(source.units)))
    ends = text_ends(output.ids, lambda ids: writer.coder.decode(ids, (source.plain,)))
    tokens = list(zip([0, *ends], ends, strict=False))
    source_tokens = writer.coder.source_spans(source.plain)
    return source.with_output(output.text, link_units(units, tokens, alignment.positions, source.units, source_tokens))
