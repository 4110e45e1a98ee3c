"""The formats that become JSON lines before they are read, by the suffix of a file or by its first characters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import signature
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ensue.data.annotation_files import are_tasks, brat_rows, spacy_rows, task_rows
from ensue.data.decoding import COMPRESSED, MARK, decoded
from ensue.data.row_files import PARQUET, Rows, as_lines, has_rows, json_lines
from ensue.data.row_files import ROWS as BLOCK_ROWS
from ensue.errors import DataError, EnsueError
from ensue.extension import Entry, entries

ROWS: dict[str, Callable[[Path, str], Iterator[dict[str, Any]]]] = {".ann": brat_rows, ".spacy": spacy_rows}
"""The functions from a file and its encoding to its rows."""
ROW_SUFFIXES = (*PARQUET, *ROWS)
TEXTS = frozenset(("", ".txt", ".tsv", ".tab", ".csv", ".json", ".jsonl", ".ndjson", ".conll", ".conllu"))
"""Suffixes that are never those of an extension's format."""


def suffix(name: str) -> str:
    """Return the suffix before that of compression: `.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def files_read(path: Path) -> tuple[Path, ...]:
    """The file, and the one that is read with it where it is there: the text of brat's annotations."""
    text = path.with_suffix(".txt")
    return (path, text) if suffix(path.name) == ".ann" and text.is_file() else (path,)


def text_blocks(path: Path, encoding: str, *, nested: bool = False, marked: bool = False) -> Iterator[str]:
    """The decompressed text of a file in blocks, if `marked` with its byte order mark, or its rows as JSON lines."""
    if has_rows(path):
        return json_lines(path)
    if entry := extension_format(path.name):
        return as_lines(_extension_rows(path, entry, encoding))
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


def extension_format(name: str) -> Entry | None:
    """Return the format of an extension for a file by its suffix; other packages do not get compressed files."""
    end = suffix(name)
    entry = None if end in TEXTS else entries("format").get(end[1:])
    return None if entry and entry.package and Path(name).suffix.lower() in COMPRESSED else entry


def _extension_rows(path: Path, entry: Entry, encoding: str) -> Iterator[Rows]:
    """The rows of a file in the format of an extension: a function from a path, and perhaps an encoding, to dicts."""
    read: Any = entry.load(Callable)  # type: ignore[arg-type]  # an abstract class, which isinstance takes
    try:
        rows = map(dict, read(path, encoding) if "encoding" in signature(read).parameters else read(path))
        while block := list(islice(rows, BLOCK_ROWS)):
            yield block
    except EnsueError:
        raise
    except Exception as error:
        if not entry.package:
            raise
        reason = f"{type(error).__name__}: {error}"
        raise DataError(f"cannot be read by the package {entry.package}: {reason}", path) from None
