"""The layout of files with one word per line: the separator, the number of columns, and the detection of comments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

DOCUMENT_START = "-DOCSTART-"
COMMENT = "#"
FIELD = re.compile(r"[^ \t]+")
_MIN_COMMENT_FRACTION = 0.75
"""The minimum fraction of sentences that begin with `#` in a file with comments; otherwise `#` may be a word."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of each row.

    A line that begins with `#` is a comment if its number of columns differs from `width`, or if its second field is in
    `comment_keys`, such as `id` in `# id 5`.
    """

    line: int
    """The number of the line that determined the columns."""
    width: int
    has_tabs: bool
    comment_keys: frozenset[str] = frozenset()

    @classmethod
    def of(cls, lines: Sequence[tuple[int, str]]) -> "RowLayout | None":
        """Detect the layout from the first numbered lines of a file; None if they have no row, or comments alone."""
        rows = [(n, line) for n, line in lines if not line.startswith(COMMENT) and line.strip(" \t\r\n")]
        rows = [(n, line) for n, line in rows if not opens_document(line)]
        if not rows:
            return None
        number, first_row = rows[0]
        has_tabs = "\t" in first_row
        first_lines = [line for (_, line), before in zip(lines, ["", *(line for _, line in lines)], strict=False)
                  if line.strip(" \t\r\n") and not before.strip(" \t\r\n")]  # fmt: skip
        comments = [line.split() for line in first_lines if line.startswith(COMMENT)]
        labels = {fields[-1] for _, line in rows if (fields := line.split())}
        has_keys = not has_tabs and len(comments) >= max(2, _MIN_COMMENT_FRACTION * len(first_lines))
        keys = frozenset(fields[1] for fields in comments if len(fields) > 1 and has_keys) - labels
        return cls(number, len(fields_of(first_row, has_tabs=has_tabs)), has_tabs, keys)

    def fields(self, line: str) -> list[str]:
        """Split a row into its columns."""
        return fields_of(line, has_tabs=self.has_tabs)

    def is_comment(self, line: str) -> bool:
        """Return whether a line is a comment."""
        if not line.startswith(COMMENT):
            return False
        return len(self.fields(line)) != self.width or bool(self.comment_keys & {*line.split(None, 2)[1:2]})

    def is_row(self, line: str) -> bool:
        """Return whether a line is a row with a word."""
        return bool(line.strip(" \t\r\n")) and not opens_document(line) and not self.is_comment(line)


def fields_of(line: str, *, has_tabs: bool) -> list[str]:
    """Split a line at tabs, or at runs of blanks."""
    content = line.removesuffix("\n").removesuffix("\r")
    return content.split("\t") if has_tabs else FIELD.findall(content)


def opens_document(line: str) -> bool:
    """Return whether a line begins a document, as in CoNLL-2003."""
    return line.startswith(DOCUMENT_START) and line[len(DOCUMENT_START) :][:1] in {"", " ", "\t", "\r", "\n"}
