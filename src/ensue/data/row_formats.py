"""The formats that become JSON lines before they are read, by the suffix of a file or by its first characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ensue.data.annotation_files import are_tasks, brat_rows, spacy_rows, task_rows
from ensue.data.decoding import COMPRESSED, MARK, decoded
from ensue.data.localization_files import po_rows, xliff_rows
from ensue.data.row_files import PARQUET, as_lines, has_rows, json_lines

ROWS: dict[str, Callable[[Path, str], Iterator[dict[str, Any]]]] = {
    **dict.fromkeys((".po", ".pot"), po_rows),
    **dict.fromkeys((".xlf", ".xliff"), xliff_rows),
    ".ann": brat_rows,
    ".spacy": spacy_rows,
}
"""The functions from a file and its encoding to its rows."""
ROW_SUFFIXES = (*PARQUET, *ROWS)


def suffix(name: str) -> str:
    """`.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def files_read(path: Path) -> tuple[Path, ...]:
    """The file, and the one that is read with it where it is there: the text of brat's annotations."""
    text = path.with_suffix(".txt")
    return (path, text) if suffix(path.name) == ".ann" and text.is_file() else (path,)


def text_blocks(path: Path, encoding: str, *, nested: bool = False, marked: bool = False) -> Iterator[str]:
    """The text of a file in blocks, decompressed, if `marked` with its byte order mark, or its rows as JSON lines. With
    `nested` spans may overlap.
    """
    if has_rows(path):
        return json_lines(path)
    if read := ROWS.get(suffix(path.name)):
        rows = brat_rows(path, encoding, nested=nested) if read is brat_rows else read(path, encoding)
        return as_lines([row] for row in rows)
    blocks = decoded(path, encoding, marked=marked)
    return _json_blocks(blocks, str(path)) if suffix(path.name) == ".json" else blocks


def _json_blocks(blocks: Iterator[str], name: str) -> Iterator[str]:
    first = next(blocks, "")
    if are_tasks(plain := first.removeprefix(MARK), name):
        yield from as_lines([row] for row in task_rows(chain([plain], blocks), name))
    else:
        yield from chain([first] if first else [], blocks)
