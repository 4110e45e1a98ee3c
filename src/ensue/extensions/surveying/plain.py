"""The summary and the report of running text."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from ensue.data.decoding import check_encoding, decode
from ensue.data.detection.kind import DetectedFormat
from ensue.data.sources import TextSource
from ensue.errors import DataError, pluralize
from ensue.extensions.surveying.counts import Lengths, Occurrences, Summary
from ensue.extensions.surveying.report import Report, length_table
from ensue.text.boundaries import cut_at_boundaries

_NUMBER = re.compile(r"[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")
_MIN_SHARE = 0.95
"""The share of numbers among the words above which a table of frames is suggested."""
MAX_SMALL_TEXT_CHARACTERS, _NUM_READINGS, _MIN_TOKENS = 500_000, 10, 100_000
"""Below this number of characters, training reads a text ten times, and at least 100,000 tokens, instead of a number of
seconds. With 50,000 and 200,000 characters, more readings were worse (docs/few-labels.md).
"""


@dataclass
class PlainSummary(Summary):
    """The statistics of running text. `line_lengths` are in characters, without line ends."""

    line_lengths: Lengths = field(default_factory=Lengths)
    nul_characters: Occurrences = field(default_factory=Occurrences)


def survey_plain(detected: DetectedFormat, location: str, encoding: str) -> PlainSummary:
    """Return the summary of all files before the first byte that cannot be decoded."""
    source = TextSource(location, encoding=encoding)
    summary = PlainSummary(detected, location, encoding, len(source.paths))
    try:
        for path in source.paths:
            _feed_file(summary, path)
    except DataError as error:
        summary.error = error
    return summary


def _feed_file(summary: PlainSummary, path: Path) -> None:
    line, length = 1, 0
    for block in cut_at_boundaries(decode(path, check_encoding(summary.encoding))):
        summary.num_characters += len(block)
        summary.characters.update(block)
        summary.words.update(block.split())
        if "\0" in block:
            nul_line = line + block.count("\n", 0, block.index("\0"))
            summary.nul_characters.add(str(path), nul_line, block.count("\0"))
        *lines, rest = block.split("\n")
        for text in lines:
            summary.line_lengths.add(length + len(text.removesuffix("\r")), str(path), line)
            line, length = line + 1, 0
        length += len(rest)
    if length:
        summary.line_lengths.add(length, str(path), line)


class PlainReport(Report[PlainSummary]):
    """The report on running text."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        yield "taken for", f"plain text ({summary.detected.reason})"
        yield "lines", f"{len(summary.line_lengths):,}"
        yield from self.size_rows()
        length, place = summary.line_lengths.longest
        if length:
            yield "longest line", f"{length:,} characters, at {place}"

    def tables(self) -> Iterator[Table]:
        yield length_table({"characters in a line": self.summary.line_lengths})

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if summary.detected.others:  # in other kinds of data, each file is read in its own format
            names = ", ".join(summary.detected.others)
            yield f"some files are named {names}; all are read as plain text, like the first; select files by a glob"
        words = summary.words
        if self._is_arff():
            yield "an ARFF file; for frames, save the names of the attributes and the lines below @data as a .csv table"
        elif sum(count for word, count in words.items() if _NUMBER.fullmatch(word)) > _MIN_SHARE * words.total() > 0:
            yield "nearly all words are numbers; for frames, separate the columns by commas in .csv or by tabs in .tsv"
        if "\r" in summary.characters:
            yield r"lines end with \r\n, and a model learns \r like other characters; tr -d '\r' < OLD > NEW removes it"
        if nul := summary.nul_characters.count:
            yield f"{pluralize(nul, 'NUL character')}, the first at {summary.nul_characters.first}; is the file binary?"

    def recipe(self) -> tuple[str, str, str]:
        return ("" if self._is_arff() else "char-lstm"), "model", "it is running text"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if 0 < (size := self.summary.num_characters) < MAX_SMALL_TEXT_CHARACTERS:
            yield f"train.tokens={max(_MIN_TOKENS, _NUM_READINGS * size)}"

    def _is_arff(self) -> bool:
        return all({name, name.upper()} & self.summary.words.keys() for name in ("@relation", "@data"))
