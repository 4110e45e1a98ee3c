"""A pair in each line, without columns: SCAN's instructions, CMUdict's words, and sources alone."""

from __future__ import annotations

from collections.abc import Iterator

from ensue.data.columns import Column, columns_counted
from ensue.data.detection.pair_signs import CMUDICT_COMMENT, cmudict_entry, scan_sides
from ensue.data.lines import Lines
from ensue.data.pairs.format import PairFormat
from ensue.data.pairs.pair import Pair, PairChoice, PairLayout
from ensue.data.records import records, without_end
from ensue.errors import DataError


class Scan(PairFormat):
    """`IN: jump twice OUT: I_JUMP I_JUMP`."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        return PairLayout("scan", about="source: after IN:, target: after OUT:")

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = without_end(record.text)
            found = scan_sides(body)
            if found is None:
                raise DataError('expected "IN: source OUT: target"', lines.name, record.line)
            yield Pair((found[0],), (found[1],) if is_labeled else (), lines.name, record.line)


class Cmudict(PairFormat):
    """`WORD 1 PH ON EMES`, `WORD  PH ON EMES` and `WORD(1)  PH ON EMES`. Each pronunciation is a pair.

    Lines that begin with `;;;` are comments, and so is the rest of a line from ` #`.
    """

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        return PairLayout("cmudict", about="source: the word, target: its phonemes")

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = without_end(record.text)
            if body.startswith(CMUDICT_COMMENT):
                continue
            found = cmudict_entry(body)
            if found is None:
                raise DataError('expected a word and its phonemes, such as "WORD  W ER1 D"', lines.name, record.line)
            word, phonemes = found
            yield Pair((word,), (phonemes,) if is_labeled else (), lines.name, record.line)


class SourceLines(PairFormat):
    """A source in each line, also in an empty one. Several sources are separated by tabs, in the order of the run."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        if choice.is_labeled:
            raise DataError("plain lines have no targets; expected pairs", lines.name)
        number = len(choice.sources)
        return PairLayout("plain", tuple(Column(place) for place in range(1, number + 1)) if number > 1 else ())

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        number = max(1, len(layout.sources))
        for record in records(lines, lines.name, empty=True):
            body, _ = without_end(record.text)
            fields = [body] if number == 1 else body.split("\t")
            if not body.strip():
                fields = [""] * number
            if len(fields) != number:
                raise DataError(f"{columns_counted(len(fields))}; expected {number} sources", lines.name, record.line)
            yield Pair(tuple(fields), (), lines.name, record.line)
