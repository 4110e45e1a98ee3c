"""Values in a notebook: pieces of pages in the notebook's own colors, light or dark, and the progress of a run."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from markupsafe import Markup

from ensue.inspection.markup import clipped, drawn, file_text, short
from ensue.inspection.page import Section, cut
from ensue.runs.reporter import Facts, Outcome, Reporter, StepReport, Validation

One = TypeVar("One")
MOST_ROWS = 50
"""The most values of a list that are shown."""
LONGEST_CELL = 300
"""The most characters in a cell of a table."""
MOST_POINTS = 400
"""The most points of a curve."""
WIDTH, HEIGHT = 560, 180
"""Pixels of a curve."""
SECONDS_BETWEEN_UPDATES, TIMES_ITS_COST = 0.5, 50
"""An update waits so long after the last one, so that it takes at most 2 % of the time of training."""


class Shown:
    """A value that a notebook shows as a page would."""

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows of the table that it is shown as, with the same keys each; lists of such values have one table."""
        return [self.as_json()]  # type: ignore[attr-defined]

    def _pieces(self) -> Sequence[Section]:
        """The pieces of a page that show it."""
        return table_section(self._rows())

    def _repr_html_(self) -> str:
        return html(self._pieces())


class Answers(list[One]):
    """A list (and each slice of it) that a notebook shows as a table, or as the drawings of its values."""

    def __getitem__(self, place: Any) -> Any:
        found: Any = super().__getitem__(place)
        return Answers(found) if isinstance(place, slice) else found

    def _pieces(self) -> Sequence[Section]:
        rows: list[Mapping[str, Any]] = []
        drawings: list[Section] = []
        for one in self[:MOST_ROWS]:
            if isinstance(one, Answers):
                drawings += one._pieces()
            elif hasattr(one, "_rows"):
                rows += one._rows()
            elif hasattr(one, "_repr_html_"):
                drawings.append(Section("", "inspection/plain.html", {"shown": Markup(one._repr_html_())}))
            else:
                rows.append(one.as_json() if hasattr(one, "as_json") else one._asdict())
        note = cut(len(self), min(len(self), MOST_ROWS), "values")
        notes = [Section("", "inspection/plain.html", {"note": note, "shown": ""})] if note else []
        return [*table_section(rows), *drawings, *notes]

    def _repr_html_(self) -> str:
        return html(self._pieces())


class ShownScores(Shown):
    """Scores that a notebook shows in tables."""

    def _pieces(self) -> Sequence[Section]:
        return scores_section(self.as_json())  # type: ignore[attr-defined]


class Chips(NamedTuple):
    """Labels in a cell, with their colors."""

    colors: Mapping[str, str]


class Bar(NamedTuple):
    """A probability in a cell, as a number and a bar."""

    share: float


def html(pieces: Sequence[Section]) -> str:
    """The pieces of a page as a part of a notebook."""
    return str(drawn("inspection/notebook.html", style=_style(), pieces=pieces))


@cache
def _style() -> Markup:
    """The style of pages for what is in a notebook's output; ink and lines have the notebook's color."""
    rules, _, _ = file_text("style.css").replace(":root {", "& {", 1).partition("/* Only pages")
    return Markup(f".ensue {{\n{rules}{file_text('notebook.css')}}}")


def table_section(rows: Sequence[Mapping[str, Any]], heading: str = "") -> list[Section]:
    """A table of rows with their keys as its head; none without rows."""
    if not rows:
        return []
    head = list(dict.fromkeys(key for row in rows for key in row))
    is_number = {key: all(_is_number(row.get(key)) for row in rows) for key in head}
    shown = {
        "head": [("#" if is_number[key] else "") + _name(key) for key in head],
        "rows": [[(is_number[key], _cell(row.get(key))) for key in head] for row in rows],
    }
    return [Section(heading, "inspection/values.html", shown)]


def scores_section(scores: Mapping[str, Any], heading: str = "") -> list[Section]:
    """Scores by name, then those of each label."""
    numbers = [{"score": _name(name), "": value} for name, value in scores.items() if _is_number(value)]
    found = table_section(numbers, heading)
    labels = scores.get("per_label") or {}
    ranked = sorted(labels.items(), key=lambda item: (item[1]["f1"], item[0]))[:MOST_ROWS]
    return [*found, *table_section([{"label": label, **of_label} for label, of_label in ranked])]


def _name(key: str) -> str:
    return key.replace("_", " ").replace("f1", "F1")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> Any:
    """A value in a cell; what has a drawing of its own stays as it is."""
    match value:
        case Chips() | Bar():
            return value
        case {"text": text}:  # a part of a text
            found = str(text)
        case None | bool():
            found = {None: "-", True: "yes", False: "no"}[value]
        case int():
            found = f"{value:,}"
        case float():
            found = short(value)
        case list() | tuple():
            found = " · ".join(str(_cell(one)) for one in value[:LONGEST_CELL])
        case Mapping():
            found = " ".join(f"{key} {_cell(one)}" for key, one in value.items())
        case _:
            found = str(value)
    return clipped(found, LONGEST_CELL)


class Line(NamedTuple):
    """A curve in a drawing: its points in pixels, and the texts at its lowest and highest value."""

    name: str
    tone: int
    points: list[tuple[float, float]]
    low: str
    high: str


