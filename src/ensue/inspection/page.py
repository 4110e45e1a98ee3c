"""A page about a text in a model: one HTML document with its style and scripts inside, which fetches nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Self

from markupsafe import Markup

from ensue.errors import EnsueError, listed
from ensue.extension import loadable_entries
from ensue.inspection.markup import as_json, drawn, escaped, file_text
from ensue.outputs import check_new, written
from ensue.runs.pictures import Grid, Lines
from ensue.version import VERSION

SCRIPTS = "page", "keys", "tokens", "colors", "asks", "selection", "attention", "curves", "doubts"
"""The scripts of every page, without ".js". Each moves the parts of a page that name it."""
LIBRARY = "libraries/uPlot"
"""uPlot 1.6.32, which draws curves."""


class Section(NamedTuple):
    """A part of a page: a `heading`, and the `numbers` that a `template` draws.

    `pictures` can be drawn with matplotlib: by what they show, such as "attention", and then by name.
    """

    heading: str
    template: str
    numbers: Mapping[str, Any]
    pictures: Mapping[str, Mapping[str, Grid | Lines]] = {}

    @classmethod
    def plain(cls, heading: str, drawing: str, *, about: str = "", note: str = "") -> Section:
        """A drawing, with what it shows above it."""
        texts = {"about": about} if about else {}
        return cls(heading, "inspection/plain.html", {**texts, "note": note, "shown": drawing})

    @property
    def content(self) -> Markup:
        """The drawing."""
        return drawn(self.template, **self.numbers)


class Part(NamedTuple):
    """One text in one model, as shown. `facts` stand at its top, as plain text."""

    facts: Mapping[str, str]
    sections: Sequence[Section]


def content(title: str, parts: Sequence[Part]) -> Markup:
    """The variable parts of a page: the title, and the articles side by side."""
    headings = list(dict.fromkeys(section.heading for part in parts for section in part.sections))
    return drawn("inspection/content.html", title=title, parts=parts, headings=headings)


def page(title: str, content: Markup) -> str:
    """The document around a `content`."""
    return _document(title, content, live=False)


@cache
def live_page() -> str:
    """The document that asks the server from which it comes for its content."""
    return _document("ensue", Markup(), live=True)


def _document(title: str, content: Markup, *, live: bool) -> str:
    found = drawn(
        "inspection/page.html", title=title, content=content, live=live, policy=policy(live=live), version=VERSION,
        style=style(), script=script(live=live),
    )  # fmt: skip
    return str(found)


@cache
def style() -> Markup:
    """The look of a page, in light and in dark."""
    return Markup(file_text(f"{LIBRARY}.min.css") + file_text("style.css"))


@cache
def script(*, live: bool) -> Markup:
    """All scripts as one, with the license of the library in it."""
    _, _, library = file_text(f"{LIBRARY}.iife.min.js").partition("*/")  # behind its name, which is in the license
    own = "".join(file_text(f"{name}.js") for name in (*SCRIPTS, "live" if live else "offline"))
    return Markup(f"/* uPlot 1.6.32\n{file_text(f'{LIBRARY}.LICENSE')}*/\n{library}\n{own}")


@cache
def policy(*, live: bool) -> str:
    """The content security policy: the page's own script, images in it, and of the network at most its own server."""
    digest = b64encode(sha256(script(live=live).encode()).digest()).decode()
    network = "; connect-src 'self'; base-uri 'none'; form-action 'none'" if live else ""
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'{network}"


def cut(whole: int, drawn: int, what: str, which: str = "first") -> str:
    """A note such as `the first 60 of 2,000 words are shown`; "" if all are shown."""
    return f"The {which} {drawn:,} of {whole:,} {what} are shown." if drawn < whole else ""


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
        """The content of the page: HTML without its scripts and style. Sections of extensions stand at the end."""
        added = loadable_entries("section", Callable).values()  # type: ignore[arg-type]  # abstract, as isinstance takes it
        parts = []
        for one in (self, *self.others):
            parts.append(Part(one.facts, [*one.sections, *(section for make in added for section in make(one))]))
        return content(self.title, parts)

    @cached_property
    def page(self) -> str:
        """An HTML document that needs no network."""
        return page(self.title, self.content)

    def plot(self, what: str, which: str = "", *, ax: Any = None) -> Any:
        """Draws "attention", "gates" or what else there is with matplotlib, on the axes `ax` or new ones; returns them.

        `which` is one of several by its name, such as "layer 2, head 1"; by default the first. Raises EnsueError for
        what the model does not have.
        """
        found: dict[str, dict[str, Grid | Lines]] = {}
        for section in self.sections:
            for kind, some in section.pictures.items():
                found.setdefault(kind, {}).update(some)
        if what not in found:
            raise EnsueError(f'there is no picture "{what}"; expected {listed(list(found)) if found else "nothing"}')
        name = which or next(iter(found[what]))
        if name not in found[what]:
            raise EnsueError(f'there is no {what} of "{name}"; expected {listed(list(found[what]))}')
        return found[what][name].draw(ax, name)

    def as_json(self) -> Any:
        """The numbers of `view` as JSON values."""
        return as_json(self.view)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Writes the page. Raises EnsueError if it cannot, and for a file of somebody else unless `overwrite`."""
        check_new(path, overwrite=overwrite)
        with written(path) as partial:
            partial.write_text(self.page, encoding="utf-8", newline="\n")
        return Path(path)

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{escaped(str(self.page))}" style="{frame}" sandbox="allow-scripts"></iframe>'

    def __repr__(self) -> str:
        return f"Inspection({self.title!r}, {len(self.page) // 1000:,} kB; save(path) writes the page)"
