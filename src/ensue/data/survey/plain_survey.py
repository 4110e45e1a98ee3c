"""The numbers of running text: lines, words, characters, the longest line."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ensue.data.decoding import checked_encoding, decoded
from ensue.data.detection.kind import Taken
from ensue.data.sources import TextSource
from ensue.data.survey.counts import FileLine, Lengths, Summary
from ensue.errors import DataError
from ensue.text.boundaries import cut_at_boundaries


@dataclass
class PlainSummary(Summary):
    """`line_lengths` in characters, without line ends."""

    line_lengths: Lengths = field(default_factory=Lengths)
    longest: int = 0
    longest_line: FileLine | None = None
    num_nul: int = 0
    first_nul: FileLine | None = None

    def add_line(self, length: int, path: Path, line: int) -> None:
        """Counts a line of this many characters."""
        self.line_lengths.add(length)
        if length > self.longest:
            self.longest, self.longest_line = length, FileLine(str(path), line)


def survey_plain(taken: Taken, location: str, encoding: str) -> PlainSummary:
    """Counts all files, or the text before the first wrong byte, which is the summary's `error`."""
    source = TextSource(location, encoding=encoding)
    summary = PlainSummary(taken, location, encoding, len(source.paths))
    try:
        for path in source.paths:
            _read_plain(summary, path)
    except DataError as error:
        summary.error = error
    return summary


def _read_plain(summary: PlainSummary, path: Path) -> None:
    line, length = 1, 0
    for piece in cut_at_boundaries(decoded(path, checked_encoding(summary.encoding))):
        summary.num_characters += len(piece)
        summary.characters.update(piece)
        summary.words.update(piece.split())
        if "\0" in piece:
            summary.num_nul += piece.count("\0")
            at = line + piece.count("\n", 0, piece.index("\0"))
            summary.first_nul = summary.first_nul or FileLine(str(path), at)
        *ended, rest = piece.split("\n")
        for part in ended:
            summary.add_line(length + len(part.removesuffix("\r")), path, line)
            line, length = line + 1, 0
        length += len(rest)
    if length:
        summary.add_line(length, path, line)
