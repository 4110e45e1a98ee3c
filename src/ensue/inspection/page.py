"""The HTML page of an inspection, a single file with its style and scripts.

A template is in the folder of the Python file that renders it. The name of a template is its path in the package.
"""

import json
import math
import re
import unicodedata
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from markupsafe import Markup, escape
from rich.console import Console
from rich.text import Text

from ensue.errors import EnsueError, list_names
from ensue.extension import loadable_entries
from ensue.interruption import check_interrupted
from ensue.outputs import atomic_output, check_new
from ensue.runs.pictures import HeatMap, LinePlot
from ensue.text.boundaries import is_boundary
from ensue.version import VERSION, package_text

MAX_NUMBERS = 1 << 20
"""The maximum size of an array in JSON. Larger arrays are replaced by their shape."""
NUM_ITEMS_PER_CHUNK = 1 << 12
"""The number of values that are formatted as JSON at a time."""


def as_json(value: Any) -> Any:
    """Return a view as JSON values: dataclasses as objects, arrays as lists, NaN and infinity as null.

    An array of more than `MAX_NUMBERS` numbers is replaced by its shape: `{"shape": [4000, 1024]}`.
    """
    value = _as_dict(value)
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [as_json(item) for item in value]
    return _array_as_list(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic, float)) else value


