"""Words as they are written in a line: a blank between two, but none before a closing mark or behind an opening one."""

import unicodedata

CLOSING, OPENING, QUOTES = set(".,;:!?…。、，．！？：；।॥،؛؟۔"), set("¿¡"), set('"“”„«»')


def written(words, joins_marks):
    """The text of words; "\\n" ends a line. Without `joins_marks` there is a blank between any two."""
    text, blank, in_quotes = "", "", False
    for word in words:
        closes = opens = False
        if word == "\n":
            text, blank, in_quotes = text + word, "", False
            continue
        if joins_marks and word in QUOTES:
            in_quotes = not in_quotes
            closes, opens = not in_quotes, in_quotes
        elif joins_marks and len(word) == 1:
            kind = unicodedata.category(word)
            closes, opens = word in CLOSING or kind in ("Pe", "Pf"), word in OPENING or kind in ("Ps", "Pi")
        text, blank = text + ("" if closes else blank) + word, "" if opens else " "
    return text
