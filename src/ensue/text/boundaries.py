"""Where a text may be cut so that tokenizing the parts equals tokenizing the whole.

Blanks are the six ASCII ones. `\\x85`, `\\u2028` and similar characters are ordinary ones: they end no line here.
"""

from __future__ import annotations

import re

BLANKS = " \t\n\r\f\v"
_BOUNDARY = re.compile(r"\S(?=[ \t\n\r])")
"""WordPiece drops the other two blanks, so that a word goes on behind them."""


def last_boundary(text: str) -> int | None:
    """The last place between a character that is not white space and ` `, `\\t`, `\\n` or `\\r`; None if there is none.

    No tokenizer of this package makes a token across such a place. White space is that of Unicode, since the subword
    splitter keeps runs of it together.
    """
    width = 256
    while True:  # the first width is nearly always enough
        begin = max(0, len(text) - width)
        if places := [match.end() for match in _BOUNDARY.finditer(text, begin)]:
            return places[-1]
        if begin == 0:
            return None
        width *= 16
