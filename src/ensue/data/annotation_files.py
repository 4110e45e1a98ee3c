"""Readers of files of brat ("Standoff format") and spaCy ("DocBin") as rows with tokens, spans or labels."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ensue.data.decoding import load_text
from ensue.errors import NESTED_REMEDY, DataError, EnsueError, OverlapError, in_one_line, letters_and_digits, quote

Row = dict[str, Any]
_MAX_ROUNDING = 0.01  # scores of exclusive classes sum to 1, up to this difference
CLIPPED = "clipped"
"""The key that marks a span whose end was cut off, because the span continues after the text of its row."""

_BRAT_SPAN = re.compile(r"T\S*\t(\S+) (\d{1,9} \d{1,9}(?:;\d{1,9} \d{1,9})*)(?:\t(.*))?")


def brat_rows(path: Path, encoding: str, *, nested: bool = False) -> Iterator[Row]:
    """Yield the lines of the `.txt` file beside an `.ann` file, with their spans.

    A span that continues on the next line is clipped. Relations, events, attributes and notes are ignored. Raises
    DataError (file:line) for a span outside of the text, for a span with gaps, and unless `nested` for an overlap.
    """
    text = load_text(path.with_suffix(".txt"), encoding)
    spans: list[_BratSpan] = []
    for number, line in enumerate(load_text(path, encoding).split("\n"), 1):
        if line.startswith("T"):
            span = _parse_span(line.rstrip("\r\n"), text, str(path), number)
            string = text[span.start : span.end]
            spans.append(span._replace(start=span.end - len(string.lstrip() or string)))  # without leading line ends
    spans.sort()
    for span, following in pairwise(spans):
        if following.start < span.end and not nested:
            raise OverlapError(f"the span overlaps that of line {span.line}; {NESTED_REMEDY}", path, following.line)
    word_starts = [*(match.start() for match in re.finditer(r"\S+", text)), len(text)]
    for span in spans:
        for start, end in span.gaps:
            if start < end and not (text[start].isspace() and word_starts[bisect_left(word_starts, start)] >= end):
                raise DataError("a span with gaps; expected spans without gaps", path, span.line)
    start = num_done = num_begun = 0
    for end in [*(match.end() for match in re.finditer("\n", text)), len(text)]:
        while num_begun < len(spans) and spans[num_begun].start < end:
            num_begun += 1
        line = text[start:end].rstrip("\r\n")
        if line.strip():
            yield {"text": line, "spans": [span.within(start, len(line)) for span in spans[num_done:num_begun]]}
        start, num_done = end, num_begun


def spacy_rows(path: Path, encoding: str) -> Iterator[Row]:
    """Yield the sentences of a `.spacy` file with labels of words, or its documents if they have categories."""
    if find_spec("spacy") is None:
        raise EnsueError(f"{path}: reading .spacy needs the package spacy: pip install spacy")
    import spacy  # noqa: PLC0415 (not a dependency)
    from spacy.tokens import DocBin  # noqa: PLC0415

    try:
        for doc in DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab):
            labels = [label for label, score in doc.cats.items() if score >= 0.5]
            if not labels and doc.cats and abs(sum(doc.cats.values()) - 1) < _MAX_ROUNDING:  # exclusive classes
                labels = [max(doc.cats, key=lambda label: doc.cats[label])]
            if doc.spans and not doc.ents:
                spans = [span for group in doc.spans.values() for span in group]
                offsets = [{"start": span.start_char, "end": span.end_char, "label": span.label_} for span in spans]
                yield {"text": doc.text, "spans": offsets}
                continue
            if doc.cats:
                yield {"text": doc.text, "label": labels[0] if len(labels) == 1 else labels}
                continue
            for sentence in doc.sents if doc.has_annotation("SENT_START") else (doc[:],):
                words = [word for word in sentence if not word.is_space]
                row: Row = {"tokens": [word.text for word in words]}
                if doc.has_annotation("ENT_IOB"):
                    names = [(word.ent_iob_, word.ent_type_) for word in words]
                    row["ner_tags"] = [f"{prefix}-{name}" if prefix in ("B", "I") else "O" for prefix, name in names]
                if doc.has_annotation("TAG") or doc.has_annotation("POS"):
                    row["pos_tags"] = [word.tag_ or word.pos_ for word in words]
                if words:
                    yield row
    except Exception as error:
        raise DataError(f"cannot be read by spacy: {in_one_line(str(error))}", path) from None


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
        raise DataError("the pieces of the span are not in order", name, number)
    return _BratSpan(start, end, result[1], number, list(zip(offsets[1:-1:2], offsets[2::2], strict=True)))
