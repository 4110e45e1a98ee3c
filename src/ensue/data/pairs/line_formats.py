"""A pair in each line, without columns: SCAN's instructions, CMUdict's words, and sources alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from ensue.data.detection.signs import CMUDICT_COMMENT, cmudict_entry, scan_sides
from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairFormat, PairLayout
from ensue.data.records.record import Column, columns_counted, records, without_end
from ensue.errors import DataError


class LinePairs(PairFormat):
    """A pair in each line. `about` says where source and target stand, `expected` what a line should be."""

    has_columns = False
    about: str
    expected: str
    comment = "\0"
    """How a line begins that is no pair."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        return PairLayout(self.name, about=self.about)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = without_end(record.text)
            if body.startswith(self.comment):
                continue
            found = self.sides(body)
            if found is None:
                raise DataError(f"expected {self.expected}", lines.name, record.line)
            yield Pair(found[:1], found[1:] if is_labeled else (), lines.name, record.line)

    @abstractmethod
    def sides(self, body: str) -> tuple[str, str] | None:
        """Source and target of a line; None for another line."""


class Scan(LinePairs):
    """`IN: jump twice OUT: I_JUMP I_JUMP`."""

    name = "scan"
    about = "source: after IN:, target: after OUT:"
    expected = '"IN: source OUT: target"'

    def sides(self, body: str) -> tuple[str, str] | None:
        return scan_sides(body)


class Cmudict(LinePairs):
    """`WORD 1 PH ON EMES`, `WORD  PH ON EMES` and `WORD(1)  PH ON EMES`. Each pronunciation is a pair.

    Lines that begin with `;;;` are comments, and so is the rest of a line from ` #`.
    """

    name = "cmudict"
    about = "source: the word, target: its phonemes"
    expected = 'a word and its phonemes, such as "WORD  W ER1 D"'
    comment = CMUDICT_COMMENT

    def sides(self, body: str) -> tuple[str, str] | None:
        return cmudict_entry(body)


class SourceLines(PairFormat):
    """A source in each line, also in an empty one. Several sources are separated by tabs, in the order of the run."""

    name = "plain"

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
