"""The survey of data for `ensue data`, and the proposal of a command that trains on the data.

Data are read at most twice. Memory grows only with the numbers of distinct words, characters, labels and lengths.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.data.decoding import check_encoding
from ensue.data.detection.kind import data_kind, detect
from ensue.data.files import all_files, join_locations
from ensue.errors import DataError, EnsueError, OverlapError
from ensue.extensions.surveying.counts import Summary
from ensue.extensions.surveying.documents import DocumentReport, survey_documents
from ensue.extensions.surveying.pairs import PairReport, survey_pairs
from ensue.extensions.surveying.plain import MAX_SMALL_TEXT_CHARACTERS, PlainReport, PlainSummary, survey_plain
from ensue.extensions.surveying.report import Report
from ensue.extensions.surveying.sentences import SentenceReport, SentenceSurvey
from ensue.parsing import parse_setting

REPORTS: dict[str, type[Report[Any]]] = {
    "sentences": SentenceReport, "texts": DocumentReport, "pairs": PairReport, "text": PlainReport
}  # fmt: skip
_KIND_NOUNS = {"sentences": "labeled sentences", "texts": "labeled texts", "text": "plain text"}


def summarize(
    location: str | Path, *, format: str = "", words: str = "", labels: str = "", sources: str = "", targets: str = "",
    against: str = "", encoding: str = "utf-8",
) -> Summary:  # fmt: skip
    """Return the summary of all data before the first invalid line.

    `location` is a file, a folder, a glob, or two files of pairs with a comma between them. `words` and `labels` are
    columns or keys of the words or the text, and of the labels. Two columns of texts with a comma between them are a
    pair, and more columns are joined. `sources` and `targets` are columns of pairs, with commas between them. `against`
    is a test set of pairs, whose overlap with the data is counted. Raises DataError for a missing or empty file,
    an unknown format or encoding, and a column that does not fit the data.
    """
    encoding = "utf-8" if check_encoding(encoding) == "utf-8" else encoding
    are_pairs = bool(sources or targets)
    detected = detect(location, format=format, words=words, labels=labels, are_pairs=are_pairs, encoding=encoding)
    if against and detected.kind != "pairs":
        kind = _KIND_NOUNS.get(detected.kind, detected.kind)
        raise DataError(f"taken for {kind}; expected pairs for --against", location)
    match detected.kind:
        case "sentences":
            arguments = detected, str(location), words, labels, encoding
            try:
                return SentenceSurvey(*arguments).summary
            except OverlapError:
                return SentenceSurvey(*arguments, nested=True).summary
        case "texts":
            return survey_documents(detected, str(location), words, labels, encoding)
        case "pairs" | "text" if column := words or labels:
            reason = "the data are pairs; --sources and --targets name columns"
            if detected.kind == "text":
                reason = "the data are taken for plain text, without columns; --format sets another format"
            raise DataError(f'no column "{column}": {reason}', location)
        case "pairs":
            return survey_pairs(detected, str(location), _split(sources), _split(targets), encoding, against)
        case "text":
            return survey_plain(detected, str(location), encoding)
    return data_kind(detected.kind).survey(detected, str(location), words, labels, encoding)


def _split(columns: str) -> list[str]:
    return list(filter(None, columns.split(",")))


def show_data(path: str, *, format: str | None, against: str = "", encoding: str, **columns: str) -> None:
    """Print the report of data. Raises DataError after the report if the data have an error."""
    try:
        summary = summarize(path, format=format or "", against=against, encoding=encoding, **columns)
    except DataError as error:
        raise error.with_options() from None
    print(_make_report(summary, columns).text(), end="", flush=True)  # before the error on stderr
    if summary.error:
        raise summary.error.with_options()


def _make_report(summary: Summary, columns: Mapping[str, str]) -> Report[Any]:
    kind = summary.detected.kind
    return (REPORTS.get(kind) or data_kind(kind).report)(summary, columns)


def propose(location: str, settings: Sequence[str] = ()) -> tuple[str, list[str], str]:
    """Return a recipe for data that are read with `settings`, the further settings that it needs, and the reason.

    Raises EnsueError for data that cannot be read, or for which there is no recipe.
    """
    values = {key.removeprefix("data."): x for key, x in map(parse_setting, settings) if key.startswith("data.")}
    columns = labels if isinstance(labels := values.get("labels"), list) else []
    options: Any = {key: str(values[key]) for key in ("format", "words", "labels", "encoding") if key in values}
    options |= {"labels": str(columns[0])} if columns else {}  # the first of several columns is described
    detected, encoding = detect(location, **options), options.get("encoding", "utf-8")
    size = sum(file.stat().st_size for file in all_files(location)) if detected.kind == "text" else 0
    is_large_text = size > 4 * MAX_SMALL_TEXT_CHARACTERS  # a character has at most four bytes
    summary: Summary = PlainSummary(detected, location, encoding) if is_large_text else summarize(location, **options)
    if summary.error:
        raise summary.error
    report = _make_report(summary, options)
    description = f"{join_locations(location)} is taken for {dict(report.facts())['taken for']}"
    if not report.command().startswith("ensue train"):
        raise EnsueError(f"{description}, from which nothing can be learned; `ensue data` shows more")
    recipe, _, reason = report.recipe()
    if columns[1:] and detected.kind == "sentences":
        recipe, reason = "tag-columns", "there are several columns of labels"
    chosen = {setting.partition("=")[0] for setting in settings} | ({"data.texts"} if "words" in values else set())
    chosen |= {"train.tokens"} if chosen & {"train.steps", "train.epochs", "train.seconds"} else set()
    needed = [text for text in report.settings() if chosen.isdisjoint({text.partition("=")[0], text.partition(".")[0]})]
    with_settings = f" with {shlex.join(needed)}" if needed else ""
    return recipe, needed, f"{description}; recipe: {recipe}{with_settings}, since {reason}"
