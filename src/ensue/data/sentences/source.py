"""The sentences of whole files and folders: read, in one format, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ensue.data.detection.formats import sentence_format
from ensue.data.files import common_format
from ensue.data.lines import KeptLines, Lines, is_blank, missing_end
from ensue.data.records.record import sample
from ensue.data.sentences.formats import format_class
from ensue.data.sentences.plain import PlainText
from ensue.data.sentences.sentence import Sentence
from ensue.data.sources import TextSource
from ensue.text.schemes import Scheme


class SentenceSource:
    """The sentences of a file, of a folder's files, of a glob's matches, or of a stream's lines, all in one format.

    `format` is a key of `FORMATS`, or None to take the files' own; it is then `self.format`, which also writes. Files
    can be iterated again, a stream cannot. Raises DataError for an unknown format, for files of several formats, and
    for what `TextSource` raises it for.
    """

    def __init__(
        self,
        location: str | Path | Lines,
        *,
        format: str | None = None,
        encoding: str = "utf-8",
        words: str | None = None,
        splitter: str = "simple",
        scheme: Scheme = "bio",
    ) -> None:
        self.rest = ""
        """The text after the last sentence that was read; the whole file if it has no sentence."""
        self._files: Sequence[Callable[[], Lines]]
        if isinstance(location, Lines):
            self.location, self._files = location.name, [lambda: location]
        else:
            self.text = TextSource(location, encoding=encoding)
            self.location = self.text.location
            self._files = [partial(Lines.of, path, encoding=self.text.encoding) for path in self.text.paths]
        self.format = format_class(format or self._detected())(words=words, splitter=splitter, scheme=scheme)

    def _detected(self) -> str:
        """The format of the files by their looks. Empty files count as of the same format."""
        formats: dict[str, str] = {}
        for lines in (opened() for opened in self._files):
            name = sentence_format(lines)
            if len(self._files) == 1 or not all(is_blank(line) for _, line in sample(lines)):
                formats[lines.name] = name
        return common_format(formats) or PlainText.name

    def __iter__(self) -> Iterator[Sentence]:
        """Raises DataError (file:line) like the format. Between two files there are the line ends that the first one
        lacks.
        """
        self.rest = missing = ""
        for opened in self._files:
            lines, last = KeptLines(opened()), None
            self.rest += missing
            for sentence in self.format.read(lines):
                lines.forget()
                last = sentence.source.text
                source = replace(sentence.source, text=self.rest + last)
                yield replace(sentence, source=source) if self.rest else sentence
                self.rest = ""
            self.rest += lines.kept() if last is None else ""
            missing = missing_end(self.rest) if last is None else self.format.missing_end(last)

    def __repr__(self) -> str:
        return f"SentenceSource({self.location!r}, format={self.format.name!r})"
