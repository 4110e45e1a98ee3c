"""Reader of brat files (the "standoff format") as rows with spans."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ensue.data.decoding import load_text
from ensue.errors import NESTED_REMEDY, DataError, OverlapError, letters_and_digits, quote

Row = dict[str, Any]
CLIPPED = "clipped"
"""The key that marks a span whose end was cut off, because the span continues after the text of its row."""

_BRAT_SPAN = re.compile(r"T\S*\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t(.*))?")


def brat_rows(path: Path, encoding: str, *, nested: bool = False) -> Iterator[Row]:
    """Yield the lines that are not blank of the `.txt` file beside an `.ann` file, with their spans.

    A span that continues on the next line is clipped. Relations, events, attributes and notes are ignored. Raises
    DataError (file:line) for an invalid span, a span that is not in the text, a discontinuous span whose gaps contain
    more than white space, and, unless `nested`, for overlapping spans.
    """
    text = load_text(path.with_suffix(".txt"), encoding)
    spans: list[_BratSpan] = []
    for number, line in enumerate(load_text(path, encoding).split("\n"), 1):
        if line.startswith("T"):
            span = _parse_span(line.rstrip("\r\n"), text, str(path), number)
            string = text[span.start : span.end]
            spans.append(span._replace(start=span.end - len(string.lstrip() or string)))  # without leading blanks
    spans.sort()
    for span, following in pairwise(spans):
        if following.start < span.end and not nested:
            raise OverlapError(f"the span overlaps the span of line {span.line}; {NESTED_REMEDY}", path, following.line)
    word_starts = [*(match.start() for match in re.finditer(r"\S+", text)), len(text)]
    for span in spans:
        for start, end in span.gaps:
            if start < end and not (text[start].isspace() and word_starts[bisect_left(word_starts, start)] >= end):
                raise DataError("a span with gaps; expected a contiguous span", path, span.line)
    start = num_done = num_begun = 0
    for end in [*(match.end() for match in re.finditer("\n", text)), len(text)]:
        while num_begun < len(spans) and spans[num_begun].start < end:
            num_begun += 1
        line = text[start:end].rstrip("\r\n")
        if line.strip():
            yield {"text": line, "spans": [span.within(start, len(line)) for span in spans[num_done:num_begun]]}
        start, num_done = end, num_begun


class _BratSpan(NamedTuple):
    start: int
    end: int
    label: str
    line: int
    gaps: list[tuple[int, int]]

    def within(self, start: int, length: int) -> Row:
        end = min(self.end - start, length)
        clipped = {CLIPPED: True} if end < self.end - start else {}
        return {"start": self.start - start, "end": end, "label": self.label} | clipped


def _parse_span(line: str, text: str, name: str, number: int) -> _BratSpan:
    result = _BRAT_SPAN.fullmatch(line)
    if result is None:
        raise DataError("expected a span such as T1, a tab, and PER 0 5", name, number)
    offsets = [int(place) for piece in result[2].split(";") for place in piece.split()]
    start, end, mention = offsets[0], offsets[-1], result[3] or ""
    is_inside = start < end <= len(text)
    words = " ".join(text[a:b] for a, b in zip(offsets[::2], offsets[1::2], strict=True))
    if not is_inside or (mention and letters_and_digits(mention) != letters_and_digits(words)):
        problem = f"{quote(words)} in the text" if is_inside else f"not in the text, which has {len(text):,} characters"
        matches = re.finditer(re.escape(mention), text) if mention else ()
        closest = min(matches, key=lambda match: abs(match.start() - start), default=None)
        place = f", which is at {closest.start()} {closest.end()}" if closest else ""
        expected = f"; expected {quote(mention)}{place}" if mention else ""
        raise DataError(f"the span {start} {end} is {problem}{expected}", name, number)
    if offsets != sorted(offsets):
        raise DataError("the fragments of the span are not in order", name, number)
    return _BratSpan(start, end, result[1], number, list(zip(offsets[1:-1:2], offsets[2::2], strict=True)))
