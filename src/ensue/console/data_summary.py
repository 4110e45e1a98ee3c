"""The answer of `ensue data`: the format of the data, their numbers, and the command that trains on them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ensue.console.data_report import Columns, PlainReport, Report
from ensue.console.labeled_report import DocumentReport, SentenceReport
from ensue.console.pair_report import PairReport
from ensue.data.detection.kind import data_kind, take
from ensue.data.files import named_locations
from ensue.data.survey.counts import Summary
from ensue.data.survey.document_survey import DocumentSummary
from ensue.data.survey.measurement import summarize
from ensue.data.survey.pair_survey import PairSummary
from ensue.data.survey.plain_survey import PlainSummary
from ensue.data.survey.sentence_survey import SentenceSummary
from ensue.errors import DataError, EnsueError

REPORTS: dict[type[Summary], type[Report[Any]]] = {
    SentenceSummary: SentenceReport,
    DocumentSummary: DocumentReport,
    PairSummary: PairReport,
    PlainSummary: PlainReport,
}


def show_data(path: str, *, format: str | None, against: str = "", encoding: str, **columns: str) -> None:
    """Print the summary. If the data have a mistake, it is raised after all that was read before it is shown."""
    try:
        summary = summarize(path, format=format or "", against=against, encoding=encoding, **columns)
    except DataError as error:
        raise error.with_options() from None
    print(report(summary, **columns), end="", flush=True)  # before the mistake, which goes to stderr
    if summary.error:
        raise summary.error.with_options()


def report(summary: Summary, **columns: str) -> str:
    """Return the whole report. `columns` are the options of the command that name some."""
    return _report(summary, Columns(**columns)).text()


def _report(summary: Summary, columns: Columns) -> Report[Any]:
    kind = REPORTS.get(type(summary)) or data_kind(summary.taken.kind).report
    return kind(summary, columns)


def proposal(location: str, out: str = "", more: Iterable[str] = ()) -> str:
    """Return the format that data are taken for, and the command that trains on them, with `more` arguments.

    Raises EnsueError for data that cannot be read, or that nothing can be learned from.
    """
    taken = take(location)
    summary: Summary = PlainSummary(taken, location, "utf-8") if taken.kind == "text" else summarize(location)
    if summary.error:
        raise summary.error
    report = _report(summary, Columns())
    looks = f"{named_locations(location)} is taken for {dict(report.facts())['taken for']}"
    if not (command := report.command(out, more)).startswith("ensue train"):
        raise EnsueError(f"{looks}, from which nothing can be learned; `ensue data` shows more")
    return f"{looks}; try: {command}"
