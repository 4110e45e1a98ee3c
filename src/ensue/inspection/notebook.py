"""Displays in notebooks: values as tables and drawings, and the progress of a run."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import Any, NamedTuple, SupportsIndex, TypeVar, overload

from markupsafe import Markup

from ensue.errors import EnsueError, in_python
from ensue.inspection.page import Section, clip, file_text, format_number, note_cut, render
from ensue.runs.reporter import Facts, Outcome, Reporter, StepReport, Validation

Answer = TypeVar("Answer")
MAX_ROWS = 50
"""The maximum number of displayed values of a list."""
MAX_CELL_CHARACTERS = 300
"""The maximum number of characters in a cell of a table."""
MAX_POINTS = 400
"""The maximum number of points of a curve."""
WIDTH, HEIGHT = 560, 180
"""The size of a curve in pixels."""
MIN_UPDATE_SECONDS, UPDATE_COST_FACTOR = 0.5, 50
"""The minimum interval between updates: 0.5 s, or 50 times the duration of an update. So updates take up to 2 %."""


class Shown:
    """A value with a display in notebooks."""

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the value's table, which have equal keys. `Answers` joins the tables of its values."""
        return [self.as_json()]  # type: ignore[attr-defined]

    def table_rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the rows of the value in a DataFrame or a CSV file; by default one row, `as_json`."""
        return [self.as_json()]  # type: ignore[attr-defined]

    def _sections(self) -> Sequence[Section]:
        """Return the sections that display the value."""
        return table_section(self._rows())

    def _repr_html_(self) -> str:
        return html(self._sections())


class Answers(list[Answer]):
    """A list that a notebook displays as a table, or as drawings of the values. Slices are `Answers`, too."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Answer: ...

    @overload
    def __getitem__(self, index: slice) -> "Answers[Answer]": ...

    def __getitem__(self, index: Any) -> Any:
        selected: Any = super().__getitem__(index)
        return Answers(selected) if isinstance(index, slice) else selected

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each value; values of taggers have a row for each word or frame.

        The index has the numbers of the answers, from 0.
        """
        values: list[Any] = [*self]
        rows = [value.table_rows() if hasattr(value, "table_rows") else [_row(value)] for value in values]
        numbers = [number for number, value_rows in enumerate(rows) for _ in value_rows]
        return data_frame([*chain.from_iterable(rows)], numbers)

    def _sections(self) -> Sequence[Section]:
        rows: list[Mapping[str, Any]] = []
        drawings: list[Section] = []
        value: Any
        for value in self[:MAX_ROWS]:
            if isinstance(value, Answers):
                drawings += value._sections()
            elif hasattr(value, "_rows"):
                rows += value._rows()
            elif hasattr(value, "_repr_html_"):
                drawings.append(Section("", "inspection/plain.html", {"shown": Markup(value._repr_html_())}))
            else:
                rows.append(_row(value))
        note = note_cut(len(self), min(len(self), MAX_ROWS), "values")
        notes = [Section("", "inspection/plain.html", {"note": note, "shown": ""})] if note else []
        return [*table_section(rows), *drawings, *notes]

    def _repr_html_(self) -> str:
        return html(self._sections())


def _row(value: Any) -> Mapping[str, Any]:
    return value.as_json() if hasattr(value, "as_json") else value._asdict()


def data_frame(rows: Sequence[Mapping[str, Any]], index: Sequence[str | int]) -> Any:
    """Return a pandas DataFrame. Raises EnsueError if pandas is not installed."""
    if find_spec("pandas") is None:
        raise EnsueError("a DataFrame needs the package pandas: pip install pandas")
    return import_module("pandas").DataFrame(rows, index=index)


class ShownScores(Shown):
    """Scores that a notebook displays as tables."""

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row "all" for the scores, and a row for each label with scores."""
        scores: dict[str, Any] = self.as_json()  # type: ignore[attr-defined]
        labels = scores.get("per_label") or {}
        single = {key: value for key, value in scores.items() if isinstance(value, int | float | str)}
        return data_frame([single, *labels.values()], ["all", *labels])

    def _sections(self) -> Sequence[Section]:
        return scores_section(self.as_json())  # type: ignore[attr-defined]


class Chips(NamedTuple):
    """Colored labels in a cell, as a mapping from label to color."""

    colors: Mapping[str, str]


class Bar(NamedTuple):
    """A probability in a cell, as a number and a bar."""

    share: float


def html(sections: Sequence[Section]) -> str:
    """Return sections as HTML for a notebook."""
    return str(render("inspection/notebook.html", style=_style(), sections=sections))


@cache
def _style() -> Markup:
    """Return the style of pages within a notebook's output, in the notebook's colors."""
    rules, _, _ = file_text("style.css").replace(":root {", "& {", 1).partition("/* Only for pages")
    return Markup(f".ensue {{\n{rules}{file_text('notebook.css')}}}")


def table_section(rows: Sequence[Mapping[str, Any]], heading: str = "") -> list[Section]:
    """Return a section with a table, whose header has the keys of the rows; an empty list without rows."""
    if not rows:
        return []
    head = list(dict.fromkeys(key for row in rows for key in row))
    is_number = {key: all(_is_number(row.get(key)) for row in rows) for key in head}
    content = {
        "head": [("#" if is_number[key] else "") + _name(key) for key in head],
        "rows": [[(is_number[key], _cell(row.get(key))) for key in head] for row in rows],
    }
    return [Section(heading, "inspection/values.html", content)]


