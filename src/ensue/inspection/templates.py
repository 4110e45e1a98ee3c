"""Templates: how numbers become HTML, in which every text is escaped.

A template stands beside the Python file that has its numbers, and is named by its path in the package.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from ensue.inspection.markup import clean, clipped, plain, share, short, signed, written
from ensue.inspection.numbers import as_json

if TYPE_CHECKING:  # it is imported with the first page
    from jinja2 import Environment

PACKAGE = Path(__file__).parents[1]


def drawn(template: str, **numbers: Any) -> Markup:
    """The HTML of a template such as `tasks/labeling/paths.html` with these numbers."""
    return Markup(_environment().get_template(template).render(numbers))


def file_text(name: str) -> str:
    """The text of a file of the inspector, such as `page.js`."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415

    found = Environment(
        loader=FileSystemLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finished,
    )
    found.policies["json.dumps_function"] = _dumped
    found.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    found.filters |= {
        "clipped": clipped, "fixed": _fixed, "plain": plain, "share": share, "short": short, "signed": signed,
        "written": written,
    }  # fmt: skip
    return found


def _dumped(value: Any, **options: Any) -> str:
    """JSON, with null for what is no number, as in a model whose weights are none."""
    try:
        return json.dumps(value, **options)
    except ValueError:
        return json.dumps(as_json(value), **options)


def _finished(value: Any) -> Any:
    """Characters that no document may hold are replaced in every text."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _fixed(value: float, digits: int = 1) -> str:
    """A number with so many digits behind the point."""
    return f"{value:.{digits}f}"
