"""The skeleton of a page: one HTML document with its style and script inside, which fetches nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ensue.inspection.markup import escaped
from ensue.inspection.style import SCRIPT, STYLE
from ensue.version import VERSION

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


class Section(NamedTuple):
    """A part of a page; `heading` is text, `content` is HTML."""

    heading: str
    content: str


def page(title: str, facts: Mapping[str, str], sections: Sequence[Section], *, script: str = "") -> str:
    """The document. `facts` are shown at the top, as plain text; `script` follows the one that all pages have."""
    listed = "".join(f"<li>{escaped(name)} <b>{escaped(fact)}</b></li>" for name, fact in facts.items())
    parts = "\n".join(f"<section><h2>{escaped(part.heading)}</h2>{part.content}</section>" for part in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escaped(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1><bdi>{escaped(title)}</bdi></h1>
<ul class="facts">{listed}</ul>
{parts}
<footer>ensue {VERSION}. Numbers appear where the pointer rests.</footer>
<script>{SCRIPT}{script}</script>
</body>
</html>
"""


def paragraph(text: str, kind: str = "") -> str:
    """`text` is HTML."""
    return f'<p class="{kind}">{text}</p>' if kind else f"<p>{text}</p>"


def cut(whole: int, drawn: int, what: str, which: str = "first") -> str:
    """A note such as `the first 60 of 2,000 words are shown`; "" if all are shown."""
    return paragraph(f"The {which} {drawn:,} of {whole:,} {what} are shown.", "note") if drawn < whole else ""


def table(head: Sequence[str], rows: Sequence[str]) -> str:
    """`head` and `rows` are HTML, the rows with their `tr`; a head that begins with # stands over numbers."""
    cells = "".join(
        f'<th class="number">{name[1:]}</th>' if name.startswith("#") else f"<th>{name}</th>" for name in head
    )
    return f'<div class="table"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
