"""XML read in blocks. Entities are not expanded, and no other file is read."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar
from xml.parsers import expat

from ensue.data.decoding import MAX_CHARACTERS
from ensue.errors import DataError
from ensue.parsing import MAX_DEPTH

_BETWEEN_WORDS = re.compile(r"(?<=\w)\0+(?=\w)")


class XmlReader(ABC):
    """Reads a file whose outermost element is `root`, and gathers what it finds in `found`.

    Between an assignment of `[]` to `text` and its end, `text` takes the characters, but for those inside `codes`:
    elements that hold codes of another format, such as the tags of a web page. A placeholder (`x`, `ph`), such as a
    line break, becomes a blank between words.
    """

    root: ClassVar[str]
    codes: ClassVar[frozenset[str]]

    def __init__(self, name: str) -> None:
        self.name = name
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._declared
        self.parser.SkippedEntityHandler = self._skipped
        self.depth = self.hidden = self.size = self.fed = 0
        self.text: list[str] | None = None
        self.found: list[Any] = []

    @abstractmethod
    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        """Notes that an element begins."""

    @abstractmethod
    def closed(self, tag: str) -> None:
        """Notes that an element ends."""

    def feed(self, block: str | bytes, *, is_last: bool = False) -> list[Any]:
        """Feeds a block; returns what ends in it. Raises DataError (file:line) for what is not XML."""
        try:
            self.parser.Parse(block, is_last)
        except expat.ExpatError as error:
            what = f"not XML ({expat.errors.messages[error.code]} in column {error.offset + 1})"
            raise DataError(what, self.name, error.lineno) from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not know
            raise self.error(f"not XML that can be read ({error})") from None
        self.fed += len(block)
        if self.fed - max(0, self.parser.CurrentByteIndex) > 2 * MAX_CHARACTERS:
            raise self.error(f"more than {MAX_CHARACTERS:,} characters in one tag or comment")
        found, self.found = self.found, []
        return found

    def taken(self) -> str:
        """The text that was gathered, without white space around it."""
        found, self.text = "".join(self.text or ()), None
        return _BETWEEN_WORDS.sub(" ", found).replace("\0", "").strip()

    def error(self, message: str) -> DataError:
        """A DataError at the line that is read."""
        return DataError(message, self.name, self.parser.CurrentLineNumber)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"elements nested more than {MAX_DEPTH} deep")
        if self.depth == 1 and tag != self.root:
            raise self.error(f"expected the element {self.root}, found {tag[:40]}")
        if tag in ("x", "ph") and self.text is not None and not self.hidden:
            self.text.append("\0")  # which no XML has
        self.hidden += tag in self.codes
        self.opened(tag, attributes)

    def _end(self, tag: str) -> None:
        self.depth -= 1
        self.hidden -= tag in self.codes
        self.closed(tag)

    def _characters(self, data: str) -> None:
        if self.text is not None and not self.hidden:
            self.text.append(data)
            self.size += len(data)
            if self.size > MAX_CHARACTERS:
                raise self.error(f"a unit of more than {MAX_CHARACTERS:,} characters")

    def _declared(self, *declaration: object) -> None:
        raise self.error(f"an entity is declared ({str(declaration[0])[:40]}); entities are not expanded")

    def _skipped(self, entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise self.error(f"the entity &{entity[:40]}; is not known")
