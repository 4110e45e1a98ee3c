"""The result of looking inside a model, in numbers and as a page."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ensue.errors import EnsueError

TITLE = 84
"""The most characters of a text in the title of its page."""


@dataclass(frozen=True, repr=False)
class Inspection:
    """One text in one model: `view` are the numbers, in a form of the task's own. `page` shows them all as an HTML
    document that needs no network.

    In a notebook it shows the page.
    """

    title: str
    view: Any = field(repr=False)
    page: str = field(repr=False)

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
        return f'<iframe srcdoc="{html.escape(self.page)}" style="{frame}" sandbox="allow-scripts"></iframe>'

    def __repr__(self) -> str:
        return f"Inspection({self.title!r}, {len(self.page) // 1000:,} kB; save(path) writes the page)"
