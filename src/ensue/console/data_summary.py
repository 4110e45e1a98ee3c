"""The answer of `ensue data`: the format of the data, their numbers, and the command that trains on them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from rich.table import Table

from ensue.console.data_tables import (
    column_name,
    columns_of_table,
    counted,
    labeled_tables,
    length_table,
    ranked,
    rendered,
    shown,
)
from ensue.console.frame_summary import frame_facts, frame_notes, frame_tables
from ensue.console.pair_summary import pair_facts, pair_lengths, pair_notes, pair_recipe, pair_settings
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS
from ensue.data.survey.counts import MOST_REMEMBERED, LabeledSummary, Summary
from ensue.data.survey.document_survey import DocumentSummary
from ensue.data.survey.frame_survey import FrameSummary
from ensue.data.survey.measurement import summarize
from ensue.data.survey.pair_survey import PairSummary
from ensue.data.survey.plain_survey import PlainSummary
from ensue.data.survey.sentence_survey import SentenceSummary
from ensue.errors import DataError, listed

_OPTIONS = {
    "format": "--format",
    "encoding": "--encoding",
    "labels": "--labels",
    "texts": "--words",
    "sources": "--sources",
    "targets": "--targets",
}
_SETTING = re.compile(rf"(?:--set )?data\.({'|'.join(_OPTIONS)})(=\.\.\.)?(=?)")
_TRAINING = re.compile(r" \(in training [^)]*\)")
_MANY, _NEARLY = 100, 0.9
"""So many words of which so many are distinct are read as characters."""
_LABEL_OF = {
    "fasttext": "labels: the words with __label__",
    "first-word": "label: the first word of a line, text: the rest",
    CLASS_FILES: "label: the name of the file, text: a line of it",
    FOLDERS: "label: the name of the folder, text: a file in it",
}


def show_data(
    path: str,
    *,
    format: str | None,
    words: str,
    labels: str,
    encoding: str,
    sources: str = "",
    targets: str = "",
    against: str = "",
) -> None:
    """Prints the summary. If the data have a mistake, it is raised after all that was read before it is shown."""
    try:
        summary = summarize(
            path, format=format or "", words=words, labels=labels, sources=sources, targets=targets, against=against,
            encoding=encoding,
        )  # fmt: skip
    except DataError as error:
        raise _with_options(error) from None
    shown = report(summary, words=words, labels=labels, sources=sources, targets=targets)
    print(shown, end="", flush=True)  # before the mistake, which goes to stderr
    if summary.error:
        raise _with_options(summary.error)


def report(summary: Summary, *, words: str = "", labels: str = "", sources: str = "", targets: str = "") -> str:
    """The whole report. The names of columns are the options of the command."""
    tables = [_facts(summary)]
    if isinstance(summary, LabeledSummary) and summary.size:
        tables += labeled_tables(summary)
    elif isinstance(summary, PlainSummary):
        tables += [length_table({"characters in a line": summary.line_lengths})]
    elif isinstance(summary, PairSummary) and summary.size:
        tables += [pair_lengths(summary)]
    elif isinstance(summary, FrameSummary) and summary.size:
        tables += frame_tables(summary)
    if isinstance(summary, DocumentSummary):
        tables += columns_of_table(summary)
    parts = [*map(rendered, tables), "\n".join(_notes(summary))]
    if not summary.error and (command := _command(summary, words, labels, sources, targets)):
        parts.append(f"next: {command}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _facts(summary: Summary) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    files = f", {summary.num_files:,} files" if summary.num_files > 1 else ""
    table.add_row("data", summary.location + files)
    match summary:
        case SentenceSummary():
            rows = _sentence_facts(summary)
        case DocumentSummary():
            rows = _document_facts(summary)
        case PairSummary():
            rows = pair_facts(summary)
        case FrameSummary():
            rows = frame_facts(summary)
        case _:
            rows = _plain_facts(summary)
    for name, value in rows:
        table.add_row(name, value)
    return table


def _sentence_facts(summary: SentenceSummary) -> Iterator[tuple[str, str]]:
    kind = "labeled sentences" if summary.is_labeled else "sentences without labels"
    yield "taken for", f"{summary.taken.format}: {kind} ({summary.taken.sign})"
    if not summary.size:
        return
    yield "read as", f"words: {column_name(summary, summary.words_column)}, labels: {_labels_column(summary)}"
    if summary.is_labeled:
        yield "scheme", _scheme(summary)
    yield "sentences", f"{summary.size:,}"
    if summary.num_documents > summary.num_files:
        yield "documents", f"{summary.num_documents:,}"
    yield from _amounts(summary)


def _labels_column(summary: SentenceSummary) -> str:
    if not summary.is_labeled:
        return "none"
    last = " (last)" if summary.width and summary.labels_column == str(summary.width) else ""
    return column_name(summary, summary.labels_column) + last


def _scheme(summary: SentenceSummary) -> str:
    if summary.scheme is None:
        return "mixed" if summary.is_mixed else "plain (no spans)"
    if not summary.slips:
        return summary.scheme
    broken = counted(summary.slips.sentences, "sentence breaks it", "sentences break it")
    return f"{summary.scheme}; {broken}, the first at {summary.slips.first}: {summary.slips.reason}"


def _document_facts(summary: DocumentSummary) -> Iterator[tuple[str, str]]:
    layout = summary.layout
    kind = "labeled texts" if summary.is_labeled else "texts"
    header = " with a header" if layout.header else ""
    yield "taken for", f"{summary.taken.format}{header}: {kind} ({summary.taken.sign})"
    if not summary.size:
        return
    yield "read as", _LABEL_OF.get(layout.format) or _columns_read(summary)
    yield "pairs" if len(summary.lengths) > 1 else "texts", f"{summary.size:,}"
    if summary.is_labeled and set(summary.labels_in_a_text.counts) != {1}:
        several = summary.labels_in_a_text
        yield "labels of a text", f"{several.quantile(0)} to {several.quantile(1)}, {several.mean:.2f} on average"
    yield from _amounts(summary)


def _columns_read(summary: DocumentSummary) -> str:
    layout = summary.layout
    texts = " + ".join(map(str, layout.texts)) + (" (joined)" if layout.joined else "")
    label = "none" if not summary.is_labeled else str(layout.labels)
    return f"label: {label}, {'texts' if len(summary.lengths) > 1 else 'text'}: {texts}"


def _amounts(summary: LabeledSummary) -> Iterator[tuple[str, str]]:
    yield from _sizes(summary)
    if summary.num_empty:
        yield "empty", f"{summary.num_empty:,}, the first at {summary.first_empty}"
    if repeats := summary.repeats.texts:
        other = summary.repeats.with_other_labels
        labels = f", {other:,} of them with other labels" if other else ", with the same labels"
        part = f" (of the first {MOST_REMEMBERED:,} distinct ones)" if summary.repeats.is_partial else ""
        yield "repeated", f"{repeats:,}{labels if summary.is_labeled else ''}{part}"


def _sizes(summary: Summary) -> Iterator[tuple[str, str]]:
    yield "words", f"{summary.words.total():,}, {len(summary.words):,} distinct"
    yield "characters", f"{summary.num_characters:,}, {len(summary.characters):,} distinct"


def _plain_facts(summary: Summary) -> Iterator[tuple[str, str]]:
    assert isinstance(summary, PlainSummary)
    yield "taken for", f"plain text ({summary.taken.sign})"
    yield "lines", f"{len(summary.line_lengths):,}"
    yield from _sizes(summary)
    if summary.longest_line:
        yield "longest line", f"{summary.longest:,} characters, at {summary.longest_line}"


def _notes(summary: Summary) -> Iterator[str]:
    if isinstance(summary, PlainSummary) and summary.taken.others:  # in other kinds, each file has its own format
        named = ", ".join(summary.taken.others)
        yield f"note: some files are named {named}; all are read as plain text, as the first one is, a glob chooses"
    if isinstance(summary, PlainSummary) and summary.num_nul:
        yield f"note: {counted(summary.num_nul, 'NUL character')}, the first at {summary.first_nul}; is this text?"
    if isinstance(summary, PairSummary):
        yield from pair_notes(summary)
    if isinstance(summary, FrameSummary):
        yield from frame_notes(summary)
    if isinstance(summary, LabeledSummary) and "\0" in summary.characters:
        yield "note: there are words with NUL characters in them; is this text?"
    if not isinstance(summary, LabeledSummary) or not summary.is_labeled:
        return
    if len(summary.labels) == 1:
        unit = "words" if isinstance(summary, SentenceSummary) else "texts"
        label = shown(next(iter(summary.labels)))
        yield f'note: all {unit} have the label "{label}": there is nothing to learn'
    once = [label for label, count in ranked(summary.labels) if count == 1]
    if once and len(summary.labels) > 1:
        yield f"note: {counted(len(once), 'label occurs', 'labels occur')} once: {listed(once)}"
    if len(summary.lengths) == 2:
        yield "note: the texts are a pair; --set data.joined=true trains on both as one text"
    if _are_names(summary):
        yield "note: nearly all words are distinct; data.splitter=characters reads characters in place of words"


def _are_names(summary: Summary) -> bool:
    """Whether there is nearly a new word at each place, as in lists of names and in texts without blanks."""
    count = summary.words.total()
    return isinstance(summary, DocumentSummary) and count >= _MANY and len(summary.words) >= _NEARLY * count


def _command(summary: Summary, words: str, labels: str, sources: str, targets: str) -> str:
    """The next command: train, or predict for data without labels; "" if there is nothing to do."""
    path = shlex.quote(summary.location)
    if "\0" in summary.characters:
        return ""
    if isinstance(summary, LabeledSummary) and not summary.is_labeled:
        return f"ensue predict RUN {path}"
    if isinstance(summary, LabeledSummary) and len(summary.labels) < 2:
        return ""
    match summary:
        case SentenceSummary():
            recipe, out = ("tag-lstm-crf" if summary.scheme else "tag-lstm"), "tagger"
        case DocumentSummary():
            recipe, out = "classify-lstm", "classifier"
        case PairSummary():
            recipe, out = pair_recipe(summary)
        case FrameSummary() if len(summary.labels) < 2:
            recipe, out = "predict-frames", "model"
        case FrameSummary():
            recipe, out = ("tag-frames", "tagger") if summary.per_frame else ("classify-frames", "classifier")
        case _:
            recipe, out = "char-lstm", "model"
    asked = [*_settings(summary, words, labels), *pair_settings(sources, targets)]
    settings = "".join(f" --set {shlex.quote(setting)}" for setting in asked)
    return f"ensue train {recipe} --train {path}{settings} --out {out}"


def _settings(summary: Summary, words: str, labels: str) -> Iterator[str]:
    """The settings that training needs: those that the user gave here, and those that it does not find by itself."""
    if summary.encoding != "utf-8":
        yield f"data.encoding={summary.encoding}"
    if isinstance(summary, PlainSummary):
        return
    if _are_names(summary):
        yield "data.splitter=characters"
    if not summary.taken.by_itself:
        yield f"data.format={summary.taken.format}"
    if words and isinstance(summary, DocumentSummary):
        yield f"data.texts={json.dumps(words.split(','), ensure_ascii=False)}"
        if summary.layout.joined:
            yield "data.joined=true"
    elif words:
        yield f"data.words={_value(words)}"
    if labels:
        yield f"data.labels={_value(labels)}"


def _value(name: str) -> str:
    """A name as TOML, in quotes only where it would not be read as a name."""
    is_bare = re.fullmatch(r"[A-Za-z_][\w.]*", name) and name not in ("true", "false", "inf", "nan")
    return name if is_bare else json.dumps(name, ensure_ascii=False)


def _with_options(error: DataError) -> DataError:
    """The error, in which advice on settings of a recipe becomes advice on options of this command."""

    def option(match: re.Match[str]) -> str:
        return _OPTIONS[match[1]] + (" NAME" if match[2] else " " if match[3] else "")

    return DataError(_SETTING.sub(option, _TRAINING.sub("", str(error))))