def json_chunks(value: Any) -> Iterator[str]:
    """Yield the text of `as_json(value)` in chunks, so that memory is bounded and other threads can run."""
    value = _as_dict(value)
    if isinstance(value, Mapping):
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}{_dump(str(key))}:"
            yield from json_chunks(item)
        yield "}" if value else "{}"
    elif isinstance(value, np.ndarray) and value.size > NUM_ITEMS_PER_CHUNK and value[0].size <= NUM_ITEMS_PER_CHUNK:
        yield from _list_chunks(value, max(1, NUM_ITEMS_PER_CHUNK // value[0].size))
    elif isinstance(value, (list, tuple, range)) and set(map(type, value)) <= {str, int, float, bool, type(None)}:
        yield from _list_chunks(value, NUM_ITEMS_PER_CHUNK)
    elif isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.size > NUM_ITEMS_PER_CHUNK):
        for number, item in enumerate(value):
            yield "," if number else "["
            yield from json_chunks(item)
        yield "]" if len(value) else "[]"
    else:
        yield _dump(as_json(value))


def _as_dict(value: Any) -> Any:
    """Return an object as a dict of its fields, a large array as a dict with its shape, and other values unchanged."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return {"shape": list(value.shape)} if isinstance(value, np.ndarray) and value.size > MAX_NUMBERS else value


def _list_chunks(values: Any, size: int) -> Iterator[str]:
    for start in range(0, len(values), size):
        yield f"{',' if start else '['}{_dump(as_json(values[start : start + size]))[1:-1]}"
    yield "]" if len(values) else "[]"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _array_as_list(values: np.ndarray[Any, Any]) -> Any:
    if values.dtype.kind != "f":
        return values.tolist()
    rounded = _round_float32(values.astype(np.float64)) if values.dtype.itemsize < 8 else values
    return np.where(np.isfinite(rounded), rounded.astype(object), np.array(None)).tolist()


def _round_float32(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 numbers to nine significant digits, so that different numbers stay different."""
    with np.errstate(all="ignore"):
        scale = 10.0 ** (8 - np.floor(np.log10(np.abs(values))))
        return np.where(np.isfinite(scale) & (scale > 0), np.rint(values * scale) / scale, values)


if TYPE_CHECKING:  # jinja2 is imported with the first page
    from jinja2 import Environment


_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
MAX_WORD_CHARACTERS = 300
"""The maximum number of characters of a word on a page."""
NARROW, WIDE = 7.2, 13.5
"""The width in pixels of a Latin and an East Asian character, at a font size of 13 pixels."""


def clean(text: str) -> str:
    """Replace control characters and surrogates, which HTML does not allow, by U+FFFD."""
    return _FORBIDDEN.sub("\ufffd", text)


def escape_text(text: str) -> Markup:
    """Escape a text for content and attributes."""
    return escape(clean(text))


def token_markup(piece: str) -> Markup:
    """Return a token as HTML, with a dot for an empty token and an arrow before a line end."""
    return escape_text(clip(piece, MAX_WORD_CHARACTERS) or "·").replace("\n", Markup("<i>↵</i>\n"))


def reveal(character: str) -> str:
    """Return a character in visible form: combining marks on a circle, invisible characters as code points."""
    category = unicodedata.category(character)
    if category.startswith("M") and not "\ufe00" <= character <= "\ufe0f":
        return "\u25cc" + character
    return f"{ord(character):04X}" if category[0] in "CZM" else character


def clip(text: str, max_characters: int = 16) -> str:
    """Shorten a text to at most `max_characters` characters, without splitting a grapheme."""
    if len(text) <= max_characters:
        return text
    cut = max_characters - 1
    while cut > 1 and not is_boundary(text, cut):
        cut -= 1
    return text[:cut] + "…"


def measure_width(text: str) -> float:
    """Return the approximate width of a text in pixels."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.category(character) in ("Mn", "Me", "Cf") for character in text)
    return wide * WIDE + (len(text) - wide - marks) * NARROW


def signed(value: float, digits: int = 2) -> str:
    """Return a rounded number with a plus or minus sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def decimal(value: float, digits: int = 2) -> str:
    """Return a rounded number, with a minus sign instead of a hyphen."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def format_number(value: float, digits: int = 5) -> str:
    """Return a number with a few significant digits; NaN is "missing"."""
    return "missing" if math.isnan(value) else f"{value:.{digits}g}".replace("-", "−")


def format_probability(value: float) -> str:
    """Return a probability with three digits; "<.001" between 0 and .001, and ">.999" between .999 and 1."""
    if 0 < value < 0.001:
        return "<.001"
    return ">.999" if 0.999 < value < 1 else f"{value:.3f}".removeprefix("0")


def render(template: str, **values: Any) -> Markup:
    """Render a template such as `tasks/labeling/paths.html` with these values."""
    pieces = []
    for piece in _environment().get_template(template).generate(values):
        check_interrupted()
        pieces.append(piece)
    return Markup("".join(pieces))


def file_text(name: str) -> str:
    """Return the text of a file in the inspector's folder, such as `page.js`."""
    return package_text(f"inspection/{name}")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415

    environment = Environment(
        loader=FunctionLoader(package_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )  # fmt: skip
    environment.policies["json.dumps_function"] = _dump_with_null
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.filters |= {
        "clipped": clip, "decimal": decimal, "fixed": lambda value, digits=1: f"{value:.{digits}f}",
        "share": format_probability, "short": format_number, "signed": signed, "written": token_markup,
    }  # fmt: skip
    return environment


def _dump_with_null(value: Any, **options: Any) -> str:
    """Return JSON with null for NaN and infinity."""
    try:
        return json.dumps(value, **options)
    except ValueError:
        return json.dumps(as_json(value), **options)


def ansi(console: Console, text: Text) -> str:
    """Return the text with escape sequences for the colors of a terminal."""
    with console.capture() as captured:
        console.print(text, end="", soft_wrap=True)
    return captured.get().rstrip()


SCRIPTS = "page", "keys", "tokens", "colors", "asks", "selection", "attention", "curves", "doubts"
"""The scripts of every page, without ".js". Elements of a page name the script that handles them."""
LIBRARY = "libraries/uPlot"
"""The files of uPlot 1.6.32, which draws curves."""


class Section(NamedTuple):
    """A section of a page, rendered from a `template` and its `values`.

    `pictures` has the section's pictures for matplotlib, by kind, such as "attention", and by name.
    """

    heading: str
    template: str
    values: Mapping[str, Any]
    pictures: Mapping[str, Mapping[str, HeatMap | LinePlot]] = {}

    @classmethod
    def plain(cls, heading: str, drawing: str, *, about: str = "", note: str = "") -> "Section":
        """Return a section with a drawing and a text above it."""
        texts = {"about": about} if about else {}
        return cls(heading, "inspection/plain.html", {**texts, "note": note, "shown": drawing})

    @property
    def content(self) -> Markup:
        """The rendered template."""
        return render(self.template, **self.values)


class Article(NamedTuple):
    """The part of a page that shows a text in one model: `facts` by name, and sections."""

    facts: Mapping[str, str]
    sections: Sequence[Section]


def content(title: str, articles: Sequence[Article]) -> Markup:
    """Return the content of a page, with the title and the articles side by side."""
    headings = list(dict.fromkeys(section.heading for article in articles for section in article.sections))
    return render("inspection/content.html", title=title, parts=articles, headings=headings)


def page(title: str, content: Markup) -> str:
    """Return the HTML document of a page."""
    return _document(title, content, live=False)


@cache
def live_page() -> str:
    """Return the document of the server's page. The script of the page requests the content."""
    return _document("ensue", Markup(), live=True)


def _document(title: str, content: Markup, *, live: bool) -> str:
    document = render(
        "inspection/page.html", title=title, content=content, live=live, policy=policy(live=live), version=VERSION,
        style=style(), script=script(live=live),
    )  # fmt: skip
    return str(document)


@cache
def style() -> Markup:
    """Return the style sheet of pages, light and dark."""
    return Markup(file_text(f"{LIBRARY}.min.css") + file_text("style.css"))


@cache
def script(*, live: bool) -> Markup:
    """Return the concatenation of all scripts, with the license of the library."""
    _, _, library = file_text(f"{LIBRARY}.iife.min.js").partition("*/")  # drops the first comment, the name
    scripts = "".join(file_text(f"{name}.js") for name in (*SCRIPTS, "live" if live else "offline"))
    return Markup(f"/* uPlot 1.6.32\n{file_text(f'{LIBRARY}.LICENSE')}*/\n{library}\n{scripts}")


@cache
def policy(*, live: bool) -> str:
    """Return the content security policy. It allows the script, embedded images, and the requests of a live page."""
    digest = b64encode(sha256(script(live=live).encode()).digest()).decode()
    network = "; connect-src 'self'; base-uri 'none'; form-action 'none'" if live else ""
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'{network}"


def note_cut(total: int, drawn: int, what: str, which: str = "first") -> str:
    """Return a note such as `The first 60 of 2,000 words are shown.`; "" if all words are shown."""
    return f"The {which} {drawn:,} of {total:,} {what} are shown." if drawn < total else ""


MAX_TITLE_CHARACTERS = 84
"""The maximum number of characters of a text in the title of its page."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """The inspection of a text. `view`, an object of a class of the task, has the numbers of the page."""

    title: str
    view: Any
    facts: Mapping[str, str] = field(default_factory=dict)
    sections: Sequence[Section] = ()
    others: "tuple[Inspection, ...]" = ()
    """Inspections of the same text in other models, which the page shows side by side."""

    def beside(self, other: "Inspection") -> Self:
        """Return a copy that also shows `other` on its page. Raises EnsueError for models of different tasks."""
        if type(self.view) is not type(other.view):
            raise EnsueError("models of different tasks cannot be compared")
        return replace(self, others=(*self.others, other))

    @cached_property
    def content(self) -> Markup:
        """The content of the page without scripts and style. Sections of extensions come last."""
        added = loadable_entries("section", Callable).values()  # type: ignore[arg-type]  # an abstract type for isinstance
        articles = [
            Article(shown.facts, [*shown.sections, *(section for make in added for section in make(shown))])
            for shown in (self, *self.others)
        ]
        return content(self.title, articles)

    @cached_property
    def page(self) -> str:
        """The HTML document of the page."""
        return page(self.title, self.content)

    def plot(self, what: str, which: str = "", *, ax: Any = None) -> Any:
        """Draw a picture with matplotlib.

        Args:
            what: The kind, such as "attention" or "gates".
            which: The name of the picture, such as "layer 2, head 1"; by default the first picture of the kind.
            ax: The axes; by default new ones.

        Returns:
            The axes.

        Raises:
            EnsueError: The inspection has no picture of this kind and name.
        """
        pictures: dict[str, dict[str, HeatMap | LinePlot]] = {}
        for section in self.sections:
            for kind, by_name in section.pictures.items():
                pictures.setdefault(kind, {}).update(by_name)
        if what not in pictures:
            known = f"expected {list_names(list(pictures))}" if pictures else "the page has no pictures"
            raise EnsueError(f'there is no picture "{what}"; {known}')
        name = which or next(iter(pictures[what]))
        if name not in pictures[what]:
            raise EnsueError(f'there is no {what} of "{name}"; expected {list_names(list(pictures[what]))}')
        return pictures[what][name].draw(ax, name)

    def as_json(self) -> Any:
        """Return the numbers of `view` as JSON values."""
        return as_json(self.view)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the page. Raises EnsueError if the file cannot be written, or exists and may not be replaced."""
        check_new(path, overwrite=overwrite)
        with atomic_output(path) as partial:
            partial.write_text(self.page, encoding="utf-8", newline="\n")
        return Path(path)

    def _repr_html_(self) -> str:
        frame = "width:100%;height:80vh;border:0"
        return f'<iframe srcdoc="{escape_text(str(self.page))}" style="{frame}" sandbox="allow-scripts"></iframe>'

    def __repr__(self) -> str:
        return f"Inspection({self.title!r}, {len(self.page) // 1000:,} kB; save(path) writes the page)"
