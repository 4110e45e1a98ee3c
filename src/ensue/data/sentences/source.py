"""The sentences of whole files and folders: read, in one format, as a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ensue.data.detection.formats import sentence_format
from ensue.data.files import Location
from ensue.data.lines import KeptLines, Lines, missing_end
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.records.record import SAMPLE_ROWS
from ensue.data.sentences.formats import PlainText, format_class
from ensue.data.sentences.sentence import Format, Sentence
from ensue.text.schemes import Scheme


class SentenceSource:
    """The sentences of a file, of a folder's files, of a glob's matches, or of a stream's lines, all in one format.

    `format` is a key of `FORMATS`, or None to take the files' own; it is then `self.format`, which also writes. Files
    that look like running text are in the format `like`, if it is given: a sentence in columns looks so. `made` gives
    the format of a name, in place of one with these options. Files can be iterated again, a stream cannot. Raises
    DataError for an unknown format, for files of several formats, and for no file or no text.
    """

    def __init__(
        self, location: Location | Lines, *, format: str | None = None, like: str | None = None,
        encoding: str = "utf-8", made: Callable[[str], Format] | None = None, words: str | None = None,
        splitter: str = "simple", scheme: Scheme = "bio", nested: bool = False,
    ) -> None:  # fmt: skip
        self.rest = ""
        """The text after the last sentence that was read; the whole file if it has no sentence."""
        self.files = LabeledFiles(location, encoding, nested=nested)
        self.location = self.files.location
        self.files.check_text()
        name = format or self._detected(like)
        if made is None:
            self.format = format_class(name)(words=words, splitter=splitter, scheme=scheme, nested=nested)
        else:
            self.format = made(name)

    def _detected(self, like: str | None) -> str:
        """The format of the files by their looks."""
        found = self.files.formats(lambda lines, _: sentence_format(lines), lambda name: name)
        name = next(iter(found.values()), PlainText.name)
        return like if like and name == PlainText.name else name

    def first(self) -> Sentence | None:
        """The first sentence by the first lines; None if there is none in them."""
        for lines in self.files:
            self.files.keep(lines)
            if sentence := next(iter(self.format.read(Lines(lines.head(SAMPLE_ROWS), lines.name))), None):
                return sentence
        return None

    def __iter__(self) -> Iterator[Sentence]:
        """Raises DataError (file:line) like the format. Line ends that a file lacks are added before the next file."""
        self.rest = missing = ""
        for of_file in self.files:
            lines, last = KeptLines(of_file), None
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
