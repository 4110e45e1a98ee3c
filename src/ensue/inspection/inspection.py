"""The result of looking inside a model, in numbers and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from markupsafe import Markup

from ensue.errors import EnsueError
from ensue.inspection.markup import escaped
from ensue.inspection.numbers import as_json
from ensue.inspection.page import Part, Section, content, page

TITLE = 84
"""The most characters of a text in the title of its page."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """One text in one model: `view` are the numbers, in a form of the task's own; `sections` say which of them are
    drawn how, below `facts` in plain text.

    In a notebook it shows the page.
    """

    title: str
    view: Any
    facts: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    others: tuple[Inspection, ...] = ()
    """Inspections of this text in other models, which the page shows beside."""

    def beside(self, other: Inspection) -> Self:
        """This one, with `other` at its side on the page. Raises EnsueError if their views differ in kind."""
        if type(self.view) is not type(other.view):
            raise EnsueError("two models of different tasks have nothing to be compared")
        return replace(self, others=(*self.others, other))

    @cached_property
    def content(self) -> Markup:
        """The content of the page: HTML without its scripts and style."""
        return content(self.title, [Part(one.facts, one.sections) for one in (self, *self.others)])

    @cached_property
    def page(self) -> str:
        """An HTML document that needs no network."""
        return page(self.title, self.content)

    def as_json(self) -> Any:
        """The numbers of `view` as JSON values."""
        return as_json(self.view)

    def save(self, path: str | Path) -> Path:
        """Writes the page. Raises EnsueError if that is not possible."""
        path = Path(path)
        try:
            path.write_text(self.page, encoding="utf-8", newline="\n")
        except OSError as error:
            raise EnsueError(f"{path}: the page cannot be written: {error.strerror or error}") from error
        return path

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{escaped(str(self.page))}" style="{frame}" sandbox="allow-scripts"></iframe>'

    def __repr__(self) -> str:
        return f"Inspection({self.title!r}, {len(self.page) // 1000:,} kB; save(path) writes the page)"
