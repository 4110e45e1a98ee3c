"""Which format a file has, by its name, else by its first lines. What is in it, the formats say."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ensue.data.decoding import COMPRESSED
from ensue.data.documents.document import Layout
from ensue.data.documents.line_formats import FastTextLine
from ensue.data.documents.table_columns import are_few
from ensue.data.lines import Lines, is_blank
from ensue.data.records import sample

FOLDERS = "folders"
SUFFIXES = {
    ".tsv": "tsv",
    ".tab": "tsv",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".ft": "fasttext",
    ".fasttext": "fasttext",
}


def format_of(lines: Lines, *, is_labeled: bool, like: Layout | None = None, labels: Collection[str] = ()) -> str:
    """The name of a format, or an empty string where none is seen in a file that should have labels.

    The suffix before `.xz` or `.gz` says it. Else a first line that begins with `{` is JSON, one with `__label__` is
    fastText's, tabs in every line make a table, and words that come again at the beginning of lines are labels. In a
    file that need not have any they are only if the run (`like`) has read such lines and knows them as its `labels`.
    """
    if name := SUFFIXES.get(suffix(lines.name)):
        return name
    head = [line.rstrip("\r\n") for line in sample(lines) if not is_blank(line)]
    known = like.format if like and like.format != FOLDERS else ""
    if name := _by_signs(head):
        return name
    if head and (is_labeled or known == "first-word") and _begin_with_labels(head, None if is_labeled else labels):
        return "first-word"
    return known if is_labeled else "plain"


def suffix(name: str) -> str:
    """`.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def _by_signs(head: Sequence[str]) -> str:
    if head and head[0].lstrip().startswith("{"):
        return "json"
    if head and FastTextLine.of(head[0]).labels:
        return "fasttext"
    return "tsv" if head and all("\t" in line for line in head) else ""


def _begin_with_labels(head: Sequence[str], known: Collection[str] | None) -> bool:
    words = [line.split(" ")[0] for line in head if line.find(" ") > 0]
    return len(words) == len(head) and (are_few(words) if known is None else set(words) <= set(known))