def curve_section(records: Sequence[Mapping[str, Any]], judged_by: Sequence[str]) -> list[Section]:
    """The curves of the loss and of the score in `judged_by` that chose the best weights; none without records."""
    train = [(record["step"], record["loss"]) for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    known = [name for name in judged_by if any(_is_finite(record["scores"].get(name)) for record in valid)]
    score = next((name for name in known if _chose(name, valid)), next(iter(known), ""))
    scores = [(record["step"], record["scores"].get(score)) for record in valid]
    drawn_lines = [("training loss", 0, _thinned(train)), (f"validation {_name(score)}", 1, _thinned(scores))]
    last = max((step for _, _, points in drawn_lines for step, _ in points), default=0)
    if not last:
        return []
    values = {name: [value for _, value in points] for name, _, points in drawn_lines}
    shared = list(chain(*values.values())) if "nats" in score else []
    found = [_line(name, tone, points, last, shared or values[name]) for name, tone, points in drawn_lines if points]
    return [Section("", "inspection/curve.html", {"lines": found, "last": last, "width": WIDTH, "height": HEIGHT})]


def _chose(name: str, valid: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the numbers that chose the best weights are those of this name, with or without a minus."""
    return all(
        record.get("selection") in (value, -value)
        for record in valid
        if _is_finite(value := record["scores"].get(name))
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most so many points, the last one among them."""
    finite = [point for point in points if _is_finite(point[1])]
    return finite[:: -(-len(finite) // MOST_POINTS) or 1] + finite[-1:]


def _line(name: str, tone: int, points: list[tuple[int, float]], last: int, values: Sequence[float]) -> Line:
    low, high = min(values), max(values)
    height = HEIGHT / ((high - low) or 1.0)
    pixels = [(WIDTH * step / last, (high - value) * height) for step, value in points]
    return Line(name, tone, pixels, short(low, 4), short(high, 4))


def kernel_display() -> Any:
    """IPython's module `display` where a notebook's kernel runs this program; else None, and nothing is imported."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None and hasattr(python, "get_ipython") else None
    names = {kind.__name__ for kind in type(shell).__mro__}
    return import_module("IPython.display") if "ZMQInteractiveShell" in names else None


class NotebookReporter(Reporter):
    """A bar, the curve and the last scores of a run, in the output of the cell that trains."""

    def __init__(self, display: Any, judged_by: Sequence[str]) -> None:
        self.display, self.judged_by = display, judged_by
        self.handle: Any = None
        self.facts: Facts | None = None
        self.records: list[dict[str, Any]] = []
        self.losses: list[float] = []
        self.lines: list[str] = []
        self.what, self.share, self.more = "", 0.0, ""
        self.summary = self.sample = ""
        self.due_at = 0.0

    def started(self, facts: Facts) -> None:
        self.facts = facts
        self.lines += facts.notes
        self._show()

    def noted(self, note: str) -> None:
        self.lines.append(note)
        self._show()

    def working(self, what: str, share: float) -> None:
        self.what, self.share, self.more = what, share, ""
        if self._is_due() or share >= 1:
            self._show()

    def stepped(self, report: StepReport) -> None:
        self.losses.append(report.loss)
        self.what, self.share = f"step {report.step:,}", report.share
        unit = self.facts.unit if self.facts else "tokens"
        left = f", {report.seconds_left:,.0f} s left" if report.seconds_left < float("inf") else ""
        self.more = f"loss {report.loss:.3f}, {report.speed:,.0f} {unit}/s{left}"
        if self._is_due():
            self._add_losses(report.step)
            self._show()

    def _add_losses(self, step: int) -> None:
        """Adds a point of the curve: the mean of the losses since the last one."""
        if self.losses:
            self.records.append({"kind": "train", "step": step, "loss": sum(self.losses) / len(self.losses)})
            self.losses.clear()

    def validated(self, validation: Validation) -> None:
        self._add_losses(validation.step)
        self.records.append({"kind": "valid", **vars(validation)})
        if validation.best or not self.summary:
            self.summary = f"best so far, step {validation.step:,}: {validation.summary}"
        self.sample = validation.sample
        self._show()

    def finished(self, outcome: Outcome) -> None:
        self.what = f"{outcome.reason} at step {outcome.step:,}"
        self.more = f"{outcome.seconds:,.1f} seconds of training"
        self.share = self.share if outcome.reason == "interrupted" else 1.0
        found = {"validation": outcome.valid_summary, "test": outcome.test_summary}
        named = "; ".join(f"{name} {summary}" for name, summary in found.items() if summary)
        self.summary = f"best weights, step {outcome.best_step:,}: {named}" if named else ""
        self._show()

    def _is_due(self) -> bool:
        return time.monotonic() >= self.due_at

    def _show(self) -> None:
        is_first, began = self.handle is None, time.monotonic()
        page = self.display.HTML(html(list(self._progress())))
        if is_first:
            self.handle = self.display.display(page, display_id=True)
        else:
            self.handle.update(page)
        now = time.monotonic()
        cost = 0.0 if is_first else now - began  # the first one imports and compiles the templates
        self.due_at = now + max(SECONDS_BETWEEN_UPDATES, TIMES_ITS_COST * cost)

    def _progress(self) -> Iterator[Section]:
        shown = {
            "facts": self.facts, "notes": self.lines, "what": self.what, "share": self.share, "more": self.more,
            "summary": self.summary, "sample": clipped(self.sample, LONGEST_CELL),
        }  # fmt: skip
        yield Section("", "inspection/training.html", shown)
        yield from curve_section(self.records, self.judged_by)
