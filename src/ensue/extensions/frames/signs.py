"""Frames as a kind of data: recognized by the suffix of the first file, or by the columns of a table."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

from ensue.data.detection.formats import first_lines
from ensue.data.files import files_of
from ensue.data.lines import Lines
from ensue.data.records.quoting import seen_delimiter
from ensue.data.records.tables import DIALECTS, Dialect
from ensue.data.row_formats import suffix

FRAME_SUFFIXES = {
    **dict.fromkeys((".wav", ".wave"), "sound"),
    **{suffix: suffix[1:] for suffix in (".npy", ".npz", ".safetensors")},
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"), "image"),
}
"""The content of a file of frames, by its suffix; tables of frames have names that say less."""
FRAME_TABLES = {".csv", ".tsv", ".tab"}
IDX = re.compile(r"idx[1-9]")
"""Matches in the name of an idx file."""
PATH = "path"
"""The column of a table that names files."""
SERIES = "series"
"""The column of a table of frames that names the series, if the person names no other."""


def frames_in(path: Path) -> str:
    """Return the content of a file of frames, by its name; "" if that does not say it."""
    return "idx" if IDX.search(path.name) else FRAME_SUFFIXES.get(suffix(path.name), "")


def frames_sign(location: str | Path, encoding: str) -> str:
    """Return how frames are recognized; "" if they are none."""
    path = files_of(location)[0]
    if frames_in(path):
        return f"by the name of {path.name}"
    if suffix(path.name) not in FRAME_TABLES:
        return ""
    rows = table_rows(Lines(first_lines(path, encoding=encoding), str(path)))
    names, *below = rows or [[]]
    if SERIES in names:
        return f'by its column "{SERIES}"'
    if PATH in names and below and frames_in(Path(below[0][names.index(PATH)])):
        return f'by its column "{PATH}"'
    return ""


def table_rows(lines: Lines) -> list[list[str]]:
    """Return the values of the first rows of a table, all as wide as the first one."""
    rows = dialect_of(lines).first(lines)
    return [[value.strip() for value in row] for row in islice(rows, 100) if len(row) == len(rows[0])]


def dialect_of(lines: Lines) -> Dialect:
    """Tabs if the first line has any; else commas or semicolons."""
    head = lines.numbered_head(100)
    if head and "\t" in head[0][1]:
        return DIALECTS[0]
    return next(dialect for dialect in DIALECTS[1:] if dialect.delimiter == seen_delimiter(head, lines.name))