def scores_section(scores: Mapping[str, Any], heading: str = "") -> list[Section]:
    """Return sections with a table of scores, and a table of the scores of each label."""
    numbers = [{"score": _name(name), "": value} for name, value in scores.items() if _is_number(value)]
    tables = table_section(numbers, heading)
    ranked = sorted((scores.get("per_label") or {}).items(), key=lambda item: (item[1]["f1"], item[0]))[:MAX_ROWS]
    return [*tables, *table_section([{"label": label, **label_scores} for label, label_scores in ranked])]


def _name(key: str) -> str:
    return key.replace("_", " ").replace("f1", "F1")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> Any:
    """Return a value as the text of a cell. Chips and bars are returned unchanged."""
    match value:
        case Chips() | Bar():
            return value
        case {"text": text}:  # a span
            content = str(text)
        case None | bool():
            content = {None: "-", True: "yes", False: "no"}[value]
        case int():
            content = f"{value:,}"
        case float():
            content = format_number(value)
        case list() | tuple():
            content = " · ".join(str(_cell(item)) for item in value[:MAX_CELL_CHARACTERS])
        case Mapping():
            content = " ".join(f"{key} {_cell(item)}" for key, item in value.items())
        case _:
            content = str(value)
    return clip(content, MAX_CELL_CHARACTERS)


class Line(NamedTuple):
    """A curve, with points in pixels, and labels for its minimum and maximum."""

    name: str
    tone: int
    points: list[tuple[float, float]]
    low: str
    high: str


def curve_section(records: Sequence[Mapping[str, Any]], judged_by: Sequence[str]) -> list[Section]:
    """Return a section with the curves of the training loss and the selection score; [] without records."""
    train = [(record["step"], record["loss"]) for record in records if record["kind"] == "train"]
    valid = [record for record in records if record["kind"] == "valid"]
    logged = [name for name in judged_by if any(_is_finite(record["scores"].get(name)) for record in valid)]
    score = next((name for name in logged if _has_selected(name, valid)), next(iter(logged), ""))
    scores = [(record["step"], record["scores"].get(score)) for record in valid]
    drawn_lines = [("training loss", 0, _thin_out(train)), (f"validation {_name(score)}", 1, _thin_out(scores))]
    last = max((step for _, _, points in drawn_lines for step, _ in points), default=0)
    if not last:
        return []
    values = {name: [value for _, value in points] for name, _, points in drawn_lines}
    shared = list(chain(*values.values())) if "nats" in score else []
    lines = [_line(name, tone, points, last, shared or values[name]) for name, tone, points in drawn_lines if points]
    return [Section("", "inspection/curve.html", {"lines": lines, "last": last, "width": WIDTH, "height": HEIGHT})]


def _has_selected(name: str, valid: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the best weights were selected by this score or its negative."""
    return all(
        record.get("selection") in (value, -value)
        for record in valid
        if _is_finite(value := record["scores"].get(name))
    )


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < float("inf")


def _thin_out(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return at most MAX_POINTS + 1 finite points, including the last point."""
    finite = [point for point in points if _is_finite(point[1])]
    return finite[:: -(-len(finite) // MAX_POINTS) or 1] + finite[-1:]


def _line(name: str, tone: int, points: list[tuple[int, float]], last: int, values: Sequence[float]) -> Line:
    low, high = min(values), max(values)
    height = HEIGHT / ((high - low) or 1.0)
    pixels = [(WIDTH * step / last, (high - value) * height) for step, value in points]
    return Line(name, tone, pixels, format_number(low, 4), format_number(high, 4))


def kernel_display() -> Any:
    """Return IPython's module `display` in a notebook; else None, without importing IPython."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None and hasattr(python, "get_ipython") else None
    names = {kind.__name__ for kind in type(shell).__mro__}
    return import_module("IPython.display") if "ZMQInteractiveShell" in names else None


class NotebookReporter(Reporter):
    """The progress bar, learning curve and latest scores of a run in the output of a notebook's cell."""

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
        self.lines += map(in_python, facts.notes)
        self._show()

    def noted(self, note: str) -> None:
        self.lines.append(in_python(note))
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
        """Add a point with the mean loss since the last point to the curve."""
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
        summaries = {"validation": outcome.valid_summary, "test": outcome.test_summary}
        scores = "; ".join(f"{name} {summary}" for name, summary in summaries.items() if summary)
        self.summary = f"best weights, step {outcome.best_step:,}: {scores}" if scores else ""
        self._show()

    def _is_due(self) -> bool:
        return time.monotonic() >= self.due_at

    def _show(self) -> None:
        is_first, start = self.handle is None, time.monotonic()
        page = self.display.HTML(html(list(self._progress())))
        if is_first:
            self.handle = self.display.display(page, display_id=True)
        else:
            self.handle.update(page)
        now = time.monotonic()
        cost = 0.0 if is_first else now - start  # the first display imports and compiles the templates
        self.due_at = now + max(MIN_UPDATE_SECONDS, UPDATE_COST_FACTOR * cost)

    def _progress(self) -> Iterator[Section]:
        shown = {
            "facts": self.facts, "notes": self.lines, "what": self.what, "share": self.share, "more": self.more,
            "summary": self.summary, "sample": clip(self.sample, MAX_CELL_CHARACTERS),
        }  # fmt: skip
        yield Section("", "inspection/training.html", shown)
        yield from curve_section(self.records, self.judged_by)
