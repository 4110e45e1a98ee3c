"""Where a text may be cut so that tokenizing the parts equals tokenizing the whole.

Blanks are the six ASCII ones. `\\x85`, `\\u2028` and their kin are ordinary characters: they end no line here.
"""

from __future__ import annotations

import re

BLANKS = " \t\n\r\f\v"
_BOUNDARY = re.compile(rf"\S(?=[{BLANKS}])")


def last_boundary(text: str) -> int | None:
    """The last place before a blank that follows a character that is no white space, or None.

    No tokenizer of this package makes a token across such a place. The character in front must not be white space in
    the wider sense of Unicode either, since the subword splitter keeps runs of it together.
    """
    width = 256
    while True:  # nearly always the first few characters looked at have one
        begin = max(0, len(text) - width)
        if places := [match.end() for match in _BOUNDARY.finditer(text, begin)]:
            return places[-1]
        if begin == 0:
            return None
        width *= 16
